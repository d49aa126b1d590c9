"""Small programs and plans for tests of pipelines."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.document import PipelineStage, StageAllReduce, StageBoundary
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.shape import base_depths
from plink.runtime.pipeline.app import PipelineApp

ITEMS = 4


class Attention(nn.Module):
    """Self-attention with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, value: Tensor) -> Tensor:
        return value + self.attention(value, value, value, need_weights=False)[0]


class Recurrent(nn.Module):
    """An LSTM that hands on all outputs and its last state: two tensors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, value: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        values = value if isinstance(value, Tensor) else value[0]
        output, (state, _) = self.lstm(values)
        return output, state[0]


class Head(nn.Module):
    """A linear layer on the last output, and the state where there is one."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def forward(self, value: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        if isinstance(value, Tensor):
            return self.linear(value[:, -1])  # type: ignore[no-any-return]
        return self.linear(value[0][:, -1] + value[1])  # type: ignore[no-any-return]


class Branch(nn.Module):
    """Hands on its input beside what it computes, and integers, which have no gradient."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tanh(self.linear(value)), value, (value > 0).long()


class Beside(nn.Module):
    """Computes with one of the tensors; the others pass by."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, values: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tanh(self.linear(values[0])), values[1], values[2]


class Join(nn.Module):
    """Adds what has passed by."""

    def forward(self, values: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return values[0] + values[1] * values[2]


def mlp() -> nn.Sequential:
    """Six layers."""
    return nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 8), nn.Linear(8, 3)
    )


def dropout() -> nn.Sequential:
    """Layers with random numbers in each stage."""
    return nn.Sequential(
        nn.Linear(6, 8),
        nn.Dropout(0.3),
        nn.Linear(8, 8),
        nn.Dropout(0.3),
        nn.Linear(8, 8),
        nn.Dropout(0.3),
        nn.Linear(8, 3),
    )


def conv() -> nn.Sequential:
    """A boundary can be just before the layer that changes its input in place."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4),
        nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


def attention() -> nn.Sequential:
    """Integers in, and layers whose gradients need their own weights."""
    return nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), Attention(8), nn.LayerNorm(8), Head(8, 3))


def lstm() -> nn.Sequential:
    """Two tensors cross each boundary."""
    return nn.Sequential(Recurrent(6), Recurrent(6), Recurrent(6), Head(6, 3))


def skip() -> nn.Sequential:
    """A skip connection over boundaries, and a tensor without gradient beside it."""
    return nn.Sequential(nn.Linear(6, 8), Branch(8), Beside(8), Beside(8), Join(), nn.Linear(8, 3))


INPUTS: dict[Any, tuple[int, ...]] = {
    mlp: (6,), dropout: (6,), skip: (6,), conv: (2, 6, 6), attention: (5,), lstm: (5, 6),
}  # fmt: skip


class SmallApp(PipelineApp):
    """Made data; the model and the optimiser by name."""

    def __init__(
        self, model: Any, optimiser: str, minibatches: int = 11, double: bool = False, device: str = "cpu"
    ) -> None:
        self.minibatches, self.seed, self.device = minibatches, 3, device
        self._model, self._optimiser = model, optimiser
        self._dtype = torch.float64 if double else torch.float32

    def model(self) -> nn.Module:
        model: nn.Module = self._model()
        return model.to(self._dtype)

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        source = torch.Generator().manual_seed(100 + number)
        shape = (ITEMS, *INPUTS[self._model])
        target = torch.randint(3, (ITEMS,), generator=source)
        if self._model is attention:
            return (torch.randint(11, shape, generator=source),), target
        return (torch.randn(shape, generator=source, dtype=self._dtype),), target

    def loss(self, output: Any, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, target)

    def optimiser(self, parameters: list[nn.Parameter], scale: float) -> torch.optim.Optimizer:
        if self._optimiser == "adam":
            return torch.optim.Adam(parameters, lr=0.01 * scale)
        if self._optimiser == "momentum":
            return torch.optim.SGD(parameters, lr=0.05 * scale, momentum=0.9, weight_decay=0.01)
        return torch.optim.SGD(parameters, lr=0.1 * scale)

    def rate(self, number: int) -> float:
        return 0.9**number


def plan_of(
    replicas: Sequence[int], layers: int, *, deeper: Sequence[int] = (), frozen: int = 0, **keys: Any
) -> PipelinePlan:
    """Return a plan with cuts as even as can be; ``deeper``: added to the thesis's depths.

    The first stage has the last ranks: no stage may rely on numbers that ascend.
    """
    shape, stages = tuple(replicas), len(replicas)
    kind = keys.pop("kind", "1f1b")
    depths = base_depths(shape) if kind not in ("data-parallel", "model-parallel") else (1,) * stages
    depths = tuple(depth + more for depth, more in zip(depths, [*deeper, *[0] * stages], strict=False))
    cuts = keys.pop("cuts", [round(number * layers / stages) for number in range(1, stages)])
    bounds, rank = [0, *cuts, layers], sum(shape)
    entries = []
    for number, count in enumerate(shape):
        ranks = tuple(range(rank - count, rank))
        rank -= count
        entries.append(
            PipelineStage(
                layers=(bounds[number], bounds[number + 1] - 1),
                ranks=ranks,
                depth=depths[number],
                lr_scale=count / shape[0],
                all_reduce=StageAllReduce(algo="ring", bucket_bytes=200) if count > 1 else UNSET,
            )
        )
    boundaries = tuple(StageBoundary(cut - 1, 64, 0 if number < frozen else 64) for number, cut in enumerate(cuts))
    hosts = Hosts((Host("here", "127.0.0.1", slots=sum(shape)),))
    return PipelinePlan(
        kind=kind,
        minibatch=ITEMS,
        host_entries=hosts.entries(),
        stages=tuple(entries),
        boundaries=boundaries,
        **keys,
    )
