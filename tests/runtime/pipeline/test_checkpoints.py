"""Killed and started again from a checkpoint, a pipeline ends with the bits of one that was never interrupted."""

import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from msgspec import structs

from plink.runtime.pipeline.checkpoint_file import read_checkpoint, write_checkpoint
from plink.runtime.pipeline.checkpoints import CheckpointSettings, checkpoints_in, part_file
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.runtime.pipeline.apps import attention, conv, dropout, lstm, mlp, plan_of, skip
from tests.runtime.pipeline.restarted import Outcome, StoppingApp, outcome_of_rank, whole_checkpoints
from tests.runtime.ranks import Ended, results_of, run_ranks, wait_until

# Each starts several processes; one path of each kind is quick.
pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("one_thread")]
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


def app_of(case: tuple[Any, int, str], stop: int = -1) -> StoppingApp:
    return StoppingApp(case[0], case[2], MINIBATCHES, stop=stop)


def train(case: tuple[Any, int, str], topology: dict[str, Any], settings: CheckpointSettings, stop: int) -> Outcome:
    """Be a rank in a job that may be stopped, and may go on from a checkpoint."""
    return outcome_of_rank(app_of(case, stop), plan_of(layers=case[1], **topology), settings)


def same(own: StageResult, other: StageResult) -> None:
    assert own.state.keys() == other.state.keys()
    for name, tensor in own.state.items():
        assert torch.equal(tensor, other.state[name]), name
    for name, entries in own.optimiser_state.items():
        for key, value in entries.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other.optimiser_state[name][key])), key
    assert own.losses.items() <= other.losses.items()


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
    return whole_checkpoints([folder], (1, 1))[0]


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
    assert whole_checkpoints([tmp_path], (1, 1)) == [22, 20]
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
    assert "resuming from minibatch 20," in "".join(end.err for end in ended)
    assert bits_of_one_process(results_of(ended))


def train_on_own_disk(
    case: tuple[Any, int, str], topology: dict[str, Any], folder: Path, stop: int, lost: Sequence[int], restore: bool
) -> Outcome:
    """Be a rank whose host has a disk of its own, which is empty where the host is new."""
    own = folder / f"host-{os.environ['RANK']}"
    if int(os.environ["RANK"]) in lost:
        shutil.rmtree(own)
    settings = CheckpointSettings(own, 2, own if restore else None)
    folders = [folder / f"host-{rank}" for rank in range(sum(topology["replicas"]))]
    return outcome_of_rank(app_of(case, stop), plan_of(layers=case[1], **topology), settings, folders)


def same_but_buffers(outcomes: list[Outcome], case: tuple[Any, int, str], topology: dict[str, Any]) -> None:
    plan = plan_of(layers=case[1], **topology)
    expected = train_in_one_process(PipelineProgram(app_of(case)), plan, "plan.json")
    for own, other in zip(outcomes, expected, strict=True):
        assert own.result is not None, own.error
        assert own.result.losses.items() <= other.losses.items()
        for name, tensor in own.result.state.items():
            assert torch.equal(tensor, other.state[name]) or "running" in name, name


