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

from plink.model.schedule import Schedule, make_schedule, there_and_back
from plink.runtime.aggengine.aggregation import Aggregation, SizeClass
from plink.runtime.aggengine.connections import Connections
from plink.runtime.aggengine.crossover import Crossover
from plink.runtime.aggengine.launcher_line import LauncherLine
from plink.runtime.aggengine.reductions import reduction_for
from plink.runtime.aggengine.tuning import Tuning
from runners.job.rank_channel import RankChannel
from solvers.schedules.catalogue import schedule_for
from solvers.schedules.hierarchical import two_level_reduce_scatter
from solvers.schedules.masters import Weights, equal_chunks
from tests.runtime.aggengine.thread_ranks import Clock, Member, Members, everywhere, gloo_groups

RANKS = 4


def uneven(ranks: int = RANKS) -> Schedule:
    """Flat aggregation in which rank 0 has little to do."""
    weights = Weights(np.ones(1), np.array([0.2, *[1.0] * (ranks - 1)]))
    return there_and_back(two_level_reduce_scatter([range(ranks)], *equal_chunks([range(ranks)], 16, weights)))


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
        self.line, self.told = RankChannel(), []  # type: tuple[RankChannel, list[dict[str, object]]]
        self._talk, self._ended = talk, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> "Launcher":
        self._thread.start()
        return self

    def _work(self) -> None:
        while not self._ended.wait(0.002):
            for text in self.line.poll():
                self.told.append(json.loads(text))
                for said in self._talk(self.told[-1]):
                    self.line.send(said)
        self.line.close()

    def __exit__(self, *about: object) -> None:
        self._ended.set()
        self._thread.join(5)


def tuned(member: Member, name: str, crossover: Crossover | None = None) -> Tuning:
    """The rank's tuning, begun."""
    schedule = member.schedule
    aggregation = Aggregation((SizeClass(None, schedule.algo, schedule),), tuned=0, every_s=0.02)
    line = LauncherLine(name if member.rank == 0 else "")
    tuning = Tuning(aggregation, member.rank, member.engine._transport, Connections({}, RANKS), line, crossover)
    member.engine.tune(tuning)
    return tuning


def all_reduces(members: Members, name: str, number: int, each: Callable[[int, Tuning], None] | None = None) -> None:
    """So many on every rank, with the right sums."""

    def work(rank: int) -> None:
        member = members.members[rank]
        tuning = tuned(member, name)
        for k in range(number):
            data = torch.full((5000,), float(rank + 10 * k))
            assert member.reduce(data) is None
            assert data.unique().tolist() == [6.0 + 40 * k]
            if each is not None:
                each(rank, tuning)

    everywhere(RANKS, work)


def test_a_new_schedule_is_taken_up_at_the_same_all_reduce() -> None:
    """Sums stay right, whichever rank is ahead; what was told has the numbers of all-reduces and bytes."""
    new = uneven()
    seen: list[list[int]] = [[] for _ in range(RANKS)]

    def talk(told: dict[str, object]) -> list[str]:
        return [answer(new, 1)] if told["epoch"] == 0 else []

    def note(rank: int, tuning: Tuning) -> None:
        current = tuning.schedule(members.schedule)
        seen[rank].append(0 if current is members.schedule else len(current))

    with Members(schedule_for("flat", RANKS)) as members, Launcher(talk) as launcher:
        all_reduces(members, launcher.line.name, 200, note)
        assert len(launcher.told) > 2
        assert {told["bytes"] for told in launcher.told} == {told["jobs"] * 20_000 for told in launcher.told}
        assert launcher.told[0]["jobs"] == 10
        assert [told["epoch"] for told in launcher.told] == sorted(told["epoch"] for told in launcher.told)
    assert seen[0] == seen[1] == seen[2] == seen[3]
    assert (seen[0][0], seen[0][-1]) == (0, len(new))


@pytest.mark.parametrize(
    "said",
    [answer(uneven(), 7), answer(uneven(3), 1), wrong_sums(), '{"epoch": 1}', '{"epoch": 1, "plan": "AA"}', "no JSON"],
)  # fmt: skip
def test_what_is_no_schedule_for_these_ranks_changes_nothing(said: str) -> None:
    def unchanged(rank: int, tuning: Tuning) -> None:
        assert tuning.schedule(members.schedule) is members.schedule

    with Members(schedule_for("flat", RANKS)) as members, Launcher(lambda told: [said]) as launcher:
        all_reduces(members, launcher.line.name, 100, unchanged)
        assert len(launcher.told) > 1


def test_a_launcher_that_hangs_up_ends_the_tuning_and_nothing_else() -> None:
    launcher = Launcher(lambda told: [])
    with Members(schedule_for("flat", RANKS)) as members, launcher:
        all_reduces(members, launcher.line.name, 30)
        launcher.__exit__()
        more = [torch.ones(5000) for _ in range(RANKS)]
        for _ in range(60):
            assert everywhere(RANKS, lambda rank: members.members[rank].reduce(more[rank])) == [None] * RANKS
        tuning = members.members[0].engine._tuning
        assert tuning is not None
        assert tuning._boundary == 1 << 62


