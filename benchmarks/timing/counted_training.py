"""Training that counts its tensors' bytes: the most that a rank of a pipeline holds, as a program of ``plink launch
--pipeline`` or ``plink pipeline profile``. Each rank prints a line of JSON at its end.

Every storage counts once, from the first operation that makes or reads it until nothing refers to it any more. Memory
that libraries use inside of an operation is not counted, and neither are stages of models that are never used.
"""

import argparse
import json
import os
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from plink.runtime.pipeline.app import PipelineApp

sys.path.insert(0, str(Path(__file__).parents[2]))  # ranks import the examples too
from examples.ddp_vgg import CLASSES, SIDE, network

_ITEMS, _LENGTH, _SYMBOLS = 16, 32, 64
_FILLING_UPDATES = 6  # the most is counted after these: all versions exist, and no whole model any more


class TensorCounter(TorchDispatchMode):
    """``current`` and ``most``: bytes of storages that are alive, and the most since :meth:`restart`."""

    def __init__(self) -> None:
        super().__init__()
        self.current = self.most = 0
        self._alive: set[int] = set()

    def restart(self) -> None:
        """Forget what was most."""
        self.most = self.current

    def _see(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive or not size:
            return
        self._alive.add(key)
        self.current += size
        self.most = max(self.most, self.current)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.current -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter((args, kwargs, result)):
            if isinstance(value, Tensor):
                self._see(value)
        return result


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
    if name == "lstm":
        cells = [_Recurrent(256) for _ in range(6)]
        return nn.Sequential(nn.Embedding(_SYMBOLS, 256), *cells, nn.Linear(256, _SYMBOLS))
    blocks = [nn.Sequential(nn.Linear(768, 768), nn.LayerNorm(768), nn.GELU()) for _ in range(8)]
    return nn.Sequential(*blocks, nn.Linear(768, CLASSES))


class CountedTraining(PipelineApp):
    """A network on noise: what it learns is nobody's concern."""

    def __init__(self, name: str, minibatches: int, counter: TensorCounter) -> None:
        self.minibatches, self._name, self._counter, self._updates = minibatches, name, counter, 0

    def model(self) -> nn.Sequential:
        """Return the network."""
        return _model(self._name)

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return noise."""
        source = torch.Generator().manual_seed(number)
        if self._name == "lstm":
            symbols = torch.randint(_SYMBOLS, (_ITEMS, _LENGTH), generator=source)
            return (symbols,), symbols
        shape = (_ITEMS, 3, SIDE, SIDE) if self._name == "vgg" else (_ITEMS, 768)
        target = torch.randint(CLASSES, (_ITEMS,), generator=source)
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
        print(json.dumps({"counted_rank": int(os.environ["RANK"]), "bytes": self._counter.most}), flush=True)


def make(arguments: Sequence[str]) -> PipelineApp:
    """Return the app, with its tensors counted from now on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("vgg", "lstm", "mlp"), default="mlp")
    parser.add_argument("--minibatches", type=int, default=48)
    options = parser.parse_args(arguments)
    counter = TensorCounter()
    if "RANK" in os.environ:
        counter.__enter__()
    return CountedTraining(options.model, options.minibatches, counter)
