"""A job: one program, to be run as ranks."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from plink.errors import UsageError

# They say which rank a process is; placement verification relies on them.
_RESERVED_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


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
    :param hubs: the host of each hub process (``--backend hub``); they are started beside the ranks, and numbered after
        them.
    :raises UsageError: when ``env`` would tell a rank that it is another one.
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
        for name in _RESERVED_VARIABLES:
            if name in self.env:
                raise UsageError(f"--env {name}={self.env[name]}: the rank order sets it; omit it")
