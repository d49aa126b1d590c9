"""Supervisor of an elastic job: it has the lines to all hosts, and passes messages between them and the controller.

It decides nothing. A controller that dies or stands still is started anew; hosts go on meanwhile.
"""

import base64
import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from plink.errors import HostError, PlinkError, UsageError
from plink.model.elastic.codec import Envelope, encode_request
from plink.model.elastic.reports import Failed, Hello, Log, NodeMessage, Notice, OtherVersion
from plink.model.elastic.requests import Bye
from plink.model.hostlist import fold_hostlist
from plink.model.hosts import Host, Hosts, hosts_from_json
from plink.model.units import format_duration
from plink.runtime.elastic.transport.keys import RunKeys
from plink.transport.fleet import Connector
from runners.elastic.compatibility import refuse, warning
from runners.elastic.control_socket import Answer, ControlSocket
from runners.elastic.controller import ControllerProcess, RequestLine, decode, encode
from runners.elastic.group import LATE, PROGRAM_LOAD_TIMEOUT_S, Adding, Group, NodeLauncher, last_word
from runners.elastic.log_followers import CostTracker, LoggedHosts
from runners.job.monitor import Sink
from runners.job.placement import TIMED_OUT, RankLocation
from runners.job.runner import Job
from solvers.elastic import commands, events
from solvers.elastic.failures import KILLED, own_exit_code
from solvers.elastic.member import Member
from solvers.elastic.placement.partitions import partition_count
from solvers.elastic.settings import Settings

_TICK_S = 0.2
_MAX_CONTROLLER_RESTARTS = 20
_MAX_PENDING_STATUS_REQUESTS = 50  # that nobody has answered: this asks for one a second
_CLOSE_TIMEOUT_S = 5.0
_LOG_TIMEOUT_S = 1.0
_REQUESTS: dict[str, Callable[[int], Any]] = {
    "status": events.StatusRequested,
    "checkpoint": events.CheckpointRequested,
}


