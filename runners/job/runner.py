"""Ways to start a job: what every runner offers, and what it tells while it works.

All take hosts in rank order and put rank 0 on the first of them, each host's slots in a block. A dry run is the real
path minus its last call: whatever a run would refuse, it refuses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from plink.model.hosts import Hosts
from runners.job.job import Job
from runners.job.output import Sink
from runners.job.proof import RankLocation
from runners.job.result import RunResult, new_id

Machines = Mapping[str, dict[str, Any]]


@dataclass(frozen=True)
class Watch:
    """What a runner is told to report to.

    :param sink: gets every line that a rank prints: rank (None: the launcher itself), stream (``out``, ``err``), line.
    :param on_proof: called with the proof before the user's code starts.
    :param clock: seconds, monotonic.
    :param connected: called with (done, total) for every host that was connected to, or given up.
    :param copied: called with (done, total) in bytes while a folder is copied to hosts.
    :param folder: of this run, where files that a launcher reads are written; it exists. None where none is needed.
    :param machines: what is known of the hosts from when they were measured, by name (may be empty).
    :param talk: gets each line that rank 0 says to the launcher, returns what to answer; None: there is no such line.
        Only runners with agents of ours have one.
    """

    sink: Sink
    on_proof: Callable[[list[RankLocation]], None]
    clock: Callable[[], float]
    folder: Path | None = None
    connected: Callable[[int, int], None] = lambda done, total: None
    copied: Callable[[int, int], None] = lambda done, total: None
    machines: Machines = field(default_factory=dict)
    run_id: str = field(default_factory=new_id)
    talk: Callable[[str], list[str]] | None = None


@dataclass(frozen=True)
class Command:
    """One command that a run would start. ``host`` None: here; ``env``: what is added to the environment there."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    host: str | None = None
    ranks: tuple[int, ...] = ()
    workdir: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As it stands in ``plink.dry-run/1``."""
        return {
            "host": self.host,
            "ranks": list(self.ranks),
            "workdir": self.workdir,
            "env": dict(self.env),
            "argv": list(self.argv),
        }


@dataclass(frozen=True)
class DryRun:
    """What a run would do. ``files``: what it would write for the launcher, text by path."""

    runner: str
    commands: tuple[Command, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """``plink.dry-run/1``."""
        return {
            "schema": "plink.dry-run/1",
            "runner": self.runner,
            "files": dict(self.files),
            "commands": [command.to_json() for command in self.commands],
        }


class Writer(Protocol):
    """One way to start a job that ends where the job's files are written: others start it (a cluster's own control)."""

    name: str

    def dry_run(self, job: Job, hosts: Hosts, watch: Watch) -> DryRun:
        """What would be done, up to the last call; the user's program is not started.

        :raises PlinkError: whatever :meth:`Runner.run` would refuse.
        """


class Runner(Writer, Protocol):
    """One way to start a job and see it to its end. Its dry run is what :meth:`run` does, up to the last call."""

    def run(self, job: Job, hosts: Hosts, watch: Watch) -> RunResult:
        """Run the job to its end. What it wrote for the launcher stays in ``watch.folder``.

        :raises UsageError: for a job or hosts that this way cannot express. :raises PlinkError: when it cannot start.
        :raises OrderNotKept: when a rank is not where it was asked to be. Nothing of the user's ran in all three cases.
        """
