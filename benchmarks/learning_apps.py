"""Programs whose learning benchmarks/pipeline_learning.py watches: four layers, a stage each, and made data."""

from typing import Any

import torch
from torch import Tensor, nn

from examples.ddp_vgg import CLASSES, SIDE, network
from plink.runtime.pipeline.app import PipelineApp

WARM_UP = 50  # minibatches of full size during which the rate rises
_FULL, _UNSEEN, _UNSEEN_ITEMS = 8, 1 << 40, 120
_POINTS, _SYMBOLS, _LENGTH = 32, 8, 12


class LearningApp(PipelineApp):
    """``rate``: the learning rate after the warm-up. ``split``: minibatches of one update of ``full`` items.

    ``target``: accuracy on unseen data. ``rates``: those to try.
    """

    full_minibatches, full, target = 400, _FULL, 0.9
    rates: tuple[float, ...] = ()

    def __init__(self, seed: int, rate: float, split: int = 1) -> None:
        self.seed, self._rate, self.split = seed, rate, split
        self.minibatches, self.items = self.full_minibatches * split, self.full // split
        self._unseen = self.data(_UNSEEN_ITEMS, torch.Generator().manual_seed(_UNSEEN))

    def data(self, items: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return inputs and targets."""
        raise NotImplementedError

    def model(self) -> nn.Sequential:
        """Return four layers."""
        raise NotImplementedError

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return a part of a minibatch of full size, so that all ways have the same items in each update."""
        source = torch.Generator().manual_seed(self.seed * 1_000_003 + number // self.split)
        inputs, target = self.data(self.full, source)
        part = slice(number % self.split * self.items, (number % self.split + 1) * self.items)
        return (inputs[part],), target[part]

    def loss(self, output: Any, target: Tensor) -> Tensor:
        """Return the cross entropy."""
        return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())

    def accuracy(self, model: nn.Module) -> float:
        """Return the share of unseen items that the model gets right."""
        inputs, target = self._unseen
        with torch.no_grad():
            return float((model(inputs).argmax(-1) == target).float().mean())

    def optimiser(self, parameters: list[nn.Parameter], scale: float) -> torch.optim.Optimizer:
        """Return stochastic gradient descent with momentum."""
        return torch.optim.SGD(parameters, lr=self._rate * scale, momentum=0.9)

    def rate(self, number: int) -> float:
        """Return a factor that rises from near 0 to 1."""
        return min(1.0, (number // self.split + 1) / WARM_UP)


class _Stage(nn.Module):
    """Layers that a plan does not cut."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, values: Tensor) -> Tensor:
        """Return what the last layer returns."""
        outputs: Tensor = self.layers(values)
        return outputs


class Images(LearningApp):
    """The VGG-like network of examples/ddp_vgg.py, of width 2, on coarse patterns under noise."""

    full_minibatches, target = 360, 0.9
    rates = (0.0005, 0.001, 0.002, 0.004)
    _patterns = nn.functional.interpolate(
        torch.randn(CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(1)), size=SIDE
    )
    _noise = 3.0

    def data(self, items: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images of variance about 1, and their classes."""
        classes = torch.randint(CLASSES, (items,), generator=source)
        noise = torch.randn(items, 3, SIDE, SIDE, generator=source)
        return self._patterns[classes] / self._noise + noise, classes

    def model(self) -> nn.Sequential:
        """Return the network in four layers: two blocks of convolutions, the third, and two fully connected."""
        layers = list(network(2))
        for layer in layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)
        return nn.Sequential(*(_Stage(*layers[begin:end]) for begin, end in ((0, 6), (6, 9), (9, 12), (12, 15))))


class NormedPoints(LearningApp):
    """A perceptron of four layers with layer norms, on points of ten groups."""

    full_minibatches, target = 600, 0.75
    rates = (0.001, 0.003, 0.01, 0.03)
    _centres = torch.randn(CLASSES, _POINTS, generator=torch.Generator().manual_seed(1))
    _spread = 2.0

    def data(self, items: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return points around the centres of their groups, and the groups' numbers."""
        groups = torch.randint(CLASSES, (items,), generator=source)
        return self._centres[groups] + self._spread * torch.randn(items, _POINTS, generator=source), groups

    def model(self) -> nn.Sequential:
        """Return the network."""
        hidden = (_Stage(nn.Linear(_POINTS, _POINTS), nn.LayerNorm(_POINTS), nn.ReLU()) for _ in range(3))
        return nn.Sequential(*hidden, nn.Linear(_POINTS, CLASSES))


class _Recurrent(nn.Module):
    """An LSTM that returns its outputs only."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cells = nn.LSTM(width, width, batch_first=True)

    def forward(self, values: Tensor) -> Tensor:
        """Return all outputs."""
        outputs: Tensor = self.cells(values)[0]
        return outputs


class Sequences(LearningApp):
    """Two LSTMs between an embedding and a linear layer; a target is the sum of two neighbours, modulo 8."""

    full_minibatches, full, target = 300, 8, 0.9
    rates = (0.15, 0.3, 0.6)

    def data(self, items: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return sequences of symbols, and the sums."""
        symbols = torch.randint(_SYMBOLS, (items, _LENGTH), generator=source)
        before = torch.roll(symbols, 1, 1)
        before[:, 0] = 0
        return symbols, (symbols + before) % _SYMBOLS

    def model(self) -> nn.Sequential:
        """Return the network."""
        width = 24
        return nn.Sequential(
            nn.Embedding(_SYMBOLS, width), _Recurrent(width), _Recurrent(width), nn.Linear(width, _SYMBOLS)
        )


APPS: dict[str, type[LearningApp]] = {"lstm": Sequences, "vgg": Images, "layer norm": NormedPoints}
