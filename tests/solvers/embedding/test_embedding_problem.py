"""The gradient that is written out is the one that PyTorch works out."""

import numpy as np
import pytest
import torch

from solvers.embedding.problem import Problem
from solvers.embedding.settings import Setting
from solvers.prediction.observed import observed

_HOSTS = 12


@pytest.mark.parametrize("alphas", [(2.0, 2.0), (1.0, 2.0), (1.0, 1.5)])
@pytest.mark.parametrize("rows", [[3, 0, 7], list(range(_HOSTS))])
def test_the_gradient_is_that_of_the_loss(alphas: tuple[float, float], rows: list[int]) -> None:
    rng = np.random.default_rng(0)
    drawn = np.triu(rng.lognormal(3.0, 1.0, (_HOSTS, _HOSTS)), 1)
    measured = drawn + drawn.T
    measured[2, 5] = measured[5, 2] = np.nan
    pairs = observed(measured)
    settings = [Setting(3, alphas[0], True, True), Setting(2, alphas[1], False, False)]
    held_out = [np.array([0, 7, 20]), np.array([1, 2, 30])]
    problem = Problem(pairs, settings, held_out, 20.0, "cpu")
    place, height = problem.start(torch.Generator().manual_seed(1))
    place.requires_grad_()
    height.requires_grad_()
    chosen = torch.tensor(rows)
    expected = torch.autograd.grad(problem.loss(place, height, chosen).sum(), (place, height))
    found = problem.gradient(place.detach(), height.detach(), chosen)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
