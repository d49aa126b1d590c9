"""Programs that raise, end their process or cannot be given what they need, in jobs of real processes: what is said."""

import re
from pathlib import Path

import pytest

from plink.errors import PlinkError
from tests.runners.elastic.live.elastic import Elastic


def test_a_program_that_ends_its_process(tmp_path: Path) -> None:
    """Among real processes: the agent tells the exit code."""
    checkpoints = {"checkpoints": str(tmp_path / "checkpoints"), "checkpoint_every_s": 0.2}
    with Elastic(tmp_path, "rt", clocks=200, settings=checkpoints, more=("--exit", "60", "--work-s", "0.01")) as job:
        job._thread.join(80)
    assert job.ended is not None
    assert job.ended.code == 1
    assert re.search("hosts died one after another while clock (5[789]|60) was worked on", job.ended.reason), job.ended
    assert "exit code 7" in job.ended.reason


def test_data_that_a_newcomer_lacks(tmp_path: Path) -> None:
    """It has failed, with file and line, and the others go on."""
    data = tmp_path / "data"
    data.touch()
    with Elastic(tmp_path, "rtt", clocks=9000, more=("--work-s", "0.02", "--unless", str(data))) as job:
        job.clock(5)
        data.unlink()
        job.add("n0")
        job.until(lambda status: any(line["event"] == "failed" for line in job.events("host")))
        job.clock(job.clock_now() + 5)
    (line,) = (line for line in job.events("host") if line["event"] == "failed")
    assert line["host"] == "n0"
    assert "raised FileNotFoundError: no data here (" in line["why"]


def test_a_result_that_cannot_be_kept(tmp_path: Path) -> None:
    """The job ends with file and line."""
    with Elastic(tmp_path, "r", clocks=5, more=("--spoilt",)) as job:
        job._thread.join(80)
    assert job.ended is not None
    assert job.ended.code == 1
    assert "h0: app Tally: result() raised OSError: cannot save (" in job.ended.reason
    assert "tally.py:" in job.ended.reason


def test_a_program_that_raises_ends_the_job_with_its_name(tmp_path: Path) -> None:
    """One line, which says where."""
    with Elastic(tmp_path, "rt", more=("--fail", "7")) as job:
        job._thread.join(60)
    assert job.ended is not None
    assert job.ended.code == 1
    assert "ValueError" in job.ended.reason
    assert "clock 7" in job.ended.reason


@pytest.mark.parametrize(
    ("tiers", "table", "times", "expected"),
    [
        ("rt", "sum", "1.5", r"^h\d: app Tally: process\(\) of shard \d+ .* with what worker \d adds at clock 7 "),
        ("rt", "fill", "9", r"^h\d: partition \d at \S+: .* with what the workers add at clock 7 "),
        ("rttt", "sum", "20", r"^h\d: partition \d at \S+: .* with what the workers add at clock 8 "),
    ],
)
def test_sums_that_are_too_large_end_the_job(tmp_path: Path, tiers: str, table: str, times: str, expected: str) -> None:
    """Of one worker, of all at a clock, and of clocks; no result is written."""
    with Elastic(tmp_path, tiers, more=("--megabytes", "1", "--large", table, "7", times)) as job:
        job._thread.join(60)
    assert job.ended is not None
    assert job.ended.code == 1
    assert re.match(expected, job.ended.reason)
    assert f"table '{table}'" in job.ended.reason
    assert "row 5: " in job.ended.reason
    assert " has room for (smaller " in job.ended.reason
    assert not (tmp_path / "result.json").exists()


def test_a_table_that_does_not_fit_is_refused_before_the_start(tmp_path: Path) -> None:
    """Nobody has worked by then."""
    with Elastic(tmp_path, "rt", more=("--megabytes", "1000000")) as job:
        job._thread.join(60)
    assert isinstance(job.error, PlinkError)
    assert str(job.error).startswith("h0 would keep 1.05 TB of parameters, and h0 and h1 ")
