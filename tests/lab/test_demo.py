"""`plink demo`: the whole path on an emulated cloud, which is gone afterwards however it ends."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.lab import kernel
from tests.conftest import plink
from tests.lab.jobs import Running
from tests.lab.traces import left_of
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

KEYS = {"schema", "hosts", "racks_recovered", "baseline_s", "plink_s", "bound_s", "speedup"}


def demo_labs() -> set[str]:
    """Labs of demos that stand."""
    matches = (re.fullmatch(r"plink\.(demo-\d+)\..*", name) for name in kernel.namespaces("plink.demo-"))
    return {match.group(1) for match in matches if match}


def test_it_finds_the_racks_and_what_they_are_worth(tmp_path: Path) -> None:
    """16 hosts in 4 racks: all racks found, 2.5 times as fast at least, never faster than the links allow."""
    before = demo_labs()
    done = plink("demo", "--json", "--seed", "5", cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["schema"] == "plink.demo/1"
    assert result.keys() >= KEYS
    assert sorted(result["hosts"]) == [f"node-{i:02}" for i in range(1, 17)]
    assert result["racks_recovered"] is True
    assert result["speedup"] == pytest.approx(result["baseline_s"] / result["plink_s"], abs=0.01)
    assert result["speedup"] >= 2.5
    assert result["bound_s"] == pytest.approx(0.6)
    assert result["plink_s"] > result["bound_s"] * 0.95
    assert demo_labs() == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["round trips", "in turns"])
def test_ctrl_c_in_the_middle_leaves_nothing(tmp_path: Path, start: Callable[..., Running], moment: str) -> None:
    """While it probes, and while the benchmark starts: exit code 130 and no namespace, process or route."""
    running = start("demo", "--racks", "2", "--hosts-per-rack", "2")
    until(lambda: moment in running.err, 30, moment)
    name = f"demo-{running.process.pid}"
    assert name in demo_labs()
    running.process.send_signal(signal.SIGINT)
    assert running.ends(15) == 130
    assert left_of(name) == []
    assert "Traceback" not in running.err
    assert running.out == ""
