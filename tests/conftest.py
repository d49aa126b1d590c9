"""Fixtures all rooms share: a lab of real hosts (root only), the command line in this process and as a child."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from benchmarks.stale import forget_stale

# Properties are not held against the clock: the machine that tests them may be busy. Where CI is set they are tried
# with the same examples every time, so that a change is judged by itself; elsewhere with new ones.
settings.register_profile(
    "plink", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
# With a mistake made on purpose (benchmarks/mutants.py) it is enough that an example is found.
settings.register_profile(
    "mutants", settings.get_profile("plink"), derandomize=False, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("plink")

forget_stale()

# Whoever runs the tests may be deaf to these (nohup, a shell's `&`), and what they start would be so too.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL if _number == signal.SIGHUP else signal.default_int_handler)

MISSING = [name for name in ("ip", "tc", "sshd") if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None]
NO_LAB = "needs root" if os.geteuid() != 0 else f"needs {', '.join(MISSING)}" if MISSING else ""
SLURM = ("munged", "slurmctld", "slurmd", "srun")
NO_SLURM = ", ".join(name for name in SLURM if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None)
TIMED = {"cli", "docs", "lab", "pictures", "probes", "remote", "runners", "runtime"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``lab`` or ``slurm`` are skipped where these cannot be. They, and all in the rooms that start
    threads, processes, sockets and daemons, are about clocks and the load of a machine that others use too: one that
    fails is tried twice more, and the summary names it. Words and solvers have no clock and no second try."""
    for item in items:
        if "lab" in item.keywords or TIMED & set(item.path.relative_to(item.config.rootpath).parts):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=5))
        if NO_LAB and "lab" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=NO_LAB))
        if NO_SLURM and "slurm" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=f"needs {NO_SLURM}"))


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


def typed(*words: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The same without a process of its own, where starting one (and importing PyTorch) would take most of the time."""
    from plink.cli.entry import run

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape", write_through=True) for _ in range(2))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    changes = pytest.MonkeyPatch()
    try:
        for name, value in {"NO_COLOR": "1", **environment}.items():
            changes.setenv(name, value)
        changes.chdir(cwd)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(list(words))
    finally:
        changes.undo()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    said = [stream.buffer.getvalue().decode("utf-8", "surrogateescape") for stream in (out, err)]  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(["plink", *words], code, *said)


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
