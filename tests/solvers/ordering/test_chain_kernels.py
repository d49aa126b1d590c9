"""Chains that annealing follows hop by hop: incremental updates equal a full evaluation."""

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.ordering.annealing import Annealer
from solvers.ordering.latency_kernels import evaluate_chain, smooth_max, start_chain, update_chain
from solvers.ordering.move_kernels import Walk
from solvers.ordering.objectives import chain_of
from solvers.ordering.problem import Order
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric


def test_the_shorter_of_two_chains_counts_when_it_is_nearly_as_long() -> None:
    assert smooth_max(5.0, 5.0, 4.0) == 6.0
    assert smooth_max(3.0, 5.0, 4.0) == smooth_max(5.0, 3.0, 4.0) == 5.25
    assert smooth_max(1.0, 5.0, 4.0) == smooth_max(5.0, 0.0, 4.0) == 5.0


def annealer_cost(algo: str, n: int, order: Order) -> float:
    return Annealer(pattern_for(algo, n, Options()), fabric(n, 4), 1e6, "latency").cost_of(order)


@pytest.mark.parametrize(("algo", "wide"), [("tree", 1e-9), ("double-binary-tree", 10.0), ("nccl-tree", 1e6)])
def test_followed_changes_are_what_is_found_afresh(algo: str, wide: float) -> None:
    """Also taken back, and with no width to speak of the stand-in is the longest chain."""
    n = 40
    rtt, pattern = fabric(n, 4).rtt_us, pattern_for(algo, n, Options())
    chain, rng, order = chain_of(pattern, rtt), np.random.default_rng(6), np.arange(n)
    state, fresh = start_chain(chain, 10, wide), start_chain(chain, 10, wide)
    smooth = state.smooth
    evaluate_chain(order, chain, state)
    for _ in range(200):
        ranks = rng.choice(n, int(rng.integers(2, 6)), replace=False)
        before, remaining = order.copy(), smooth.copy()
        order[ranks] = order[np.roll(ranks, 1)]
        result = update_chain(Walk(order, order, ranks, order, order), len(ranks), chain, state)
        longest = evaluate_chain(order, chain, fresh)
        assert longest == pytest.approx(annealer_cost(algo, n, order), rel=1e-9)
        assert smooth.tolist() == fresh.smooth.tolist()
        assert (smooth >= fresh.done - 1e-9).all()
        if wide < 1:
            assert smooth[chain.last].max() == pytest.approx(longest)
        if rng.random() < 0.5:
            for k in range(result - 1, -1, -1):
                smooth[state.changed[k]] = state.previous[k]
            order = before
            assert smooth.tolist() == remaining.tolist()
