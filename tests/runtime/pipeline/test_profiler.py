"""The profiler: each layer gets its own seconds and bytes, and whatever cannot be profiled is named."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plink.errors import InputError, PlinkError
from plink.model.document import UNSET
from plink.model.pipeline.profile import profile_from_json
from plink.runtime.pipeline.profiler import ProfiledProgram, consistent_profile, profile_program
from tests.model.schemas import complaints


@dataclass(frozen=True)
class Named:
    """A layer by its name."""

    name: str
    module: nn.Module


class Clock:
    """A clock that only layers advance, so that no other load of the machine is measured."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class _Waiting(torch.autograd.Function):
    """Takes its seconds in both passes, and hands its input on."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor, clock: Clock, seconds: tuple[float, float]) -> Tensor:
        ctx.clock, ctx.backward_s = clock, seconds[1]
        clock.now_s += seconds[0]
        return value + weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[override]
        ctx.clock.now_s += ctx.backward_s
        return gradient, gradient.sum(), None, None


class Waiting(nn.Module):
    """A layer with known seconds."""

    def __init__(self, clock: Clock, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.clock, self.seconds = clock, (forward_s, backward_s)

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = _Waiting.apply(value, self.weight, self.clock, self.seconds)  # type: ignore[no-untyped-call]
        return output


def program_of(*modules: nn.Module, **options: Any) -> ProfiledProgram:
    """A classifier of images of 3 x 8 x 8, in ten classes."""
    units = [Named(str(k), module) for k, module in enumerate(modules)]
    base = ProfiledProgram(
        units,
        lambda number: ((torch.randn(4, 3, 8, 8),), torch.randint(0, 10, (4,))),
        nn.functional.cross_entropy,
        lambda parameters, scale: torch.optim.SGD(parameters, lr=0.1 * scale, momentum=0.9),
    )
    return replace(base, **options)


def convolution() -> list[nn.Module]:
    return [
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(1024, 10),
    ]  # fmt: skip


def test_views_of_parameters_are_no_activations() -> None:
    """A linear layer keeps its transposed weight for the backward pass, which is there anyhow."""
    layers = (nn.Flatten(), nn.Linear(192, 300), nn.Tanh(), nn.Linear(300, 10))
    profile = profile_program(program_of(*layers), 2)
    assert profile.layers[1].saved_bytes == 4 * 192 * 4
    assert profile.layers[2].saved_bytes == 4 * 300 * 4


def test_bytes_of_layers() -> None:
    """Parameters, optimiser state, what crosses, and what autograd keeps, in-place layers once."""
    torch.manual_seed(0)
    profile = profile_program(program_of(*convolution()), 3)
    image = 4 * 16 * 8 * 8 * 4
    layers = {layer.kind: layer for layer in profile.layers}
    assert [layer.name for layer in profile.layers] == list("012345")
    assert layers["Conv2d"].parameter_bytes == layers["Conv2d"].optimiser_bytes == (16 * 27 + 16) * 4
    assert layers["Conv2d"].saved_bytes == 4 * 3 * 8 * 8 * 4
    assert layers["ReLU"].saved_bytes == image
    assert (layers["Flatten"].saved_bytes, layers["BatchNorm2d"].buffers, layers["ReLU"].buffers) == (0, True, False)
    assert [layer.crossing_bytes for layer in profile.layers] == [image] * 5 + [0]
    assert profile.layers[3].crossing[0].shape == (4, 1024)
    assert profile.minibatch == 4
    document = profile.to_json()
    assert complaints("profile", document) == []
    assert profile_from_json(document, "p.json") == profile


def test_what_two_layers_keep_is_attributed_to_both() -> None:
    """Inputs that the layer before keeps as its output, in-place layers and views among them, and backward passes."""
    modules = [
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 32),
        nn.ReLU(inplace=True), nn.Linear(32, 10),
    ]  # fmt: skip
    conv, relu, pool, flatten, hidden, rectified, last = profile_program(program_of(*modules), 1).layers
    image, pooled, row = 4 * 16 * 64 * 4, 4 * 16 * 16 * 4, 4 * 32 * 4
    assert (conv.saved_output_bytes, relu.saved_output_bytes) == (UNSET, image)
    assert (pool.saved_bytes, pool.saved_input_bytes, pool.saved_before_bytes) == (image + 2 * pooled, image, image)
    assert (pool.saved_output_bytes, flatten.saved_output_bytes) == (UNSET, UNSET)
    assert (hidden.saved_input_bytes, hidden.saved_before_bytes) == (pooled, UNSET)
    assert rectified.saved_output_bytes == row
    assert (last.saved_input_bytes, last.saved_before_bytes) == (row, row)
    assert conv.backward_bytes == pytest.approx(conv.parameter_bytes, abs=64)
    assert hidden.backward_bytes == pytest.approx(hidden.parameter_bytes + pooled, abs=64)


@pytest.mark.filterwarnings("ignore:Guards may run slower")  # Python 3.13.0
def test_compiled_layers_are_timed_compiled() -> None:
    """A compiler gives a function up for good that it first sees while operations are watched."""
    compiled = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    layer = torch.compile(nn.Sequential(nn.Flatten(), nn.Linear(192, 10)), backend=backend)
    assert isinstance(layer, nn.Module)
    profile_program(program_of(layer), 1)
    assert compiled


class SparseLayers(nn.Module):
    """Layers with tensors that have no memory of their own, and gradients of that kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 4, sparse=True)

    def forward(self, value: Tensor) -> Tensor:
        with torch.no_grad():
            value = value.to_mkldnn().to_dense() if torch.backends.mkldnn.is_available() else value
            sparse = torch.eye(8).to_sparse()
        return self.embedding(torch.sparse.mm(sparse, value).long() % 8).flatten(1)  # type: ignore[no-any-return]


