"""Jobs on lab hosts for the tests of `plink launch`: a hosts file, a script, a command under way."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from plink.model.hosts import Hosts, render_hosts
from tests.conftest import Lab
from tests.lab.waiting import until


def write_hosts(lab: Lab, folder: Path, slots: int = 1, names: list[str] | None = None) -> Path:
    """The lab's hosts file (or those of its hosts that are named, in that order), with so many slots a host."""
    from dataclasses import replace

    hosts_by_name = lab.hosts.by_name()
    members = tuple(replace(hosts_by_name[name], slots=slots) for name in names or lab.hosts.names)
    path = folder / "hosts.txt"
    path.write_text(render_hosts(Hosts(members, lab.name)))
    return path


def write_script(folder: Path, text: str, name: str = "train.py") -> str:
    """A program of the user's; returns the name to type."""
    (folder / name).write_text(text)
    return name


class Running:
    """A plink command under way, as its user's shell would run it; what it prints is kept in files."""

    def __init__(self, folder: Path, *words: str, **more: str) -> None:
        self._out, self._err = folder / "stdout.txt", folder / "stderr.txt"
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "plink", *words],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "NO_COLOR": "1", **more},
                # A shell without job control starts its background commands with Ctrl-C ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    @property
    def out(self) -> str:
        """Standard output so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Standard error so far."""
        return self._err.read_text()

    def await_lines(self, count: int, holding: str, seconds: float = 20) -> list[str]:
        """Lines of standard output with this text, once there are so many."""

        def look() -> list[str]:
            assert self.process.poll() is None, f"it has ended: {self.err}"
            matching = [line for line in self.out.splitlines() if holding in line]
            return matching if len(matching) >= count else []

        return until(look, seconds, f"{count} lines with {holding!r}")

    def ends(self, seconds: float) -> int:
        """Its exit code; fails when it takes longer."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s: {self.err}") from None

    def close(self) -> None:
        """Whatever happened, it does not outlive the test."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=10)