def test_all_reduces_that_are_not_waited_for_change_schedules_at_the_same_one() -> None:
    """Hundreds under way at once, by some ranks more than by others; those of one element go inline in between."""
    new = uneven()

    def talk(told: dict[str, object]) -> list[str]:
        return [answer(new if told["epoch"] % 2 == 0 else members.schedule, told["epoch"] + 1)]  # type: ignore[operator]

    def work(rank: int) -> int:
        member = members.members[rank]
        tuning = tuned(member, launcher.line.name)
        reduction = reduction_for(dist.ReduceOp.SUM, torch.float32)
        assert reduction is not None
        for k in range(60):
            data = [torch.full((3000 + 500 * j,), float(rank + j + k)) for j in range(4 + rank % 2)][:4]
            said: SimpleQueue[str | None] = SimpleQueue()
            for one in data:
                member.engine.submit(one, member.schedule, reduction, said.put)
            tiny = torch.full((1,), float(rank))
            member.engine.submit(tiny, member.schedule, reduction, said.put, waits=True)
            assert [said.get(timeout=30) for _ in range(5)] == [None] * 5
            assert [one.unique().tolist() for one in data] == [[6.0 + 4 * (j + k)] for j in range(4)]
            assert tiny.item() == 6.0
        return tuning._epoch

    with Members(schedule_for("flat", RANKS)) as members, Launcher(talk) as launcher:
        epochs = everywhere(RANKS, work)
    assert len(set(epochs)) == 1
    assert epochs[0] >= 2


@pytest.mark.parametrize(("slow", "before", "after"), [("gloo", 1 << 20, 0), ("schedule", 4096, 1 << 20)])
def test_a_new_schedule_is_compared_with_gloo_again(
    slow: str, before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks go to Gloo, and no longer, from the same all-reduce on; it is enough that one rank finds so."""
    new, average, clock = uneven(), reduction_for(dist.ReduceOp.AVG, torch.int32), Clock()
    assert average is not None
    monkeypatch.setattr("plink.runtime.aggengine.crossover.time", clock)

    def talk(told: dict[str, object]) -> list[str]:
        return [answer(new, 1)] if told["epoch"] == 0 else []

    def work(rank: int) -> tuple[list[int], int]:
        member, by_gloo = members.members[rank], []

        def gloo(data: torch.Tensor, op: object) -> dist.Work:
            clock.now += 1.0 if slow == "gloo" else 0.1
            if data.dtype is torch.int32:  # ranks measure and agree by others
                by_gloo.append(int(data[0]) // 4)
            opts = dist.AllreduceOptions()
            opts.reduceOp = op  # type: ignore[assignment]
            return groups[rank].allreduce([data], opts)

        tuning = tuned(member, launcher.line.name, Crossover(before, gloo))
        by_schedule = tuning._alone
        assert by_schedule is not None

        def alone(data: torch.Tensor, schedule: Schedule) -> None:
            clock.now += 1.0 if (slow, rank) == ("schedule", 1) else 0.0
            by_schedule(data, schedule)

        tuning._alone = alone
        for k in range(40):
            said: SimpleQueue[str | None] = SimpleQueue()
            data = [torch.full((n,), 4 * k + rank, dtype=torch.int32) for n in (2000, 60_000, 1)]
            for one in data[:2]:
                member.engine.submit(one, member.schedule, average, said.put)
            member.engine.submit(data[2], member.schedule, average, said.put, waits=True)
            assert [said.get(timeout=30) for _ in data] == [None] * 3
            assert [one.unique().tolist() for one in data] == [[4 * k + 1]] * 3
        assert tuning.crossover is not None
        return by_gloo, tuning.crossover.smallest

    with gloo_groups(RANKS) as groups, Members(schedule_for("flat", RANKS)) as members, Launcher(talk) as launcher:
        found = everywhere(RANKS, work)
    assert found == [found[0]] * RANKS
    steps, smallest = found[0]
    assert smallest == after
    times = [steps.count(k) for k in range(40)]
    assert (times[0], times[-1]) == ((3, 0) if slow == "gloo" else (1, 3))


@pytest.mark.parametrize("gone", [0, 2])
def test_a_rank_that_goes_before_a_meeting_ends_the_others(gone: int) -> None:
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

    with Members(schedule_for("flat", RANKS), timeout_s=5.0) as members, Launcher(lambda told: []) as launcher:
        found = everywhere(RANKS, work)
        assert found[gone] is None
        assert all(why for rank, why in enumerate(found) if rank != gone)


def test_a_group_that_is_closed_while_it_waits_in_a_meeting() -> None:
    def work(rank: int) -> None:
        member = members.members[rank]
        tuned(member, launcher.line.name)
        for _ in range(10):
            assert member.reduce(torch.ones(50_000)) is None
        if rank == 1:  # alone
            reduction = reduction_for(dist.ReduceOp.SUM, torch.float32)
            assert reduction is not None
            said: SimpleQueue[str | None] = SimpleQueue()
            member.engine.submit(torch.ones(50_000), member.schedule, reduction, said.put)
            member.engine.close(0.2)
            assert said.get(timeout=10) is not None

    with Members(schedule_for("flat", RANKS), timeout_s=20.0) as members, Launcher(lambda told: []) as launcher:
        everywhere(RANKS, work)


def test_a_stretch_grows_by_little_at_a_time() -> None:
    """A job that begins with short all-reduces must not be looked at again only after thousands of long ones."""
    with Members(schedule_for("flat", RANKS)) as members, Launcher(lambda told: []) as launcher:
        all_reduces(members, launcher.line.name, 150)
        jobs = [told["jobs"] for told in launcher.told]
    assert all(after <= 4 * before for before, after in pairwise(jobs)), jobs