REPLICATED: dict[str, dict[str, Any]] = {
    "2-1": {"replicas": [2, 1]},
    "1-2-1 vertical": {"replicas": [1, 2, 1], "vertical_sync": True},
    "2-1 late": {"replicas": [2, 1], "reduce": "late"},
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
@pytest.mark.parametrize("topology", REPLICATED.values(), ids=REPLICATED)
def test_lost_host_of_a_replica_is_replaced(
    topology: dict[str, Any], case: tuple[Any, int, str], tmp_path: Path
) -> None:
    """Ranks 1 and 2 are replicas of a stage: both have the same parameters and optimiser, to the bit, and in their
    parts the versions that either needs. Each of them is lost in turn."""
    ranks = sum(topology["replicas"])
    results_of(run_ranks(train_on_own_disk, ranks, case, topology, tmp_path, 15, (), False))
    for lost, donor in ((1, 2), (2, 1)):
        folder = tmp_path / f"without-{lost}"
        shutil.copytree(tmp_path, folder, ignore=shutil.ignore_patterns("without-*"))
        ended = run_ranks(train_on_own_disk, ranks, case, topology, folder, -1, (lost,), True)
        assert f"rank {lost} (here) has no part of it: that of rank {donor} (here) is taken" in ended[lost].err
        assert "version" not in "".join(end.err for end in ended)
        same_but_buffers(results_of(ended), case, topology)


def test_version_that_a_part_lacks_is_named_with_the_rank(tmp_path: Path) -> None:
    """Rank 0 has the last stage; the part of rank 1 is the one that lacks a version."""
    latest = stopped_at_15(tmp_path)
    path = part_file(tmp_path, latest, (0, 0))
    header, state = read_checkpoint(path)
    lacking = min(state["versions"])
    del state["versions"][lacking]
    write_checkpoint(path, header, state)
    ended = go_on(tmp_path)
    assert all(outcome.result for outcome in results_of(ended))
    assert f"rank 1 (here): version {lacking} is not in it" in ended[0].err


def test_lost_host_of_the_only_replica_ends_the_job(tmp_path: Path) -> None:
    topology = REPLICATED["2-1"]
    results_of(run_ranks(train_on_own_disk, 3, CASES[0], topology, tmp_path, 15, (), False))
    for outcome in results_of(run_ranks(train_on_own_disk, 3, CASES[0], topology, tmp_path, -1, (0,), True)):
        assert "no checkpoint to go on from that all ranks have; rank 0 (here) has none" in outcome.error


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


def test_start_that_ended_before_its_first_checkpoint_is_repeated(tmp_path: Path) -> None:
    """One rank had written its parts, the other none."""
    stopped_at_15(tmp_path)
    for path in tmp_path.glob("minibatch-*/stage-1-*.pt"):
        path.unlink()
    ended = run_ranks(train, 2, CASE, STRAIGHT, CheckpointSettings(tmp_path, 2), -1)
    assert bits_of_one_process(results_of(ended))
    assert whole_checkpoints([tmp_path], (1, 1)) == [22, 20]


def test_training_goes_on_when_no_checkpoint_can_be_written(tmp_path: Path) -> None:
    """The folder's parent is a file, as a disk that is full or gone would refuse it."""
    (tmp_path / "file").touch()
    ended = run_ranks(train, 2, CASE, STRAIGHT, CheckpointSettings(tmp_path / "file" / "kept", 2), -1)
    assert bits_of_one_process(results_of(ended))
    (warning,) = [end.err for end in ended if "training goes on" in end.err]
    assert warning.count("Not a directory") == warning.count("training goes on") == 1


@pytest.mark.quick
def test_latest_two_checkpoints_are_left(tmp_path: Path) -> None:
    """What a writer left that was killed is removed too."""
    latest = stopped_at_15(tmp_path)
    (tmp_path / "minibatch-2").mkdir(exist_ok=True)
    for minibatch in (2, latest):
        part_file(tmp_path, minibatch, (0, 0)).with_name(".stage-0-replica-0.pt.0011").touch()
    results_of(run_ranks(train, 2, CASE, STRAIGHT, CheckpointSettings(tmp_path, 2, tmp_path / "."), -1))
    assert whole_checkpoints([tmp_path], (1, 1)) == checkpoints_in(tmp_path) == [22, 20]
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]
    assert part_file(tmp_path, 22, (0, 0)).stat().st_mode & 0o077 == 0


def train_from(folder: Path, latest: int, begin: int, minibatches: int) -> dict[int, float]:
    """Be a rank that has for each minibatch from ``begin`` on the data of that from ``latest`` on."""
    dist.init_process_group("gloo")
    app = app_of(CASE)
    batch = app.batch
    app.minibatches = begin + minibatches
    app.batch = lambda number: batch(number - begin + latest)  # type: ignore[method-assign]
    app.rate = lambda number: 1.0  # type: ignore[method-assign]
    plan = plan_of(layers=CASE[1], **STRAIGHT)
    settings = CheckpointSettings(restore=folder)
    return run_rank(PipelineProgram(app), plan, "plan.json", 60, checkpoints=settings).losses


def test_numbers_of_messages_wrap(tmp_path: Path) -> None:
    """They have 20 bits; a checkpoint that is moved to shortly before that goes on beyond, with the same values."""
    latest, begin = stopped_at_15(tmp_path), (1 << 20) - 4
    for stage in (0, 1):
        path = part_file(tmp_path, latest, (stage, 0))
        header, state = read_checkpoint(path)
        state["versions"] = {number - latest + begin: values for number, values in state["versions"].items()}
        later = structs.replace(header, minibatch=begin)
        write_checkpoint(part_file(tmp_path / "later", begin, (stage, 0)), later, state)
    losses, none = results_of(run_ranks(train_from, 2, tmp_path / "later", latest, begin, 10))
    expected, _ = results_of(run_ranks(train_from, 2, tmp_path, latest, latest, 10))
    assert none == {}
    assert list(losses) == list(range(begin, begin + 10))
    assert list(losses.values()) == list(expected.values())


