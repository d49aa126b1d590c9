"""Ranks that meet between all-reduces: what they tell, and a schedule that all take up at the same one."""

import base64
import json
import threading
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue

import numpy as np
import pytest
import torch
import torch.distributed as dist

from plink.model.schedule import Schedule, forward_and_reverse, make_schedule
from plink.runtime.allreduce.aggregation import Aggregation, SizeClass
from plink.runtime.allreduce.algorithm_selection import DispatchThreshold
from plink.runtime.allreduce.connections import PeerConnections
from plink.runtime.allreduce.launcher_channel import LauncherChannel
from plink.runtime.allreduce.reductions import reduction_for
from plink.runtime.allreduce.tuner import RankTuner
from runners.job.rank_channel import RankChannel
from solvers.schedules.catalogue import schedule_for
from solvers.schedules.hierarchical import two_level_reduce_scatter
from solvers.schedules.masters import Weights, equal_chunks
from tests.runtime.allreduce.thread_ranks import Clock, Member, Members, everywhere, gloo_groups

# Ranks are threads that work for seconds; one path is quick.
pytestmark = pytest.mark.extended

RANKS = 4


def uneven(ranks: int = RANKS) -> Schedule:
    """Flat aggregation in which rank 0 has little to do."""
    weights = Weights(np.ones(1), np.array([0.2, *[1.0] * (ranks - 1)]))
    return forward_and_reverse(two_level_reduce_scatter([range(ranks)], *equal_chunks([range(ranks)], 16, weights)))


def answer(schedule: Schedule, epoch: int) -> str:
    """What the daemon says."""
    data = Aggregation((SizeClass(None, schedule.algo, schedule),)).to_bytes()
    return json.dumps({"epoch": epoch, "plan": base64.b64encode(data).decode()})


def wrong_sums() -> str:
    """A schedule that leaves a rank's part out."""
    rows = np.array([[0, 0, 1, 0, 4, 0], [1, 1, 0, 0, 4, 1], [1, 1, 2, 0, 4, 1], [1, 1, 3, 0, 4, 1]])
    return answer(make_schedule("wrong", RANKS, 4, rows), 1)


class Launcher:
    """Answers rank 0's lines through the agent's end of the line, as ``talk`` says."""

    def __init__(self, talk: Callable[[dict[str, object]], list[str]]) -> None:
        self.line, self.reports = RankChannel(), []  # type: tuple[RankChannel, list[dict[str, object]]]
        self._talk, self._ended = talk, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> "Launcher":
        self._thread.start()
        return self

    def _work(self) -> None:
        while not self._ended.wait(0.002):
            for text in self.line.poll():
                self.reports.append(json.loads(text))
                for outcomes in self._talk(self.reports[-1]):
                    self.line.send(outcomes)
        self.line.close()

    def __exit__(self, *about: object) -> None:
        self._ended.set()
        self._thread.join(5)


def tuned(member: Member, name: str, threshold: DispatchThreshold | None = None) -> RankTuner:
    """The rank's tuning, begun."""
    schedule = member.schedule
    aggregation = Aggregation((SizeClass(None, schedule.algo, schedule),), tuned=0, every_s=0.02)
    line = LauncherChannel(name if member.rank == 0 else "")
    tuner = RankTuner(aggregation, member.rank, member.engine._transport, PeerConnections({}, RANKS), line, threshold)
    member.engine.attach_tuner(tuner)
    return tuner


def all_reduces(members: Members, name: str, number: int, each: Callable[[int, RankTuner], None] | None = None) -> None:
    """So many on every rank, with the right sums."""

    def work(rank: int) -> None:
        member = members.members[rank]
        tuner = tuned(member, name)
        for k in range(number):
            data = torch.full((5000,), float(rank + 10 * k))
            assert member.reduce(data) is None
            assert data.unique().tolist() == [6.0 + 40 * k]
            if each is not None:
                each(rank, tuner)

    everywhere(RANKS, work)


