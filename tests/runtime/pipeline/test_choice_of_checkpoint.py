"""Which checkpoint a job goes on from, by the parts that are there."""

import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

from plink.errors import InputError, PlinkError
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.rank_report import CheckpointHeader
from plink.runtime.pipeline.checkpoint_file import read_checkpoint, write_checkpoint
from plink.runtime.pipeline.checkpoints import CheckpointSettings, Provenance, checkpoints_in, part_file
from plink.runtime.pipeline.job import place_of
from plink.runtime.pipeline.resume import ChosenCheckpoint, choose, digest_of_training, restore
from tests.runtime.pipeline.apps import conv, plan_of
from tests.runtime.pipeline.restarted import Outcome, StoppingApp, outcome_of_rank
from tests.runtime.ranks import results_of, run_ranks

pytestmark = pytest.mark.usefixtures("one_thread")
REPLICATED = plan_of([2, 1], 7)  # stage 0 is of ranks 1 and 2, stage 1 of rank 0
OTHER = plan_of([1, 2], 7)


def write_part(
    folder: Path, plan: PipelinePlan, minibatch: int, place: tuple[int, int], start: str,
    state: Mapping[str, Any] = MappingProxyType({}),
) -> None:  # fmt: skip
    header = CheckpointHeader(
        sha256="", minibatch=minibatch, stage=place[0], replica=place[1], replicas=plan.replicas,
        training=digest_of_training(plan), program="p", arguments="a", start=start, model="m",
        torch=str(torch.__version__),
    )  # fmt: skip
    write_checkpoint(part_file(folder, minibatch, place), header, dict(state))


def choices(folder: Path, plan: PipelinePlan) -> list[ChosenCheckpoint | InputError]:
    """Return what each rank chooses."""
    origin = Provenance(plan.replicas, digest_of_training(plan), "p", "m", "a", "new")
    store = HashStore()
    chosen: dict[int, ChosenCheckpoint | InputError] = {}

    def of_rank(rank: int) -> None:
        try:
            chosen[rank] = choose(folder, origin, store, rank, plan)
        except InputError as error:
            chosen[rank] = error

    threads = [threading.Thread(target=of_rank, args=(rank,)) for rank in range(plan.ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [chosen[rank] for rank in range(plan.ranks)]


PLACES = ((0, 0), (0, 1), (1, 0))
Parts = Sequence[tuple[int, PipelinePlan, str, Sequence[tuple[int, int]]]]
WHOLE = (8, REPLICATED, "first", PLACES)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([WHOLE, (12, REPLICATED, "second", PLACES)], ChosenCheckpoint(12, "second", True)),
        # Stage 0 was ahead when the first start ended, stage 1 when the second did.
        (
            [WHOLE, (12, REPLICATED, "first", PLACES[:2]), (12, REPLICATED, "second", PLACES[2:])],
            ChosenCheckpoint(8, "first", True),
        ),
        # A replica is left of the first start.
        (
            [(12, REPLICATED, "first", PLACES[:1]), (12, REPLICATED, "second", PLACES[1:])],
            ChosenCheckpoint(12, "second", True, ((2, 1),)),
        ),
        # To the bit before later.
        ([WHOLE, (12, REPLICATED, "first", PLACES[1:])], ChosenCheckpoint(8, "first", True)),
        # Of another plan: any replica serves.
        ([(8, OTHER, "first", ((0, 0), (1, 1)))], ChosenCheckpoint(8, "first", False)),
        (
            [(12, OTHER, "first", PLACES[:1]), (12, OTHER, "second", PLACES[2:]), (8, OTHER, "first", PLACES[::2])],
            ChosenCheckpoint(8, "first", False),
        ),
        # Of another plan, but later.
        ([WHOLE, (12, OTHER, "second", ((0, 0), (1, 0), (1, 1)))], ChosenCheckpoint(12, "second", False)),
        # Of another plan and older than one of this plan that lacks a replica.
        (
            [(8, OTHER, "first", ((0, 0), (1, 0), (1, 1))), (12, REPLICATED, "second", PLACES[1:])],
            ChosenCheckpoint(12, "second", True, ((2, 1),)),
        ),
    ],
)  # fmt: skip
def test_chosen_checkpoint(parts: Parts, expected: ChosenCheckpoint, tmp_path: Path) -> None:
    for minibatch, plan, start, places in parts:
        for place in places:
            write_part(tmp_path, plan, minibatch, place, start)
    assert choices(tmp_path, REPLICATED) == [expected] * 3


