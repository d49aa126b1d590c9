"""A lab for one benchmark, and the command line run in it as a user would."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plink.model.network import Matrix, Network, read_network
from runners.lab.kernel import sysctl
from runners.lab.state import LabState


@dataclass(frozen=True)
class CommandRun:
    """One command: its seconds, its exit code, and its peak memory."""

    seconds: float
    code: int
    peak_mb: float
    stderr: str


class BenchLab:
    """A lab that is up, a folder to work in, and the truth."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.blueprint = LabState(name).blueprint()
        self.hosts_file = str(LabState(name).hosts_file)
        self.names = self.blueprint.hosts().names
        rack = np.array([place.rack for place in self.blueprint.places])
        self.router_hops: Matrix = np.where(rack[:, None] == rack[None, :], 0.0, 3.0)
        self.racks = rack

    def plink(self, *words: str) -> CommandRun:
        """Run the command line in the folder."""
        return plink(*words, cwd=self.folder)

    def use_reno(self) -> None:
        """Let TCP's Reno control the hosts' connections, whatever this machine's default: under BBR two flows that
        share a link do not get half of it each."""
        for host in self.names:
            sysctl(self.blueprint.namespace(host), {"ipv4/tcp_congestion_control": "reno"})

    def network(self, name: str) -> Network:
        """Return a network file of the folder."""
        return read_network(self.folder / name)


def plink(*words: str, cwd: Path) -> CommandRun:
    """Run the command line; peak memory is the largest of its processes here (agents are not among them)."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "plink", *words], cwd=cwd, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        return CommandRun(time.monotonic() - began, process.returncode, usage.ru_maxrss / 1024, errors.read())


@contextlib.contextmanager
def lab(*options: str, suffix: str = "") -> Iterator[BenchLab]:
    """Yield a lab with these options of ``plink lab up``, taken down afterwards. ``suffix``: of a second lab's name."""
    name = f"bench-{os.getpid()}{suffix}"
    with tempfile.TemporaryDirectory() as folder:
        up = plink("lab", "up", "--name", name, *options, cwd=Path(folder))
        if up.code:
            raise SystemExit(up.stderr)
        try:
            yield BenchLab(name, Path(folder))
        finally:
            plink("lab", "down", "--name", name, cwd=Path(folder))
