"""Training that counts its tensors' bytes: the most that a rank of a pipeline holds, as a program of ``plink launch
--pipeline`` or ``plink pipeline profile``. Each rank prints a line of JSON at its end.

On the CPU memory that libraries use inside of an operation is not counted, and neither are stages of models that are
never used. On a GPU its allocator counts.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plink.runtime.pipeline.app import PipelineApp
from plink.runtime.pipeline.layer_memory import AllocatorCounter, TensorCounter, counter_of

sys.path.insert(0, str(Path(__file__).parents[2]))  # ranks import the examples too
from examples.ddp_vgg import CLASSES, SIDE, network

MODELS = ("vgg", "lstm", "mlp", "vgg16")
_ITEMS, _LENGTH, _SYMBOLS = 16, 32, 64
_PHOTOS, _PHOTO_SIDE = 8, 224
_FILLING_UPDATES = 6  # the most is counted after these: all versions exist, and no whole model any more


class _Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cells = nn.LSTM(width, width, batch_first=True)

    def forward(self, values: Tensor) -> Tensor:
        outputs: Tensor = self.cells(values)[0]
        return outputs


def _model(name: str) -> nn.Sequential:
    if name == "vgg":
        return nn.Sequential(*network(8))
    if name == "vgg16":
        from torchvision.models import vgg16

        whole = vgg16()
        return nn.Sequential(*whole.features, whole.avgpool, nn.Flatten(), *whole.classifier)
    if name == "lstm":
        cells = [_Recurrent(256) for _ in range(6)]
        return nn.Sequential(nn.Embedding(_SYMBOLS, 256), *cells, nn.Linear(256, _SYMBOLS))
    blocks = [nn.Sequential(nn.Linear(768, 768), nn.LayerNorm(768), nn.GELU()) for _ in range(8)]
    return nn.Sequential(*blocks, nn.Linear(768, CLASSES))


class CountedTraining(PipelineApp):
    """A network on noise: what it learns is nobody's concern."""

    def __init__(self, name: str, minibatches: int, counter: TensorCounter | AllocatorCounter, device: str) -> None:
        self.device = device
        self.minibatches, self._name, self._counter, self._updates = minibatches, name, counter, 0

    @property
    def most_bytes(self) -> int:
        """How many bytes there were at most since the pipeline was full."""
        return self._counter.most

    def model(self) -> nn.Sequential:
        """Return the network."""
        return _model(self._name)

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return noise."""
        source = torch.Generator().manual_seed(number)
        if self._name == "lstm":
            symbols = torch.randint(_SYMBOLS, (_ITEMS, _LENGTH), generator=source)
            return (symbols,), symbols
        shapes = {"mlp": (_ITEMS, 768), "vgg": (_ITEMS, 3, SIDE, SIDE), "vgg16": (_PHOTOS, 3, _PHOTO_SIDE, _PHOTO_SIDE)}
        shape = shapes[self._name]
        target = torch.randint(CLASSES, (shape[0],), generator=source)
        return (torch.randn(shape, generator=source),), target

    def loss(self, output: Any, target: Tensor) -> Tensor:
        """Return the cross entropy."""
        return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())

    def optimiser(self, parameters: list[nn.Parameter], scale: float) -> torch.optim.Optimizer:
        """Return stochastic gradient descent with momentum."""
        return torch.optim.SGD(parameters, lr=1e-4 * scale, momentum=0.9)

    def rate(self, number: int) -> float:
        """Return 1, and begin to count once the pipeline is full."""
        self._updates += 1
        if self._updates == _FILLING_UPDATES:
            self._counter.restart()
        return 1.0

    def save(self, stage: int, state: dict[str, Tensor]) -> None:
        """Say how many bytes there were at most."""
        print(json.dumps({"counted_rank": int(os.environ["RANK"]), "bytes": self.most_bytes}), flush=True)


def make(arguments: Sequence[str]) -> PipelineApp:
    """Return the app, with its tensors counted from now on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--minibatches", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    counter = counter_of(torch.device(options.device))
    if "RANK" in os.environ:
        counter.__enter__()
    return CountedTraining(options.model, options.minibatches, counter, options.device)
