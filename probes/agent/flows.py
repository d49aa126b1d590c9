"""One TCP flow between two agents, to see how much several flows get together across a shared link.

Runs on the hosts: standard library only. Only a sender that knows the flow's token is heard; both ends stop by time.
"""

from __future__ import annotations

import hmac
import selectors
import socket
import time
from typing import Any

from plink.remote.addresses import family_of

_PIECE = 1 << 18
_ACCEPT_S = 5.0  # until the sender has connected and sent its whole token
_MAX_CLIENTS = 64  # that have not sent the token yet
_RETRY_S = 0.05
_RAMP = 0.4  # share of the time left out at the beginning, while TCP finds its rate


def listen(address: str) -> socket.socket:
    """A port for one flow."""
    sock = socket.socket(family_of(address))
    sock.bind((address, 0))
    sock.listen(_MAX_CLIENTS)
    return sock


def receive(listener: socket.socket, task: dict[str, Any]) -> dict[str, Any]:
    """Receive the flow; ``gbps`` of its payload after the ramp, or ``error``."""
    flow = _await_sender(listener, bytes.fromhex(task["token"]))
    if flow is None:
        return {"error": "the flow's sender did not come"}
    with flow:
        flow.settimeout(1.0)
        return _count(flow, task["seconds"])


def _await_sender(listener: socket.socket, token: bytes) -> socket.socket | None:
    """Accept connections until one has sent the token; None after ``_ACCEPT_S`` seconds in all.

    Clients are read side by side, so one that is slow or silent delays no other.
    """
    deadline = time.monotonic() + _ACCEPT_S
    received: dict[socket.socket, bytes] = {}
    listener.setblocking(False)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while (left_s := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    client = key.fileobj
                    assert isinstance(client, socket.socket)
                    if client is listener:
                        _accept(listener, selector, received)
                    elif client in received and _has_sent(client, received, token):
                        del received[client]
                        return client
                    elif client in received and len(received[client]) >= len(token):
                        _drop(client, selector, received)
    finally:
        for client in received:
            client.close()
    return None


def _accept(listener: socket.socket, selector: selectors.BaseSelector, received: dict[socket.socket, bytes]) -> None:
    """Take one client; the oldest that has not sent the token makes room for it."""
    if len(received) >= _MAX_CLIENTS:
        _drop(next(iter(received)), selector, received)
    try:
        client, _ = listener.accept()
    except BlockingIOError:
        return
    except OSError:  # it has gone again, or no descriptors are left
        if received:
            _drop(next(iter(received)), selector, received)
        else:
            time.sleep(_RETRY_S)
        return
    client.setblocking(False)
    received[client] = b""
    selector.register(client, selectors.EVENT_READ)


def _has_sent(client: socket.socket, received: dict[socket.socket, bytes], token: bytes) -> bool:
    """Read what came. Whoever hangs up has sent as many zeros as were missing, which is no token."""
    missing = len(token) - len(received[client])
    try:
        data = client.recv(missing)
    except BlockingIOError:
        return False
    except OSError:
        data = b""
    received[client] += data or bytes(missing)
    return hmac.compare_digest(received[client], token)


def _drop(client: socket.socket, selector: selectors.BaseSelector, received: dict[socket.socket, bytes]) -> None:
    selector.unregister(client)
    client.close()
    del received[client]


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
