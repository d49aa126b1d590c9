"""A small residual network in two or more stages: ``plink launch --pipeline PLAN examples/pipeline_resnet.py``.

It is no ``nn.Sequential``, so it is traced. The stem's output is used again after the last block: where a stage ends
between them, it crosses beside what the block made. The data are made: images with a bright quarter, to be named.
"""

import argparse
from typing import Any

import torch
from torch import Tensor, nn

from plink.runtime.pipeline.app import PipelineApp

PIXELS, CLASSES = 16, 4


class Block(nn.Module):
    """Two convolutions and what they were given."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.second, self.second_norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        """Return as many channels."""
        made = self.relu(self.first_norm(self.first(images)))
        return self.relu(self.second_norm(self.second(made)) + images)  # type: ignore[no-any-return]


class ResidualNetwork(nn.Module):
    """A stem, blocks and a head; a long connection leads from the stem to the head."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList([Block(channels) for _ in range(blocks)])
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores of the classes."""
        first = self.stem(images)
        made = first
        for block in self.blocks:
            made = block(made)
        return self.head((made + first).mean((2, 3)))  # type: ignore[no-any-return]


class Quarters(PipelineApp):
    """Name the bright quarter of an image."""

    def __init__(self, minibatches: int, items: int, channels: int, blocks: int) -> None:
        self.minibatches, self._items, self._channels, self._blocks = minibatches, items, channels, blocks

    def model(self) -> nn.Module:
        """Return the network."""
        return ResidualNetwork(self._channels, self._blocks)

    def layers(self, model: nn.Module) -> list[str]:
        """Return where a stage may begin."""
        return ["stem", *(f"blocks.{number}" for number in range(self._blocks)), "head"]

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return images and the numbers of their bright quarters."""
        source = torch.Generator().manual_seed(number)
        images = torch.randn(self._items, 3, PIXELS, PIXELS, generator=source)
        quarters = torch.randint(CLASSES, (self._items,), generator=source)
        half = PIXELS // 2
        for image, quarter in zip(images, quarters.tolist(), strict=True):
            row, column = divmod(quarter, 2)
            image[quarter % 3, row * half : (row + 1) * half, column * half : (column + 1) * half] += 2.0
        return (images,), quarters

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
    parser.add_argument("--items", type=int, default=32, help="per minibatch")
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=4)
    options = parser.parse_args(arguments)
    return Quarters(options.minibatches, options.items, options.channels, options.blocks)