@dataclass(frozen=True)
class JobSettingsOverride:
    """Settings that the user gave: those that do not depend on the program (:class:`solvers.elastic.settings.Settings`)
    by name, and ``most_hosts`` that the job will ever have. ``racks``: of hosts by name, as far as they are known.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    most_hosts: int | None = None
    racks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobEnd:
    """The end of the job, and its reason."""

    code: int
    reason: str
    seconds: float


@dataclass
class SupervisorCallbacks:
    """Callbacks of the supervisor. ``log`` takes lines of the run's log, ``say`` lines for the user, ``note`` lines for
    debugging, ``status`` every second what a live view shows, if there is one.
    """

    sink: Sink
    log: Callable[[dict[str, Any]], None]
    note: Callable[[str], None]
    say: Callable[[str], None]
    on_placement: Callable[[list[RankLocation]], None]
    progress: Callable[[str, int, int], None] = lambda phase, done, total: None
    status: Callable[[dict[str, Any]], None] | None = None
    folder: Path | None = None


class Supervisor:
    """Supervisor of one job; :meth:`run` is for one thread.

    :param machines: what is known of the hosts, by name; None: they are all this machine.
    """

    def __init__(
        self,
        connector: Connector,
        job: Job,
        overrides: JobSettingsOverride,
        report: SupervisorCallbacks,
        machines: Mapping[str, dict[str, Any]] | None,
        clock: Callable[[], float],
    ) -> None:
        self._job, self._overrides, self._callbacks = job, overrides, report
        self._launcher = NodeLauncher(connector, job, report.sink, clock)
        self._machines, self._clock = machines, clock
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._groups: dict[int, Group] = {}
        self._members: dict[int, Member] = {}
        self._warned: dict[int, tuple[float, str]] = {}
        self._failed: dict[int, Failed] = {}  # messages that may not have reached a controller yet
        self._next_number = 0
        self._controller: ControllerProcess | None = None
        self._term = 0
        self._settings: Settings | None = None
        self._ended: JobEnd | None = None
        self._requests: dict[int, tuple[str, Answer]] = {}
        self._last_request_id = 0
        self._lost_reliable: dict[str, Host] = {}
        self._hello: dict[int, Hello | OtherVersion | None] = {}
        self._lost: dict[int, str] = {}  # and why
        self._logged_hosts, self._cost = LoggedHosts(), CostTracker()
        self._hosts: dict[int, Host] = {}
        self._lab: str | None = None
        self._began = clock()
        self._adding = Adding(
            self._queue.put,
            lambda hosts: self._group(Hosts(tuple(hosts), self._lab)),
            self._members,
            self._hello,
            self._lost,
            machines,
            self._room,
            self._admit,
            self._dismiss,
            report.note,
            lambda: self._ended is not None,
            clock,
        )
        self.control_socket = ControlSocket(
            lambda request, answer: self._queue.put(lambda: self._handle_request(request, answer))
        )

    def run(self, hosts: Hosts) -> JobEnd:
        """Run the job to its end. :raises PlinkError: when it could not be started."""
        self._lab = hosts.lab
        group, members = self._group(hosts)
        try:
            self._callbacks.on_placement(group.start(self._callbacks.progress, self._machines))
            members = self._wait_for_hello(group, members)
            ready = [member for member in members if member.hello is not None]
            settings = self._overrides.settings
            if error := refuse(ready, settings.get("rule", "bsp"), settings.get("divergence", "")):
                raise PlinkError(error)
            self._members |= {member.number: member for member in members}
            self._logged_hosts.expected(members)
            first = ready[0].program
            shapes = first.shapes
            most = self._overrides.most_hosts or 2 * len(members)
            self._began = self._clock()
            self._settings = Settings(
                keys=base64.b64encode(RunKeys.make().pem).decode(),
                partitions=min(partition_count(max(most, len(members))), max(1, *(rows for rows, _ in shapes))),
                shards=first.shards,
                shapes=shapes,
                started=time.time(),
                began=self._began,
                optimisers=bool(first.optimisers),
                **self._overrides.settings,
            )
            if any(member.reliable for member in ready) and (note := warning(ready, ready, self._settings)):
                self._callbacks.say(note)
            self._start_controller(events.JobStarted)
            for member in members:
                if member.hello is None:
                    self._handle_message(member.number, None, self._lost[member.number])
            try:
                self._serve()
            except KeyboardInterrupt:
                self._complete_log()
                if self._ended is None:
                    raise
        finally:
            self._close()
        assert self._ended is not None
        return self._ended

    def _group(self, hosts: Hosts) -> tuple[Group, list[Member]]:
        members = []
        for host in hosts:
            rate = self._overrides.settings.get("host_rate")
            member = Member(
                self._next_number,
                host.name,
                host.tier,
                host.slots,
                host.price,
                rate=rate,
                rack=self._overrides.racks.get(host.name, ""),
            )
            self._hosts[member.number] = host
            self._next_number += 1
            members.append(member)
        numbers = {member.name: member.number for member in members}

        def on_message(number: int, message: NodeMessage | None, reason: str) -> None:
            self._queue.put(lambda: self._handle_message(number, message, reason))

        group = Group(self._launcher, hosts, numbers, on_message)
        for member in members:
            self._groups[member.number] = group
        return group, members

    def _wait_for_hello(self, group: Group, members: list[Member]) -> list[Member]:
        """Return the members with their first messages, without one those that were lost.

        :raises PlinkError: when a program cannot be made, or all are lost.
        """
        deadline = self._clock() + PROGRAM_LOAD_TIMEOUT_S
        while waiting := [member for member in members if member.number not in self._hello]:
            if self._clock() > deadline:
                raise PlinkError(f"{', '.join(member.name for member in waiting)}: {LATE}")
            self._run_next()
        lost = [member.number for member in members if self._hello[member.number] is None]
        codes = {number: code for number in lost if (code := own_exit_code(self._lost[number])) is not None}
        if codes or len(lost) == len(members):
            number = min(codes or lost, key=lambda number: codes.get(number) == KILLED)  # a program's error says more
            error = last_word(group.last_lines(number), self._lost[number])
            all_lost = len(lost) == len(members) > 1 and codes.get(number) in (None, KILLED)
            also = f"; all {len(members)} hosts were lost" if all_lost else ""
            raise HostError(self._hosts[number].name, error + also)
        return [
            replace(member, hello=self._hello[member.number], at=group.addresses[member.number]) for member in members
        ]

    def _run_next(self) -> None:
        try:
            self._queue.get(timeout=_TICK_S)()
        except queue.Empty:
            return

    def _handle_message(self, number: int, message: NodeMessage | None, reason: str) -> None:
        """Handle a message of a node, or its loss."""
        if number not in self._members:
            hello = self._hello.get(number)
            if isinstance(message, Hello | OtherVersion):
                self._hello[number] = message
            elif message is None and not isinstance(hello, OtherVersion):  # or that is what is wrong
                self._hello[number], self._lost[number] = None, reason
            return
        if message is None:
            self._lost[number] = reason
            self._lose(number)
            self._tell_controller(events.HostsLost((number,), reason))
        elif isinstance(message, Log):
            self._callbacks.note(f"{self._members[number].name}: {message.text}")
        else:
            self._remember(number, message)
            self._tell_controller(events.HostMessage(number, message))

    def _remember(self, number: int, message: NodeMessage) -> None:
        """Remember what is sent once, for a controller that takes over."""
        if isinstance(message, Notice):
            self._warned[number] = (self._clock() + message.seconds, message.reason)
        elif isinstance(message, Failed):
            self._failed.setdefault(number, message)

    def _lose(self, number: int) -> None:
        member = self._members.pop(number, None)
        if member is not None and member.reliable:
            self._lost_reliable[member.name] = self._hosts[number]
        self._warned.pop(number, None)
        self._failed.pop(number, None)
        self._release(number)

    def _release(self, number: int) -> None:
        """End the agent of a lost host, and with the last of its group what serves that: hosts come and go for days."""
        group = self._groups.pop(number, None)
        self._hosts.pop(number, None)
        if group is not None:
            group.end(number)
            if group not in self._groups.values():
                group.close()

    # The controller.

    def _start_controller(self, how: type[events.JobStarted] | type[events.ControllerRestarted]) -> None:
        self._term += 1
        term = self._term

        def on_message(message: dict[str, Any] | None) -> None:
            self._queue.put(lambda: self._handle_controller_message(term, message))

        errors = None if self._callbacks.folder is None else self._callbacks.folder / "controller.err"
        self._controller = ControllerProcess(on_message, errors)
        assert self._settings is not None
        self._controller.tell({"type": "settings", "settings": msgspec.to_builtins(self._settings), "term": term})
        for number in self._logged_hosts.missing(self._members):  # lost while nobody was there to log it
            self._log_end_of(number)
        self._tell_controller(how(tuple(self._members.values())))
        for number, message in self._failed.items():
            self._tell_controller(events.HostMessage(number, message))
        for request_id, (what, _) in self._requests.items():  # the one before may not have answered
            self._tell_controller(_REQUESTS[what](request_id))
        for number, (at, reason) in self._warned.items():
            seconds = max(0.1, at - self._clock())
            self._tell_controller(events.EvictionNotice((number,), seconds, reason))

    def _tell_controller(self, event: Any) -> None:
        if self._controller is not None:
            self._controller.tell(encode(event))

    def _handle_controller_message(self, term: int, message: dict[str, Any] | None) -> None:
        if term != self._term or self._ended is not None:
            return
        if message is None:
            if self._controller is not None:
                self._controller.close()
            self._controller = None
            if self._term > _MAX_CONTROLLER_RESTARTS:
                count = _MAX_CONTROLLER_RESTARTS
                self._end(1, f"the controller was lost {count} times; controller.err in the run's folder tells more")
                return
            self._callbacks.note("the controller is gone: another takes over")
            self._start_controller(events.ControllerRestarted)
        else:
            self._execute(decode(message))

    def _execute(self, item: Any) -> None:
        match item:
            case RequestLine(host, body):
                if host in self._groups:
                    self._groups[host].tell(host, body)
            case commands.LogLine(fields):
                self._log(dict(fields))
            case commands.Note(text):
                self._callbacks.note(text)
            case commands.Say(text):
                self._callbacks.say(text)
            case commands.DropHost(host, reason):
                self._lost.setdefault(host, reason)
                self._lose(host)
                self._log_end_of(host)
            case commands.StatusAnswer(request_id, status):
                self._answer(request_id, self._with_cost(dict(status)))
            case commands.CheckpointAnswer(request_id, result):
                self._answer(request_id, dict(result))
            case commands.StartReliableHosts():
                self._start_lost()
            case commands.EndJob(code, reason):
                self._end(code, reason)

    def _answer(self, request_id: int, result: dict[str, Any]) -> None:
        _, answer = self._requests.pop(request_id, ("", None))
        if answer is not None:
            answer(result)

    def _log(self, line: dict[str, Any]) -> None:
        self._logged_hosts.logged(line)
        timed = {"at": round(self._clock() - self._began, 3), **line}
        self._cost.logged(timed)
        self._callbacks.log(timed)

    def _with_cost(self, status: dict[str, Any]) -> dict[str, Any]:
        """Add the cost to a status: only the supervisor knows all hosts and iterations, across controllers."""
        if status["stage"] is None:
            return status
        return {**status, "cost": msgspec.to_builtins(self._cost.so_far(self._clock() - self._began))}

    def _log_end_of(self, number: int) -> None:
        """Log the end of a host, unless a controller has."""
        line = self._logged_hosts.end_of(number, self._lost[number])
        if line is not None:
            self._log(line)

    def _end(self, code: int, reason: str) -> None:
        for number in self._logged_hosts.missing(self._members):
            self._log_end_of(number)
        seconds = self._clock() - self._began
        self._log({"what": "end", "why": reason, "seconds": round(seconds, 3), "code": code})
        self._ended = JobEnd(code, reason, seconds)
        for number in self._members:
            self._groups[number].tell(number, encode_request(Envelope(Bye(over=True), self._term)))

    def _complete_log(self) -> None:
        """Have the controller log what is done and not in the log yet, if it does so in time."""
        written: list[dict[str, Any]] = []
        self._tell_controller(events.LogRequested())
        self._request("status", written.append)  # it answers in order
        deadline = self._clock() + _LOG_TIMEOUT_S
        while not written and self._ended is None and self._controller is not None and self._clock() < deadline:
            self._run_next()

    def _time_out(self, limit: float) -> None:
        self._complete_log()
        if self._ended is None:
            self._end(TIMED_OUT, f"the job was ended after {limit:.0f} s: that was its --timeout")

    def _serve(self) -> None:
        shown, limit = 0.0, self._job.timeout_s
        while self._ended is None:
            self._run_next()
            if limit is not None and self._clock() - self._began > limit:
                self._time_out(limit)
                return
            self._tell_controller(events.SupervisorAlive())
            if self._controller is not None and self._controller.silent:
                self._callbacks.note("the controller stands still: another takes over")
                self._controller.kill()
            if self._callbacks.status is not None and self._clock() - shown > 1.0:
                shown = self._clock()
                self._request("status", self._callbacks.status)

    def _handle_request(self, request: dict[str, Any], answer: Answer) -> None:
        try:
            self._execute_request(request, answer)
        except (PlinkError, KeyError, TypeError, ValueError) as error:
            answer({"error": str(error) or type(error).__name__})

    def _execute_request(self, request: dict[str, Any], answer: Answer) -> None:
        if self._settings is None:
            raise UsageError("the job has not begun yet")
        if request["method"] == "status":
            self._request("status", answer)
        elif request["method"] == "checkpoint":
            if not self._settings.checkpoints:
                raise UsageError("the job has no folder for checkpoints: it was started without --checkpoint DIR")
            self._request("checkpoint", answer)
        elif request["method"] == "evict":
            note = self._evict(request["hosts"], float(request["seconds"]))
            answer({"note": note} if note else {})
        elif request["method"] == "add":
            hosts = hosts_from_json(request["hosts"], None, "plink elastic add").ranked()
            self._adding.add(list(hosts), answer, request["bulk"] is True)
        else:
            raise UsageError(f"unknown method {request['method']!r}")

    def _request(self, what: str, answer: Answer) -> None:
        """Request something of the controller, or of the next one."""
        self._last_request_id += 1
        requests = [*self._requests.items(), (self._last_request_id, (what, answer))]
        shown = [number for number, (kind, _) in requests if kind == "status"]
        dropped = set(shown[:-_MAX_PENDING_STATUS_REQUESTS])
        self._requests = {number: request for number, request in requests if number not in dropped}
        self._tell_controller(_REQUESTS[what](self._last_request_id))

    def _evict(self, names: list[str], seconds: float) -> str | None:
        """Warn hosts; return a line for the user where something else is to be done in time."""
        numbers_by_name = {member.name: member.number for member in self._members.values()}
        if unknown := [name for name in names if name not in numbers_by_name]:
            raise UsageError(
                f"{', '.join(unknown)}: no such host in the job; there are {', '.join(sorted(numbers_by_name))}"
            )
        if not seconds >= 0:
            raise UsageError(f"--in {seconds:g}s: 0 or more")
        numbers = [numbers_by_name[name] for name in names]
        for number in numbers:
            self._warned[number] = (self._clock() + seconds, "plink elastic evict")
        self._tell_controller(events.EvictionNotice(tuple(numbers), seconds, "plink elastic evict"))
        return self._none_stays(numbers)

    def _none_stays(self, warned: list[int]) -> str | None:
        reliable = [member for member in self._members.values() if member.reliable]
        if not {member.number for member in reliable} & set(warned) or any(
            member.number not in self._warned for member in reliable
        ):
            return None
        assert self._settings is not None
        then = "the job goes on from its last checkpoint when a reliable host has come"
        if not self._settings.checkpoints:
            then = "the job ends with it, for want of a checkpoint (--checkpoint DIR)"
        names = ", ".join(member.name for member in reliable)
        return f"no reliable host stays ({names}): {then}; add one before (plink elastic add RUN HOST --hosts FILE)"

    def _room(self, newcomers: list[Member]) -> str | None:
        """Return a warning about memory, for the job without its warned hosts, if it can do without them."""
        assert self._settings is not None
        staying = [member for member in self._members.values() if member.number not in self._warned]
        if all(not member.reliable for member in [*staying, *newcomers]):
            staying = list(self._members.values())
        return warning(newcomers, [*staying, *newcomers], self._settings)

    def _admit(self, members: list[Member], bulk: bool) -> None:
        self._members |= {member.number: member for member in members}
        self._logged_hosts.expected(members)
        self._tell_controller(events.HostsJoined(tuple(members), bulk))

    def _dismiss(self, members: list[Member]) -> None:
        for member in members:
            del self._groups[member.number], self._hosts[member.number]

    def _start_lost(self) -> None:
        """Start lost reliable hosts again, each by itself."""
        hosts, self._lost_reliable = self._lost_reliable, {}
        if hosts:
            limit = self._job.timeout_s
            until = "for as long as it takes" if limit is None else f"until its --timeout of {format_duration(limit)}"
            self._callbacks.say(
                f"the job waits for a reliable host, {until}: {fold_hostlist(list(hosts))} will be tried again and "
                "again; or add another (plink elastic add last HOST --hosts FILE)"
            )
        for host in hosts.values():
            self._adding.bring_back(host)

    def _close(self) -> None:
        self.control_socket.close()
        deadline = self._clock() + _CLOSE_TIMEOUT_S
        while self._ended is not None and self._ended.code == 0 and self._members and self._clock() < deadline:
            self._run_next()
        if self._controller is not None:
            controller, self._controller = self._controller, None
            self._term += 1
            controller.close()
        for group in set(self._groups.values()):
            group.close()