def test_a_new_schedule_is_taken_up_at_the_same_all_reduce() -> None:
    """Sums stay right, whichever rank is ahead; what was told has the numbers of all-reduces and bytes."""
    new = uneven()
    seen: list[list[int]] = [[] for _ in range(RANKS)]

    def talk(report: dict[str, object]) -> list[str]:
        return [answer(new, 1)] if report["epoch"] == 0 else []

    def note(rank: int, tuner: RankTuner) -> None:
        current = tuner.schedule(members.schedule)
        seen[rank].append(0 if current is members.schedule else len(current))

    with Members(schedule_for("flat", RANKS)) as members, Launcher(talk) as launcher:
        all_reduces(members, launcher.line.name, 200, note)
        assert len(launcher.reports) > 2
        assert {report["bytes"] for report in launcher.reports} == {
            report["jobs"] * 20_000 for report in launcher.reports
        }
        assert launcher.reports[0]["jobs"] == 10
        assert [report["epoch"] for report in launcher.reports] == sorted(
            report["epoch"] for report in launcher.reports
        )
    assert seen[0] == seen[1] == seen[2] == seen[3]
    assert (seen[0][0], seen[0][-1]) == (0, len(new))


@pytest.mark.parametrize(
    "outcomes",
    [answer(uneven(), 7), answer(uneven(3), 1), wrong_sums(), '{"epoch": 1}', '{"epoch": 1, "plan": "AA"}', "no JSON"],
)  # fmt: skip
def test_what_is_no_schedule_for_these_ranks_changes_nothing(outcomes: str) -> None:
    def unchanged(rank: int, tuner: RankTuner) -> None:
        assert tuner.schedule(members.schedule) is members.schedule

    with Members(schedule_for("flat", RANKS)) as members, Launcher(lambda report: [outcomes]) as launcher:
        all_reduces(members, launcher.line.name, 100, unchanged)
        assert len(launcher.reports) > 1


@pytest.mark.quick
def test_a_launcher_that_hangs_up_ends_the_tuning_and_nothing_else() -> None:
    launcher = Launcher(lambda report: [])
    with Members(schedule_for("flat", RANKS)) as members, launcher:
        all_reduces(members, launcher.line.name, 30)
        launcher.__exit__()
        more = [torch.ones(5000) for _ in range(RANKS)]
        for _ in range(60):
            assert everywhere(RANKS, lambda rank: members.members[rank].reduce(more[rank])) == [None] * RANKS
        tuner = members.members[0].engine._tuner
        assert tuner is not None
        assert tuner._boundary == 1 << 62


def test_async_all_reduces_change_schedules_at_the_same_one() -> None:
    """Hundreds under way at once, by some ranks more than by others; those of one element go inline in between."""
    new = uneven()

    def talk(report: dict[str, object]) -> list[str]:
        return [answer(new if report["epoch"] % 2 == 0 else members.schedule, report["epoch"] + 1)]  # type: ignore[operator]

    def work(rank: int) -> int:
        member = members.members[rank]
        tuner = tuned(member, launcher.line.name)
        reduction = reduction_for(dist.ReduceOp.SUM, torch.float32)
        assert reduction is not None
        for k in range(60):
            data = [torch.full((3000 + 500 * j,), float(rank + j + k)) for j in range(4 + rank % 2)][:4]
            outcomes: SimpleQueue[str | None] = SimpleQueue()
            for tensor in data:
                member.engine.submit(tensor, member.schedule, reduction, outcomes.put)
            tiny = torch.full((1,), float(rank))
            member.engine.submit(tiny, member.schedule, reduction, outcomes.put, blocking=True)
            assert [outcomes.get(timeout=30) for _ in range(5)] == [None] * 5
            assert [tensor.unique().tolist() for tensor in data] == [[6.0 + 4 * (j + k)] for j in range(4)]
            assert tiny.item() == 6.0
        return tuner._epoch

    with Members(schedule_for("flat", RANKS)) as members, Launcher(talk) as launcher:
        epochs = everywhere(RANKS, work)
    assert len(set(epochs)) == 1
    assert epochs[0] >= 2


