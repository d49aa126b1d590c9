"""Groups of hosts that start together: agents on them, and a node each, with a line to the supervisor.

Hosts that are added to a job that runs are a group, too: they load the program, and then the controller is notified.
"""

import contextlib
import gc
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from plink.errors import PlinkError, ProtocolError, UsageError
from plink.model.elastic.codec import parse_message
from plink.model.elastic.reports import Hello, NodeMessage, OtherVersion
from plink.model.hosts import Host, Hosts
from plink.transport.fleet import MAX_JUNK_BYTES, Connector, Fleet
from plink.transport.supervisor import LOW_PRIORITY
from runners.elastic.compatibility import refuse
from runners.elastic.control_socket import Answer
from runners.job.agent_pool import AgentPool
from runners.job.fleet_runner import PROGRAM, rank_environments
from runners.job.messages import RankLine
from runners.job.monitor import Sink
from runners.job.placement import RankLocation, assign_ranks, check_placement, verify_placement
from runners.job.runner import Job
from runners.job.setup import set_up_hosts
from solvers.elastic.failures import CAUSE, ENDED, KILLED, own_exit_code
from solvers.elastic.member import Member

_POLL_INTERVAL_S = 0.5

# number of the host, message of its node (None: it is gone), and the reason
OnMessage = Callable[[int, NodeMessage | None, str], None]


@dataclass(frozen=True)
class NodeLauncher:
    """The start of the nodes of one job, whichever group they belong to; ``sink`` gets what they print."""

    connector: Connector
    job: Job
    sink: Sink
    clock: Callable[[], float]


class Group:
    """Group of hosts that were started together.

    :param numbers: of the hosts, by name; rank r is shown by its host's number.
    :param on_message: gets what nodes say, from a thread of the group's own.
    """

    def __init__(self, launcher: NodeLauncher, hosts: Hosts, numbers: Mapping[str, int], on_message: OnMessage) -> None:
        self._numbers, self._on_message = numbers, on_message
        self._hosts = replace(hosts, members=tuple(replace(host, slots=1) for host in hosts))
        self._by_rank = [numbers[name] for name in self._hosts.names]
        self._fleet = Fleet(launcher.connector, PROGRAM)
        self._pool = AgentPool(
            self._fleet,
            self._hosts,
            launcher.job,
            lambda rank, stream, line: launcher.sink(None if rank is None else self._by_rank[rank], stream, line),
            launcher.clock,
        )
        self._gone: set[int] = set()
        self._junk_bytes = dict.fromkeys(self._by_rank, 0)
        self._closed = threading.Event()
        self.addresses: dict[int, str] = {}

    def start(
        self,
        progress: Callable[[str, int, int], None],
        machines: Mapping[str, dict[str, Any]] | None,
        peers: Sequence[str] | None = None,
    ) -> list[RankLocation]:
        """Start nodes on all hosts and verify their placement; then their messages are received.

        :param machines: what is known of the hosts; None: they are all this machine.
        :param peers: addresses of hosts of the job that are there already, beside whose work these start; None: it has
            not begun.
        :raises PlinkError: when one cannot be started. :raises PlacementError: when one is elsewhere.
        """
        pool, fleet = self._pool, self._fleet
        beside = peers is not None
        setups = set_up_hosts(pool, progress, peers or (), low_priority=beside)
        assignments = assign_ranks(self._hosts, machines or {})
        alone = len(setups) == 1 and not beside and machines is not None  # others may come: not the loopback
        self.addresses = {
            self._numbers[name]: pool.identities[name].address if alone else setup.address
            for name, setup in setups.items()
        }
        for assignment, env in rank_environments(pool, assignments, setups):
            setup = setups[assignment.host]
            task = {"rank": assignment.rank, "env": env | ({LOW_PRIORITY: "1"} if beside else {}), "channel": True}
            fleet.send(assignment.host, method="start", ranks=[task], argv=setup.argv, workdir=setup.workdir)
        locations = verify_placement(assignments, pool.rank_reports())
        if machines is None:
            locations = [replace(location, problem=None) for location in locations]
        check_placement(locations)
        fleet.send_all(method="go")
        threading.Thread(target=self._listen, name="plink-group", daemon=True).start()
        return locations

    def tell(self, number: int, message: dict[str, Any]) -> None:
        """Send a message to a node."""
        with contextlib.suppress(StopIteration):
            name = next(name for name, other in self._numbers.items() if other == number)
            self._fleet.send(name, method="line", text=json.dumps(message))

    def end(self, number: int) -> None:
        """End a node, whatever it does, and its agent."""
        name = next(name for name, other in self._numbers.items() if other == number)
        self._fleet.send(name, method="end")
        self._fleet.end(name)

    def last_lines(self, number: int) -> list[str]:
        """Return the last lines that a node printed."""
        return self._pool.output.last_lines(self._by_rank.index(number))

    def close(self) -> None:
        """End all: nodes do not outlive their agents."""
        self._closed.set()
        self._fleet.send_all(method="end")
        self._fleet.close()
        # Connections refer to themselves in circles: few objects, so that the collector would not come for them, but
        # each has a buffer of 64 KiB.
        gc.collect()

    def _listen(self) -> None:
        while not self._closed.is_set():
            message = self._fleet.receive(_POLL_INTERVAL_S)
            if message is None:
                continue
            number = self._numbers[message.host]
            if number in self._gone:
                continue
            if message.body is None:
                assert message.error is not None
                self._lost(number, message.error.reason)
            elif isinstance(message.body, RankLine):
                self._handle_node_message(number, message.body.text)
            else:
                try:
                    if (exited := self._pool.handle(message)) is not None:
                        self._pool.output.finish(exited.rank)
                        self._lost(number, f"{ENDED} {exited.code}")
                except PlinkError as error:
                    self._lost(number, str(error))

    def _handle_node_message(self, number: int, text: str) -> None:
        """Handle a message of a node. A node whose message is invalid is ended, because nobody knows what else it
        does."""
        try:
            message = parse_message(text)
            if message is not None:
                self._on_message(number, message, "")
                return
            self._junk_bytes[number] += len(text) + 1
            if self._junk_bytes[number] > MAX_JUNK_BYTES:
                raise ProtocolError(f"more than {MAX_JUNK_BYTES >> 20} MiB is no message")
        except ProtocolError as error:
            self.end(number)
            self._lost(number, f"its node was ended: what it sent makes no sense: {error}")

    def _lost(self, number: int, reason: str) -> None:
        if number not in self._gone:
            self._gone.add(number)
            self._on_message(number, None, reason)


