"""What hosts carry: a line for what has changed, and a measure for the thresholds of the stages."""

from typing import Any

import pytest

from plink.runtime.agileml.carried import Carried
from runners.agile.member import Member
from runners.agile.traffic import Traffic
from solvers.agile.stages import Stage
from solvers.agile.stages import Traffic as Measure

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


def test_who_has_just_come_is_not_measured() -> None:
    road = Road()
    road.traffic.look(0.0, TWO, 1)
    road.members[3] = Member(3, "h3", "reliable", 1, carried=Carried(10**9))
    assert road.traffic.look(10.0, TWO, 1) == Measure(0.0, 1e6, 0.0)


def test_without_a_rate_there_is_nothing_to_hold_it_against() -> None:
    road = Road(rate=None)
    road.traffic.look(0.0, TWO, 1)
    assert road.traffic.look(10.0, TWO, 1) is None
