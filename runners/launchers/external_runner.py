"""A job under a launcher of others: a tiny job that proves the order, then the job itself, proven once more.

In the tiny job, which stands in the program's place, every rank reports who and where it is, and what would keep
the program from running there. Where a rank is not on the host that was asked for, nothing else is started. The job
then starts by the same command. Each of its processes reports again and runs the user's program only on the machine
where the tiny job found this rank: a launcher that chose otherwise the second time is caught, and the job is ended.
Where there are several hosts, none runs it before all have reached the first rank's, at the port of the rendezvous.
"""

import contextlib
import ipaddress
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from plink.errors import PlinkError, UsageError
from plink.model.hosts import Hosts
from plink.remote.addresses import local_addresses
from plink.remote.program import AgentProgram
from runners.job.rank_environment import environment
from runners.job.job import Job
from runners.job.host_checks import refuse
from runners.job.placement import RankLocation, RankAssignment, seats
from runners.job.result import RunResult
from runners.job.runner import Command, DryRun, Watch
from runners.launchers import given
from runners.launchers.monitor import END_S, REPORT_S, Course, proven
from runners.launchers.frames import REPORT
from runners.launchers.output_parser import OutputParser
from runners.launchers.launcher import Launcher
from runners.launchers.process import Process
from runners.launchers.shim import Placement, RankEnvironments

PROGRAM = AgentProgram(
    (
        "plink.remote.addresses",
        "plink.remote.supervisor",
        "runners.job.execution_environment",
        "runners.launchers.frames",
        "runners.launchers.environment_passthrough",
        "runners.launchers.start_barrier",
        "runners.launchers.rank_supervisor",
        "runners.launchers.shim",
    )
)


class ExternalLauncherRunner:
    """A runner for such a launcher; see :class:`runners.job.runner.Runner`."""

    def __init__(self, launcher: Launcher) -> None:
        self.name, self._launcher = launcher.name, launcher

    def dry_run(self, job: Job, hosts: Hosts, watch: Watch) -> DryRun:
        """The tiny job is run, and the job without the program: all that a run would refuse is refused."""
        with self._prepared(job, hosts, watch) as work:
            reports = work.preflight()
            proven(work.seats, reports)
            if len(hosts) > 1:
                work.try_out(reports)
            return DryRun(self.name, (work.job_command(reports),), work.files)

    def run(self, job: Job, hosts: Hosts, watch: Watch) -> RunResult:
        """The tiny job, then the program."""
        with self._prepared(job, hosts, watch) as work:
            reports = work.preflight()
            proof = proven(work.seats, reports)
            watch.on_placement(proof)
            return work.run(work.job_command(reports), proof)

    @contextlib.contextmanager
    def _prepared(self, job: Job, hosts: Hosts, watch: Watch) -> Iterator["_Work"]:
        assert watch.folder is not None
        folder = watch.folder.absolute()
        files = {str(folder / name): text for name, text in self._launcher.files(hosts, job).items()}
        for path, text in files.items():
            try:
                Path(path).write_text(text, encoding="utf-8")
            except OSError as error:
                raise PlinkError(f"cannot write {path}: {error.strerror}") from None
        with self._launcher.allocation(hosts, job, folder, watch) as env:
            yield _Work(self._launcher, job, hosts, watch, files, env)


