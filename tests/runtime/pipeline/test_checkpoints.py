"""Killed and started again from a checkpoint, a pipeline ends with the bits of one that was never interrupted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from plink.errors import PlinkError
from plink.runtime.pipeline.checkpoint_file import read_header, read_state, write_checkpoint
from plink.runtime.pipeline.checkpoints import CheckpointSettings, checkpoints_in, part_file
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.runtime.pipeline.apps import SmallApp, attention, conv, dropout, lstm, mlp, plan_of, skip
from tests.runtime.ranks import Ended, results_of, run_ranks, wait_until

MINIBATCHES = 23
CASES: list[tuple[Any, int, str]] = [(conv, 7, "momentum"), (dropout, 7, "adam")]
EXTENDED_CASES: list[tuple[Any, int, str]] = [(attention, 5, "adam"), (lstm, 4, "momentum"), (skip, 6, "sgd")]
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "1-1-1": {"replicas": [1, 1, 1]},
    "2-1": {"replicas": [2, 1]},
    "1-2 vertical": {"replicas": [1, 2], "vertical_sync": True},
    "2-1 late": {"replicas": [2, 1], "reduce": "late"},
    "1-1 2bw": {"replicas": [1, 1], "kind": "2bw", "accumulate": 3},
    "1-1 gpipe recompute": {"replicas": [1, 1], "kind": "gpipe", "accumulate": 3, "recompute": True},
}
EXTENDED: dict[str, dict[str, Any]] = {
    "1-1 deeper": {"replicas": [1, 1], "deeper": [3, 1]},
    "2-2": {"replicas": [2, 2]},
    "1-1-1 vertical": {"replicas": [1, 1, 1], "vertical_sync": True},
    "2-1 late vertical": {"replicas": [2, 1], "reduce": "late", "vertical_sync": True},
    "1-1-1 flush": {"replicas": [1, 1, 1], "kind": "1f1b-flush", "accumulate": 4},
    "2": {"replicas": [2], "kind": "data-parallel"},
}


class StoppingApp(SmallApp):
    """Fails when it reads a minibatch, once ``ready``."""

    def __init__(self, *arguments: Any, stop: int = -1, **keys: Any) -> None:
        super().__init__(*arguments, **keys)
        self.stop = stop
        self.ready: Callable[[], bool] = lambda: True

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        if number == self.stop:
            wait_until(self.ready, 60)
            raise RuntimeError("killed")
        return super().batch(number)


@dataclass
class Outcome:
    """What a rank ends with, or the error."""

    result: StageResult | None = None
    error: str = ""


def app_of(case: tuple[Any, int, str], stop: int = -1) -> StoppingApp:
    return StoppingApp(case[0], case[2], MINIBATCHES, stop=stop)


def train(case: tuple[Any, int, str], topology: dict[str, Any], settings: CheckpointSettings, stop: int) -> Outcome:
    """Be a rank in a job that may be stopped, and may go on from a checkpoint."""
    dist.init_process_group("gloo")
    app, plan = app_of(case, stop), plan_of(layers=case[1], **topology)
    program = PipelineProgram(app)
    app.ready = lambda: settings.folder is not None and bool(whole_checkpoints(settings.folder, plan.replicas))
    try:
        return Outcome(run_rank(program, plan, "plan.json", 60, checkpoints=settings))
    except PlinkError as error:
        return Outcome(error=str(error))


def whole_checkpoints(folder: Path, replicas: Sequence[int]) -> list[int]:
    places = [(stage, replica) for stage, number in enumerate(replicas) for replica in range(number)]
    return [k for k in checkpoints_in(folder) if all(part_file(folder, k, place).exists() for place in places)]


def same(own: StageResult, other: StageResult) -> None:
    assert own.state.keys() == other.state.keys()
    for name, tensor in own.state.items():
        assert torch.equal(tensor, other.state[name]), name
    for name, entries in own.optimiser_state.items():
        for key, value in entries.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other.optimiser_state[name][key])), key
    assert own.losses.items() <= other.losses.items()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads change the sequence of additions."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "case",
    [*CASES, *(pytest.param(case, marks=pytest.mark.extended) for case in EXTENDED_CASES)],
    ids=lambda case: case[0].__name__,
)
@pytest.mark.parametrize("name", [*TOPOLOGIES, *(pytest.param(name, marks=pytest.mark.extended) for name in EXTENDED)])
def test_interrupted_job_ends_with_the_same_bits(name: str, case: tuple[Any, int, str], tmp_path: Path) -> None:
    topology = {**TOPOLOGIES, **EXTENDED}[name]
    ranks, plan = sum(topology["replicas"]), plan_of(layers=case[1], **topology)
    stopped = results_of(run_ranks(train, ranks, case, topology, CheckpointSettings(tmp_path, 2), 15))
    assert all(outcome.error for outcome in stopped)
    latest = checkpoints_in(tmp_path)[0]
    assert 0 < latest <= 15
    ended = results_of(run_ranks(train, ranks, case, topology, CheckpointSettings(tmp_path, 2, tmp_path), -1))
    for own, other in zip(ended, train_in_one_process(PipelineProgram(app_of(case)), plan, "plan.json"), strict=True):
        assert own.result is not None, own.error
        same(own.result, other)
        assert min(own.result.losses, default=latest) > 0


STRAIGHT: dict[str, Any] = {"replicas": [1, 1]}
CASE = CASES[0]


def stopped_at_15(folder: Path) -> int:
    """Leave checkpoints; return the latest that both ranks have."""
    for outcome in results_of(run_ranks(train, 2, CASE, STRAIGHT, CheckpointSettings(folder, 2), 15)):
        assert outcome.error
    return whole_checkpoints(folder, (1, 1))[0]


def go_on(folder: Path, case: tuple[Any, int, str] = CASE, **topology: Any) -> list[Ended]:
    return run_ranks(train, 2, case, topology or STRAIGHT, CheckpointSettings(None, 2, folder), -1)


def bits_of_one_process(outcomes: list[Outcome]) -> bool:
    expected = train_in_one_process(PipelineProgram(app_of(CASE)), plan_of(layers=CASE[1], **STRAIGHT), "plan.json")
    for own, other in zip(outcomes, expected, strict=True):
        assert own.result is not None, own.error
        same(own.result, other)
    return True


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "missing", "half-written"])
def test_damaged_checkpoint_is_passed_over(damage: str, tmp_path: Path) -> None:
    """For the one before."""
    results_of(run_ranks(train, 2, CASE, STRAIGHT, CheckpointSettings(tmp_path, 2), -1))
    assert whole_checkpoints(tmp_path, (1, 1)) == [22, 20]
    path = part_file(tmp_path, 22, (1, 0))
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[-len(data) // 4] ^= 1
        path.write_bytes(data)
    elif damage == "truncated":
        path.write_bytes(data[:-100])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if damage == "half-written":
            path.with_name(f".{path.name}.0011").write_bytes(data[:5000])
    ended = go_on(tmp_path)
    assert "going on from minibatch 20," in "".join(end.err for end in ended)
    assert bits_of_one_process(results_of(ended))


def test_checkpoint_of_another_plan_is_taken_by_name(tmp_path: Path) -> None:
    latest = stopped_at_15(tmp_path)
    ended = go_on(tmp_path, replicas=[2])
    outcomes = results_of(ended)
    assert f"going on from minibatch {latest - latest % 2}," in "".join(end.err for end in ended)
    assert "parameters are taken by name" in "".join(end.err for end in ended)
    assert all(outcome.result is not None for outcome in outcomes), outcomes
    assert outcomes[0].result is not None
    assert all(torch.isfinite(tensor.double()).all() for tensor in outcomes[0].result.state.values())


@pytest.mark.parametrize(
    ("case", "topology", "message"),
    [
        ((mlp, 6, "sgd"), STRAIGHT, "it is of another model: names or shapes of parameters differ"),
        (CASE, {"replicas": [1, 1], "folder": "empty"}, "no checkpoint to go on from that all ranks have"),
    ],
)
def test_checkpoint_that_does_not_fit_is_refused(
    case: tuple[Any, int, str], topology: dict[str, Any], message: str, tmp_path: Path
) -> None:
    stopped_at_15(tmp_path)
    topology = dict(topology)
    for outcome in results_of(go_on(tmp_path / topology.pop("folder", "."), case, **topology)):
        assert message in outcome.error


def test_folder_with_checkpoints_of_another_job_is_refused(tmp_path: Path) -> None:
    stopped_at_15(tmp_path)
    for outcome in results_of(run_ranks(train, 2, CASE, STRAIGHT, CheckpointSettings(tmp_path, 2), -1)):
        assert "it has checkpoints of another job: restore from it, or name another" in outcome.error


def test_training_goes_on_when_no_checkpoint_can_be_written(tmp_path: Path) -> None:
    """The folder's parent is a file, as a disk that is full or gone would refuse it."""
    (tmp_path / "file").touch()
    ended = run_ranks(train, 2, CASE, STRAIGHT, CheckpointSettings(tmp_path / "file" / "kept", 2), -1)
    assert bits_of_one_process(results_of(ended))
    for end in ended:
        assert end.err.count("training goes on") == 1
        assert "Not a directory" in end.err


