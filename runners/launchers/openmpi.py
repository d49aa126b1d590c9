"""Launcher of Open MPI: mpirun with its sequential mapper, whose hostfile is the order, one line a rank.

Checked: 4.1.4 and 5.0.11. Version 4 calls its runtime ORTE and takes ``--mca``; version 5 calls it PRRTE and takes
``--prtemca``; its ``seq:FILE=`` crashes, ``--hostfile`` beside ``seq`` does not. Daemons start no further daemons: only
this machine has the keys.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from plink.model.dry_run import LaunchCommand
from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from runners.hostfiles.openmpi import SEQUENTIAL
from runners.job.job import Job
from runners.job.runner import RunContext
from runners.launchers.ssh_config import ssh_config
from runners.ssh.connector import SshConnector

_HOSTFILE, _SSH_CONFIG = "hostfile", "ssh_config"
_AGENT = f"ssh -F {_SSH_CONFIG}"
_OPTIONS = {
    4: ["--hostfile", _HOSTFILE, "--mca", "rmaps", "seq", "--mca", "plm_rsh_agent", _AGENT,
        "--mca", "plm_rsh_no_tree_spawn", "1", "--tag-output"],
    5: ["--hostfile", _HOSTFILE, "--map-by", "seq", "--prtemca", "plm_ssh_agent", _AGENT,
        "--prtemca", "plm_ssh_no_tree_spawn", "1", "--output", "tag"],
}  # fmt: skip
# [JOB,RANK]<stdout>: and in version 5 a blank
_MARKS = {
    4: re.compile(r"\[\d+,(\d{1,9})\]<std(out|err|diag)>:"),
    5: re.compile(r"\[(?:[^\[\]]*@)?\d+,(\d{1,9})\]<std(out|err|diag)>: "),
}
_HARMLESS = re.compile(r"plm:[rs]sh: Warning: setpgid\(")  # its ssh has done so by itself already
_EXITED = re.compile(r"Process name:\s*\[.*,(\d{1,9})\]\s*Exit code:\s*(\d{1,9})", re.DOTALL)
_KILLED = re.compile(r"process rank (\d{1,9}) with PID \d+ on node \S+ exited on\s+signal (\d{1,9})")


class OpenMpi:
    """See :class:`runners.launchers.launcher.Launcher`. ``version``: 4 or 5."""

    name = "mpirun"
    rank_variables: tuple[str, ...] = ("OMPI_COMM_WORLD_RANK",)
    # Open MPI would try every interface that is up, Docker's bridges with addresses that all hosts share among them.
    interface_variables: Mapping[str, str] = MappingProxyType({"OMPI_MCA_btl_tcp_if_include": "{}"})

    def __init__(self, connector: SshConnector, version: int, program: str = "mpirun") -> None:
        self._connector, self._version, self._program = connector, min(max(version, 4), 5), program

    def files(self, hosts: Hosts, job: Job) -> dict[str, str]:
        """Return the sequential hostfile, and the SSH settings of its hosts."""
        order = RankOrder(algo="hosts", hosts=tuple(hosts.names))
        return {_HOSTFILE: SEQUENTIAL.render(hosts, order), _SSH_CONFIG: ssh_config(hosts, self._connector)}

    def command(
        self, hosts: Hosts, job: Job, folder: Path, arguments: Sequence[str], forwarded: Sequence[str] = ()
    ) -> LaunchCommand:
        """Return the command, with file names relative to the folder: mpirun splits its options for ssh at blanks."""
        argv = [
            self._program,
            *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
            *_OPTIONS[self._version],
            *("--bind-to", "none", "-n", str(sum(host.slots for host in hosts))),
            *(word for name in forwarded for word in ("-x", name)),
            *job.launcher_args,
            *arguments,
        ]
        return LaunchCommand(tuple(argv), workdir=str(folder))

    @contextlib.contextmanager
    def allocation(self, hosts: Hosts, job: Job, folder: Path, context: RunContext) -> Iterator[dict[str, str]]:
        """Hold nothing."""
        yield {}

    def parse_output_line(self, stream: str, line: str) -> Iterator[tuple[int | None, str, str]]:
        """Split a line by the marks of its ranks: it may hold parts of several."""
        marks = list(_MARKS[self._version].finditer(line))
        before = line[: marks[0].start()] if marks else line
        if (before or not marks) and not _HARMLESS.search(before):
            yield None, stream, before
        ends = [*(mark.start() for mark in marks[1:]), len(line)]
        for mark, end in zip(marks, ends, strict=False):
            yield int(mark[1]), "out" if mark[2] == "out" else "err", line[mark.end() : end]

    def first_failure(self, own_lines: Sequence[str]) -> tuple[int, int] | None:
        """Return the first rank that ended with a code or by a signal, which mpirun names."""
        text = "\n".join(own_lines)
        if exited := _EXITED.search(text):
            return int(exited[1]), int(exited[2])
        if killed := _KILLED.search(text):
            return int(killed[1]), 128 + int(killed[2])
        return None
