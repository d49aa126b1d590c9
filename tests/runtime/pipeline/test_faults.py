"""Mistakes in programs, ranks that differ, and ranks that are lost: named on every rank, and no rank waits for ever."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from msgspec import structs
from torch import Tensor, nn

from plink.errors import PlinkError
from plink.model.pipeline.document import StageMemory
from plink.model.pipeline.plan import PipelinePlan
from plink.runtime.pipeline.job import PipelineProgram, run_rank
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.runtime.pipeline.apps import SmallApp, mlp, plan_of
from tests.runtime.ranks import results_of, run_ranks

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended

MINIBATCH = 5
NAME = "plan.json"


class Failing(nn.Module):
    """A layer that fails at one call."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self._how, self._calls = how, 0

    def forward(self, value: Tensor) -> Any:
        self._calls += 1
        if self._calls <= MINIBATCH:
            return value
        if self._how == "raise":
            raise ValueError("no such value")
        if self._how == "shape":
            return value[1:]
        if self._how == "kind":
            return {"value": value}
        if self._how == "detached":
            return value.detach()
        if self._how == "pause":
            subprocess.Popen(["sh", "-c", f"sleep 1.5; kill -CONT {os.getpid()}"])
        if self._how == "pause" or self._how == "freeze":
            self._how = ""
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return value


def fail(*arguments: Any) -> None:
    raise torch.cuda.OutOfMemoryError("out of memory")


class FailingApp(SmallApp):
    """Fails in one of three stages."""

    def __init__(self, stage: int, how: str) -> None:
        super().__init__(mlp, "sgd")
        self._stage, self._how = stage, how

    def model(self) -> nn.Module:
        layers: list[nn.Module] = [nn.Linear(6, 6), nn.Identity(), nn.Linear(6, 6), nn.Identity(), nn.Linear(6, 6)]
        layers += [nn.Identity()]
        layers[2 * self._stage + 1] = Failing(self._how)
        return nn.Sequential(*layers)

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        if self._how == "batch" and number == MINIBATCH:
            raise OSError("no such file")
        return super().batch(number)

    def optimiser(self, parameters: list[nn.Parameter], scale: float) -> torch.optim.Optimizer:
        optimiser = super().optimiser(parameters, scale)
        if self._how == "optimiser" and parameters[0].shape == (6, 6):
            optimiser.register_step_pre_hook(fail)
        return optimiser

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        if self._how == "loss":
            return output
        return output.square().mean() * (float("nan") if self._how == "nan" else 1.0)


def three_stages() -> PipelinePlan:
    plan = plan_of([1, 1, 1], 6)
    parts = dict.fromkeys(("weights", "versions", "optimiser", "gradients", "activations", "buffers"), 0)
    memory = StageMemory(**parts, all=5_000_000)
    return structs.replace(plan, stages=tuple(structs.replace(stage, memory_bytes=memory) for stage in plan.stages))


def train_until_it_fails(stage: int, how: str, timeout_s: float = 300) -> tuple[str, float]:
    """Be a rank; return the error and how long it took."""
    dist.init_process_group("gloo")
    begin = time.monotonic()
    try:
        run_rank(PipelineProgram(FailingApp(stage, how), Path(__file__)), three_stages(), NAME, timeout_s)
    except PlinkError as error:
        return str(error), time.monotonic() - begin
    return "no error", 0


# In plan_of stage 0 has the last rank.
@pytest.mark.parametrize(
    ("stage", "how", "message"),
    [
        (1, "raise", "rank 1 (here), stage 1, minibatch 5, forward: layer 3: line N: ValueError: no such value"),
        (0, "shape", "rank 2 (here), stage 0, minibatch 5, forward: the stage handed on float32[3, 6]; float32[4, 6]"),
        (1, "kind", "rank 1 (here), stage 1, minibatch 5, forward: the stage hands on dict; a tensor, or a tuple of"),
        (2, "detached", "rank 0 (here), stage 2, minibatch 5, backward: nothing that the stage returns depends on a"),
        (2, "loss", "rank 0 (here), stage 2, minibatch 0, forward: loss() must return a tensor with one element"),
        (2, "nan", "rank 0 (here), stage 2, minibatch 0, forward: the loss is NaN"),
    ],
)
def test_mistake_is_named_with_stage_and_minibatch(stage: int, how: str, message: str) -> None:
    results = [
        (re.sub(r"line \d+", "line N", error), seconds)
        for error, seconds in results_of(run_ranks(train_until_it_fails, 3, stage, how))
    ]
    assert results[2 - stage][0].startswith(message)
    for rank, (error, seconds) in enumerate(results):
        assert message in error or "waits for rank" in error, error
        assert rank == 2 - stage or "waits for rank" in error
        assert seconds < 30  # half of a message's time-out


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("optimiser", r"update 0, update: line \d+: OutOfMemoryError: out of memory; the plan predicts 5 MB"),
        ("batch", r"minibatch 5, forward: line \d+: OSError: no such file"),
    ],
)
def test_errors_of_batch_and_optimiser_are_named(how: str, message: str) -> None:
    """More than one stage has them."""
    errors = [error for error, _ in results_of(run_ranks(train_until_it_fails, 3, 1, how))]
    assert any(re.search(message, error) for error in errors)
    assert all(re.search(message, error) or "waits for rank" in error for error in errors), errors


