"""``plink spot drive`` for a real job on this machine: hosts join and are released, also when drivers are killed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plink.model.spot.price_files import read_histories
from plink.model.spot.prices import Market
from solvers.spot.billing import BILLINGS, Stay
from tests.conftest import plink
from tests.lab.waiting import until

EXAMPLE = Path(__file__).parents[3] / "examples" / "agile_mf.py"
DATA = ("--users", "200", "--movies", "80", "--count", "8000", "--rank", "4", "--shards", "6")
MARKET = """\
billing = "per-second"
[[types]]
name = "small"
cores = 1
on_demand = 0.2
[anchors]
type = "small"
count = 1
[reference]
type = "small"
count = 2
[limits]
max_cores = 2
chunk_cores = 1
budget = 1000.0
[application]
iteration_s = [0.0, 1.0, 0.0]
start_s = 1
add_s = 1
evict_s = 1
[provider]
kind = "replay"
history = "prices.csv"
hosts = "more.txt"
speed = 60
"""
PRICES = """\
zone,type,timestamp,price
zone-a,small,2016-06-11T00:00:00Z,0.1
zone-a,small,2016-06-11T00:30:00Z,0.05
zone-a,small,2016-06-11T01:00:00Z,0.12
zone-a,small,2016-06-13T00:00:00Z,0.1
"""


def start(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "plink", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture
def job(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A job of one reliable host that would go on for days."""
    (tmp_path / "market.toml").write_text(MARKET)
    (tmp_path / "prices.csv").write_text(PRICES)
    (tmp_path / "more.txt").write_text("w1 address=127.0.0.1\nw2 address=127.0.0.1\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "plink", "elastic", "run", "--runner", "local", "--slots", "1", "--max-hosts", "4",
         "--timeout", "500s", str(EXAMPLE), *DATA, "--clocks", "10000000"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: status_of(tmp_path, "elastic").get("stage") is not None, 120, "the job runs")
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def status_of(folder: Path, group: str) -> dict[str, Any]:
    done = plink(group, "status", "last", "--json", cwd=folder)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def working(folder: Path) -> int:
    return sum(each["state"] == "working" for each in status_of(folder, "spot").get("held", ()))


def bill(folder: Path) -> float:
    """What was rented costs, by the provider's own file and the price history alone."""
    (path,) = folder.glob(".plink/runs/*/spot/cloud.json")
    trace = read_histories([folder / "prices.csv"]).prices[Market("zone-a", "small")]
    return sum(
        BILLINGS["per-second"].charged(Stay(each["since_s"], each["until_s"], 1, each["end"]), trace.price_at).money
        for each in json.loads(path.read_text())["instances"].values()
    )


@pytest.mark.timeout(300)
def test_killed_drivers_leave_no_instances_and_an_exact_bill(job: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    driver = start(tmp_path, "spot", "drive", "last", "market.toml")
    try:
        until(lambda: working(tmp_path) >= 1, 120, "hosts work")
        second = plink("spot", "drive", "last", "market.toml", cwd=tmp_path)
        assert second.returncode == 2
        assert str(driver.pid) in second.stderr
        driver.kill()
        driver.wait()
        assert status_of(tmp_path, "spot")["driver"] is None
        driver = start(tmp_path, "spot", "drive", "last", "market.toml")
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
    driver = start(tmp_path, "spot", "drive", "last", "market.toml")
    try:
        until(lambda: working(tmp_path) >= 1, 120, "hosts work")
        refused = plink("spot", "release", "last", cwd=tmp_path)
        assert refused.returncode == 2
    finally:
        driver.kill()
        driver.wait()
    released = plink("spot", "release", "--all", cwd=tmp_path)
    assert released.returncode == 0, released.stderr
    assert status_of(tmp_path, "spot")["held"] == []
    assert job.poll() is None
    assert status_of(tmp_path, "spot")["cost"]["transient"] == pytest.approx(bill(tmp_path), abs=0.005)
