"""Protocol of a runner, which starts a job and sees it to its end; and what a run needs besides the job and its hosts.

All runners take hosts in rank order: rank 0 is on the first host, and each host's slots are one block of ranks. A dry
run is the real path without its last call: it refuses what a run would refuse.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from plink.argument_checks import check_fields
from plink.errors import UsageError
from plink.model.dry_run import DryRun
from plink.model.hosts import Hosts
from runners.job.monitor import Sink
from runners.job.placement import RankLocation, RunResult, new_id

# They say which rank a process is; placement verification relies on them.
_RESERVED_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


HostIdentities = Mapping[str, dict[str, Any]]
# Names of the host that sends and the one that receives; Gbit/s of each flow that came through, else why not.
Flow = tuple[str, str]
FlowResults = dict[Flow, float | str]
FlowRun = Callable[[Sequence[Flow]], FlowResults]


@dataclass(frozen=True)
class Job:
    """One program as the ranks of a job.

    :param program: a ``.py`` file (run with the first of ``pythons`` that a host has) or a command.
    :param workdirs: the first of them that a host has is where the program runs; default: this folder, else the home.
    :param env: added to the ranks' environment, over what plink sets.
    :param timeout_s: seconds after which a job that still runs is ended; None: never.
    :param interface: the interface that Gloo and NCCL use on every host, or several (``eth0,eth1``); None: the one that
        leads to the other hosts.
    :param master_port: where the first rank serves the rendezvous, 0 for any free port.
    :param allow_version_mismatch: run also on hosts with different versions of Python or PyTorch.
    :param sync: a folder here that is copied to every host, where the job then runs in the copy.
    :param launcher_args: added to the command of an external launcher.
    :param hubs: the host of each hub process (``--backend phub``); they are started beside the ranks, and numbered
        after them.
    :raises UsageError: when ``program`` is empty, or ``env`` would tell a rank that it is another one.
    """

    program: str
    args: tuple[str, ...] = ()
    workdirs: tuple[str, ...] = field(default_factory=lambda: (os.getcwd(), "~"))
    pythons: tuple[str, ...] = (sys.executable, "python3")
    env: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    interface: str | None = None
    master_port: int = 0
    allow_version_mismatch: bool = False
    sync: Path | None = None
    launcher_args: tuple[str, ...] = ()
    hubs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, {})
        object.__setattr__(self, "sync", self.sync and Path(self.sync))
        if not self.program.strip():
            raise UsageError("program '': name a .py file or a command")
        for name in _RESERVED_VARIABLES:
            if name in self.env:
                raise UsageError(f"--env {name}={self.env[name]}: the rank order sets it; omit it")

    def check_no_hubs(self, runner: str) -> None:
        """Refuse hubs for a runner that starts none. :raises UsageError: when the job has some."""
        if self.hubs:
            raise UsageError(
                f"hubs ({', '.join(self.hubs)}) go with --runner ssh or local; --runner {runner} starts none"
            )


@dataclass(frozen=True)
class RunObserver:
    """Callbacks of a run.

    :param on_line: gets each line that a rank prints: the rank (None: the launcher itself), ``out`` or ``err``, the
        line.
    :param on_placement: gets the location of every rank, before programs begin.
    :param progress: gets (phase, done, total): ``connecting`` counts hosts, ``copying`` bytes.
    """

    on_line: Sink = lambda rank, stream, line: None
    on_placement: Callable[[list[RankLocation]], None] = lambda locations: None
    progress: Callable[[str, int, int], None] = lambda phase, done, total: None


@dataclass(frozen=True)
class RunContext:
    """What a runner needs besides the job and its hosts.

    :param clock: seconds, monotonic.
    :param folder: of this run, for the files that a launcher reads; it exists. None where none is needed.
    :param host_identities: of the hosts when they were measured, by name (may be empty).
    :param on_rank_line: gets each line that rank 0 sends to the launcher, returns the answers; None: there is no such
        channel. Only runners with agents of plink have one.
    :param check_network: called before ranks start, with a function that runs flows between hosts at once, at most one
        from each host and one to each; raises what keeps the job from starting. Only runners with agents of plink call
        it.
    """

    observer: RunObserver
    clock: Callable[[], float]
    folder: Path | None = None
    host_identities: HostIdentities = field(default_factory=dict)
    run_id: str = field(default_factory=new_id)
    on_rank_line: Callable[[str], list[str]] | None = None
    check_network: Callable[[FlowRun], None] | None = None


class Writer(Protocol):
    """A way to start a job that writes files, from which other software (a cluster's control plane) starts it."""

    name: str

    def dry_run(self, job: Job, hosts: Hosts, context: RunContext) -> DryRun:
        """Return what a run would do, up to its last call; does not start the user's program.

        :raises PlinkError: whatever :meth:`Runner.run` would refuse.
        """


class Runner(Writer, Protocol):
    """A way to start a job and see it to its end. Its dry run is :meth:`run` up to the last call."""

    def run(self, job: Job, hosts: Hosts, context: RunContext) -> RunResult:
        """Run the job to its end. Files for the launcher stay in ``context.folder``.

        :raises UsageError: for a job or hosts that this way cannot express. :raises PlinkError: when it cannot start.
        :raises PlacementError: when a rank is on another host than assigned. In all three cases no program ran.
        """