def train_and_return(stage: int, how: str) -> tuple[list[float], dict[str, Tensor]]:
    """Be a rank that may pause."""
    dist.init_process_group("gloo")
    result = run_rank(PipelineProgram(FailingApp(stage, how)), three_stages(), NAME)
    return [result.losses[b] for b in sorted(result.losses)], result.state


@pytest.mark.parametrize("stage", [0, 2])
def test_rank_that_pauses_delays_the_job_and_loses_nothing(stage: int) -> None:
    undisturbed = results_of(run_ranks(train_and_return, 3, stage, ""))
    for own, other in zip(results_of(run_ranks(train_and_return, 3, stage, "pause")), undisturbed, strict=True):
        assert own[0] == other[0]
        assert all(torch.equal(own[1][name], other[1][name]) for name in other[1])


def test_rank_that_is_frozen_is_named_after_the_timeout() -> None:
    """Stage 1 is that of rank 1."""
    ended = run_ranks(train_until_it_fails, 3, 1, "freeze", 10.0, unending=[1])
    for rank in (0, 2):
        assert "waits for rank 1 (here): Timed out" in ended[rank].result[0]


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_killed_rank_ends_all_and_is_named(stage: int) -> None:
    killed = 2 - stage
    ended = run_ranks(train_until_it_fails, 3, stage, "kill", timeout_s=60)
    assert ended[killed].code == -signal.SIGKILL
    for rank in {0, 1, 2} - {killed}:
        assert ended[rank].code == 0, ended[rank].err
        error, seconds = ended[rank].result
        assert seconds < 30  # half of a message's time-out
        if abs(rank - killed) == 1:
            assert f"waits for rank {killed} (here): connection closed" in error


class KilledApp(SmallApp):
    """Ends one rank when it reads a minibatch."""

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        if number == MINIBATCH and os.environ["RANK"] == "2":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(number)


def train_until_one_is_killed() -> str:
    """Be a rank; return the error."""
    dist.init_process_group("gloo")
    try:
        run_rank(PipelineProgram(KilledApp(mlp, "sgd")), plan_of([2, 1], 6), NAME)
    except PlinkError as error:
        return str(error)
    return "no error"


def test_killed_replica_ends_all_and_is_named() -> None:
    """Rank 2 is the second replica of stage 0: the other one waits for its gradients, stage 1 for its activations."""
    ended = run_ranks(train_until_one_is_killed, 3, timeout_s=60)
    assert ended[2].code == -signal.SIGKILL
    assert "waits for rank 2 (here): connection closed" in ended[0].result
    assert "stage 0, " in ended[1].result


def train_differently(how: str) -> str:
    """Be a rank of which one differs; return the error."""
    dist.init_process_group("gloo")
    is_other = dist.get_rank() == 1
    plan, app = plan_of([2, 1], 6), SmallApp(mlp, "sgd")
    if is_other and how == "plan":
        plan = plan_of([2, 1], 6, cuts=[2])
    if is_other and how == "model":
        app.model = lambda: nn.Sequential(*[nn.Linear(6, 6) for _ in range(6)])  # type: ignore[method-assign]
    if is_other and how == "number of minibatches":
        app.minibatches = 12
    if is_other and how == "stage":
        app.seed = 4
    if is_other and how == "error":
        app.model = lambda: nn.Linear(6, 6)  # type: ignore[method-assign]
    try:
        run_rank(PipelineProgram(app), plan, NAME)
    except PlinkError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("how", ["plan", "model", "number of minibatches", "stage", "error"])
def test_rank_that_differs_is_named_and_nothing_runs(how: str) -> None:
    for error in results_of(run_ranks(train_differently, 3, how)):
        if how == "stage":  # its two replicas are ranks 1 and 2
            assert error.startswith("rank 2 (here) has another stage (values of parameters) than rank 1 (here)")
        elif how == "error":
            assert "rank 1 (here): model(): it cannot be cut" in error
        else:
            assert error.startswith(f"rank 1 (here) has another {how}")
            assert error.endswith("nothing was run")


