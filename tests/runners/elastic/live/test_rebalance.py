"""Jobs of real processes of which one is slow and is helped: what comes out is what undisturbed hosts make."""

import signal
import time
from pathlib import Path

import pytest

from tests.runners.elastic.live.elastic import Elastic

SLOW = ("--work-s", "0.004", "--slow", "6")


@pytest.mark.parametrize("rule", ["bsp", "ssp:1", "dssp:1:3"])
def test_slow_host_is_helped(tmp_path: Path, rule: str) -> None:
    settings = {"rule": rule, "rebalance": True}
    with Elastic(tmp_path, "rtt", clocks=30, shards=48, settings=settings, more=SLOW) as job:
        job.finish(exactly=rule == "bsp")
    assert [line for line in job.events("iteration") if line["help"]]
    assert [line for line in job.notes if "others did" in line]
    assert not job.events("rolled back")


def test_hosts_come_and_go_and_freeze_while_they_help(tmp_path: Path) -> None:
    """One is added, one is warned, one is killed, and one is stopped for a moment, shorter than it takes to be lost."""
    settings = {"rebalance": True, "silence_s": 5.0}
    with Elastic(tmp_path, "rttt", clocks=300, shards=36, settings=settings, more=SLOW) as job:
        job.clock(5)
        job.add("n0")
        job.until(lambda status: status["workers"] == 5)
        job.kill("h2", number=signal.SIGSTOP)
        time.sleep(1.0)
        job.kill("h2", number=signal.SIGCONT)
        job.clock(job.clock_now() + 3)
        job.kill("h3")
        job.until(lambda status: status["workers"] == 4)
        job.clock(job.clock_now() + 3)
        job.evict("h1", seconds=20)
        job.finish()
