"""`lab up` that is killed midway: what it left is in nobody's way, and goes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.lab import faults, kernel
from runners.lab.blueprint import PREFIX
from tests.conftest import Lab, lab_up, plink
from tests.lab.traces import HERE, left_of
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

SMALL = ("--racks", "2", "--hosts-per-rack", "3")


def rising(name: str) -> "subprocess.Popen[str]":
    """`plink lab up` under way, with its children in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "plink", "lab", "up", "--name", name, *SMALL],
        cwd=HERE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for a lab that is taken down whatever happens."""
    chosen = f"c{os.getpid()}-{abs(hash(request.node.name)) % 1000}"
    yield chosen
    plink("lab", "down", "--name", chosen, cwd=HERE)
    assert left_of(chosen) == []


def begun(name: str) -> list[str]:
    """The lab's namespaces so far."""
    return kernel.namespaces(f"{PREFIX}{name}.")


def killed_at(name: str, delay: float, whole_group: bool) -> None:
    """Start `up`, kill -9 it ``delay`` seconds after its first namespace stands."""
    process = rising(name)
    until(lambda: begun(name), 10, "the first namespace")
    time.sleep(delay)  # the point of the test: a moment like any other
    if whole_group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate(timeout=10)


@pytest.mark.parametrize("whole_group", [True, False])
def test_up_after_a_crash_at_any_moment(name: str, whole_group: bool) -> None:
    """However far `up` got when it was killed, the next `up` ends with a lab that is whole."""
    rng = random.Random(5)
    for k in range(2):
        killed_at(name, rng.uniform(0, 0.15) * (k + 1), whole_group)
        lab = lab_up(name, *SMALL)
        hosts = faults.status(lab.blueprint, lab.state).hosts
        assert len(hosts) == 6
        assert all(host.alive and host.connected for host in hosts)
        assert plink("lab", "down", "--name", name, cwd=HERE).returncode == 0
        assert left_of(name) == []


def test_half_up_is_not_up_and_goes_with_down(name: str, tmp_path: Path) -> None:
    """Nobody may take half a lab for a whole one; `down` takes it away."""
    killed_at(name, 0.05, whole_group=True)
    assert begun(name)
    for command in (("status",), ("hosts",), ("cut", "rack0")):
        done = plink("lab", command[0], "--name", name, *command[1:], cwd=tmp_path)
        assert done.returncode == 2
        assert "is not up" in done.stderr
    down = plink("lab", "down", "--name", name, cwd=tmp_path)
    assert down.returncode == 0
    assert "is down" in down.stderr
    assert left_of(name) == []


def test_down_that_was_killed_leaves_no_lab_that_says_it_is_up(name: str) -> None:
    """A `down` that ends midway leaves half a lab, and `up` makes a whole one of it."""
    lab_up(name, *SMALL)
    process = subprocess.Popen(
        [sys.executable, "-m", "plink", "lab", "down", "--name", name], cwd=HERE, process_group=0
    )
    whole = len(begun(name))
    until(lambda: len(begun(name)) < whole, 10, "the first namespace to go")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=10)
    lab: Lab = lab_up(name, *SMALL)
    hosts = faults.status(lab.blueprint, lab.state).hosts
    assert [host.alive for host in hosts] == [True] * 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_up_leaves_nothing(name: str, number: signal.Signals) -> None:
    """Ctrl-C, TERM or a closed terminal midway: all that stood by then is taken away, exit code 128 + signal."""
    process = rising(name)
    until(lambda: begun(name), 10, "the first namespace")
    process.send_signal(number)
    _, printed = process.communicate(timeout=40)
    assert process.returncode == 128 + number, printed
    assert "Traceback" not in printed
    assert left_of(name) == []
