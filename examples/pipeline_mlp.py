"""A small network in two or more stages: ``plink launch --pipeline PLAN examples/pipeline_mlp.py``.

Without a plan: ``plink pipeline train examples/pipeline_mlp.py --plan PLAN`` trains it in one process. The data are
made: points of ten groups, to be told apart.
"""

import argparse
from typing import Any

import torch
from torch import Tensor, nn

from plink.runtime.pipeline.app import PipelineApp

INPUTS, CLASSES, SPREAD = 32, 10, 1.5
UNSEEN = 1 << 40  # from here on, numbers of minibatches to evaluate with


class Points(PipelineApp):
    """A multilayer perceptron of seven layers."""

    evaluation_minibatches = 8

    def __init__(self, minibatches: int, items: int, width: int, evaluate_every: int | None = None) -> None:
        self.minibatches, self._items, self._width = minibatches, items, width
        self.evaluate_every = evaluate_every
        self._centres = torch.randn(CLASSES, INPUTS, generator=torch.Generator().manual_seed(1))

    def model(self) -> nn.Module:
        """Return the network."""
        width = self._width
        return nn.Sequential(
            nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, CLASSES),
        )  # fmt: skip

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return points around the centres of their groups, and the groups' numbers."""
        source = torch.Generator().manual_seed(number)
        groups = torch.randint(CLASSES, (self._items,), generator=source)
        return (self._centres[groups] + SPREAD * torch.randn(self._items, INPUTS, generator=source),), groups

    def evaluation_batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return points that are not trained with."""
        return self.batch(UNSEEN + number)

    def metric(self, output: Any, target: Tensor) -> float:
        """Return the share of points whose group is right."""
        return float((output.argmax(1) == target).float().mean())

    def loss(self, output: Any, target: Tensor) -> Tensor:
        """Return the cross entropy."""
        return nn.functional.cross_entropy(output, target)

    def optimiser(self, parameters: list[nn.Parameter], scale: float) -> torch.optim.Optimizer:
        """Return stochastic gradient descent with momentum."""
        return torch.optim.SGD(parameters, lr=0.02 * scale, momentum=0.9)


def make(arguments: list[str]) -> PipelineApp:
    """Return the app."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minibatches", type=int, default=200)
    parser.add_argument("--items", type=int, default=64, help="per minibatch")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--evaluate-every", type=int, metavar="MINIBATCHES")
    options = parser.parse_args(arguments)
    return Points(options.minibatches, options.items, options.width, options.evaluate_every)
