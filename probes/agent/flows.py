"""One TCP flow between two agents, to see how much several flows get together across a shared link.

Runs on the hosts: standard library only. Only a sender that knows the flow's token is heard; both ends stop by time.
"""

from __future__ import annotations

import hmac
import socket
import time
from typing import Any

from plink.remote.addresses import family_of

_PIECE = 1 << 18
_ACCEPT_S = 5.0
_RAMP = 0.4  # share of the time left out at the beginning, while TCP finds its rate


def listen(address: str) -> socket.socket:
    """A port for one flow."""
    sock = socket.socket(family_of(address))
    sock.bind((address, 0))
    sock.listen(4)
    sock.settimeout(_ACCEPT_S)
    return sock


def receive(listener: socket.socket, task: dict[str, Any]) -> dict[str, Any]:
    """Take the flow in; ``gbps`` of its payload after the ramp, or ``error``."""
    token, seconds = bytes.fromhex(task["token"]), task["seconds"]
    deadline = time.monotonic() + _ACCEPT_S
    while True:
        try:
            flow, _ = listener.accept()
        except OSError:
            return {"error": "the flow's sender did not come"}
        with flow:
            flow.settimeout(1.0)
            if _is_the_sender(flow, token):
                return _count(flow, seconds)
        if time.monotonic() > deadline:
            return {"error": "the flow's sender did not come"}


def _is_the_sender(flow: socket.socket, token: bytes) -> bool:
    said = b""
    try:
        while len(said) < len(token):
            data = flow.recv(len(token) - len(said))
            if not data:
                return False
            said += data
    except OSError:
        return False
    return hmac.compare_digest(said, token)


def _count(flow: socket.socket, seconds: float) -> dict[str, Any]:
    buffer = bytearray(_PIECE)
    began = time.monotonic()
    ramp_ends, ends = began + _RAMP * seconds, began + seconds
    counted, counted_from, last = 0, 0.0, began
    while last < ends:
        try:
            got = flow.recv_into(buffer)
        except OSError:
            break
        if not got:
            break
        last = time.monotonic()
        if counted_from:
            counted += got
        elif last >= ramp_ends:
            counted_from = last
    if last - counted_from < 0.1 * seconds or not counted_from:
        return {"error": "the flow broke off"}
    return {"gbps": 8 * counted / (last - counted_from) / 1e9}


def send(task: dict[str, Any]) -> dict[str, Any]:
    """Send for as long as the flow lasts; ``sent_bytes`` or ``error``."""
    (peer, port), seconds = task["peer"], task["seconds"]
    sent, piece = 0, bytes(_PIECE)
    with socket.socket(family_of(peer)) as flow:
        flow.settimeout(_ACCEPT_S)
        try:
            flow.connect((peer, port))
            flow.sendall(bytes.fromhex(task["token"]))
            ends = time.monotonic() + seconds
            flow.settimeout(1.0)
            while time.monotonic() < ends:
                sent += flow.send(piece)
        except OSError as error:
            if not sent:
                return {"error": f"no flow to {peer}: {error}"}
    return {"sent_bytes": sent}
