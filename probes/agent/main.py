"""Probing agent: one thread that serves its controller's connection and its own sockets.

Runs on the hosts: standard library only. It answers only packets that are signed with the key of its run, and each
packet of the current measurement once; an answer is as long as the probe. It ends with its controller.

===================  ============================================================================================
from the controller  ``begin`` · ``pair`` (STAMP with a peer, which gets the same) · ``icmp`` · ``tcp`` · ``iperf3``
                     · ``iperf3_serve`` · ``flow_listen`` · ``flow_exchange`` · ``inspect`` · ``routes``
                     · ``alive``
to the controller    ``ready`` · ``busy`` (another plink probe runs here) · ``done`` (with the task's number)
                     · ``alive`` (the answer to the same)
===================  ============================================================================================
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import sys
import time
from typing import Any

from plink.transport import flows
from plink.transport.addresses import family_of, host_identity, interface_of, local_addresses, reachable_address
from plink.transport.stdio_channel import AgentStdioChannel, ControllerLost
from probes.agent import tools
from probes.agent.echo import Echo
from probes.agent.inspection import inspect
from probes.agent.routes import routes_to
from probes.stamp import Key

_BURST = 256  # handshakes accepted in one go
_POLL_S = 1.0  # how often an idle agent checks its lease
# A name in the abstract namespace of Unix sockets: no file, gone with the process, one for each network namespace.
_LOCK = "\0plink-probe-agent"


def _acquire_lock() -> socket.socket | None:
    """Return the lock that only one agent of a host can hold; None when another one holds it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(_LOCK)
    except OSError:
        lock.close()
        return None
    return lock


class ProbeAgent:
    """Sockets of one agent, and the handlers of its controller's messages."""

    def __init__(self, channel: AgentStdioChannel, key: Key, address: str, source_ports: int, handshakes: bool) -> None:
        self._channel, self._address = channel, address
        self._echo = Echo(key, address, source_ports)
        # The port that the tcp method measures, open for it only. Connections are closed at once.
        self._handshake_listener: socket.socket | None = None
        if handshakes:
            self._handshake_listener = socket.socket(family_of(address))
            self._handshake_listener.bind((address, 0))
            self._handshake_listener.listen(128)
            self._handshake_listener.setblocking(False)
        self._iperf3 = tools.Iperf3Server()
        self._listener: socket.socket | None = None

    def report(self) -> dict[str, Any]:
        """Return the first report to the controller."""
        ssh = os.environ.get("SSH_CONNECTION", "").split()
        return {
            "address": self._address,
            "port": self._echo.port,
            "stamps": self._echo.stamps,
            "tcp_port": None if self._handshake_listener is None else self._handshake_listener.getsockname()[1],
            "ssh_port": int(ssh[3]) if len(ssh) == 4 else None,
            "python": ".".join(map(str, sys.version_info[:3])),
            **host_identity(),
        }

    def run(self) -> None:
        """Serve the controller until it is gone."""
        poll = select.epoll()
        poll.register(self._channel.fileno(), select.EPOLLIN)
        if self._handshake_listener is not None:
            poll.register(self._handshake_listener.fileno(), select.EPOLLIN)
        self._echo.register(poll)
        checked_s = time.monotonic()
        try:
            while True:
                wait_s = self._echo.poll_timeout_s()
                events = poll.poll(_POLL_S if wait_s is None else min(wait_s, _POLL_S))
                for fd, _ in events:
                    self._echo.on_readable(fd)
                    if self._handshake_listener is not None and fd == self._handshake_listener.fileno():
                        self._accept_handshakes()
                result = self._echo.poll_result()
                if result is not None:
                    self._channel.send(**{"type": "done", **result})
                # However many packets arrive, check for the controller every second.
                due = time.monotonic() - checked_s > _POLL_S
                if due or not events or any(fd == self._channel.fileno() for fd, _ in events):
                    checked_s = time.monotonic()
                    self._iperf3.reap()
                    while (message := self._channel.receive(0.0)) is not None:
                        self._handle(message)
        finally:
            self._iperf3.stop()

    def _accept_handshakes(self) -> None:
        assert self._handshake_listener is not None
        with contextlib.suppress(OSError):
            for _ in range(_BURST):
                self._handshake_listener.accept()[0].close()

    def _handle(self, message: dict[str, Any]) -> None:
        if message["method"] == "pair":
            self._echo.begin(message)
            return
        self._channel.send(**{"type": "done", "task": message["task"], **self._execute(message)})

    def _execute(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run a request that blocks this agent for a bounded time, and return its result.

        One that may last as long as a lease renews it; flows and the start of a server are far shorter.
        """
        kind, renew = message["method"], self._channel.renew
        if kind in ("icmp", "tcp", "iperf3"):
            return {"icmp": tools.icmp, "tcp": tools.tcp, "iperf3": tools.iperf3}[kind](message, renew)
        if kind == "inspect":
            return inspect(self._address, message["peers"], renew)
        if kind == "routes":
            return {
                "routes": routes_to(message["addresses"]),
                "own": {address: interface_of(address) for address in local_addresses()},
            }
        if kind == "iperf3_serve":
            return self._iperf3.serve(self._address, message["limit_s"])
        if kind == "flow_listen":
            if self._listener is not None:
                self._listener.close()
            self._listener = flows.listen(message.get("address") or self._address)
            return {"port": self._listener.getsockname()[1]}
        if kind == "flow_exchange":
            return flows.exchange(self._listener, message)
        return {"error": f"unknown request {kind!r}"}


def main(lease_s: float, key: str, source_ports: int, handshakes: bool = False) -> None:
    """Run the agent on a host. ``key`` is hexadecimal.

    The first message has the address that the controller used, and those of the other hosts.
    """
    channel = AgentStdioChannel(lease_s)
    channel.hello()
    gc.disable()  # there are no reference cycles, and a collection during a burst delays packets
    try:
        while (request := channel.receive(lease_s)) is None:  # other hosts are still being connected to
            pass
        lock = _acquire_lock()
        if lock is None:
            channel.send(**{"type": "busy"})
            return
        try:
            address = reachable_address(request["address"], request.get("peers", ()))
        except OSError as error:
            sys.exit(error.strerror)
        agent = ProbeAgent(channel, Key(bytes.fromhex(key)), address, source_ports, handshakes)
        channel.send(**{"type": "ready", **agent.report()})
        agent.run()
    except ControllerLost:
        return
