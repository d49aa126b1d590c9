"""What hosts carry: a line for what has changed, and a measure for the thresholds of the stages."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from plink.runtime.agileml.carried import Carried
from runners.agile.member import Member
from runners.agile.traffic import Traffic
from solvers.elastic.placement.stages import Stage, Thresholds, measured_thresholds, stage_for
from solvers.elastic.placement.stages import Traffic as Measure

TWO = Stage.ACTIVE_AND_BACKUP


class Road:
    """Two reliable hosts and a transient one."""

    def __init__(self, rate: float | None = 1e6) -> None:
        self.members = {n: Member(n, f"h{n}", "transient" if n == 2 else "reliable", 1) for n in range(3)}
        self.lines: list[dict[str, Any]] = []
        self.traffic = Traffic(self.members, rate, lambda **line: self.lines.append(line))

    def told(self) -> list[tuple[str, int, int]]:
        """Since it was asked last."""
        lines, self.lines[:] = list(self.lines), []
        return [(line["host"], line["sent"], line["received"]) for line in lines]


def test_a_line_is_told_of_what_has_changed() -> None:
    road = Road()
    road.traffic.look(100.0, TWO, 1)
    assert road.told() == [("h0", 0, 0), ("h1", 0, 0), ("h2", 0, 0)]
    road.members[1].carried = Carried(1, 20, 300, 4000)
    road.traffic.look(104.9, TWO, 1)
    assert not road.told()  # it is not time
    road.traffic.look(105.0, TWO, 1)
    assert road.told() == [("h1", 301, 4020)]
    road.traffic.tell()
    assert not road.told()


def test_the_busiest_reliable_host_counts_and_all_backups() -> None:
    road = Road()
    assert road.traffic.look(0.0, TWO, 4) is None
    road.members[0].carried = Carried(100, 5000, 0, 2000)
    road.members[1].carried = Carried(10000, 7, 0, 6000)
    road.members[2].carried = Carried(10**9, 10**9, 10**9, 10**9)
    assert road.traffic.look(10.0, TWO, 4) == Measure(worker=1000.0, capacity=1e6, backup=200.0)
    assert road.traffic.look(20.0, TWO, 4) == Measure(worker=0.0, capacity=1e6, backup=0.0)


@pytest.mark.parametrize(("stage", "transient"), [(Stage.PARAMETER_SERVERS, 4), (TWO, 0)])
def test_without_backups_none_are_measured(stage: Stage, transient: int) -> None:
    road = Road()
    road.traffic.look(0.0, stage, transient)
    measured = road.traffic.look(10.0, stage, transient)
    assert measured is not None
    assert measured.backup is None


def stages_of(course: Sequence[tuple[int, float]], backup: float) -> list[Stage]:
    """Of a job with one reliable host, every 5 s, whose traffic follows from its stage.

    :param course: transient hosts, and what a host's workers carry if nothing holds them down, bytes a second.
    """
    thresholds = Thresholds()
    members = {0: Member(0, "h0", "reliable", 1)}
    traffic, stage = Traffic(members, 1e6, lambda **_: None), stage_for(1, course[0][0], thresholds)
    asked, served, stages = 0, 0, [stage]
    for turn, (transient, worker) in enumerate(course):
        measured = traffic.look(5.0 * turn, stage, transient)
        if measured is not None:
            thresholds = measured_thresholds(measured, thresholds)
        stage = stage_for(1, transient, thresholds, stage)
        if stage is not stages[-1]:
            asked += int(worker / 10)  # what was on its way when it changed
        asked += 0 if stage is Stage.BACKUP_ONLY else int(5 * min(worker, 1e6 / (transient + 1)))
        served += 0 if stage is Stage.PARAMETER_SERVERS else int(5 * backup * transient)
        members[0].carried = Carried(0, asked, 0, served)
        stages.append(stage)
    return stages


@pytest.mark.parametrize(
    ("transient", "worker", "backup"),
    [(1, 7e5, 3e5), (3, 7e5, 1.9e5), (12, 1e5, 7e4)],
)
def test_the_stage_settles(transient: int, worker: float, backup: float) -> None:
    """Where it does not if traffic of another stage counts."""
    stages = stages_of([(transient, worker)] * 40, backup)
    assert len(set(stages[12:])) == 1
    assert sum(one is not other for one, other in itertools.pairwise(stages)) <= 2


def test_a_change_of_the_membership_or_of_the_rate_still_changes_the_stage() -> None:
    few, many, busy = (2, 2e4), (60, 2e4), (2, 7e5)
    stages = stages_of([few] * 20 + [many] * 20 + [few] * 20 + [busy] * 20, 3e4)
    assert [stages[turn] for turn in (20, 40, 60, 80)] == [Stage(1), Stage(3), Stage(1), Stage(2)]
