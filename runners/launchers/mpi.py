"""Launchers of MPI, which start ``ssh`` themselves: Open MPI's mpirun and MPICH's Hydra, told apart by their versions.

Checked: Open MPI 4.1.4 and 5.0.11, MPICH 4.0.2. Open MPI 4 calls its runtime ORTE and takes ``--mca``; version 5 calls
it PRRTE and takes ``--prtemca``. Daemons start no further daemons: only this machine has the keys.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

from plink.errors import PlinkError, UsageError
from plink.model.dry_run import LaunchCommand
from plink.model.hosts import Hosts
from plink.transport.addresses import source_address_for
from plink.transport.command_output import run_to_end
from plink.transport.fleet import LEASE_S
from runners.hostfiles import hydra_machinefile, openmpi_hostfile, openmpi_name_options
from runners.job.runner import Job, RunContext
from runners.launchers.launcher import Launcher
from runners.ssh.connector import SshConnector

_FAN_OUT = 16
_VERSION_TIMEOUT_S = 20.0
_OPEN_MPI = re.compile(r"Open(?: |-)?MPI\)? v?(\d+)\.", re.IGNORECASE)
_HOSTFILE, _SSH_CONFIG = "hostfile", "ssh_config"
_AGENT = f"ssh -F {_SSH_CONFIG}"
_OPTIONS = {  # split at blanks, but for _AGENT
    4: ("--mca plm_rsh_agent", "--mca plm_rsh_no_tree_spawn 1 --tag-output"),
    5: ("--prtemca plm_ssh_agent", "--prtemca plm_ssh_no_tree_spawn 1 --output tag"),
}
# A host that acknowledges nothing is lost after LEASE_S, as with other runners; by itself Open MPI waits for 8 minutes,
# and Hydra without end for the ssh that it started.
_PROBES = 4
_PROBE_S = int(LEASE_S) // (_PROBES + 2)
_KEEPALIVE = (("time", 2 * _PROBE_S), ("intvl", _PROBE_S), ("probes", _PROBES))
# [JOB,RANK]<stdout>: and in version 5 a blank
_MARKS = {
    4: re.compile(r"\[\d+,(\d{1,9})\]<std(out|err|diag)>:"),
    5: re.compile(r"\[(?:[^\[\]]*@)?\d+,(\d{1,9})\]<std(out|err|diag)>: "),
}
_HARMLESS = re.compile(r"plm:[rs]sh: Warning: setpgid\(")  # its ssh has done so by itself already
_EXITED = re.compile(r"Process name:\s*\[.*,(\d{1,9})\]\s*Exit code:\s*(\d{1,9})", re.DOTALL)
_KILLED = re.compile(r"process rank (\d{1,9}) with PID \d+ on node \S+ exited on\s+signal (\d{1,9})")
_HYDRA_MARK = re.compile(r"\[(\d{1,9})\] ")
_LAST_VARIABLE = "PLINK_LAST"  # Hydra 4.0.2 does not forward the last variable of its environment


class _SshLauncher:
    """Launcher that needs no allocation: it reaches the hosts by ssh."""

    @contextlib.contextmanager
    def allocation(self, hosts: Hosts, job: Job, folder: Path, context: RunContext) -> Iterator[dict[str, str]]:
        """Hold nothing."""
        yield {}


class OpenMpi(_SshLauncher):
    """Launcher of Open MPI (:class:`runners.launchers.launcher.Launcher`): its sequential mapper, whose hostfile is the
    order, one line a rank. ``version``: 4 or 5."""

    name = "mpirun"
    rank_variables: tuple[str, ...] = ("OMPI_COMM_WORLD_RANK",)
    # Open MPI would try every interface that is up, Docker's bridges with addresses that all hosts share among them.
    interface_variables: Mapping[str, str] = MappingProxyType({"OMPI_MCA_btl_tcp_if_include": "{}"})
    waits_for_ranks = False

    def __init__(self, connector: SshConnector, version: int) -> None:
        self._connector, self._version = connector, min(max(version, 4), 5)

    def files(self, hosts: Hosts, job: Job) -> dict[str, str]:
        """Return the hostfile, and the SSH settings of its hosts."""
        hostfile = openmpi_hostfile(hosts, f"--runner {self.name}")
        return {_HOSTFILE: hostfile, _SSH_CONFIG: ssh_config(hosts, self._connector)}

    def command(
        self, hosts: Hosts, job: Job, folder: Path, arguments: Sequence[str], forwarded: Sequence[str] = ()
    ) -> LaunchCommand:
        """Return the command, with file names relative to the folder: mpirun splits its options for ssh at blanks."""
        agent, options = _OPTIONS[self._version]
        mca = agent.split()[0]
        argv = [
            "mpirun",
            *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
            *("--hostfile", _HOSTFILE, "--map-by", "seq", *openmpi_name_options(hosts)),
            *(*agent.split(), _AGENT, *options.split()),
            *(word for name, value in _KEEPALIVE for word in (mca, f"oob_tcp_keepalive_{name}", str(value))),
            *("--bind-to", "none", "-n", str(sum(host.slots for host in hosts))),
            *(word for name in forwarded for word in ("-x", name)),
            *job.launcher_args,
            *arguments,
        ]
        return LaunchCommand(tuple(argv), workdir=str(folder))

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


class Mpich(_SshLauncher):
    """Launcher of MPICH (:class:`runners.launchers.launcher.Launcher`): Hydra, with a machinefile that it fills line by
    line."""

    name = "mpich"
    rank_variables: tuple[str, ...] = ("PMI_RANK",)
    interface_variables: Mapping[str, str] = MappingProxyType({})
    waits_for_ranks = True

    def __init__(self, connector: SshConnector, program: str = "mpiexec.hydra") -> None:
        self._connector, self._program = connector, program

    def files(self, hosts: Hosts, job: Job) -> dict[str, str]:
        """Return the machinefile, and the SSH settings of its hosts."""
        machinefile = hydra_machinefile(hosts, f"--runner {self.name}")
        return {"machinefile": machinefile, _SSH_CONFIG: ssh_config(hosts, self._connector)}

    def command(
        self, hosts: Hosts, job: Job, folder: Path, arguments: Sequence[str], forwarded: Sequence[str] = ()
    ) -> LaunchCommand:
        """Return the command; hosts connect back to the address that leads to them. It forwards no other variables."""
        argv = [
            *(self._program, "-f", "machinefile", "-launcher", "ssh", "-localhost", _local_address(hosts)),
            *(("-genvlist", ",".join(forwarded)) if forwarded else ("-genvnone",)),
            *("-prepend-rank", "-n", str(sum(host.slots for host in hosts))),
            *job.launcher_args,
            *arguments,
        ]
        env = {"HYDRA_LAUNCHER_EXTRA_ARGS": f"-F {_SSH_CONFIG}"}
        env |= {_LAST_VARIABLE: "1"} if forwarded else {}
        return LaunchCommand(tuple(argv), env, workdir=str(folder))

    def parse_output_line(self, stream: str, line: str) -> Iterator[tuple[int | None, str, str]]:
        """Split a line by the marks of its ranks: it may hold parts of several."""
        before, *marked = _HYDRA_MARK.split(line)
        if before or not marked:
            yield None, stream, before
        for rank, part in zip(marked[::2], marked[1::2], strict=True):
            yield int(rank), stream, part

    def first_failure(self, own_lines: Sequence[str]) -> tuple[int, int] | None:
        """Return None: Hydra names a process id and a host, not a rank."""
        return None


def mpirun(connector: SshConnector) -> Launcher:
    """Return the launcher that ``mpirun`` is here, Open MPI or MPICH.

    :raises UsageError: when it is neither, or not installed.
    """
    if shutil.which("mpirun") is None:
        raise UsageError(
            "--runner mpirun: mpirun is not installed here; install Open MPI (or MPICH) on this and every host"
        )
    version = _version("mpirun")
    if match := _OPEN_MPI.search(version):
        return OpenMpi(connector, int(match[1]))
    if "HYDRA" in version:
        return Mpich(connector, "mpirun")
    first = (version.strip().splitlines() or ["nothing"])[0]
    raise UsageError(f"--runner mpirun: `mpirun --version` prints {first!r}; plink supports Open MPI and MPICH (Hydra)")


def mpich(connector: SshConnector) -> Launcher:
    """Return the launcher of MPICH's Hydra, also where ``mpirun`` is another one.

    :raises UsageError: when it is not installed.
    """
    for program in ("mpiexec.hydra", "mpiexec", "mpirun"):
        if shutil.which(program) is not None and "HYDRA" in _version(program):
            return Mpich(connector, program)
    raise UsageError("--runner mpich: mpiexec.hydra is not installed here; install MPICH on this and every host")


def _version(program: str) -> str:
    try:
        done = run_to_end([program, "--version"], _VERSION_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"`{program} --version` does not answer: {error}") from None
    return done.stdout + done.stderr


def _local_address(hosts: Hosts) -> str:
    """Return this machine's address on the way to the hosts, where its name may not resolve."""
    host = hosts.members[0]
    try:
        return source_address_for(str(socket.getaddrinfo(host.address, None, type=socket.SOCK_DGRAM)[0][4][0]))
    except OSError as error:
        raise PlinkError(f"no route to {host.name} ({host.address}): {error.strerror}") from None