def answers_of_check(settings: Sequence[CheckpointSettings]) -> list[str]:
    """Return what each rank is told, empty where it may begin. ``settings``: by rank."""
    store, answers = HashStore(), [""] * len(settings)

    def of_rank(rank: int) -> None:
        try:
            settings[rank].check(store, rank, len(settings))
        except InputError as error:
            answers[rank] = str(error)

    threads = [threading.Thread(target=of_rank, args=(rank,)) for rank in range(len(settings))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("restores", [True, False])
def test_parts_that_make_no_checkpoint_are_no_obstacle(shared: bool, restores: bool, tmp_path: Path) -> None:
    """Of one start a replica's part, of another that of the other stage: what is asked for again may begin again."""
    folders = [tmp_path / "shared"] * 3 if shared else [tmp_path / str(rank) for rank in range(3)]
    write_part(folders[1], REPLICATED, 12, (0, 0), "first")
    write_part(folders[0], REPLICATED, 12, (1, 0), "second")
    other = tmp_path / "other" if restores else None
    assert answers_of_check([CheckpointSettings(folder, 4, other) for folder in folders]) == [""] * 3


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("places", [PLACES, PLACES[1:]])  # from the second too training can go on
def test_whole_checkpoint_of_another_job_is_refused(
    shared: bool, places: Sequence[tuple[int, int]], tmp_path: Path
) -> None:
    """On each host's own disk a rank sees its own part alone."""
    folders = [tmp_path / "shared"] * 3 if shared else [tmp_path / str(rank) for rank in range(3)]
    for stage, replica in places:
        rank = REPLICATED.stages[stage].ranks[replica]
        write_part(folders[rank], REPLICATED, 12, (stage, replica), "first")
        write_part(folders[rank], REPLICATED, 16, (0, replica), "first")
    answers = answers_of_check([CheckpointSettings(folder, 4, tmp_path / "other") for folder in folders])
    assert all("checkpoints of another job" in answer for answer in answers)
    assert answers_of_check([CheckpointSettings(folder, 4, folder) for folder in folders]) == [""] * 3


def test_part_of_another_version_is_refused(tmp_path: Path) -> None:
    """Nobody can say whether its checkpoint is whole. The refusal names both formats, and no restoring: that is refused
    too. It is advised where there is a checkpoint to restore beside the part."""
    path = part_file(tmp_path, 12, PLACES[0])
    write_part(tmp_path, REPLICATED, 12, PLACES[0], "first")
    path.write_bytes(path.read_bytes().replace(b"pipeline-checkpoint/2", b"pipeline-checkpoint/1"))
    for answer in answers_of_check([CheckpointSettings(tmp_path, 4)] * 3):
        assert str(path) in answer
        assert "pipeline-checkpoint/1" in answer
        assert answer.endswith("name another")
        assert "restore" not in answer
    for place in PLACES:
        write_part(tmp_path, REPLICATED, 8, place, "first")
    assert all("restore from it" in answer for answer in answers_of_check([CheckpointSettings(tmp_path, 4)] * 3))
    with pytest.raises(InputError, match=r"pipeline-checkpoint/2.*pipeline-checkpoint/1"):
        read_checkpoint(path)


def restore_beside_a_lost_rank(folder: Path, lost: int) -> str:
    """Be a rank that restores, or the one that ends when it is to send or receive a part; return the error."""
    dist.init_process_group("gloo")
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    if rank == lost:
        for name in ("send", "recv"):
            setattr(dist, name, lambda *arguments: os._exit(0))
    stage, replica = REPLICATED.place_of(rank)
    origin = Provenance(REPLICATED.replicas, digest_of_training(REPLICATED), "p", "m", "a", "new")
    error = ""
    try:
        restore(folder / str(rank), origin, place_of(REPLICATED, stage, 20), replica, store, REPLICATED)
    except PlinkError as refusal:
        error = str(refusal)
    store.set(f"ended-{rank}", "")
    if rank == 0:  # it has the store
        store.wait([f"ended-{other}" for other in range(REPLICATED.ranks) if other != lost])
    return error


@pytest.mark.extended
@pytest.mark.parametrize(("lost", "other"), [(1, 2), (2, 1)])
def test_rank_that_ends_while_a_part_is_sent_is_named(lost: int, other: int, tmp_path: Path) -> None:
    """On the rank that sends to it or receives from it, and on the one that does neither. Rank 1 has no part."""
    for stage, replica in ((0, 1), (1, 0)):
        rank = REPLICATED.stages[stage].ranks[replica]
        write_part(tmp_path / str(rank), REPLICATED, 12, (stage, replica), "first", {"versions": {}})
    ended = run_ranks(restore_beside_a_lost_rank, 3, tmp_path, lost)
    for rank in (0, other):
        assert ended[rank].code == 0, ended[rank].err
        assert f"rank {other} (here): lost rank {lost} (here)" in ended[rank].result


def test_parts_of_two_starts_are_no_checkpoint(tmp_path: Path) -> None:
    write_part(tmp_path, REPLICATED, 12, (0, 0), "first")
    write_part(tmp_path, REPLICATED, 12, (0, 1), "first")
    write_part(tmp_path, REPLICATED, 12, (1, 0), "second")
    for choice in choices(tmp_path, REPLICATED):
        assert "no checkpoint to go on from that all ranks have" in str(choice)


def train_at_a_rate(folder: Path, rate: float, settings: CheckpointSettings) -> Outcome:
    """Be a rank of a program whose learning rate was changed."""
    app = StoppingApp(conv, "sgd", 12)
    app.rate = lambda number: rate  # type: ignore[method-assign]
    return outcome_of_rank(app, plan_of([1, 1], 7), settings)


@pytest.mark.extended
def test_parts_of_two_jobs_in_a_folder_are_not_mixed(tmp_path: Path) -> None:
    """The second goes on from minibatch 8 of the first with another rate, and is killed when one rank has its last
    part; of the other rank the first's is there."""
    folder, first = tmp_path / "kept", tmp_path / "first"

    def train(rate: float, restore: Path | None) -> Any:
        ended = run_ranks(train_at_a_rate, 2, folder, rate, CheckpointSettings(folder, 4, restore))
        assert all(outcome.result for outcome in results_of(ended))
        return ended

    train(1.0, None)
    shutil.copytree(folder, first)
    part_file(folder, 12, (1, 0)).unlink()
    train(0.1, folder)
    assert checkpoints_in(folder)[0] == 12
    _, own = read_checkpoint(part_file(folder, 12, (0, 0)))
    _, others = read_checkpoint(part_file(first, 12, (0, 0)))
    assert not all(torch.equal(own["parameters"][name], others["parameters"][name]) for name in own["parameters"])
    shutil.copy(part_file(first, 12, (0, 0)), part_file(folder, 12, (0, 0)))
    assert "resuming from minibatch 8," in train(0.1, folder)[0].err
