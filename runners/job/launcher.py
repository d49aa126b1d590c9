"""Start a job, prove that every rank is where it was asked to be, watch it, end it."""

import itertools
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from plink.errors import HostError, PlinkError, UsageError
from plink.hosts import Hosts
from plink.remote.connector import Connector
from plink.remote.fleet import Fleet, Message
from plink.remote.program import AgentProgram
from runners.job.output import Output, Sink
from runners.job.proof import Finding, Seat, seats, verify

PROGRAM = AgentProgram(("plink.remote.addresses", "runners.job.rank_agent"))
_ANSWER_S = 30.0
_END_S = 5.0  # the agents' own grace, and then some
# Who a rank is: the proof rests on these.
_OURS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


@dataclass(frozen=True)
class Job:
    """One program as the ranks of a job.

    :param program: a ``.py`` file (run with the first of ``pythons`` that a host has) or a command.
    :param workdirs: the first of them that a host has is where the program runs.
    :param env: added to the ranks' environment, over what plink sets.
    :raises UsageError: when ``env`` would tell a rank that it is another one.
    """

    program: str
    args: tuple[str, ...]
    workdirs: tuple[str, ...]
    pythons: tuple[str, ...] = ("python3",)
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _OURS:
            if name in self.env:
                raise UsageError(f"--env {name}={self.env[name]}: that is given by the order; leave it away")


@dataclass(frozen=True)
class Failure:
    """The rank that failed first."""

    rank: int
    host: str
    code: int
    last_lines: tuple[str, ...]


@dataclass(frozen=True)
class RunResult:
    """How a job ended. ``proof``: every rank's report; ``seconds``: from the opening of the gate to the last exit."""

    id: str
    exit_code: int
    proof: tuple[Finding, ...]
    seconds: float
    failure: Failure | None

    def to_json(self) -> dict[str, Any]:
        """``plink.run/1``."""
        failure = self.failure
        return {
            "schema": "plink.run/1",
            "id": self.id,
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 3),
            "proof": {
                "held": not any(finding.wrong for finding in self.proof),
                "ranks": [finding.to_json() for finding in self.proof],
            },
            "failure": None
            if failure is None
            else {
                "rank": failure.rank,
                "host": failure.host,
                "code": failure.code,
                "last_lines": list(failure.last_lines),
            },
        }


def _new_id() -> str:
    return secrets.token_hex(4)


class OrderNotKept(PlinkError):
    """The ranks are not where they were asked to be; nothing of the user's ran. ``findings`` holds both lists,
    ``result`` is the run that was stopped."""

    def __init__(self, findings: list[Finding]) -> None:
        wrong = [finding for finding in findings if finding.wrong]
        first = wrong[0]
        super().__init__(
            f"the order was not kept: {len(wrong)} of {len(findings)} ranks are not where they were asked to be "
            f"(rank {first.rank}, asked for {first.host}, is on {first.hostname}: {first.wrong}); nothing was run"
        )
        self.findings = findings
        self.result = RunResult(_new_id(), self.exit_code, tuple(findings), 0.0, None)