def test_sparse_tensors_are_counted() -> None:
    program = program_of(SparseLayers(), nn.Linear(64, 10))
    inputs = (torch.randn(8, 16),), torch.randint(0, 10, (8,))
    profile = profile_program(
        replace(program, batch=lambda number: inputs, optimiser=lambda parameters, _: torch.optim.SGD(parameters, 0.1)),
        1,
    )
    assert profile.layers[0].backward_bytes


def test_seconds_are_attributed_to_the_right_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both passes, and their sum is that of the whole."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    modules = [nn.Flatten(), Waiting(clock, 0.02, 0.06), Waiting(clock, 0.08, 0.01), nn.Linear(192, 10)]
    profile = profile_program(program_of(*modules), 5)
    seconds = [second for layer in profile.layers for second in (layer.forward_s, layer.backward_s)]
    assert seconds == pytest.approx([0, 0, 0.02, 0.06, 0.08, 0.01, 0, 0])
    assert profile.whole.layers_over_whole == pytest.approx(1)


class Disturbed(Waiting):
    """A layer that takes far longer in some of its calls, as on a machine that is busy at times."""

    def __init__(self, clock: Clock, calls: range) -> None:
        super().__init__(clock, 0.02, 0.04)
        self.calls, self.number = calls, 0

    def forward(self, value: Tensor) -> Tensor:
        if self.number in self.calls:
            self.clock.now_s += 0.1
        self.number += 1
        return super().forward(value)


@pytest.mark.parametrize("until", [0, 17, 1000])
def test_profile_that_contradicts_the_whole_model_is_taken_again(until: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other call is of the layer alone. A profile of 3 minibatches calls it 17 times."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    program = program_of(Disturbed(clock, range(0, until, 2)), nn.Flatten(), nn.Linear(192, 10))
    if until > 100:
        with pytest.raises(PlinkError, match="in the second of two profiles too"):
            consistent_profile(program, 3)
    else:
        profile = consistent_profile(program, 3)
        assert profile.whole.layers_over_whole == pytest.approx(1)


def test_parameters_are_as_before() -> None:
    modules = convolution()
    before = [parameter.detach().clone() for module in modules for parameter in module.parameters()]
    profile_program(program_of(*modules), 2)
    after = [parameter for module in modules for parameter in module.parameters()]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_no_gradient_crosses_behind_frozen_layers() -> None:
    modules = convolution()
    modules[0].requires_grad_(False)
    modules[1].requires_grad_(False)
    profile = profile_program(program_of(*modules), 2)
    assert [layer.crossing_back_bytes > 0 for layer in profile.layers] == [False, False, False, False, False, False]
    modules = convolution()
    modules[0].requires_grad_(False)
    profile = profile_program(program_of(*modules), 2)
    assert [layer.crossing[0].gradient for layer in profile.layers[:-1]] == [False, True, True, True, True]
    assert profile.layers[0].backward_s == 0.0


class Pair(nn.Module):
    """Returns no tensor beside one."""

    def forward(self, value: Tensor) -> tuple[Tensor, str]:
        return value, "value"


def _other_sizes(number: int) -> tuple[tuple[Tensor, ...], Tensor]:
    size = 4 + number // 3
    return (torch.randn(size, 3, 8, 8),), torch.randint(0, 10, (size,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: replace(p, units=[]), r"model\(\): it has no layer"),
        (lambda p: replace(p, units=[Named("pair", Pair()), *p.units]), "layer pair: it returned str; a tensor"),
        (lambda p: replace(p, units=[Named("big", nn.Linear(7, 7)), *p.units]), "layer big: RuntimeError: mat1"),
        (lambda p: replace(p, loss=lambda output, target: output), r"loss\(\): a finite scalar was expected for minib"),
        (lambda p: replace(p, loss=lambda output, target: output.sum() * float("nan")), r"minibatch 0, got nan"),
        (lambda p: replace(p, batch=_other_sizes), r"batch\(\): minibatch 3 has 5 items, the first one 4"),
        (lambda p: replace(p, batch=lambda number: ((), torch.zeros(4))), r"batch\(\): .* a tuple of input tensors"),
        (lambda p: replace(p, batch=lambda number: p.batch(number)[0][0]), r"batch\(\): .* it returned Tensor"),
        (lambda p: replace(p, batch=lambda number: (p.batch(number)[0][0], p.batch(number)[1])), r"like \(x,\), y"),
        (lambda p: [unit.module.requires_grad_(False) for unit in p.units] and p, "depends on no parameter"),
    ],
)  # fmt: skip
def test_what_cannot_be_profiled_is_named(change: Callable[[ProfiledProgram], ProfiledProgram], message: str) -> None:
    with pytest.raises(InputError, match=message):
        profile_program(change(program_of(nn.Flatten(), nn.Linear(192, 10))), 3)