class _Work:
    """One job under way."""

    def __init__(
        self, launcher: Launcher, job: Job, hosts: Hosts, watch: Watch, files: dict[str, str], env: dict[str, str]
    ) -> None:
        assert watch.folder is not None
        self.launcher, self.job, self._hosts, self.watch = launcher, job, hosts, watch
        self._folder, self.files, self._env = watch.folder.absolute(), files, env
        self._token = secrets.token_hex(8)
        self.seats = [_told(seat, hosts) for seat in seats(hosts, watch.machines)]

    def _command(
        self, environments: list[dict[str, str]], common: dict[str, str], placement: Placement | None, follows: bool
    ) -> Command:
        own_words = self.job.env if placement else {}
        interface_variables = dict(self.launcher.interface_variables)
        ask = {
            "program": self.job.program,
            # The first may be the script of an interpreter, which has to be there.
            "args": list(self.job.args if follows else self.job.args[:1]),
            "workdirs": list(self.job.workdirs),
            "pythons": list(self.job.pythons),
            "peers": [host.address for host in self._hosts] if len(self._hosts) > 1 else [],
            "interface": self.job.interface,
            "port": 0 if placement else self.job.master_port,
        }
        settings: dict[str, object] = {
            "rank_variables": list(self.launcher.rank_variables),
            "ask": ask,
            "environments": RankEnvironments(environments, common, interface_variables, bool(own_words))._asdict(),
            "placement": placement and placement._asdict(),
            "follows": follows,
            "timeout_s": self.job.timeout_s if follows else None,
        }
        # The interpreter that reports is the hosts' own, like that of the agents; the program's may be another.
        words = ("python3", *PROGRAM.words(settings))
        forwarded = _forwarded(own_words)
        command = self.launcher.command(self._hosts, self.job, self._folder, words, tuple(forwarded))
        return replace(command, env={**forwarded, **command.env, **self._env})

    def preflight(self) -> dict[int, dict[str, Any]]:
        """Every rank's report from a job that does nothing else.

        :raises PlinkError: when ranks do not report, or a host cannot run the program.
        """
        _forwarded(self.job.env)  # what is too long is told before anything is started
        return self._reports(self._command([{}] * len(self.seats), {}, None, False))

    def try_out(self, reports: dict[int, dict[str, Any]]) -> None:
        """The job itself, but for the program.

        :raises PlinkError: when the ranks cannot meet. :raises PlacementError: when one is not where it was.
        """
        self._reports(self.job_command(reports, follows=False), reports)

    def _reports(
        self, command: Command, before: Mapping[int, dict[str, Any]] = MappingProxyType({})
    ) -> dict[int, dict[str, Any]]:
        heard = OutputParser(self.launcher)
        said: list[str] = []
        deadline, ending = self.watch.clock() + REPORT_S, False
        with Process(command) as process:
            while process.open and self.watch.clock() < deadline:
                for stream, line in process.lines(self.watch.clock, deadline):
                    for _, kind, text in heard.line(stream, line):
                        if kind == REPORT:
                            self.watch.connected(len(heard.reports), len(self.seats))
                        elif text.strip():
                            said.append(text)
                    if before and not ending and _stuck(heard.reports):
                        deadline, ending = self.watch.clock() + END_S, True
                        break
            code = process.end(END_S)
        if any(report["moved"] for report in heard.reports.values()):
            proven(self.seats, {**before, **heard.reports})
        self._refuse(heard.reports)
        self._all_reported(heard.reports, said, code)
        return heard.reports

    def _refuse(self, reports: Mapping[int, dict[str, Any]]) -> None:
        bad = [(seat.host, reports[seat.rank]["problems"]) for seat in self.seats
               if seat.rank in reports and reports[seat.rank]["problems"]]  # fmt: skip
        bad += [("a host", report["problems"]) for rank, report in reports.items() if rank < 0]
        refuse(bad, {seat.host: reports.get(seat.rank, {}).get("versions") for seat in self.seats}, self.job)

    def _all_reported(
        self, reports: Mapping[int, dict[str, Any]], said: Sequence[str], code: int, then: str = "nothing was run"
    ) -> None:
        missing = [seat for seat in self.seats if seat.rank not in reports]
        if missing:
            last = "; ".join([text.strip() for text in said if text.strip(" -=")][-3:]) or f"exit code {code}"
            raise PlinkError(
                f"{self.launcher.name}: {len(missing)} of {len(self.seats)} ranks did not report (rank "
                f"{missing[0].rank} on {missing[0].host} the first): {last}; {then}"
            )

    def job_command(self, reports: dict[int, dict[str, Any]], follows: bool = True) -> Command:
        """The command of the job itself; where the first rank runs is known by now."""
        groups = {name: group for group, name in enumerate(self._hosts.names)}
        master = reports[0]
        environments = [environment(seat, groups[seat.host], self._hosts, master) for seat in self.seats]
        common = {"PLINK_ADDRESSES": ",".join(reports[seat.rank]["address"] for seat in self.seats)}
        machines = [{key: reports[seat.rank][key] for key in ("hostname", "addresses")} for seat in self.seats]
        first, token = self._hosts.names[0], self._token
        barrier = {"address": master["address"], "port": master["port"], "host": first, "token": token}
        placement = Placement(machines, barrier if len(self._hosts) > 1 else None)
        return self._command(environments, common, placement, follows)

    def run(self, command: Command, proof: list[RankLocation]) -> RunResult:
        """The job to its end; its processes report once more before they run the program."""
        course = Course(self.launcher, self.seats, self.watch, self.job.timeout_s, OutputParser(self.launcher), proof)
        with Process(command) as process:
            course.follow(process)
            code = process.end(END_S)
        heard = course.heard
        if course.first is None and not course.timed_out:
            self._refuse(heard.reports)
            self._all_reported(heard.reports, course.own, code, "the job was ended")
        failure = course.failure(code)
        exits = {rank: end["code"] for rank, end in heard.exits.items() if not end["told"] and not end["out_of_time"]}
        seconds = self.watch.clock() - course.began
        return RunResult(
            self.watch.run_id, failure.code if failure else 0, tuple(course.proof), seconds, failure,
            course.timed_out, exits,
        )  # fmt: skip


def _stuck(reports: Mapping[int, dict[str, Any]]) -> bool:
    """Whether the others would wait in vain, at the gate, for one that has reported. Hydra does not end them."""
    return any(report["moved"] or report["problems"] for report in reports.values())


def _forwarded(job_env: dict[str, str]) -> dict[str, str]:
    """The variable in which the user's own environment reaches the ranks.

    :raises UsageError: when it is longer than a variable can be.
    """
    if not job_env:
        return {}
    value = given.packed(job_env)
    if len(given.VARIABLE) + len(value) + 2 > given.MOST_BYTES:
        raise UsageError(
            f"--env: these variables take {len(value)} bytes, packed; a launcher hands on {given.MOST_BYTES} at most "
            "(`--runner ssh` has no such limit)"
        )
    return {given.VARIABLE: value}


def _told(seat: RankAssignment, hosts: Hosts) -> RankAssignment:
    """With what is known here of a host that is this machine, or has a name instead of an address."""
    address = seat.address or _numeric(hosts, seat.host)
    if address is not None and seat.machine is None and ipaddress.ip_address(address).is_loopback:
        return replace(seat, machine={"hostname": socket.gethostname(), "addresses": local_addresses()})
    return replace(seat, address=address)


def _numeric(hosts: Hosts, name: str) -> str | None:
    """The address that a host's name stands for here; None when that is not known."""
    with contextlib.suppress(OSError):
        return str(socket.getaddrinfo(hosts.by_name()[name].address, None, type=socket.SOCK_STREAM)[0][4][0])
    return None
