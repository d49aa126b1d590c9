"""``plink elastic run --spot``: a job and its driver in one command; nothing is held after it, however it ends."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.waiting import until
from tests.runners.live.test_spot_drive import PRICES, working
from tests.runners.spot.local_job import DATA, EXAMPLE, bill, hosts_file, market_file, rented, status_of

RUN = ("elastic", "run", "--runner", "local", "--slots", "1", "--spot", "market.toml")
ENDLESS = (*DATA, "--clocks", "10000000")
FAILING = f"""
import sys
from pathlib import Path

sys.path.insert(0, {str(EXAMPLE.parent)!r})
import elastic_mf


class Failing(elastic_mf.MatrixFactorisation):
    def process(self, items, params):
        if (Path(__file__).parent / "fail").exists():
            raise RuntimeError("as the test asks")
        return super().process(items, params)


elastic_mf.MatrixFactorisation = Failing
make = elastic_mf.make
"""


def started(folder: Path, *words: str, prices: str = PRICES) -> "subprocess.Popen[str]":
    market = market_file({"small": (1, 0.2)}, cores=2, chunk_cores=1)
    (folder / "market.toml").write_text('zones = ["zone-a"]\n' + market)
    (folder / "prices.csv").write_text(prices)
    (folder / "more.txt").write_text(hosts_file(2))
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "plink", *RUN, *words], cwd=folder, stdout=out, stderr=err, text=True
        )


@pytest.fixture
def job(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A job that would go on for days, with an instance at least."""
    process = started(tmp_path, "--timeout", "500s", str(EXAMPLE), *ENDLESS)
    try:
        until(lambda: working(tmp_path) >= 1, 120, "an instance works")
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()


def check_nothing_held(folder: Path) -> None:
    status = status_of(folder, "spot")
    assert status["held"] == status["open_requests"] == []
    assert status["job_ended"]
    assert status["driver"] is None
    assert status["cost"]["transient"] == pytest.approx(bill(folder), abs=0.005)


@pytest.mark.timeout(300)
def test_status_shows_what_is_held_and_interrupt_releases_it(job: "subprocess.Popen[str]", tmp_path: Path) -> None:
    until(
        lambda: any(
            each["state"] == "working" and each["reason"]
            for each in status_of(tmp_path, "elastic").get("spot", {}).get("held", ())
        ),
        60,
        "the job's status has an instance that works, and why it is held",
    )
    job.send_signal(signal.SIGINT)
    assert job.wait() == 130
    check_nothing_held(tmp_path)
    assert "cost: " in (tmp_path / "stderr").read_text()
    assert "spot" in json.loads(
        subprocess.run(
            [sys.executable, "-m", "plink", "elastic", "summary", "last", "--json"], cwd=tmp_path, check=True,
            capture_output=True,
        ).stdout
    )  # fmt: skip


@pytest.mark.timeout(300)
def test_killed_job_leaves_a_driver_that_releases(job: "subprocess.Popen[str]", tmp_path: Path) -> None:
    job.kill()
    job.wait()
    until(lambda: status_of(tmp_path, "spot").get("driver", 0) is None, 120, "the driver is done")
    check_nothing_held(tmp_path)


@pytest.mark.timeout(300)
def test_killed_driver_is_replaced(job: "subprocess.Popen[str]", tmp_path: Path) -> None:
    import os

    first = status_of(tmp_path, "spot")["driver"]
    os.kill(first, signal.SIGKILL)
    until(lambda: status_of(tmp_path, "spot").get("driver") not in (None, first), 120, "another driver runs")
    job.send_signal(signal.SIGINT)
    job.wait()
    check_nothing_held(tmp_path)


@pytest.mark.timeout(300)
def test_failed_job_prints_what_it_cost(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    job = started(tmp_path, "--timeout", "250s", "--json", str(tmp_path / "failing.py"), *ENDLESS)
    try:
        until(lambda: working(tmp_path) >= 1, 200, "an instance works")
    finally:
        (tmp_path / "fail").touch()
    assert job.wait() not in (0, 124)
    document = json.loads((tmp_path / "stdout").read_text())
    assert document["spot"]["held"] == []
    assert document["spot"]["ended"]["released"] >= 1
    assert document["spot"]["cost"]["total"] > 0
    check_nothing_held(tmp_path)


@pytest.mark.timeout(300)
def test_deadline_rents_on_demand_and_releases_at_the_end(tmp_path: Path) -> None:
    dear = "zone,type,timestamp,price\nzone-a,small,2016-06-11T00:00:00Z,9\nzone-a,small,2016-06-13T00:00:00Z,9\n"
    deadline = ("--deadline", "60s", "--iterations", "10000000")
    job = started(tmp_path, "--timeout", "250s", *deadline, str(EXAMPLE), *ENDLESS, prices=dear)
    try:
        until(lambda: working(tmp_path) >= 1, 200, "an on-demand machine works")
    finally:
        job.send_signal(signal.SIGINT)
        job.wait()
    assert {each["market"][2] for each in rented(tmp_path)} == {"on-demand"}
    assert all(each["end"] == "released" for each in rented(tmp_path))
    status = status_of(tmp_path, "spot")
    assert status["held"] == status["open_requests"] == []
    assert status["driver"] is None
