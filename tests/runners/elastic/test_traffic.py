"""What hosts carry: a line for what has changed, and a measure for the thresholds of the stages."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from plink.model.elastic.fields import TrafficCounters
from solvers.elastic import traffic
from solvers.elastic.commands import LogLine
from solvers.elastic.context import Context
from solvers.elastic.member import Member
from solvers.elastic.placement.events import Measured
from solvers.elastic.placement.hosts import JobHost, Tier
from solvers.elastic.placement.stages import MeasuredTraffic as Measure
from solvers.elastic.placement.stages import Stage, Thresholds, measured_thresholds, stage_for
from solvers.elastic.placement.start import start
from solvers.elastic.settings import Settings
from solvers.elastic.state import Rebalancing, initial
from solvers.elastic.state import TrafficMonitor as TrafficState

TWO = Stage.ACTIVE_AND_BACKUP


class Road:
    """Two reliable hosts and a transient one, unless said otherwise."""

    def __init__(self, rate: float | None = 1e6, hosts: int = 3) -> None:
        self.lines: list[dict[str, Any]] = []
        settings = Settings("", 1, 4, ((8, 8),), 0.0, 0.0, measured=True, host_rate=rate)
        self.job = initial(settings, 1, 0.0)
        self.job.members = {n: Member(n, f"h{n}", "transient" if n == 2 else "reliable", 1) for n in range(hosts)}
        self.job.traffic = TrafficState(counters=dict.fromkeys(range(hosts), TrafficCounters()))
        self.job.rebalancing = Rebalancing(start_at=None)

    def traffic(self, host: int, *counters: int) -> None:
        """A heartbeat with these."""
        self.job.traffic = replace(
            self.job.traffic, counters={**self.job.traffic.counters, host: TrafficCounters(*counters)}
        )

    def advance(self, now: float, stage: Stage, transient: int) -> Measure | None:
        """What was measured."""
        hosts = [JobHost(0, "h0", Tier.RELIABLE), *(JobHost(9 + n, f"t{n}", Tier.TRANSIENT) for n in range(transient))]
        cluster, _ = start(hosts, (1.0,), 4)
        self.job.placement = replace(cluster, stage=stage)
        self._act(traffic.advance, now)
        events, self.job.undecided = self.job.undecided, ()
        return next((event.traffic for event in events if isinstance(event, Measured)), None)

    def tell(self) -> None:
        """Log what has changed."""
        self._act(traffic.log_changes, 0.0)

    def _act(self, does: Callable[[Context], None], now: float) -> None:
        ctx = Context(self.job, now)
        does(ctx)
        self.job = ctx.state
        self.lines += [dict(entry.fields) for entry in ctx.entries if isinstance(entry, LogLine)]

    def logged_since(self) -> list[tuple[str, int, int]]:
        """Since it was asked last."""
        lines, self.lines[:] = list(self.lines), []
        return [(line["host"], line["sent"], line["received"]) for line in lines]


def test_changed_threshold_is_logged() -> None:
    road = Road()
    road.advance(100.0, TWO, 1)
    assert road.logged_since() == [("h0", 0, 0), ("h1", 0, 0), ("h2", 0, 0)]
    road.traffic(1, 1, 20, 300, 4000)
    road.advance(104.9, TWO, 1)
    assert not road.logged_since()  # it is not time
    road.advance(105.0, TWO, 1)
    assert road.logged_since() == [("h1", 301, 4020)]
    road.tell()
    assert not road.logged_since()


def test_the_busiest_reliable_host_counts_and_all_replicas() -> None:
    road = Road()
    assert road.advance(0.0, TWO, 4) is None
    road.traffic(0, 100, 5000, 0, 2000)
    road.traffic(1, 10000, 7, 0, 6000)
    road.traffic(2, 10**9, 10**9, 10**9, 10**9)
    assert road.advance(10.0, TWO, 4) == Measure(worker=1000.0, capacity=1e6, replica=200.0)
    assert road.advance(20.0, TWO, 4) == Measure(worker=0.0, capacity=1e6, replica=0.0)


@pytest.mark.parametrize(("stage", "transient"), [(Stage.PARAMETER_SERVERS, 4), (TWO, 0)])
def test_without_replicas_none_are_measured(stage: Stage, transient: int) -> None:
    road = Road()
    road.advance(0.0, stage, transient)
    measured = road.advance(10.0, stage, transient)
    assert measured is not None
    assert measured.replica is None


def stages_of(course: Sequence[tuple[int, float]], replica: float) -> list[Stage]:
    """Of a job with one reliable host, every 5 s, whose traffic follows from its stage.

    :param course: transient hosts, and what a host's workers carry if nothing holds them down, bytes a second.
    """
    thresholds = Thresholds()
    road, stage = Road(1e6, hosts=1), stage_for(1, course[0][0], thresholds)
    request, served, stages = 0, 0, [stage]
    for turn, (transient, worker) in enumerate(course):
        measured = road.advance(5.0 * turn, stage, transient)
        if measured is not None:
            thresholds = measured_thresholds(measured, thresholds)
        stage = stage_for(1, transient, thresholds, stage)
        if stage is not stages[-1]:
            request += int(worker / 10)  # what was on its way when it changed
        request += 0 if stage is Stage.BACKUP_ONLY else int(5 * min(worker, 1e6 / (transient + 1)))
        served += 0 if stage is Stage.PARAMETER_SERVERS else int(5 * replica * transient)
        road.traffic(0, 0, request, 0, served)
        stages.append(stage)
    return stages


@pytest.mark.parametrize(
    ("transient", "worker", "replica"),
    [(1, 7e5, 3e5), (3, 7e5, 1.9e5), (12, 1e5, 7e4)],
)
def test_stage_converges(transient: int, worker: float, replica: float) -> None:
    """Where it does not if traffic of another stage counts."""
    stages = stages_of([(transient, worker)] * 40, replica)
    assert len(set(stages[12:])) == 1
    assert sum(first is not other for first, other in itertools.pairwise(stages)) <= 2


def test_a_change_of_the_membership_or_of_the_rate_still_changes_the_stage() -> None:
    few, many, busy = (2, 2e4), (60, 2e4), (2, 7e5)
    stages = stages_of([few] * 20 + [many] * 20 + [few] * 20 + [busy] * 20, 3e4)
    assert [stages[turn] for turn in (20, 40, 60, 80)] == [Stage(1), Stage(3), Stage(1), Stage(2)]