class _Launch:
    def __init__(self, fleet: Fleet, hosts: Hosts, job: Job, sink: Sink, clock: Callable[[], float]) -> None:
        self.fleet, self.hosts, self.job, self.clock = fleet, hosts, job, clock
        self.output = Output(sink)

    def gather(self, kind: str, count: int) -> list[tuple[str, dict[str, Any]]]:
        """``count`` messages of one kind; an agent that goes meanwhile ends the launch."""
        found: list[tuple[str, dict[str, Any]]] = []
        deadline = self.clock() + _ANSWER_S
        while len(found) < count:
            message = self.fleet.receive(deadline - self.clock())
            if message is None:
                raise PlinkError(
                    f"{count - len(found)} of {count} answers ({kind}) did not come within {_ANSWER_S:.0f} s"
                )
            if message.error is not None:
                raise message.error
            assert message.body is not None
            if message.body["is"] == kind:
                found.append((message.host, message.body))
            else:
                self._note(message)
        return found

    def prepare(self, connected: Callable[[int, int], None]) -> dict[str, dict[str, Any]]:
        """Agents on all hosts, each with the program, the folder and the interface it would use."""
        done = itertools.count(1)
        failures = self.fleet.start(self.hosts, {}, lambda: connected(next(done), len(self.hosts)))
        if failures:
            raise _first_of(list(failures.values()))
        for host in self.hosts:
            self.fleet.send(host.name, do="begin", asked=host.address)
        ready = dict(self.gather("ready", len(self.hosts)))
        for host in self.hosts:
            self.fleet.send(
                host.name,
                do="prepare",
                peers=[ready[other.name]["address"] for other in self.hosts if other is not host],
                program=self.job.program,
                args=list(self.job.args),
                workdirs=list(self.job.workdirs),
                pythons=list(self.job.pythons),
            )
        prepared = dict(self.gather("prepared", len(self.hosts)))
        bad = [(name, prepared[name]["problems"]) for name in self.hosts.names if prepared[name]["problems"]]
        if bad:
            name, problems = bad[0]
            more = f" (and {len(bad) - 1} more hosts: {', '.join(n for n, _ in bad[1:4])})" if len(bad) > 1 else ""
            raise PlinkError(f"{name}: {'; '.join(problems)}{more}; nothing was run")
        return prepared

    def start(self, asked: list[Seat], prepared: dict[str, dict[str, Any]]) -> list[Finding]:
        """All ranks at the gate, and the proof that each is where it was asked to be."""
        master = prepared[asked[0].host]
        for group, host in enumerate(self.hosts):
            here = prepared[host.name]
            tasks = [
                {"rank": seat.rank, "env": environment(seat, group, self.hosts, here, master) | self.job.env}
                for seat in asked
                if seat.host == host.name
            ]
            self.fleet.send(host.name, do="start", ranks=tasks, argv=here["argv"], workdir=here["workdir"])
        reported = self.gather("reported", len(asked))
        findings = verify(asked, {report["rank"]: (name, report) for name, report in reported})
        if any(finding.wrong for finding in findings):
            raise OrderNotKept(findings)
        return findings

    def watch(self, asked: list[Seat]) -> Failure | None:
        """Open the gate and wait for the end of all ranks; the first that fails ends the others."""
        self.fleet.send_all(do="go")
        running = {seat.rank: seat.host for seat in asked}
        failure: Failure | None = None
        deadline: float | None = None
        try:
            while running and (deadline is None or self.clock() < deadline):
                message = self.fleet.receive(1.0 if deadline is None else deadline - self.clock())
                if message is None:
                    continue
                ended = self._note(message)
                if message.body is None:
                    # Its ranks are gone with it, or will be when their lease runs out.
                    lost = [rank for rank, host in running.items() if host == message.host]
                    ended = [(rank, 1) for rank in lost]
                    if lost and failure is None:
                        assert message.error is not None
                        failure = Failure(lost[0], message.host, 1, (message.error.why,))
                for rank, code in ended:
                    host = running.pop(rank)
                    self.output.finish(rank)
                    if code and failure is None:
                        failure = Failure(rank, host, code, tuple(self.output.last_lines(rank)))
                if failure is not None and deadline is None:
                    deadline = self.clock() + _END_S
                    self.fleet.send_all(do="end")
        except KeyboardInterrupt:
            self._end_in_order(running)
            raise
        return failure

    def _end_in_order(self, running: dict[int, str]) -> None:
        # Where nobody reads what we print (`| less`), showing more of it takes for ever: the ranks end all the same.
        alarm = threading.Timer(_END_S, self.fleet.close)
        alarm.daemon = True
        alarm.start()
        try:
            self.fleet.send_all(do="end")
            deadline = self.clock() + _END_S
            while running and self.clock() < deadline:
                message = self.fleet.receive(deadline - self.clock())
                if message is None:
                    return
                for rank, _ in self._note(message):
                    running.pop(rank, None)
                    self.output.finish(rank)
                if message.body is None:
                    running = {rank: host for rank, host in running.items() if host != message.host}
        finally:
            alarm.cancel()

    def _note(self, message: Message) -> list[tuple[int, int]]:
        """Show output; returns (rank, exit code) of a rank that ended."""
        body = message.body or {}
        if body.get("is") == "output":
            self.output.add(body["rank"], body["stream"], body["text"])
        return [(body["rank"], body["code"])] if body.get("is") == "exited" else []


def environment(seat: Seat, group: int, hosts: Hosts, here: dict[str, Any], master: dict[str, Any]) -> dict[str, str]:
    """What torchrun gives a rank (PyTorch's documentation, "torchrun"), and the interface to use."""
    slots = hosts.members[group].slots
    env = {
        "RANK": str(seat.rank),
        "LOCAL_RANK": str(seat.local_rank),
        "WORLD_SIZE": str(sum(host.slots for host in hosts)),
        "LOCAL_WORLD_SIZE": str(slots),
        "GROUP_RANK": str(group),
        "GROUP_WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": master["address"],
        "MASTER_PORT": str(master["port"]),
        "GLOO_SOCKET_IFNAME": here["interface"],
        "NCCL_SOCKET_IFNAME": "=" + here["interface"],  # "=": this very name, not every name that begins so
        "PYTHONUNBUFFERED": "1",  # lines are shown when they are printed
    }
    if slots > 1:
        env["OMP_NUM_THREADS"] = "1"  # as torchrun does: ranks of one host would fight over its cores
    return env


def _first_of(errors: list[HostError]) -> HostError:
    error = errors[0]
    if len(errors) == 1:
        return error
    others = ", ".join(other.host for other in errors[1:4]) + (" ..." if len(errors) > 4 else "")
    return type(error)(error.host, f"{error.why} (and {len(errors) - 1} more hosts: {others})")


def launch(
    hosts: Hosts,
    job: Job,
    connector: Connector,
    machines: dict[str, dict[str, Any]],
    sink: Sink,
    on_proof: Callable[[list[Finding]], None],
    clock: Callable[[], float],
    connected: Callable[[int, int], None] = lambda done, total: None,
) -> RunResult:
    """Run a job on hosts that stand in rank order, to its end.

    :param machines: what is known of the hosts from when they were measured, by name (may be empty).
    :param sink: gets every line of output: rank, stream, line.
    :param on_proof: called with the proof before the user's code starts.
    :param connected: called with (done, total) for every host that was connected to, or given up.
    :raises HostError: when a host cannot be reached. :raises PlinkError: when it cannot run the program.
    :raises OrderNotKept: when a rank is not where it was asked to be. Nothing was run in all three cases.
    """
    with Fleet(connector, PROGRAM) as fleet:
        work = _Launch(fleet, hosts, job, sink, clock)
        prepared = work.prepare(connected)
        asked = seats(hosts, machines)
        proof = work.start(asked, prepared)
        on_proof(proof)
        began = clock()
        failure = work.watch(asked)
        return RunResult(_new_id(), failure.code if failure else 0, tuple(proof), clock() - began, failure)