def ssh_config(hosts: Hosts, connector: SshConnector) -> str:
    """Return an ssh_config(5) file with the settings of each host, under the address that the launcher uses.

    Host keys are checked as plink checks them, and ssh asks nothing. Other settings come from the user's own file.

    :raises HostError: when the user's configuration cannot be read; says why.
    """
    lines: list[str] = []
    with ThreadPoolExecutor(_FAN_OUT) as pool:
        all_settings = list(pool.map(connector.settings, hosts))
    for host, settings in zip(hosts, all_settings, strict=True):
        lines += [f"Host {host.address}", f"  HostName {settings.hostname}", f"  Port {settings.port}"]
        lines += [f"  User {settings.user}"]
        lines += [f"  IdentityFile {_quoted(key)}" for key in settings.keys]
        lines += [f"  CertificateFile {_quoted(name)}" for name in settings.certificates]
        lines += ["  IdentitiesOnly yes"] if settings.identities_only else []
        if settings.identity_agent is not None:
            lines.append(f"  IdentityAgent {_quoted(settings.identity_agent)}")
        for keyword, paths in (
            ("UserKnownHostsFile", settings.known_hosts),
            ("GlobalKnownHostsFile", settings.global_known_hosts),
            ("RevokedHostKeys", settings.revoked_host_keys),
        ):
            lines += [f"  {keyword} {' '.join(_quoted(str(path)) for path in paths)}"] if paths else []
        if settings.host_key_alias is not None:
            lines.append(f"  HostKeyAlias {settings.host_key_alias}")
        if settings.proxy_jump:
            lines.append(f"  ProxyJump {','.join(settings.proxy_jump)}")
        elif settings.proxy_command is not None:
            lines.append(f"  ProxyCommand {settings.proxy_command.replace('%', '%%')}")
        lines += ["  StrictHostKeyChecking accept-new"] if settings.accept_new_keys else []
        if settings.connect_timeout_s is not None:
            lines.append(f"  ConnectTimeout {settings.connect_timeout_s:.0f}")
    checking = "accept-new" if connector.accept_new_host_keys else "yes"
    lines += ["Host *", f"  StrictHostKeyChecking {checking}", "  BatchMode yes", "  ConnectTimeout 10"]
    lines += [f"  ServerAliveInterval {_PROBE_S}", f"  ServerAliveCountMax {_PROBES + 2}"]
    if connector.identity is None:
        lines += ["  Include ~/.ssh/config", "  Include /etc/ssh/ssh_config"]  # for jump hosts and other options
    return "\n".join(lines) + "\n"


def _quoted(path: str) -> str:
    return '"' + path.replace("%", "%%") + '"'