@pytest.mark.parametrize(("slow", "before", "after"), [("gloo", 1 << 20, 0), ("schedule", 4096, 1 << 20)])
def test_new_schedule_is_compared_with_gloo(
    slow: str, before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks go to Gloo, and no longer, from the same all-reduce on; it is enough that one rank finds so."""
    new, average, clock = uneven(), reduction_for(dist.ReduceOp.AVG, torch.int32), Clock()
    assert average is not None
    monkeypatch.setattr("plink.runtime.allreduce.algorithm_selection.time", clock)

    def talk(report: dict[str, object]) -> list[str]:
        return [answer(new, 1)] if report["epoch"] == 0 else []

    def work(rank: int) -> tuple[list[int], int]:
        member, by_gloo = members.members[rank], []

        def gloo(data: torch.Tensor, op: object) -> dist.Work:
            clock.now += 1.0 if slow == "gloo" else 0.1
            if data.dtype is torch.int32:  # ranks measure and agree by others
                by_gloo.append(int(data[0]) // 4)
            opts = dist.AllreduceOptions()
            opts.reduceOp = op  # type: ignore[assignment]
            return groups[rank].allreduce([data], opts)

        tuner = tuned(member, launcher.line.name, DispatchThreshold(before, gloo))
        by_schedule = tuner._run_alone
        assert by_schedule is not None

        def alone(data: torch.Tensor, schedule: Schedule) -> None:
            clock.now += 1.0 if (slow, rank) == ("schedule", 1) else 0.0
            by_schedule(data, schedule)

        tuner._run_alone = alone
        for k in range(40):
            outcomes: SimpleQueue[str | None] = SimpleQueue()
            data = [torch.full((n,), 4 * k + rank, dtype=torch.int32) for n in (2000, 60_000, 1)]
            for tensor in data[:2]:
                member.engine.submit(tensor, member.schedule, average, outcomes.put)
            member.engine.submit(data[2], member.schedule, average, outcomes.put, blocking=True)
            assert [outcomes.get(timeout=30) for _ in data] == [None] * 3
            assert [tensor.unique().tolist() for tensor in data] == [[4 * k + 1]] * 3
        assert tuner.threshold is not None
        return by_gloo, tuner.threshold.min_bytes

    with gloo_groups(RANKS) as groups, Members(schedule_for("flat", RANKS)) as members, Launcher(talk) as launcher:
        results = everywhere(RANKS, work)
    assert results == [results[0]] * RANKS
    steps, smallest = results[0]
    assert smallest == after
    times = [steps.count(k) for k in range(40)]
    assert (times[0], times[-1]) == ((3, 0) if slow == "gloo" else (1, 3))


@pytest.mark.parametrize("gone", [0, 2])
def test_rank_lost_before_rendezvous_ends_the_others(gone: int) -> None:
    """They wait for it in the meeting, not in an all-reduce; nobody waits for ever, other lanes included."""

    def work(rank: int) -> str | None:
        member = members.members[rank]
        tuned(member, launcher.line.name)
        for _ in range(10):
            assert member.reduce(torch.ones(50_000)) is None
        if rank == gone:
            member.engine._transport.close()
            return None
        return member.reduce(torch.ones(50_000), patience_s=30)

    with Members(schedule_for("flat", RANKS), timeout_s=5.0) as members, Launcher(lambda report: []) as launcher:
        results = everywhere(RANKS, work)
        assert results[gone] is None
        assert all(error for rank, error in enumerate(results) if rank != gone)


def test_group_closed_while_it_waits_in_rendezvous() -> None:
    def work(rank: int) -> None:
        member = members.members[rank]
        tuned(member, launcher.line.name)
        for _ in range(10):
            assert member.reduce(torch.ones(50_000)) is None
        if rank == 1:  # alone
            reduction = reduction_for(dist.ReduceOp.SUM, torch.float32)
            assert reduction is not None
            outcomes: SimpleQueue[str | None] = SimpleQueue()
            member.engine.submit(torch.ones(50_000), member.schedule, reduction, outcomes.put)
            member.engine.close(0.2)
            assert outcomes.get(timeout=10) is not None

    with Members(schedule_for("flat", RANKS), timeout_s=20.0) as members, Launcher(lambda report: []) as launcher:
        everywhere(RANKS, work)


def test_a_stretch_grows_by_little_at_a_time() -> None:
    """A job that begins with short all-reduces must not be looked at again only after thousands of long ones."""
    with Members(schedule_for("flat", RANKS)) as members, Launcher(lambda report: []) as launcher:
        all_reduces(members, launcher.line.name, 150)
        jobs = [report["jobs"] for report in launcher.reports]
    assert all(after <= 4 * before for before, after in pairwise(jobs)), jobs
