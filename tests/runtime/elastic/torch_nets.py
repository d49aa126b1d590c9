"""A TorchApp with mini-batches of different sizes, and a small network."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from plink.elastic import Adam, Sgd, StoppingCriterion, TorchApp

CLASSES = 3
Batch = tuple[torch.Tensor, torch.Tensor]


class Net(TorchApp[Batch]):
    """Mini-batches of different sizes, of which some are empty."""

    def __init__(
        self, make: Callable[[], nn.Module], shape: Sequence[int], optimiser: Sgd | Adam, clocks: int = 7
    ) -> None:  # fmt: skip
        self.make, self.optimiser = make, optimiser
        self.shards, self.batches, self.stop, self.seed = 5, 2, StoppingCriterion(clocks=clocks), 11
        random = np.random.default_rng(3)
        sizes = [[3, 2], [1, 4], [0, 2], [5, 1], [2, 0]]
        self.data = [[(random.normal(size=(size, *shape)), random.integers(CLASSES, size=size)) for size in shard]
                     for shard in sizes]  # fmt: skip
        self.dtype, self.builds = torch.float32, 0

    def model(self) -> nn.Module:
        self.builds += 1
        return self.make()

    def load(self, shard: int) -> list[Batch]:
        return [self.batch([data]) for data in self.data[shard]]

    def batch(self, parts: list[Any]) -> Batch:
        """Some parts as one."""
        images, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
        return torch.from_numpy(images).to(self.dtype), torch.from_numpy(labels)

    def loss(self, model: nn.Module, items: Batch) -> torch.Tensor:
        return functional.cross_entropy(model(items[0]), items[1])


def mlp() -> nn.Module:
    """With a parameter that is not used, and one that is not trained."""
    made = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    made.register_parameter("unused", nn.Parameter(torch.ones(2)))
    made[2].bias.requires_grad_(False)
    return made
