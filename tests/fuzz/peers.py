"""Bytes as the messages of a peer, and how their receivers handle them."""

import contextlib
import json
import os
from functools import cache
from typing import Any, cast

from plink.errors import PlinkError
from plink.model.hosts import Host
from plink.transport.fleet import AgentMessage, Fleet
from plink.transport.stdio_channel import AgentStdioChannel, ControllerLost

ROSTER = (Host("a", "10.0.0.1"), Host("b", "10.0.0.2"))
_MAX_ANSWERS = 200


class ScriptedFleet:
    """A fleet of one agent that sends scripted lines and one that answers correctly."""

    def __init__(self, data: bytes) -> None:
        self._lines = data.split(b"\n")
        self._messages: list[AgentMessage] = []
        self.now = 0.0

    def clock(self) -> float:
        """Seconds."""
        return self.now

    def send(self, host: str, **body: Any) -> None:
        """What h0 answers is the next line, with the number of the task where it gives none."""
        if host == "h1":
            good = {"sent": 1, "received": 1, "reflected": 1, "percentiles_us": [1.0] * 5, "halves_us": [1.0, 1.0],
                    "jitter_us": 0.0, "port": 5, "gbps": 1.0}  # fmt: skip
            self._messages.append(AgentMessage(host, {"type": "done", "task": body["task"], **good}))
            return
        with contextlib.suppress(ValueError, RecursionError, IndexError):
            message = json.loads(self._lines.pop(0))
            if isinstance(message, dict):
                self._messages.append(AgentMessage(host, {"type": "done", "task": body["task"], **message}))

    def receive(self, timeout_s: float) -> AgentMessage | None:
        """The next message; time passes where there is none."""
        if self._messages:
            return self._messages.pop(0)
        self.now += max(0.0, timeout_s)
        return None


def run_agents(data: bytes) -> None:
    """A pair is measured by each method, one end of which answers with these lines; the network can be written."""
    from plink.model.hosts import Hosts
    from plink.model.network import network_from_json
    from plink.model.storage import parse_document, render_document
    from probes.measurements import Measurements
    from probes.methods import METHODS, MeasurementContext, ProbeSettings, probe_task
    from probes.scheduler import ProbeScheduler

    fleet = ScriptedFleet(data)
    measurements = Measurements(Hosts((Host("h0", "10.0.0.1"), Host("h1", "10.0.0.2"))))
    ready = {i: {"address": "10.0.0.9", "port": 1, "stamps": True, "tcp_port": 2, "ssh_port": 22} for i in range(2)}
    context = MeasurementContext(ProbeSettings(count=2), ready, measurements)
    scheduler = ProbeScheduler(cast(Fleet, fleet), ["h0", "h1"], fleet.clock)
    for method in METHODS:
        scheduler.run([probe_task(context, method, 0, 1)])
    text = render_document(measurements.network().to_json())
    network_from_json(parse_document(text, "network"), "network")


def read_controller(data: bytes) -> None:
    """An agent reads what comes to the end, and what it is told are objects."""
    read, write = os.pipe()
    out, theirs = os.pipe()
    try:
        os.set_blocking(write, False)
        os.write(write, data[: 1 << 15])
        os.close(write)
        line = AgentStdioChannel(1.0, read, theirs)
        with contextlib.suppress(ControllerLost):
            for _ in range(_MAX_ANSWERS):
                messages = line.receive(0.0)
                assert messages is None or isinstance(messages, dict)
    finally:
        for descriptor in (read, out, theirs):
            os.close(descriptor)


def tune_by_rank(data: bytes) -> None:
    """Autotune's daemon says what it does not understand, once, and goes on."""
    from runners.autotune.daemon import Daemon

    messages: list[str] = []
    daemon = Daemon(_assignment(), None, messages.append, clock=lambda: 1.0)
    for line in data.decode("utf-8", "replace").split("\n")[:_MAX_ANSWERS]:
        for answer in daemon.answer_line(line):
            assert set(json.loads(answer)) == {"epoch", "plan"}
    assert all("\n" not in line for line in messages)


@cache
def _assignment() -> Any:
    from tests.solvers.ranks_on_paper import GROUPS, equal_assignment

    return equal_assignment(GROUPS, 16)


def serve_peer(data: bytes) -> None:
    """A server takes a message or closes the connection; a partition takes a part or refuses it."""
    from plink.runtime.elastic.partition.serialization import begun, parts_of, take, update_part
    from plink.runtime.elastic.transport.messages import PartitionPart, Update
    from plink.runtime.elastic.transport.records import ConnectionLost
    from plink.runtime.elastic.transport.wire import receive
    from tests.fuzz.targets import _layout
    from tests.runtime.elastic.test_wire import Pipe

    layout, pipe, partition = _layout(), Pipe(data), None
    with contextlib.suppress(ConnectionLost):
        for _ in range(_MAX_ANSWERS):
            message, _ = receive(pipe, layout)
            try:
                if isinstance(message, Update):
                    update_part(message)
                    if partition is not None:
                        partition.update(message.worker, message.clock, 0, True, message.blocks)
                elif isinstance(message, PartitionPart) and partition is None:
                    partition = begun(layout, message, sees_ahead=False)
                elif isinstance(message, PartitionPart):
                    take(partition, message)
            except (ValueError, IndexError, PlinkError):
                # A server answers these with a refusal (owner.py).
                continue
    if partition is not None:
        parts_of(partition)
    assert pipe.largest <= 1 << 16
