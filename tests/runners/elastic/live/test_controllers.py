"""The controller of a job of real processes is killed, frozen or replaced: the job goes on, and nothing is lost."""

import os
import signal
import time
from pathlib import Path

from solvers.elastic import traffic
from tests.runners.elastic.live.elastic import Elastic


def test_the_controller_is_killed(tmp_path: Path) -> None:
    """Twice; hosts go on meanwhile, and nothing is redone where nothing was under way."""
    with Elastic(tmp_path, "rttt", clocks=200, more=("--work-s", "0.02")) as job:
        for controller in (1, 2):
            job.until(lambda status, by=controller: status.get("controller") == by and status["begun"] > 20 * by)  # type: ignore[misc]
            assert job.supervisor._controller is not None
            job.supervisor._controller.kill()
        job.finish()
    assert [line["event"] for line in job.events("controller")] == ["started", "restarted", "restarted"]
    assert not job.events("rolled back")


def test_a_controller_that_was_replaced_is_not_obeyed(tmp_path: Path) -> None:
    """Two of them never both rule: what the older one says is refused by every host."""
    with Elastic(tmp_path, "rt", clocks=300, more=("--work-s", "0.02")) as job:
        job.clock(5)
        assert job.supervisor._controller is not None
        job.supervisor._controller.kill()
        job.until(lambda status: status.get("controller") == 2)
        group = job.supervisor._groups[0]
        for number in (0, 1):
            group.tell(number, {"method": "roll_back", "params": {"clock": -1, "generation": 1000}, "term": 1, "id": 7})
        job.clock(job.clock_now() + 5)
        job.finish()
    assert not any(line["generation"] == 1000 for line in job.events("rolled back"))


def test_program_that_raises_while_the_controller_is_stopped(tmp_path: Path) -> None:
    """The next one ends the job; without it the others would wait for that worker for ever."""
    now = tmp_path / "now"
    with Elastic(tmp_path, "rttt", clocks=10_000, more=("--fail-once", str(now), "--work-s", "0.02")) as job:
        job.clock(5)
        assert job.supervisor._controller is not None
        os.kill(job.supervisor._controller.pid, signal.SIGSTOP)
        now.touch()
        job._thread.join(60)
    assert job.ended is not None
    assert job.ended.code == 1
    assert "ValueError" in job.ended.reason
    assert "the controller stands still: another takes over" in job.notes


def test_stage_survives_a_killed_controller(tmp_path: Path) -> None:
    """Whose hosts are said to carry next to nothing: so the reliable one is to keep replicas only."""
    settings = {"measured": True, "host_rate": 1e3, "silence_s": 10.0}
    with Elastic(tmp_path, "rttt", clocks=400, settings=settings, more=("--work-s", "0.02")) as job:
        assert job.clock(0)["stage"] == 2
        job.until(lambda status: status["stage"] == 3 and status["workers"] == 3)
        job.clock(job.clock_now() + 10)  # the turn is over, of which the next controller could not tell the end
        assert job.supervisor._controller is not None
        job.supervisor._controller.kill()
        job.until(lambda status: status.get("controller") == 2)
        stages, over = set(), time.monotonic() + 3 * traffic.MEASURE_EVERY_S
        while time.monotonic() < over:
            stages.add(job.status()["stage"])
            time.sleep(0.1)
        assert stages == {3}
        job.finish()
    assert [line["stage"] for line in job.events("stage")] == [2, 3]
    assert [line["event"] for line in job.events("controller")] == ["started", "restarted"]
    assert not job.events("rolled back")
