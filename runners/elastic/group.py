"""Hosts that were started together: agents on them, and a node each, with a line to the supervisor."""

import contextlib
import gc
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plink.errors import PlinkError, ProtocolError
from plink.model.elastic.codec import parse_message
from plink.model.elastic.reports import NodeMessage
from plink.model.hosts import Hosts
from plink.transport.connector import Connector
from plink.transport.fleet import MAX_JUNK_BYTES, Fleet
from plink.transport.low_priority import VARIABLE as LOW_PRIORITY
from runners.job.agent_pool import AgentPool
from runners.job.fleet_runner import PROGRAM, rank_environments
from runners.job.job import Job
from runners.job.output import Sink
from runners.job.placement import RankLocation, assign_ranks, verify_placement
from runners.job.result import check_placement
from runners.job.setup import set_up_hosts
from solvers.elastic.crash_loop import ENDED

_POLL_INTERVAL_S = 0.5

# number of the host, message of its node (None: it is gone), and the reason
OnMessage = Callable[[int, NodeMessage | None, str], None]


@dataclass(frozen=True)
class NodeLauncher:
    """How the nodes of one job are started, whichever group they belong to; ``sink`` gets what they print."""

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
            self._fleet, self._hosts, launcher.job,
            lambda rank, stream, line: launcher.sink(None if rank is None else self._by_rank[rank], stream, line),
            launcher.clock,
        )  # fmt: skip
        self._gone: set[int] = set()
        self._junk_bytes = dict.fromkeys(self._by_rank, 0)
        self._closed = threading.Event()
        self.addresses: dict[int, str] = {}

    def start(
        self, progress: Callable[[str, int, int], None],
        machines: Mapping[str, dict[str, Any]] | None, peers: Sequence[str] | None = None,
    ) -> list[RankLocation]:  # fmt: skip
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
            self._numbers[name]: setup["identity"]["address"] if alone else setup["address"]
            for name, setup in setups.items()
        }
        for assignment, env in rank_environments(pool, assignments, setups):
            setup = setups[assignment.host]
            task = {"rank": assignment.rank, "env": env | ({LOW_PRIORITY: "1"} if beside else {}), "channel": True}
            fleet.send(assignment.host, method="start", ranks=[task], argv=setup["argv"], workdir=setup["workdir"])
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
            elif message.body["type"] == "line":
                self._handle_node_message(number, message.body["text"])
            else:
                try:
                    for rank, code in self._pool.handle(message):
                        self._pool.output.finish(rank)
                        self._lost(number, f"{ENDED} {code}")
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
