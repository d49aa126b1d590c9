"""Runner of external launchers: a dry run that verifies the placement of ranks, then the job, verified once more.

In the dry run, which takes the program's place, every rank reports who and where it is, and what would keep the program
from running there. If a rank is not on its host, nothing else is started. The job then starts by the same command. Each
of its processes reports again, and runs the user's program only on the host where the dry run found this rank: a
launcher that places ranks differently the second time is detected, and the job is ended. On several hosts, no rank runs
it before all have connected to rank 0's host, at the port of the rendezvous.
"""

import contextlib
import ipaddress
import secrets
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from msgspec import structs

from plink.errors import PlinkError, UsageError
from plink.model.dry_run import DryRun, LaunchCommand
from plink.model.hosts import Hosts
from plink.transport.addresses import canonical, local_addresses
from plink.transport.program import AgentProgram
from runners.job.execution_environment import rank_environment
from runners.job.monitor import STOP_TIMEOUT_S
from runners.job.placement import RankAssignment, RankLocation, RunResult, assign_ranks
from runners.job.runner import Job, RunContext
from runners.job.setup import check_hosts
from runners.launchers.frames import REPORT
from runners.launchers.launcher import Launcher, LauncherProcess
from runners.launchers.monitor import (
    MAX_LAUNCHER_LINES,
    REPORT_TIMEOUT_S,
    SSH_ERROR,
    LauncherMonitor,
    OutputParser,
    ShimReport,
    verified_locations,
)
from runners.launchers.shim import (
    MAX_VARIABLE_BYTES,
    USER_ENVIRONMENT,
    ExpectedPlacement,
    RankEnvironments,
    pack_environment,
)

PROGRAM = AgentProgram(
    (
        "plink.transport.addresses",
        "plink.transport.command_output",
        "plink.transport.hello_server",
        "plink.transport.start_barrier",
        "plink.transport.supervisor",
        "runners.job.execution_environment",
        "runners.launchers.frames",
        "runners.launchers.shim",
    )
)


Reports = Mapping[int, ShimReport]
Env = dict[str, str]


class ExternalLauncherRunner:
    """Runner over an external launcher; see :class:`runners.job.runner.Runner`."""

    def __init__(self, launcher: Launcher) -> None:
        self.name, self._launcher = launcher.name, launcher

    def dry_run(self, job: Job, hosts: Hosts, context: RunContext) -> DryRun:
        """Run the dry run, and the job without the program: this refuses all that a run would refuse."""
        with self._prepared(job, hosts, context) as launch:
            reports = launch.dry_run()
            verified_locations(launch.assignments, reports)
            if len(hosts) > 1:
                launch.check_barrier(reports)
            return DryRun(self.name, (launch.job_command(reports),), launch.files)

    def run(self, job: Job, hosts: Hosts, context: RunContext) -> RunResult:
        """Run the dry run, then the program."""
        with self._prepared(job, hosts, context) as launch:
            reports = launch.dry_run()
            locations = verified_locations(launch.assignments, reports)
            context.observer.on_placement(locations)
            return launch.run(launch.job_command(reports), locations)

    @contextlib.contextmanager
    def _prepared(self, job: Job, hosts: Hosts, context: RunContext) -> Iterator["_Launch"]:
        job.check_no_hubs(self.name)
        assert context.folder is not None
        folder = context.folder.absolute()
        files = {str(folder / name): text for name, text in self._launcher.files(hosts, job).items()}
        for path, text in files.items():
            try:
                Path(path).write_text(text, encoding="utf-8")
            except OSError as error:
                raise PlinkError(f"cannot write {path}: {error.strerror}") from None
        with self._launcher.allocation(hosts, job, folder, context) as env:
            yield _Launch(self._launcher, (job, hosts, context), files, env)


