"""What a controller measured outlives it (`--stage-thresholds auto`): the next one goes on with it, and measures no
more than what was carried since."""

import itertools
from dataclasses import dataclass

import pytest
from msgspec import structs

from plink.model.elastic.fields import TrafficCounters
from solvers.elastic import traffic
from solvers.elastic.placement.stages import Stage, Thresholds
from tests.runners.elastic.simulated_job import SimulatedJob
from tests.runners.elastic.test_from_disk import AT_WORK, OWN, Resumed, on_disk
from tests.runners.elastic.test_simulated_jobs import finish

MEASURED = {"measured": True, "host_rate": 1e6}
SAVED_THRESHOLDS = {"measure": 7, "worker": 1e5, "active": 0.5, "backup_only": 3.0}


@dataclass(frozen=True)
class Held:
    """At a moment of a job: which controller, and what it had decided."""

    by: int
    stage: Stage
    thresholds: Thresholds


def paused(job: SimulatedJob) -> list[Held]:
    """Of the whole job, every tenth of a second, where it changed."""
    result: list[Held] = []

    def look() -> None:
        if job._controller is not None and (state := job._controller.state.placement) is not None:
            now = Held(job._term, state.stage, state.thresholds)
            if not result or result[-1] != now:
                result.append(now)
        job.later(0.1, look)

    look()
    finish(job)
    return result


@pytest.mark.extended
def test_a_job_in_stage_3_stays_there_when_its_controller_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice. By the thresholds that it was begun with it would be in stage 2."""
    monkeypatch.setattr(traffic, "MEASURE_EVERY_S", 1.0)
    job = SimulatedJob(1, "rtttttt", clocks=240, settings={"measured": True, "host_rate": 2e4})
    for at in (8.0, 14.0):
        job.later(at, job.kill_controller)
    result = paused(job)
    by = [[holding for holding in result if holding.by == number] for number in (1, 2, 3)]
    assert by[0][-1].stage is Stage.BACKUP_ONLY
    for earlier, later in itertools.pairwise(by):
        assert {holding.stage for holding in later} == {Stage.BACKUP_ONLY}
        assert later[0].thresholds in [holding.thresholds for holding in earlier]


def test_a_job_is_not_measured_before_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be too little, and in stage 1 for a while."""
    monkeypatch.setattr(traffic, "MEASURE_EVERY_S", 1.0)
    result = paused(SimulatedJob(1, "rtttttt", clocks=60, settings={"measured": True, "host_rate": 1e5}))
    assert result[0].thresholds != result[-1].thresholds
    assert {item.stage for item in result} == {Stage.ACTIVE_AND_BACKUP}


def test_thresholds_hold_when_all_goes_on_from_a_checkpoint_too() -> None:
    report = AT_WORK | {"thresholds": SAVED_THRESHOLDS, "own": on_disk(7, OWN)}
    job = Resumed(report, checkpoints="/shared/c", **MEASURED)
    assert job.controller.state.cluster.thresholds == Thresholds(0.5, 3.0)
    job.lose_and_return(own=on_disk(7, OWN))
    assert job.restored(of_another_job=False) == {f"/shared/c/clock-7-{OWN}"}
    assert job.controller.state.cluster.thresholds == Thresholds(0.5, 3.0)


def test_earlier_traffic_is_not_measured() -> None:
    """Nobody has said that it is alive yet when the first look is taken."""
    traffic = TrafficCounters(10**9, 10**9, 10**9, 10**9)
    job = Resumed(AT_WORK | {"traffic": structs.asdict(traffic)}, **MEASURED)
    assert job.controller.state.traffic.counters[0] == traffic
    lines = [word["fields"] for word in job.says("log") if word["fields"]["what"] == "traffic"]
    assert [(line["sent"], line["received"]) for line in lines] == [(2 * 10**9, 2 * 10**9)]
