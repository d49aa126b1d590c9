"""``plink spot drive`` for a real job on this machine: hosts join and are released, also when drivers are killed."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import plink
from tests.lab.waiting import until
from tests.runners.spot.local_job import bill, hosts_file, market_file, start, start_job, status_of

PRICES = """\
zone,type,timestamp,price
zone-a,small,2016-06-11T00:00:00Z,0.1
zone-a,small,2016-06-11T00:30:00Z,0.05
zone-a,small,2016-06-11T01:00:00Z,0.12
zone-a,small,2016-06-13T00:00:00Z,0.1
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A job of one reliable host that would go on for days."""
    (tmp_path / "market.toml").write_text(market_file({"small": (1, 0.2)}, cores=2, chunk_cores=1))
    (tmp_path / "prices.csv").write_text(PRICES)
    (tmp_path / "more.txt").write_text(hosts_file(2))
    process = start_job(tmp_path, 4, "500s")
    try:
        until(lambda: status_of(tmp_path, "elastic").get("stage") is not None, 120, "the job runs")
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def working(folder: Path) -> int:
    return sum(each["state"] == "working" for each in status_of(folder, "spot").get("held", ()))


@pytest.mark.timeout(300)
def test_killed_drivers_leave_no_instances_and_an_exact_bill(job: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    driver = start(tmp_path, "spot", "drive", "market.toml", "last")
    try:
        until(lambda: working(tmp_path) >= 1, 120, "hosts work")
        second = plink("spot", "drive", "market.toml", "last", cwd=tmp_path)
        assert second.returncode == 2
        assert str(driver.pid) in second.stderr
        driver.kill()
        driver.wait()
        assert status_of(tmp_path, "spot")["driver"] is None
        driver = start(tmp_path, "spot", "drive", "market.toml", "last")
        until(lambda: working(tmp_path) == 2, 120, "hosts work")
        job.send_signal(signal.SIGINT)
        job.wait()
        assert driver.wait() == 0
    finally:
        driver.kill()
    status = status_of(tmp_path, "spot")
    assert status["held"] == status["open_requests"] == []
    assert status["job_ended"]
    assert status["cost"]["transient"] == pytest.approx(bill(tmp_path), abs=0.005)


@pytest.mark.timeout(300)
def test_release_after_the_driver_died_leaves_the_job_running(job: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    driver = start(tmp_path, "spot", "drive", "market.toml", "last")
    try:
        until(lambda: working(tmp_path) >= 1, 120, "hosts work")
    finally:
        driver.kill()
        driver.wait()
    released = plink("spot", "release", "--all", cwd=tmp_path)
    assert released.returncode == 0, released.stderr
    assert status_of(tmp_path, "spot")["held"] == []
    assert job.poll() is None
    assert status_of(tmp_path, "spot")["cost"]["transient"] == pytest.approx(bill(tmp_path), abs=0.005)
