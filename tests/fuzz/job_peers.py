"""Bytes as the words of the agents and nodes of a job, and what its controllers make of them."""

import contextlib
import json
from functools import cache
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from plink.errors import HostError, ProtocolError
from plink.model.elastic.codec import parse_message
from plink.model.elastic.reports import Answer, Hello, OtherVersion
from plink.model.hosts import Host, Hosts
from plink.transport.fleet import AgentMessage, Fleet
from plink.transport.stdio_channel import decode_line
from runners.elastic.compatibility import refuse
from runners.elastic.controller import Controller
from runners.job.agent_pool import AgentPool, run_to_end
from runners.job.fleet_runner import PROGRAM, FleetRunner
from runners.job.placement import assign_ranks
from runners.job.runner import Job, RunContext, RunObserver
from runners.job.setup import set_up_hosts
from solvers.elastic import events
from solvers.elastic.member import Member
from solvers.elastic.settings import Settings
from solvers.elastic.step import status

HOSTS = Hosts((Host("h0", "10.0.0.1", 2), Host("h1", "10.0.0.2")))
_JOB_S = 60.0
_MAX_MESSAGES = 300  # words
_NODES = 3
_WORD_S = 0.02


class Crewmates:
    """A fleet of two: h0 says the next line whenever it is told something, h1 is what it should be."""

    pause_s = 0.0
    pause_message = ""

    def hosts_without_heartbeat_since(self, moment: float) -> list[str]:
        """Nobody."""
        return []

    def __init__(self, data: bytes) -> None:
        self._lines = data.split(b"\n")[:_MAX_MESSAGES]
        self._messages: list[AgentMessage] = []
        self._gone = self._unpacked = False
        self.now = 0.0

    def clock(self) -> float:
        """Seconds."""
        return self.now

    def start(self, hosts: Any, settings: Any, on_start: Any) -> dict[str, HostError]:
        """They are there."""
        return {}

    def send_all(self, **body: Any) -> None:
        """To both."""
        for host in HOSTS.names:
            self.send(host, **body)

    def send(self, host: str, **body: Any) -> None:
        """To one; of an archive's shards, which go ahead of answers, h0 says what it should."""
        if host == "h1" or body["method"] == "upload_part":
            self._messages += [
                AgentMessage(host, PROGRAM.checked(message)) for message in answers(HOSTS.names.index(host), body)
            ]
        elif body["method"] != "extract" or not self._unpacked:
            self._unpacked |= body["method"] == "extract"
            for _ in body.get("ranks", (None,)):
                self._say_next()

    def _say_next(self) -> None:
        if self._lines and not self._gone:
            message, reason = decoded(self._lines.pop(0))
            if message is not None:
                self._messages.append(AgentMessage("h0", message))
            elif reason:
                self._gone = True
                self._messages.append(AgentMessage("h0", None, HostError("h0", f"its agent is gone: {reason}")))

    def receive(self, timeout_s: float) -> AgentMessage | None:
        """The next message; where there is none h0 says something unasked, and time passes."""
        if not self._messages:
            self.now += max(0.0, timeout_s)
            self._say_next()
        return self._messages.pop(0) if self._messages else None

    def close(self) -> None:
        """Nobody needs to."""


def decoded(line: bytes) -> tuple[Any, str]:
    """The message on a line, and why it is none that is listened to any longer."""
    try:
        message = decode_line(line)
        return (PROGRAM.checked(message), "") if message and "type" in message else (None, "")
    except ProtocolError as error:
        return None, str(error)