def train_as_the_disk_fails(how: str, folder: Path) -> Outcome:
    """Be a rank whose disk takes nothing any more from minibatch 12 on."""
    app = app_of(CASE)
    batch = app.batch

    def failing(number: int) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        if number == 12 and how == "full":  # files have at most so many bytes
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
        elif number == 12 and os.environ["RANK"] == "0":
            # In one step, as a writer that found neither would make the folder again.
            folder.with_name("link").symlink_to(folder.with_name("file"))
            folder.with_name("link").replace(folder)
        return batch(number)

    app.batch = failing  # type: ignore[method-assign]
    outcome = outcome_of_rank(app, plan_of(layers=CASE[1], **STRAIGHT), CheckpointSettings(folder, 2))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return outcome


@pytest.mark.parametrize("how", ["full", "gone"])
def test_training_goes_on_when_the_disk_fails(how: str, tmp_path: Path) -> None:
    """No part is left half-written, and an earlier checkpoint is there."""
    (tmp_path / "file").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "kept").symlink_to(folder)
    ended = run_ranks(train_as_the_disk_fails, 2, how, tmp_path / "kept")
    assert bits_of_one_process(results_of(ended))
    assert sum(end.err.count("training goes on") for end in ended) == 1
    assert not whole_checkpoints([folder], (1, 1)) or whole_checkpoints([folder], (1, 1))[0] < 22
    assert how == "gone" or not [path for path in folder.rglob("*") if path.name.startswith(".")]


def train_on_small_disk(folder: Path, stop: int, restore: bool, lag: int) -> Outcome:
    """Be a rank that takes a minibatch once some checkpoint is whole that is at most ``lag`` before it."""
    app = app_of(CASE, stop)
    batch = app.batch

    def after_checkpoint(number: int) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        wait_until(lambda: max(whole_checkpoints([folder], (1, 1)), default=0) >= number - lag)
        return batch(number)

    app.batch = after_checkpoint  # type: ignore[method-assign]
    settings = CheckpointSettings(folder, 2, folder if restore else None)
    return outcome_of_rank(app, plan_of(layers=CASE[1], **STRAIGHT), settings)


@pytest.mark.extended
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
@pytest.mark.parametrize(("room", "lag"), [(2.4, 6), (1.6, MINIBATCHES)])
def test_full_disk_keeps_one_whole_checkpoint(room: float, lag: int, tmp_path: Path) -> None:
    """It goes on saving where there is room for two, and keeps the one it has where there is not. The first start is
    killed, and leaves parts."""
    results_of(run_ranks(train, 2, CASE, STRAIGHT, CheckpointSettings(tmp_path / "first", 2), -1))
    size = sum(path.stat().st_blocks * 512 for path in (tmp_path / "first" / "minibatch-20").iterdir())
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={int(size * room)}", "tmpfs", str(disk)], check=True)
    try:
        ended = run_ranks(train_on_small_disk, 2, disk, 15, False, lag)
        assert all("killed" in outcome.error for outcome in results_of(ended))
        # The rank whose store is gone may tell it, too.
        assert 1 <= "".join(end.err for end in ended).count("No space left on device") <= 2
        ended = run_ranks(train_on_small_disk, 2, disk, -1, True, lag)
        assert bits_of_one_process(results_of(ended))
        assert "".join(end.err for end in ended).count("No space left on device") == 1
        (latest,) = checkpoints_in(disk)
        assert whole_checkpoints([disk], (1, 1)) == [latest]
        assert latest >= MINIBATCHES - lag
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_parts_of_a_failed_checkpoint_are_removed(tmp_path: Path) -> None:
    """Each rank has a disk of its own; that of one refuses a single checkpoint, as a file is where its folder goes."""
    (tmp_path / "host-1").mkdir()
    (tmp_path / "host-1" / "minibatch-22").touch()
    results_of(run_ranks(train_on_own_disk, 2, CASE, STRAIGHT, tmp_path, -1, (), False))
    assert checkpoints_in(tmp_path / "host-0") == [20, 18]