def train_with_arguments(arguments: Sequence[tuple[str, ...]]) -> str:
    """Be a rank that was started with its own arguments; return the error."""
    dist.init_process_group("gloo")
    program = PipelineProgram(SmallApp(mlp, "sgd", 4), None, arguments[dist.get_rank()])
    try:
        run_rank(program, plan_of([2, 1], 6), NAME)
    except PlinkError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("arguments", "differing", "like"),
    [
        ((("--data", "/a"), ("--data", "/b"), ("--data", "/a")), "rank 1 (here)", "rank 0 (here)"),
        ((("--data", "/b"), ("--data", "/a"), ("--data", "/a")), "rank 0 (here)", "rank 1 (here)"),
        ((("a",), ("b",), ("c",)), "rank 1 (here) and 1 more", "rank 0 (here)"),
        ((("a b",), ("a", "b"), ("a b",)), "rank 1 (here)", "rank 0 (here)"),
    ],
)
def test_other_arguments_are_a_warning(arguments: Sequence[tuple[str, ...]], differing: str, like: str) -> None:
    """Of rank 0, in one line. Paths of data may differ between hosts, so training goes on."""
    ended = run_ranks(train_with_arguments, 3, arguments)
    assert results_of(ended) == [""] * 3
    (warning,) = [line for end in ended for line in end.err.splitlines() if line.startswith("warning: rank")]
    assert warning in ended[0].err
    assert warning.startswith(f"warning: {differing}")
    assert f"than {like}" in warning


def test_same_arguments_are_no_warning() -> None:
    ended = run_ranks(train_with_arguments, 3, (("--data", "/a"),) * 3)
    assert results_of(ended) == [""] * 3
    assert not any("warning: rank" in end.err for end in ended)


@pytest.mark.quick
def test_tied_layers_in_two_stages_are_refused() -> None:
    app = SmallApp(mlp, "sgd")

    def model() -> nn.Module:
        first, last = nn.Linear(6, 6), nn.Linear(6, 6)
        last.weight = first.weight
        return nn.Sequential(first, nn.ReLU(), last)

    app.model = model  # type: ignore[method-assign]
    with pytest.raises(PlinkError, match=r"plan.json: stages 0 and 1 share the parameter 2.weight"):
        train_in_one_process(PipelineProgram(app), plan_of([1, 1], 3), NAME)
    train_in_one_process(PipelineProgram(app), plan_of([1], 3), NAME)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (plan_of([1, 1], 4), "plan.json: the plan has 4 layers, the program's model 6; profile it again"),
        (plan_of([1, 1], 6, frozen=1), "the plan has 1 frozen first stages, the program's model no frozen stage"),
    ],
)
def test_plans_of_other_models_are_refused(plan: PipelinePlan, message: str) -> None:
    with pytest.raises(PlinkError, match=message):
        train_in_one_process(PipelineProgram(FailingApp(0, "")), plan, NAME)


@pytest.mark.quick
def test_sync_batch_norm_is_refused() -> None:
    app = SmallApp(mlp, "sgd")
    app.model = lambda: nn.Sequential(nn.Linear(6, 6), nn.SyncBatchNorm(6))  # type: ignore[method-assign]
    with pytest.raises(PlinkError, match="1 is a SyncBatchNorm"):
        train_in_one_process(PipelineProgram(app), plan_of([1, 1], 2), NAME)


class FrozenApp(SmallApp):
    """The first layers are not trained."""

    def model(self) -> nn.Module:
        model = mlp()
        model[0].requires_grad_(False)
        return model


def train_frozen() -> tuple[list[float], dict[str, Tensor]]:
    dist.init_process_group("gloo")
    program = PipelineProgram(FrozenApp(mlp, "sgd", minibatches=30))
    result = run_rank(program, plan_of([1, 2], 6, frozen=1, cuts=[2]), NAME)
    return [result.losses[b] for b in sorted(result.losses)], result.state


@pytest.mark.quick
def test_no_gradients_go_back_to_frozen_layers() -> None:
    plan, app = plan_of([1, 2], 6, frozen=1, cuts=[2]), FrozenApp(mlp, "sgd", minibatches=30)
    assert plan.shape.frozen == 1
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = train_in_one_process(PipelineProgram(app), plan, NAME)
    torch.set_num_threads(threads)
    for (losses, state), result in zip(results_of(run_ranks(train_frozen, 3)), expected, strict=True):
        assert losses == [result.losses[b] for b in sorted(result.losses)]
        assert all(torch.equal(state[name], result.state[name]) for name in result.state)
