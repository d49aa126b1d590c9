"""Targets that take what comes over sockets and pipes; see :mod:`tests.fuzz.targets` for what holds for all of them."""

import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any
from unittest.mock import patch


def stamp(data: bytes) -> None:
    """STAMP: who has not signed gets nothing out of an agent, and nobody more than was sent."""
    from probes.reflector import reflect
    from probes.stamp import Key, unpack_reflector, unpack_sender

    answer = reflect(data, 1, 2, 3)
    assert answer is None or len(answer) == len(data)
    assert answer is None or reflect(answer, 1, 2, 3) is None
    assert unpack_sender(Key(b"k"), data) is None
    assert unpack_reflector(Key(b"k"), data) is None


def probe_agent(data: bytes) -> None:
    """An agent of a probe: what its controller makes of what it says."""
    from tests.fuzz.peers import run_agents

    run_agents(data)


def probe_controller(data: bytes) -> None:
    """An agent's line: what is no message is passed over."""
    from tests.fuzz.peers import read_controller

    read_controller(data)


def tuning(data: bytes) -> None:
    """Rank 0's words to Autotune."""
    from tests.fuzz.peers import tune_by_rank

    tune_by_rank(data)


def message(data: bytes) -> None:
    """A message to a parameter server, and what a partition makes of it."""
    from tests.fuzz.peers import serve_peer

    serve_peer(data)


def registration(data: bytes) -> None:
    """What a torchrun says of itself at the rendezvous."""
    from plink.runtime.membership import missing, refusal, registration_from
    from tests.fuzz.peers import ROSTER

    came = [registration_from(data)]
    assert refusal(ROSTER, came) is None or refusal(ROSTER, came)
    missing(ROSTER, came)


def replacement(data: bytes) -> None:
    """A schedule that comes while a job runs; whatever is none is none."""
    from plink.runtime.allreduce.aggregation import parse_replacement

    result = parse_replacement(data, 4)
    assert result is None or result.ranks == 4


def job_agents(data: bytes) -> None:
    """The launching agent of one host of two: before a job, at the gate, while it runs."""
    from tests.fuzz.job_peers import run_agents

    run_agents(data)


def nodes(data: bytes) -> None:
    """The nodes of an elastic job: what its controller makes of what they say."""
    from tests.fuzz.job_peers import run_nodes

    run_nodes(data)


def flow(data: bytes) -> None:
    """A stranger connects where a flow is awaited, before its sender: the sender is served all the same."""
    from plink.transport import flows

    with flows.listen("127.0.0.1") as listener, socket.socket() as unauthenticated, socket.socket() as sender:
        for client, greeting in ((unauthenticated, data), (sender, TOKEN)):
            client.connect(listener.getsockname())
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.sendall(greeting)
            client.shutdown(socket.SHUT_WR)
        result = flows.receive(listener, {"token": TOKEN.hex(), "seconds": 0.001})
    json.dumps(result, allow_nan=False)
    assert result.get("error") in (None, "the flow ended early")


TOKEN = b"sixteen letters."


def metadata(data: bytes) -> None:
    """Whatever answers where the metadata services of clouds do; answers stand one after the other, a NUL between."""
    from plink.runtime.elastic.host import preemption

    answers = data.split(b"\0")[:8]

    class Connection(preemption.HTTPConnection):
        def connect(self) -> None:
            self.sock, there = socket.socketpair()
            with there:
                there.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    there.sendall(answers.pop(0) if answers else b"")

    with patch.object(preemption, "HTTPConnection", Connection):
        for service, most in (
            (preemption.Aws(), 120.0),
            (preemption.Gcp(), 30.0),
            (preemption.Azure(), 900.0),
        ):
            line = preemption.MetadataClient("127.0.0.1", 1)
            for _ in range(2):
                result, reason = {}, ""
                try:
                    result = service.ask(line)
                except preemption.InvalidResponse as error:
                    reason = str(error)
                assert all(0 <= notice.seconds <= most for notice in result.values())
                assert all(text.isprintable() for text in (reason, *(notice.reason for notice in result.values())))


def help_messages(data: bytes) -> None:
    """What a worker of an elastic job says to one that it helps, or that helps it."""
    from plink.errors import InputError, ProtocolError
    from plink.runtime.elastic.helping.messages import decode, encode

    try:
        message = decode(data.decode("utf-8", "replace"))
    except ProtocolError as error:
        raise InputError("message", str(error)) from error
    assert decode(encode(message)) == message


EVERY: tuple[Callable[[bytes], Any], ...] = (
    *(stamp, probe_agent, probe_controller, tuning, message, registration, replacement),
    *(job_agents, nodes, flow, metadata, help_messages),
)
