"""Models that are no ``nn.Sequential``: traced, with connections that skip stages, or a chain of modules."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plink.errors import InputError
from plink.runtime.pipeline.checkpoints import CheckpointSettings, checkpoints_in
from plink.runtime.pipeline.job import PipelineProgram
from plink.runtime.pipeline.one_process import train_in_one_process
from plink.runtime.pipeline.parts import build_model, tied_parameters
from plink.runtime.pipeline.profiler import ProfiledProgram, profile_program
from tests.runtime.pipeline.apps import INPUTS, conv, plan_of
from tests.runtime.pipeline.restarted import Outcome, StoppingApp, outcome_of_rank
from tests.runtime.ranks import results_of, run_ranks

pytestmark = pytest.mark.usefixtures("one_thread")
MINIBATCHES = 9


class Block(nn.Module):
    """A residual block that changes a tensor in place."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.relu, self.dropout = nn.ReLU(inplace=True), nn.Dropout(dropout)

    def forward(self, value: Tensor) -> Tensor:
        return self.dropout(self.relu(self.norm(self.conv(value)))) + value  # type: ignore[no-any-return]


class Residual(nn.Module):
    """What the first layer makes is used again after two blocks; a parameter of no module; two weights that are one."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.blocks = nn.ModuleList([Block(dropout), Block(dropout)])
        self.blocks[1].conv.weight = self.blocks[0].conv.weight  # type: ignore[union-attr]
        self.head = nn.Linear(4 * 36, 3)
        self.scale = nn.Parameter(torch.tensor([1.5]))

    def forward(self, value: Tensor) -> Tensor:
        first = self.stem(value)
        value = first
        for block in self.blocks:
            value = block(value)
        value = value + first * torch.tensor(0.5)
        return self.head(value.flatten(1)) * self.scale  # type: ignore[no-any-return]


class Dynamic(nn.Module):
    """A chain that cannot be traced: what it does depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), Block(0.1)
        self.third = nn.Sequential(nn.Flatten(), nn.Linear(4 * 36, 3))

    def forward(self, value: Tensor) -> Tensor:
        value = self.first(value)
        if value.sum() > 1e9:
            raise ValueError("too much")
        return self.third(self.second(value))  # type: ignore[no-any-return]


class Twice(nn.Module):
    """Calls a layer again after another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)
        self.third, self.last = nn.ReLU(), nn.Sequential(nn.Flatten(), nn.Linear(2 * 36, 3))

    def forward(self, value: Tensor) -> Tensor:
        value = self.second(self.third(self.first(value)))
        return self.last(self.third(self.first(value)))  # type: ignore[no-any-return]


class Mixed(Dynamic):
    """A chain, all of it in mixed precision."""

    def forward(self, value: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.third(self.second(self.first(value)))  # type: ignore[no-any-return]


class MixedDynamic(Dynamic):
    """The same where it cannot be traced."""

    def forward(self, value: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(value)


class Tangled(Dynamic):
    """Neither: it adds outside of its modules."""

    def forward(self, value: Tensor) -> Tensor:
        value = self.first(value)
        if value.sum() > 1e9:
            raise ValueError("too much")
        return self.third(self.second(value) + value)  # type: ignore[no-any-return]


def with_dropout() -> nn.Module:
    return Residual(0.2)


INPUTS |= {with_dropout: (2, 6, 6), Residual: (2, 6, 6), Dynamic: (2, 6, 6), Tangled: (2, 6, 6)}
INPUTS |= {Twice: (2, 6, 6), Mixed: (2, 6, 6), MixedDynamic: (2, 6, 6)}
CUTS = {with_dropout: ([1, 3], 4), Dynamic: ([1, 2], 4)}


def app_of(model: Any, stop: int = -1) -> StoppingApp:
    app = StoppingApp(model, "momentum", MINIBATCHES, stop=stop)
    app.rate = lambda number: 1.0  # type: ignore[method-assign]
    return app


def test_split_points_by_front_end() -> None:
    cut = build_model(app_of(Residual))
    assert (cut.method, [unit.name for unit in cut.units]) == ("export", ["stem", "blocks.0", "blocks.1", "head"])
    app = app_of(Residual)
    app.layers = lambda model: ["stem", "blocks.1"]  # type: ignore[method-assign]
    assert [unit.name for unit in build_model(app).units] == ["stem", "blocks.1"]
    cut = build_model(app_of(Dynamic))
    assert (cut.method, [unit.name for unit in cut.units]) == ("modules", ["first", "second", "third.0", "third.1"])
    assert build_model(app_of(conv)).method == "sequential"


def test_traced_model_trains_as_it_does_whole() -> None:
    """Against plain PyTorch, by the names of the model's parameters and buffers."""
    app = app_of(Residual)
    torch.manual_seed(app.seed)
    model = app.model()
    optimiser = app.optimiser(list(model.parameters()), 1.0)
    losses = []
    for number in range(MINIBATCHES):
        (inputs,), target = app.batch(number)
        loss = app.loss(model(inputs), target)
        losses.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    plan = plan_of([1, 1, 1], 4, kind="model-parallel", cuts=[1, 3])
    results = train_in_one_process(PipelineProgram(app_of(Residual)), plan, "plan.json")
    state: dict[str, Tensor] = {}
    for result in results:
        state |= result.state
    whole = model.state_dict()
    assert state.keys() == whole.keys()
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, whole[name], rtol=1e-5, atol=1e-6)
    own = next(result.losses for result in results if result.losses)
    assert [own[number] for number in range(MINIBATCHES)] == pytest.approx(losses, rel=1e-5)


