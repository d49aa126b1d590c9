"""One TCP flow between two agents, to measure a rate: of a host, of a link that several share, or before a job.

Runs on the hosts: standard library only. A sender must present the flow's token; both ends stop by time.
"""

from __future__ import annotations

import hmac
import selectors
import socket
import threading
import time
from typing import Any

from plink.transport.addresses import family_of

_CHUNK_BYTES = 1 << 18
_ACCEPT_S = 5.0  # until the sender has connected and sent its whole token, where a request sets no `accept_s`
_MAX_CLIENTS = 64  # that have not presented the token yet
_RETRY_S = 0.05
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
    """Accept one client; the oldest that has not sent the token is dropped to make room."""
    if len(received) >= _MAX_CLIENTS:
        _drop(next(iter(received)), selector, received)
    try:
        client, _ = listener.accept()
    except BlockingIOError:
        return
    except OSError:  # it has closed already, or no descriptors are free
        if received:
            _drop(next(iter(received)), selector, received)
        else:
            time.sleep(_RETRY_S)
        return
    client.setblocking(False)
    received[client] = b""
    selector.register(client, selectors.EVENT_READ)


def _has_sent(client: socket.socket, received: dict[socket.socket, bytes], token: bytes) -> bool:
    """Read what a client sent. One that closes has sent the missing bytes as zeros, which is no token."""
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
