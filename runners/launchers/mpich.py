"""Launcher of MPICH: Hydra, with a machinefile that it fills line by line. Checked: 4.0.2."""

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from plink.errors import PlinkError
from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from plink.transport.addresses import source_address_for
from runners.hostfiles.mpich import MACHINEFILE
from runners.job.job import Job
from runners.job.runner import LaunchCommand, RunContext
from runners.launchers.ssh_config import ssh_config
from runners.ssh.connector import SshConnector

_MACHINEFILE, _SSH_CONFIG = "machinefile", "ssh_config"
_LAST_VARIABLE = "PLINK_LAST"  # Hydra 4.0.2 does not forward the last variable of its environment
_MARK = re.compile(r"\[(\d{1,9})\] ")


class Mpich:
    """See :class:`runners.launchers.launcher.Launcher`."""

    name = "mpich"
    rank_variables: tuple[str, ...] = ("PMI_RANK",)
    interface_variables: Mapping[str, str] = MappingProxyType({})

    def __init__(self, connector: SshConnector, program: str = "mpiexec.hydra") -> None:
        self._connector, self._program = connector, program

    def files(self, hosts: Hosts, job: Job) -> dict[str, str]:
        """Return the machinefile, and the SSH settings of its hosts."""
        order = RankOrder(algo="hosts", hosts=tuple(hosts.names))
        return {_MACHINEFILE: MACHINEFILE.render(hosts, order), _SSH_CONFIG: ssh_config(hosts, self._connector)}

    def command(
        self, hosts: Hosts, job: Job, folder: Path, arguments: Sequence[str], forwarded: Sequence[str] = ()
    ) -> LaunchCommand:
        """Return the command; hosts connect back to the address that leads to them. It forwards no other variables."""
        argv = [
            *(self._program, "-f", _MACHINEFILE, "-launcher", "ssh", "-localhost", _local_address(hosts)),
            *(("-genvlist", ",".join(forwarded)) if forwarded else ("-genvnone",)),
            *("-prepend-rank", "-n", str(sum(host.slots for host in hosts))),
            *job.launcher_args,
            *arguments,
        ]
        env = {"HYDRA_LAUNCHER_EXTRA_ARGS": f"-F {_SSH_CONFIG}"}
        env |= {_LAST_VARIABLE: "1"} if forwarded else {}
        return LaunchCommand(tuple(argv), env, workdir=str(folder))

    @contextlib.contextmanager
    def allocation(self, hosts: Hosts, job: Job, folder: Path, context: RunContext) -> Iterator[dict[str, str]]:
        """Hold nothing."""
        yield {}

    def parse_output_line(self, stream: str, line: str) -> Iterator[tuple[int | None, str, str]]:
        """Split a line by the marks of its ranks: it may hold parts of several."""
        before, *marked = _MARK.split(line)
        if before or not marked:
            yield None, stream, before
        for rank, part in zip(marked[::2], marked[1::2], strict=True):
            yield int(rank), stream, part

    def first_failure(self, own_lines: Sequence[str]) -> tuple[int, int] | None:
        """Return None: Hydra names a process id and a host, not a rank."""
        return None


def _local_address(hosts: Hosts) -> str:
    """Return this machine's address on the way to the hosts, where its name may not resolve."""
    host = hosts.members[0]
    try:
        return source_address_for(str(socket.getaddrinfo(host.address, None, type=socket.SOCK_DGRAM)[0][4][0]))
    except OSError as error:
        raise PlinkError(f"no route to {host.name} ({host.address}): {error.strerror}") from None