def train(name: str, replicas: list[int], settings: CheckpointSettings, stop: int) -> Outcome:
    """Be a rank in a job that may be stopped, and may go on from a checkpoint."""
    model = {model.__name__: model for model in CUTS}[name]
    cuts, layers = CUTS[model]
    return outcome_of_rank(app_of(model, stop), plan_of(replicas, layers, cuts=cuts[: len(replicas) - 1]), settings)


@pytest.mark.extended
@pytest.mark.parametrize("replicas", [[1, 1, 1], [2, 1]])
@pytest.mark.parametrize("model", list(CUTS), ids=lambda model: model.__name__)
def test_cut_models_train_on_ranks_and_from_checkpoints(model: Any, replicas: list[int], tmp_path: Path) -> None:
    """To the bit as in one process: dropout, batch norm, tensors that skip a stage."""
    cuts, layers = CUTS[model]
    ranks, name = sum(replicas), model.__name__
    plan = plan_of(replicas, layers, cuts=cuts[: len(replicas) - 1])
    expected = train_in_one_process(PipelineProgram(app_of(model)), plan, "plan.json")
    stopped = results_of(run_ranks(train, ranks, name, replicas, CheckpointSettings(tmp_path, 2), 7))
    assert all(outcome.error for outcome in stopped)
    assert checkpoints_in(tmp_path)
    for settings in (CheckpointSettings(), CheckpointSettings(tmp_path, 2, tmp_path)):
        ended = results_of(run_ranks(train, ranks, name, replicas, settings, -1))
        for own, other in zip([outcome.result for outcome in ended], expected, strict=True):
            assert own is not None
            assert own.losses.items() <= other.losses.items()
            assert own.state.keys() == other.state.keys()
            for key, tensor in other.state.items():
                assert torch.equal(own.state[key], tensor), key


def test_profile_of_a_traced_model_has_what_crosses() -> None:
    app = app_of(Residual)
    cut = build_model(app)
    profile = profile_program(ProfiledProgram(cut.units, app.batch, app.loss, app.optimiser), 2)
    assert [layer.name for layer in profile.layers] == ["stem", "blocks.0", "blocks.1", "head"]
    tensor = 4 * 4 * 36 * 4  # items, channels, pixels, bytes
    assert [layer.crossing_bytes for layer in profile.layers] == [tensor, 2 * tensor, tensor, 0]


def test_tied_layers_of_a_traced_model_stay_together() -> None:
    plan = plan_of([1, 1], 4, cuts=[2])
    with pytest.raises(InputError, match=r"share the parameter blocks.\d.conv.weight"):
        train_in_one_process(PipelineProgram(app_of(Residual)), plan, "plan.json")


def test_layer_that_is_called_twice_stays_in_one_stage() -> None:
    """A plan that cuts between both calls is refused when it is made; the layer without parameters is no obstacle."""
    app = app_of(Twice)
    cut = build_model(app)
    program = ProfiledProgram(cut.units, app.batch, app.loss, app.optimiser, tied_parameters(cut))
    spans = {span[:2] for span in profile_program(program, 2).tied_spans()}
    names = [unit.name for unit in cut.units]
    assert spans == {(names.index("first"), names.index("second"))}


@pytest.mark.parametrize(
    ("model", "layers", "message"),
    [
        (Tangled, None, r"third.0 gets something else than what second returned"),
        (Dynamic, ["first", "third"], r"third gets something else than what first returned"),
        (Mixed, None, "first runs inside torch.autocast"),
        (MixedDynamic, None, "first runs inside torch.autocast"),
        (Residual, ["nowhere"], r"layers\(\): the model has no module 'nowhere'"),
    ],
)
def test_models_that_cannot_be_cut_are_refused(model: Any, layers: list[str] | None, message: str) -> None:
    app = app_of(model)
    app.layers = lambda model: layers  # type: ignore[method-assign]
    with pytest.raises(InputError, match=message):
        build_model(app)