class _Launch:
    """One launch of a job: the commands of its dry run and of the job itself."""

    def __init__(self, launcher: Launcher, run: tuple[Job, Hosts, RunContext], files: Env, env: Env) -> None:
        self._launcher, (self._job, hosts, context) = launcher, run
        self._hosts, self._context = hosts, context
        self._names = {host.address: host.name for host in hosts if canonical(host.address)}
        assert context.folder is not None
        self._folder, self.files, self._env = context.folder.absolute(), files, env
        self._token = secrets.token_hex(8)
        self.assignments = [_with_local_identity(rank, hosts) for rank in assign_ranks(hosts, context.host_identities)]

    def _command(
        self, environments: list[Env], common: Env, placement: ExpectedPlacement | None, runs_program: bool
    ) -> LaunchCommand:
        job = self._job
        user_env = job.env if placement else {}
        request = {
            "program": job.program,
            # The first argument may be the script of an interpreter, which has to exist.
            "args": list(job.args if runs_program else job.args[:1]),
            "workdirs": list(job.workdirs),
            "pythons": list(job.pythons),
            "peers": [host.address for host in self._hosts] if len(self._hosts) > 1 else [],
            "interface": job.interface,
            "port": 0 if placement else job.master_port,
        }
        interface_variables = dict(self._launcher.interface_variables)
        settings: dict[str, object] = {
            "rank_variables": list(self._launcher.rank_variables),
            "request": request,
            "environments": RankEnvironments(environments, common, interface_variables, bool(user_env))._asdict(),
            "placement": placement and placement._asdict(),
            "runs_program": runs_program,
            "timeout_s": job.timeout_s if runs_program else None,
        }
        # The shim runs under the hosts' own python3, as agents do; the program's may be another.
        arguments = ("python3", *PROGRAM.command_arguments(settings))
        forwarded = _forwarded(user_env)
        command = self._launcher.command(self._hosts, job, self._folder, arguments, tuple(forwarded))
        return structs.replace(command, env={**forwarded, **command.env, **self._env})

    def dry_run(self) -> Reports:
        """Return every rank's report from a job that does nothing else.

        :raises PlinkError: when ranks do not report, or a host cannot run the program.
        """
        _forwarded(self._job.env)  # refuses what is too long before anything is started
        return self._collect_reports(self._command([{}] * len(self.assignments), {}, None, False))

    def check_barrier(self, reports: Reports) -> None:
        """Run the job without the program, up to the start barrier.

        :raises PlinkError: when ranks cannot connect. :raises PlacementError: when one is not where it was.
        """
        self._collect_reports(self.job_command(reports, runs_program=False), reports)

    def _collect_reports(self, command: LaunchCommand, earlier: Reports = MappingProxyType({})) -> Reports:
        clock, parser = self._context.clock, OutputParser(self._launcher, self._names)
        reports = parser.reports
        other_lines = deque[str](maxlen=MAX_LAUNCHER_LINES)
        deadline, ending, is_unreached = clock() + REPORT_TIMEOUT_S, False, False
        with LauncherProcess(command, self._launcher.waits_for_ranks) as process:
            while process.open and clock() < deadline:
                for stream, line in process.lines(clock, deadline):
                    for _, kind, text in parser.parse_line(stream, line):
                        if kind == REPORT:
                            self._context.observer.progress("connecting", len(reports), len(self.assignments))
                        elif text.strip():
                            other_lines.append(text)
                            is_unreached = is_unreached or SSH_ERROR.match(text) is not None
                    if not ending and (is_unreached or (earlier and _is_stuck(reports))):
                        deadline, ending = clock() + STOP_TIMEOUT_S, True
                        break
            code = process.end(0.0 if process.open else STOP_TIMEOUT_S)
        if any(report.moved for report in reports.values()):
            verified_locations(self.assignments, {**earlier, **reports})
        self._check_reports(reports, other_lines, code, "nothing was run")
        return reports

    def _check_reports(self, reports: Reports, lines: Sequence[str], code: int, consequence: str) -> None:
        """:raises PlinkError: a host cannot run the program, or a rank has not reported."""
        by_host = [(rank.host, reports.get(rank.rank)) for rank in self.assignments]
        invalid = [(host, report.problems) for host, report in by_host if report and report.problems]
        invalid += [("a host", report.problems) for rank, report in reports.items() if rank < 0]
        missing = [rank for rank in self.assignments if rank.rank not in reports]
        if missing:  # one that ended had the launcher end them: how many hosts have a problem is not known
            first = {tuple(problems): (host, problems) for host, problems in reversed(invalid)}
            invalid = list(first.values())[::-1]
        check_hosts(invalid, {host: None if report is None else report.versions for host, report in by_host}, self._job)
        if missing:
            shown = [text.strip() for text in lines if text.strip(" -=")]
            causes = list(dict.fromkeys(text for text in shown if SSH_ERROR.match(text)))
            last = "; ".join(causes[:3] or shown[-3:]) or f"exit code {code}"
            raise PlinkError(
                f"{self._launcher.name}: {len(missing)} of {len(self.assignments)} ranks did not report (first: rank "
                f"{missing[0].rank} on {missing[0].host}): {last}; {consequence}"
            )

    def job_command(self, reports: Reports, runs_program: bool = True) -> LaunchCommand:
        """Return the command of the job itself, by the reports of the dry run."""
        groups = {name: group for group, name in enumerate(self._hosts.names)}
        master = reports[0]
        at = master.address, master.port
        environments = [rank_environment(rank, groups[rank.host], self._hosts, at) for rank in self.assignments]
        common = {"PLINK_ADDRESSES": ",".join(reports[rank.rank].address for rank in self.assignments)}
        ordered = [reports[rank.rank] for rank in self.assignments]
        identities = [{"hostname": report.hostname, "addresses": report.addresses} for report in ordered]
        first, token = self._hosts.names[0], self._token
        barrier = {"address": master.address, "port": master.port, "host": first, "token": token}
        placement = ExpectedPlacement(identities, barrier if len(self._hosts) > 1 else None)
        return self._command(environments, common, placement, runs_program)

    def run(self, command: LaunchCommand, locations: list[RankLocation]) -> RunResult:
        """Run the job to its end; its processes report once more before they run the program."""
        limit = self._job.timeout_s
        monitor = LauncherMonitor(self._launcher, self.assignments, self._context, limit, locations, self._names)
        with LauncherProcess(command, self._launcher.waits_for_ranks) as process:
            monitor.follow(process)
            code = process.end(0.0 if process.open and monitor.is_stopping else STOP_TIMEOUT_S)
        if not monitor.is_stopping:
            self._check_reports(monitor.parser.reports, monitor.launcher_lines, code, "the job was ended")
        monitor.finish(code)
        return monitor.result(self._context.run_id, monitor.locations)


