"""Fixtures all rooms share: a lab of real hosts (root only), the command line in this process and as a child."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Whoever runs the tests may be deaf to these (nohup, a shell's `&`), and what they start would be so too.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL if _number == signal.SIGHUP else signal.default_int_handler)

MISSING = [name for name in ("ip", "tc", "sshd") if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None]
NO_LAB = "needs root" if os.geteuid() != 0 else f"needs {', '.join(MISSING)}" if MISSING else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``lab`` are skipped where a lab cannot be."""
    if NO_LAB:
        for item in items:
            if "lab" in item.keywords:
                item.add_marker(pytest.mark.skip(reason=NO_LAB))


def plink(*words: str, cwd: Path, timeout: float = 120, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line as its user does, in a folder of its own, and give what it printed."""
    environment = {**os.environ, "NO_COLOR": "1", **more}
    return subprocess.run(
        [sys.executable, "-m", "plink", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        check=False,
    )


class Lab:
    """A lab that is up: its name, its hosts file, the truth about it."""

    def __init__(self, name: str) -> None:
        from runners.lab.state import State

        self.name = name
        self.state = State(name)
        self.blueprint = self.state.blueprint()
        self.hosts = self.blueprint.hosts()
        self.racks = {place.name: place.rack for place in self.blueprint.places}
        self.hosts_file = self.state.hosts_file

    def plink(self, command: str, *words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
        """``plink lab COMMAND --name NAME WORDS``."""
        return plink("lab", command, "--name", self.name, *words, cwd=cwd)


def lab_up(name: str, *words: str) -> Lab:
    """Bring a lab up by the command line."""
    done = plink("lab", "up", "--name", name, *words, cwd=Path("/"))
    assert done.returncode == 0, done.stderr
    return Lab(name)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Four racks of four hosts at 200 Mbit/s; tests that break it must heal it."""
    name = f"t{os.getpid()}"
    yield lab_up(name, "--seed", "7")
    plink("lab", "down", "--name", name, cwd=Path("/"))


@pytest.fixture(scope="session")
def small_lab() -> Iterator[Lab]:
    """Two racks of two hosts, for tests that need hosts and no crowd; tests that break it must heal it."""
    name = f"s{os.getpid()}"
    yield lab_up(name, "--racks", "2", "--hosts-per-rack", "2", "--seed", "3")
    plink("lab", "down", "--name", name, cwd=Path("/"))
