"""The probing agent: one thread that listens to its controller and to its sockets.

Runs on the hosts: standard library only. It answers only packets signed with the key of its run, for the measurement it
was told of, each once; an answer is as long as the question. It ends with its controller.

===================  ============================================================================================
from the controller  ``begin`` · ``pair`` (STAMP with a peer, who is told the same) · ``icmp`` · ``tcp`` · ``iperf3``
                     · ``iperf3_serve`` · ``flow_listen`` · ``flow_receive`` · ``flow_send`` · ``inspect``
                     · ``alive``
to the controller    ``ready`` · ``busy`` (another plink probe is at work here) · ``done`` (with the task's number)
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

from plink.remote.addresses import family_of, host_identity, reachable_address
from plink.remote.stdio_channel import AgentStdioChannel, ControllerLost
from probes.agent import flows, tools
from probes.agent.echo import Echo
from probes.agent.inspection import inspect
from probes.stamp import Key

_BURST = 256  # handshakes, or packets of one socket, taken in one after the other
_LOOK_S = 1.0  # how often an idle agent looks whether its lease still runs
# A name in the abstract namespace of Unix sockets: no file, gone with the process, one for each network namespace.
_LOCK = "\0plink-probe-agent"


def _alone() -> socket.socket | None:
    """A lock that only one agent of a host can hold; None when another one does."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(_LOCK)
    except OSError:
        lock.close()
        return None
    return lock


class Agent:
    """The sockets of one agent and what it does with each message."""

    def __init__(self, line: AgentStdioChannel, key: Key, address: str, source_ports: int, handshakes: bool) -> None:
        self._line, self._address = line, address
        self._echo = Echo(key, address, source_ports)
        # Handshakes end here and are closed at once: the port that the tcp method measures, open for it only.
        self._handshakes: socket.socket | None = None
        if handshakes:
            self._handshakes = socket.socket(family_of(address))
            self._handshakes.bind((address, 0))
            self._handshakes.listen(128)
            self._handshakes.setblocking(False)
        self._iperf3 = tools.Iperf3Server()
        self._listener: socket.socket | None = None

    def ready(self) -> dict[str, Any]:
        """What the controller is told first."""
        ssh = os.environ.get("SSH_CONNECTION", "").split()
        return {
            "address": self._address,
            "port": self._echo.port,
            "stamps": self._echo.stamps,
            "tcp_port": None if self._handshakes is None else self._handshakes.getsockname()[1],
            "ssh_port": int(ssh[3]) if len(ssh) == 4 else None,
            "python": ".".join(map(str, sys.version_info[:3])),
            **host_identity(),
        }

    def run(self) -> None:
        """Do what the controller says until it is gone."""
        poll = select.epoll()
        poll.register(self._line.fileno(), select.EPOLLIN)
        if self._handshakes is not None:
            poll.register(self._handshakes.fileno(), select.EPOLLIN)
        self._echo.register(poll)
        looked_s = time.monotonic()
        try:
            while True:
                wait_s = self._echo.waits_s()
                events = poll.poll(_LOOK_S if wait_s is None else min(wait_s, _LOOK_S))
                for fd, _ in events:
                    self._echo.ready(fd)
                    if self._handshakes is not None and fd == self._handshakes.fileno():
                        self._shake_hands()
                result = self._echo.proceed()
                if result is not None:
                    self._line.send(**{"type": "done", **result})
                # However many packets come: the controller is looked for every second.
                due = time.monotonic() - looked_s > _LOOK_S
                if due or not events or any(fd == self._line.fileno() for fd, _ in events):
                    looked_s = time.monotonic()
                    self._iperf3.look()
                    while (message := self._line.receive(0.0)) is not None:
                        self._obey(message)
        finally:
            self._iperf3.stop()

    def _shake_hands(self) -> None:
        assert self._handshakes is not None
        with contextlib.suppress(OSError):
            for _ in range(_BURST):
                self._handshakes.accept()[0].close()

    def _obey(self, message: dict[str, Any]) -> None:
        if message["method"] == "pair":
            self._echo.begin(message)
            return
        self._line.send(**{"type": "done", "task": message["task"], **self._use(message)})

    def _use(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run what takes its time and is bounded in it; meanwhile this agent obeys nothing.

        What may take as long as a lease renews it; a flow, a server that comes up, are over long before.
        """
        what, renew = message["method"], self._line.renew
        if what in ("icmp", "tcp", "iperf3"):
            return {"icmp": tools.icmp, "tcp": tools.tcp, "iperf3": tools.iperf3}[what](message, renew)
        if what == "inspect":
            return inspect(self._address, message["peers"], renew)
        if what == "iperf3_serve":
            return self._iperf3.serve(self._address, message["limit_s"])
        if what == "flow_listen":
            if self._listener is not None:
                self._listener.close()
            self._listener = flows.listen(self._address)
            return {"port": self._listener.getsockname()[1]}
        if what == "flow_receive" and self._listener is not None:
            return flows.receive(self._listener, message)
        if what == "flow_send":
            return flows.send(message)
        return {"error": f"this agent cannot {what}"}


def main(lease_s: float, key: str, source_ports: int, handshakes: bool = False) -> None:
    """Entry point on a host. ``key``: hexadecimal. The first message says which address the controller asked for, and
    those of the other hosts."""
    line = AgentStdioChannel(lease_s)
    line.hello()
    gc.disable()  # nothing here refers to itself, and a collection in mid-burst delays packets
    try:
        while (first := line.receive(lease_s)) is None:  # other hosts are still being connected to
            pass
        lock = _alone()
        if lock is None:
            line.send(**{"type": "busy"})
            return
        try:
            address = reachable_address(first["address"], first.get("peers", ()))
        except OSError as error:
            sys.exit(error.strerror)  # the last words of this agent
        agent = Agent(line, Key(bytes.fromhex(key)), address, source_ports, handshakes)
        line.send(**{"type": "ready", **agent.ready()})
        agent.run()
    except ControllerLost:
        return