def test_latest_two_checkpoints_are_left(tmp_path: Path) -> None:
    """What a writer left that was killed is removed too."""
    latest = stopped_at_15(tmp_path)
    (tmp_path / "minibatch-2").mkdir(exist_ok=True)
    for minibatch in (2, latest):
        part_file(tmp_path, minibatch, (0, 0)).with_name(".stage-0-replica-0.pt.0011").touch()
    results_of(run_ranks(train, 2, CASE, STRAIGHT, CheckpointSettings(tmp_path, 2, tmp_path / "."), -1))
    assert whole_checkpoints(tmp_path, (1, 1)) == checkpoints_in(tmp_path) == [22, 20]
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]
    assert part_file(tmp_path, 22, (0, 0)).stat().st_mode & 0o077 == 0


def train_far_into_a_job(folder: Path, minibatches: int) -> dict[int, float]:
    """Be a rank."""
    dist.init_process_group("gloo")
    app = app_of(CASE)
    app.minibatches = minibatches
    app.rate = lambda number: 1.0  # type: ignore[method-assign]
    plan = plan_of(layers=CASE[1], **STRAIGHT)
    settings = CheckpointSettings(restore=folder)
    return run_rank(PipelineProgram(app), plan, "plan.json", 60, checkpoints=settings).losses


def test_numbers_of_messages_wrap(tmp_path: Path) -> None:
    """They have 20 bits; a checkpoint that is moved to shortly before that goes on beyond."""
    latest, begin = stopped_at_15(tmp_path), (1 << 20) - 4
    for stage in (0, 1):
        path = part_file(tmp_path, latest, (stage, 0))
        header, state = dict(read_header(path)), read_state(path)
        state["versions"] = {number - latest + begin: values for number, values in state["versions"].items()}
        header = {key: value for key, value in header.items() if key not in ("schema", "sha256")}
        write_checkpoint(part_file(tmp_path / "later", begin, (stage, 0)), header | {"minibatch": begin}, state)
    losses, none = results_of(run_ranks(train_far_into_a_job, 2, tmp_path / "later", begin + 10))
    assert none == {}
    assert list(losses) == list(range(begin, begin + 10))