def _is_stuck(reports: Reports) -> bool:
    """Return whether others would wait in vain at the barrier for a rank that has reported. Hydra does not end them."""
    return any(report.moved or report.problems for report in reports.values())


def _forwarded(user_env: dict[str, str]) -> dict[str, str]:
    """Return the variable that carries the user's own environment to the ranks.

    :raises UsageError: when it is longer than a variable can be.
    """
    if not user_env:
        return {}
    name, value = USER_ENVIRONMENT, pack_environment(user_env)
    if len(name) + len(value) + 2 > MAX_VARIABLE_BYTES:
        raise UsageError(
            f"--env and --backend: these variables take {len(value)} bytes, compressed; a launcher forwards at most "
            f"{MAX_VARIABLE_BYTES} (`--runner ssh` takes 1 MB)"
        )
    return {name: value}


def _with_local_identity(assignment: RankAssignment, hosts: Hosts) -> RankAssignment:
    """Add the identity of a host that is this machine, and the address of one that has a name only."""
    address = assignment.address or _numeric(hosts, assignment.host)
    if address is not None and assignment.identity is None and ipaddress.ip_address(address).is_loopback:
        return replace(assignment, identity={"hostname": socket.gethostname(), "addresses": local_addresses()})
    return replace(assignment, address=address)


def _numeric(hosts: Hosts, name: str) -> str | None:
    """Return the address that a host's name resolves to here; None if it does not."""
    with contextlib.suppress(OSError):
        return str(socket.getaddrinfo(hosts.by_name()[name].address, None, type=socket.SOCK_STREAM)[0][4][0])
    return None