PROGRAM_LOAD_TIMEOUT_S = 600.0  # for a program to be imported and made, on all hosts
LATE = f"the program was not made within {PROGRAM_LOAD_TIMEOUT_S:.0f} s"
_HELLO_POLL_S = 0.2
_FIRST_RETRY_S = 5.0  # after the first attempt; twice as long after every other, up to
_MAX_RETRY_S = 60.0


@dataclass
class Adding:
    """Adding of hosts to a job that runs; for the supervisor's thread, on which ``soon`` runs a function.

    ``gather``: makes hosts a group that is not started yet, and members to be. ``members``: of the job. ``hello``: the
    first messages of others, None where they are gone, and ``lost`` why. ``room``: returns a warning where hosts may
    have too little memory, raises an error where they have. ``admit``: makes them members. ``dismiss``: drops them.
    ``over``: whether the job has ended.
    """

    soon: Callable[[Callable[[], None]], None]
    gather: Callable[[list[Host]], tuple[Group, list[Member]]]
    members: Mapping[int, Member]
    hello: Mapping[int, Hello | OtherVersion | None]
    lost: Mapping[int, str]
    machines: Mapping[str, dict[str, Any]] | None
    room: Callable[[list[Member]], str | None]
    admit: Callable[[list[Member], bool], None]
    dismiss: Callable[[list[Member]], None]
    note: Callable[[str], None]
    over: Callable[[], bool]
    clock: Callable[[], float]
    _names: set[str] = field(default_factory=set)  # of those on their way
    _returned: dict[str, tuple[float, float]] = field(default_factory=dict)  # when hosts came, and the wait before

    def add(self, hosts: list[Host], answer: Answer, bulk: bool) -> None:
        """Add all of these hosts or none; ``answer`` gets which, or why not.

        :raises UsageError: for hosts that are in the job, or on their way into it.
        """
        names = [host.name for host in hosts]
        if there := set(names) & {member.name for member in self.members.values()}:
            raise UsageError(f"{', '.join(sorted(there))}: in the job already")
        if duplicates := set(names) & self._names:
            raise UsageError(
                f"{', '.join(sorted(duplicates))}: being added already; `plink elastic status` shows hosts"
            )
        self._names |= set(names)

        def answered(response: dict[str, Any]) -> None:
            self._names -= set(names)
            answer(response)

        group, members = self.gather(hosts)
        peers = [member.at for member in self.members.values()]
        threading.Thread(target=self._start, args=(group, members, peers, answered, bulk), daemon=True).start()

    def bring_back(self, host: Host) -> None:
        """Try a lost host until it comes; one that was lost soon after it last came, as the job refused it, later."""
        came, waited_s = self._returned.get(host.name, (-math.inf, 0.0))
        if self.clock() - came > _MAX_RETRY_S:
            self.until_it_comes(host)
        else:
            wait_s = min(max(2 * waited_s, _FIRST_RETRY_S), _MAX_RETRY_S)
            self._later(wait_s, lambda: self.until_it_comes(host, wait_s))

    def until_it_comes(self, host: Host, wait_s: float | None = None, noted: str = "") -> None:
        """Try a lost host again and again, more and more seldom, whatever becomes of others.

        :param wait_s: before the next attempt. :param noted: why the last one failed, which need not be repeated.
        """
        after_s = wait_s or _FIRST_RETRY_S
        if self.over() or host.name in {member.name for member in self.members.values()}:
            return
        if host.name in self._names:  # by somebody else, who may not succeed
            self._later(after_s, lambda: self.until_it_comes(host, after_s, noted))
            return

        def answer(response: dict[str, Any]) -> None:
            if error := response.get("error"):
                if error != noted:
                    self.note(f"{host.name}: {error}")
                self._later(after_s, lambda: self.until_it_comes(host, min(2 * after_s, _MAX_RETRY_S), error))
            else:
                self._returned[host.name] = self.clock(), wait_s or 0.0

        self.add([host], answer, True)

    def _start(self, group: Group, members: list[Member], peers: list[str], answer: Answer, bulk: bool) -> None:
        """Start a group, in a thread of its own: hosts take their time."""
        try:
            group.start(lambda phase, done, total: None, self.machines, peers)
        except (PlinkError, OSError) as error:
            text = str(error)
            group.close()
            self.soon(lambda: self._refuse(members, answer, text))
            return
        self.soon(lambda: self._await_hello(group, members, answer, bulk, self.clock() + PROGRAM_LOAD_TIMEOUT_S))

    def _await_hello(self, group: Group, members: list[Member], answer: Answer, bulk: bool, deadline: float) -> None:
        """Wait for the first messages of all newcomers, by calling itself again."""
        late = self.clock() > deadline
        if not late and any(member.number not in self.hello for member in members):
            self._later(_HELLO_POLL_S, lambda: self._await_hello(group, members, answer, bulk, deadline))
            return
        newcomers = []
        for member in members:
            hello = self.hello.get(member.number)
            if hello is None:
                message = last_word(group.last_lines(member.number), self.lost.get(member.number, LATE))
                group.close()
                self._refuse(members, answer, f"{member.name}: {message}")
                return
            newcomers.append(replace(member, hello=hello, at=group.addresses[member.number]))
        try:
            if mismatch := refuse([*self.members.values(), *newcomers]):
                raise PlinkError(mismatch)
            note = self.room(newcomers)
        except PlinkError as error:
            group.close()
            self._refuse(members, answer, str(error))
            return
        self.admit(newcomers, bulk)
        answer({"added": [member.name for member in members], **({"note": note} if note else {})})

    def _refuse(self, members: list[Member], answer: Answer, error: str) -> None:
        self.dismiss(members)
        answer({"error": error})

    def _later(self, seconds: float, does: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, lambda: self.soon(does))
        timer.daemon = True
        timer.start()


def last_word(lines: list[str], reason: str) -> str:
    """Return why a node ended before it was begun: from what it printed, where it ended by itself."""
    if not reason.startswith(ENDED):
        return reason
    if reason == f"{ENDED} 0":  # as with --help: the last line of that would explain nothing
        return "the program ended of its own accord before the job began, with exit code 0, after what it printed"
    errors = [line for line in lines if "error: " in line] or lines[-1:]
    if (code := own_exit_code(reason)) in (None, KILLED) or not errors:  # what it printed last is not why
        return f"{reason} before the job began" + (f": {CAUSE}" if code == KILLED else "")
    return errors[-1].partition("error: ")[2] or errors[-1]