def answers(host: int, body: dict[str, Any]) -> list[dict[str, Any]]:
    """What an agent says to a word."""
    me = {"hostname": f"m{host}", "boot_id": "b", "cores": 1, "addresses": [f"10.0.0.{host + 1}"]}
    if body["method"] == "start":
        ranks = [task["rank"] for task in body["ranks"]]
        shown = {"pid": 7, "hostname": me["hostname"], "addresses": me["addresses"]}
        return [{"type": "rank_report", "rank": rank, **shown} for rank in ranks]
    if body["method"] == "go":
        rank = 2 * host  # the first of that host
        return [
            {"type": "output", "rank": rank, "stream": "out", "text": "step\n"},
            {"type": "exited", "rank": rank, "code": 0},
        ]
    prepared = {"argv": ["python3", "t.py"], "workdir": "/", "interface": "eth0", "address": f"10.0.0.{host + 1}",
                "port": 4000, "versions": None, "problems": []}  # fmt: skip
    message: dict[str, dict[str, Any]] = {
        "begin": {"type": "ready", "address": f"10.0.0.{host + 1}", **me},
        "has_digest": {"type": "digest", "path": None},
        "upload_part": {"type": "part_stored", "bytes": 10},
        "extract": {"type": "extracted", "path": "/copy", "error": None},
        "set_up": {"type": "set_up", **prepared},
        "open_listener": {"type": "listener_opened", "error": None},
        "connect": {"type": "connected", "error": None},
        "close_listener": {"type": "listener_closed"},
        "stacks": {"type": "stacks"},
    }
    return [message[body["method"]]] if body["method"] in message else []


@cache
def _folder() -> Path:
    from tests.fuzz.targets import _folder as of_this_process

    folder = of_this_process() / "copied"
    folder.mkdir()
    (folder / "t.py").write_text("print(1)")
    return folder


def run_agents(data: bytes) -> None:
    """A job of three ranks, two of them on the host that says what it likes: it ends, or is refused in a line."""
    fleet = Crewmates(data)
    job = Job("t.py", (), (str(_folder()),), ("python3",), {}, timeout_s=_JOB_S, sync=_folder())
    pool = AgentPool(cast(Fleet, fleet), HOSTS, job, lambda *line: None, fleet.clock, lambda text: [])
    setups = set_up_hosts(pool, lambda *done: None)
    assignments = assign_ranks(HOSTS, {})
    FleetRunner("x", cast(Any, None)).start(pool, assignments, setups, "id")
    result = run_to_end(pool, assignments, pool.rank_reports(), RunContext(RunObserver(), fleet.clock))
    json.dumps(result.to_json())
    assert set(result.exits) <= {0, 1, 2}


def run_nodes(data: bytes) -> None:
    """Lines of a host's number and what it says: the controller goes on, or ends the job with a reason."""
    output: list[dict[str, Any]] = []
    now = 0.0
    controller = Controller(output.append, settings(), 1, lambda: now)
    controller.handle(events.JobStarted(tuple(members())))
    for line in data.split(b"\n")[:_MAX_MESSAGES]:
        number, _, words = line.partition(b" ")
        if number not in (b"0", b"1", b"2"):
            continue
        host, now = int(number), now + _WORD_S
        try:
            message = parse_message(words)
        except ProtocolError as error:
            controller.handle(events.HostsLost((host,), str(error)))
            continue
        if message is None:
            continue
        if isinstance(message, Hello | OtherVersion):
            messages = refuse([Member(host, f"h{host}", "reliable", 1, hello=message)])
            assert messages is None or len(messages) < 1000
            continue
        if isinstance(message, Answer):
            sent = [item["request"]["id"] for item in output if item["type"] == "send" and item["host"] == host]
            waits = [number for number in sent if number is not None]
            if waits and message.id not in waits:
                message = structs.replace(message, id=waits[-1])
        controller.handle(events.HostMessage(host, message))
        controller.tick()
    json.dumps(status(controller.state, now))
    json.dumps(output)


def settings() -> Settings:
    """Of the job."""
    return Settings(keys="", partitions=2, shards=3, shapes=((1 << 10, 1 << 10),), started=0.0, began=0.0)


def members() -> list[Member]:
    """Its hosts."""
    return [Member(number, f"h{number}", "reliable" if number == 0 else "transient", 1) for number in range(_NODES)]


@cache
def a_job() -> bytes:
    """What the nodes of a small job say, in order, until one of them was warned and has left."""
    from tests.runners.elastic.simulated_job import SimulatedJob, Stuck

    lines: list[bytes] = []

    class Recorded(SimulatedJob):
        def _receive(self, number: int, message: dict[str, Any]) -> None:
            if message["type"] != "alive":
                lines.append(f"{number} {json.dumps(message)}".encode())
            super()._receive(number, message)

    job = Recorded(1, "rtt", partitions=2, shards=3, clocks=2)
    with contextlib.suppress(Stuck):
        job.run()
    return b"\n".join(lines)
