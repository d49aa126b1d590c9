"""``plink elastic run --spot``: a job and its driver in one command; nothing is held after it, however it ends."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.waiting import until
from tests.runners.live.test_spot_drive import DATA, EXAMPLE, MARKET, PRICES, bill, status_of, working

RUN = ("elastic", "run", "--runner", "local", "--slots", "1", "--spot", "market.toml")
ENDLESS = (str(EXAMPLE), *DATA, "--clocks", "10000000")


def started(folder: Path, *words: str) -> "subprocess.Popen[str]":
    (folder / "market.toml").write_text(MARKET)
    (folder / "prices.csv").write_text(PRICES)
    (folder / "more.txt").write_text("w1 address=127.0.0.1\nw2 address=127.0.0.1\n")
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "plink", *RUN, *words], cwd=folder, stdout=out, stderr=err, text=True
        )


@pytest.fixture
def job(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A job that would go on for days, with an instance at least."""
    process = started(tmp_path, "--timeout", "500s", *ENDLESS)
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
    status = status_of(tmp_path, "elastic")
    assert {each["state"] for each in status["spot"]["held"]} <= {"starting", "working", "draining", "releasing"}
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
    job = started(tmp_path, "--timeout", "25s", "--json", *ENDLESS)
    assert job.wait() == 124
    document = json.loads((tmp_path / "stdout").read_text())
    assert document["spot"]["held"] == []
    assert document["spot"]["cost"]["total"] >= 0
    check_nothing_held(tmp_path)
