"""One TCP flow between two agents, to measure a rate: of a host, of a link that several share, or before a job.

Runs on the hosts: standard library only. A sender must present the flow's token; both ends stop by time.
"""

from __future__ import annotations

import hmac
import socket
import threading
import time
from typing import Any

from plink.transport.addresses import family_of
from plink.transport.hello_server import HelloServer

_CHUNK_BYTES = 1 << 18
_ACCEPT_S = 5.0  # until the sender has connected and sent its whole token, where a request sets no `accept_s`
_MAX_CLIENTS = 64  # that have not presented the token yet
_OVERLAP_S = 0.1
_RAMP_SHARE = 0.4  # of the time is not counted, while TCP finds its rate


def listen(address: str) -> socket.socket:
    """Open a port for one flow."""
    sock = socket.socket(family_of(address))
    sock.bind((address, 0))
    sock.listen(_MAX_CLIENTS)
    return sock


def receive(listener: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    """Receive the flow, and return ``gbps`` of its payload after the ramp, or ``error``."""
    accept_s = request.get("accept_s", _ACCEPT_S)
    flow = _await_sender(listener, bytes.fromhex(request["token"]), accept_s)
    if flow is None:
        return {"error": f"the flow's sender did not connect within {accept_s:g} s"}
    with flow:
        flow.settimeout(1.0)
        return _count(flow, request["seconds"], request.get("max_bytes"))


def _await_sender(listener: socket.socket, token: bytes, accept_s: float) -> socket.socket | None:
    """Accept connections until one has sent the token; None after ``accept_s`` seconds in all.

    Clients are read concurrently: one that is slow or silent delays no other.
    """
    deadline = time.monotonic() + accept_s

    def identify(hello: bytes) -> bool | None:
        return hmac.compare_digest(hello, token) or None

    server = HelloServer(listener, identify, len(token), accept_s, are_lines=False, max_pending=_MAX_CLIENTS)
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            if server.poll(left_s):
                return server.take()[0]
    finally:
        server.close()
    return None


def _count(flow: socket.socket, seconds: float, max_bytes: int | None) -> dict[str, Any]:
    """Rate of the payload after the ramp: the first part of the time, or of the flow where it ends by its bytes."""
    buffer = bytearray(_CHUNK_BYTES)
    began = last_s = time.monotonic()
    received_bytes = 0
    arrivals = [(began, 0)]
    while last_s < began + seconds:
        try:
            size = flow.recv_into(buffer)
        except OSError:
            break
        if not size:
            break
        last_s = time.monotonic()
        received_bytes += size
        arrivals.append((last_s, received_bytes))
    elapsed_s = last_s - began
    complete = elapsed_s >= (_RAMP_SHARE + 0.1) * seconds or (max_bytes is not None and received_bytes >= max_bytes)
    ramp_ends = began + _RAMP_SHARE * elapsed_s
    first_s, first_bytes = next(arrival for arrival in arrivals if arrival[0] >= ramp_ends)
    if not complete or last_s <= first_s:
        return {"error": "the flow ended early"}
    return {"gbps": 8 * (received_bytes - first_bytes) / (last_s - first_s) / 1e9}


def send(request: dict[str, Any]) -> dict[str, Any]:
    """Send for the duration of the flow, or ``max_bytes`` if given, and return ``sent_bytes`` or ``error``."""
    (peer, port), seconds, max_bytes = request["peer"], request["seconds"], request.get("max_bytes")
    sent, chunk = 0, bytes(_CHUNK_BYTES)
    with socket.socket(family_of(peer)) as flow:
        flow.settimeout(request.get("accept_s", _ACCEPT_S))
        try:
            flow.connect((peer, port))
            flow.sendall(bytes.fromhex(request["token"]))
            ends = time.monotonic() + seconds
            flow.settimeout(1.0)
            while time.monotonic() < ends and (max_bytes is None or sent < max_bytes):
                sent += flow.send(chunk)
        except OSError as error:
            if not sent:
                return {"error": f"no flow to {peer}: {error}"}
    return {"sent_bytes": sent}


def exchange(listener: socket.socket | None, request: dict[str, Any]) -> dict[str, Any]:
    """Receive the flow with ``receive_token``, send the one with ``send_token``, or both at once.

    Flows end after ``seconds`` or ``max_bytes``. Returns ``gbps`` of what was received, if anything was to be.
    """
    sending: list[dict[str, Any]] = []
    sender = None
    if "send_token" in request:
        # A receiver counts from its first byte: the sender goes on until the receiver has surely counted its time.
        work = {**request, "token": request["send_token"], "seconds": request["seconds"] + _OVERLAP_S}
        sender = threading.Thread(target=lambda: sending.append(send(work)), daemon=True)
        sender.start()
    result: dict[str, Any] = {}
    if "receive_token" in request:
        if listener is None:
            result = {"error": "nothing listens for the flow"}
        else:
            result = receive(listener, {**request, "token": request["receive_token"]})
    if sender is not None:
        sender.join(request.get("accept_s", _ACCEPT_S) + request["seconds"] + _OVERLAP_S + 2)
        failure = sending[0].get("error") if sending else "the flow did not end in time"
        if failure:
            result.setdefault("error", failure)
    return result
