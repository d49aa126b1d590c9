"""Fleet of agents on many hosts: started in parallel, their messages in one queue, ended together."""

import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from plink.errors import HostError, ProtocolError
from plink.model.hosts import Host
from plink.transport.program import AgentProgram
from plink.transport.stdio_channel import HELLO, LineBuffer, decode_line, encode_line

# What is under way ("connecting", "measuring", "fitting"), how much of it is done, and of how much.
Progress = Callable[[str, int, int], None]


LEASE_S = 30.0
_RENEWALS_PER_LEASE = 5
# Handshakes are CPU work in this process: more at once only delays each of them.
_FAN_OUT = 16
# A login shell may print a greeting first. What sends no hello within so many bytes, or seconds, is no agent: a log-in
# that ends in a menu, a python3 that hangs.
_GREETING_BYTES = 1 << 20
_MAX_QUOTED_CHARS = 200
HELLO_S = 30.0
_NO_HELLO = "no answer for {seconds:.0f} s after the log-in; does a startup file of its shell (~/.bashrc) wait?"
_TOO_LONG = "its login shell, or another program that answers there, prints more than 1 MiB"
# The longest valid message repeats a program's arguments: 2 MB at most (ARG_MAX), six times that as JSON.
MAX_LINE_BYTES = 1 << 24
# What other programs write to an agent's output is skipped, up to so many bytes in all.
MAX_JUNK_BYTES = 1 << 20
# Senders wait while the queue is full: a rank's output is read no faster than it is shown.
MAX_QUEUED_MESSAGES = 256
_POLL_S = 0.2
_TICK_S = 0.5
_MIN_PAUSE_S = 2.0  # more than that is a pause
_OVERDUE_S = 1.0
_MAX_PEERS = 8  # some may be this very host under other names, or names that it cannot look up


class AgentConnection(Protocol):
    """The controller's end of the connection to one agent; one thread may read while another writes."""

    def read(self) -> bytes:
        """Return the next bytes from the agent; empty at the end."""

    def write(self, data: bytes) -> None:
        """Send bytes to the agent.

        :raises OSError: when the connection is closed.
        """

    def exit_reason(self) -> str:
        """Return the last line that the remote end wrote to standard error, or its exit status; after the end only."""

    def close(self) -> None:
        """Close the connection; the agent then ends. May be called twice, and from another thread."""


class Connector(Protocol):
    """A way to reach hosts."""

    def open(self, host: Host) -> AgentConnection:
        """Run :data:`plink.transport.program.REMOTE_COMMAND` on the host.

        :raises HostError: when the host cannot be reached; says why in one line.
        """


@dataclass(frozen=True)
class AgentMessage:
    """One message of an agent, as its program declares it; ``body`` is None when the agent is lost, and ``error`` then
    says why."""

    host: str
    body: Any
    error: HostError | None = None


@dataclass
class _Agent:
    """Connection to one agent, and its heartbeats.

    ``unanswered``: renewals of its lease since its last message (it answers each). ``reading``: whether its reader
    waits for a message, and not for room in the queue. ``disconnect_reason``: why the controller closed the connection.
    """

    connection: AgentConnection
    unanswered: int = 0
    last_heartbeat: float = field(default_factory=time.monotonic)
    reading: bool = False
    disconnect_reason: str = ""
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def send(self, body: dict[str, Any], wait: bool = True) -> None:
        """Send one message, never in the middle of another; ``wait``: until another has been sent, else drop it."""
        if self._writing.acquire(blocking=wait):
            try:
                self.connection.write(encode_line(body))
            except OSError:
                self.close()
            finally:
                self._writing.release()

    def disconnect(self, reason: str) -> None:
        """Close the connection for this reason; the reader then reports the agent as lost."""
        self.disconnect_reason = reason
        self.close()

    def close(self) -> None:
        """Close the connection."""
        _close_quietly(self.connection)


class Fleet:
    """Agents of one program on many hosts; a context manager that ends every agent on the way out.

    :param connector: how hosts are reached.
    :param program: what the agents run.
    :param lease_s: heartbeat timeout: an agent that receives nothing for so long ends, and one that sends nothing is
        lost.
    """

    def __init__(self, connector: Connector, program: AgentProgram, lease_s: float = LEASE_S) -> None:
        self._connector, self._program, self._lease_s = connector, program, lease_s
        self._agents: dict[str, _Agent] = {}
        self._given_up: set[str] = set()
        self._guard = threading.Lock()
        self._queue: queue.Queue[AgentMessage] = queue.Queue(MAX_QUEUED_MESSAGES)
        self._closing = threading.Event()
        self._last_tick = _clock()  # when this process was last known to run
        self._last_pause_s, self._pause_end = 0.0, self._last_tick

    def start(
        self,
        hosts: Iterable[Host],
        settings: dict[str, object],
        on_start: Callable[[], None] = lambda: None,
        limit_s: float = math.inf,
    ) -> dict[str, HostError]:
        """Start an agent on every host, several at a time; return the errors of hosts where that failed.

        :param on_start: called once a host, whether it worked or not, for a progress bar.
        :param limit_s: seconds after which hosts without an agent are given up.
        """
        bundle = self._program.bundle(settings | {"lease_s": self._lease_s})
        failures: dict[str, HostError] = {}
        self._last_tick = _clock()
        # Before the first connection: where many hosts do not answer, connecting takes longer than a lease.
        threading.Thread(target=self._renew_leases, daemon=True, name="plink-lease").start()
        waiting = deque(hosts)
        names = [host.name for host in waiting]
        pending = set(names)
        done: queue.SimpleQueue[tuple[str, Exception | None]] = queue.SimpleQueue()

        def connect() -> None:
            while True:
                try:
                    host = waiting.popleft()
                except IndexError:
                    return
                try:
                    self._open(host, bundle)
                except Exception as error:
                    done.put((host.name, error))
                else:
                    done.put((host.name, None))

        for _ in range(min(_FAN_OUT, len(names))):
            # Daemons, not a pool: Ctrl-C does not wait for connections that are still being made.
            threading.Thread(target=connect, daemon=True, name="plink-connect").start()
        try:
            latest = time.monotonic() + limit_s
            for _ in names:
                try:
                    name, error = done.get(timeout=None if limit_s == math.inf else max(0.0, latest - time.monotonic()))
                except queue.Empty:
                    break
                pending.discard(name)
                if isinstance(error, HostError):
                    failures[name] = error
                elif error is not None:
                    raise error
                on_start()
        finally:
            waiting.clear()
        with self._guard:  # one that comes now is too late
            self._given_up = pending - self._agents.keys()
        reason = f"no agent could be started within {limit_s:.0f} s"
        failures |= {name: HostError(name, reason) for name in self._given_up}
        return {name: failures[name] for name in names if name in failures}

    def _open(self, host: Host, bundle: bytes) -> None:
        if self._closing.is_set():
            raise HostError(host.name, "not started")
        connection = self._connector.open(host)
        try:
            rest = _handshake(host, connection, bundle)
        except HostError:
            _close_quietly(connection)
            raise
        with self._guard:
            if self._closing.is_set() or host.name in self._given_up:
                _close_quietly(connection)
                raise HostError(host.name, "not started")
            agent = self._agents[host.name] = _Agent(connection)
        threading.Thread(target=self._listen, args=(host, agent, rest), daemon=True, name=f"plink-{host.name}").start()

    def _listen(self, host: Host, agent: _Agent, data: bytes) -> None:
        buffer, junk_bytes = LineBuffer(), 0
        while True:
            try:
                for text in buffer.lines(data):
                    body = decode_line(text)
                    if body is None or "type" not in body:
                        junk_bytes += len(text) + 1
                        if junk_bytes > MAX_JUNK_BYTES:
                            raise ProtocolError(f"it sent more than {MAX_JUNK_BYTES >> 20} MiB that is no message")
                    elif body["type"] != "alive":
                        self._put(AgentMessage(host.name, self._program.checked(body)))
                if len(buffer) > MAX_LINE_BYTES:
                    raise ProtocolError(f"it sent more than {MAX_LINE_BYTES >> 20} MiB without the end of a line")
            except ProtocolError as error:
                agent.disconnect(str(error))
                break
            agent.unanswered, agent.last_heartbeat, agent.reading = 0, time.monotonic(), True
            data = agent.connection.read()
            agent.reading = False
            if not data or agent.disconnect_reason:
                break
        reason = agent.disconnect_reason or agent.connection.exit_reason() or "the connection was closed"
        if self.pause_s and not agent.disconnect_reason:
            reason = f"{self.pause_message}: its lease of {self._lease_s:g} s ran out"
        agent.close()  # else a job that runs for days would collect connections of lost hosts
        with self._guard:
            self._agents.pop(host.name, None)
        self._put(AgentMessage(host.name, None, HostError(host.name, f"its agent is gone: {reason}")))

    def _put(self, message: AgentMessage) -> None:
        """Add to the queue; waits while it is full, as long as the fleet is not closing."""
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(message, timeout=_POLL_S)
                return

    @property
    def pause_s(self) -> float:
        """Return for how long this process was lately suspended (SIGSTOP, a suspended machine); 0 if leases held."""
        now, period = _clock(), self._lease_s / _RENEWALS_PER_LEASE
        pause_s = max(now - self._last_tick, self._last_pause_s if now - self._pause_end < self._lease_s else 0.0)
        return pause_s if pause_s >= max(_MIN_PAUSE_S, self._lease_s - period) else 0.0

    @property
    def pause_message(self) -> str:
        """Return the same as a message."""
        causes = "it was stopped, or this machine was suspended or too busy"
        return f"plink itself was not running for {self.pause_s:.0f} s ({causes})"

    def hosts_without_heartbeat_since(self, moment: float) -> list[str]:
        """Return connected hosts that have sent nothing since then (``time.monotonic``)."""
        with self._guard:
            return [name for name, agent in self._agents.items() if agent.last_heartbeat < moment]

    def _tick(self) -> None:
        now = _clock()
        if now - self._last_tick > max(
            _MIN_PAUSE_S, self._last_pause_s if now - self._pause_end < self._lease_s else 0.0
        ):
            self._last_pause_s, self._pause_end = now - self._last_tick, now
        self._last_tick = now

    def _renew_leases(self) -> None:
        renewed, period = time.monotonic(), self._lease_s / _RENEWALS_PER_LEASE
        while not self._closing.wait(min(_TICK_S, period)):
            self._tick()
            if time.monotonic() - renewed < period:
                continue
            renewed = time.monotonic()
            for agent in self._connected_agents():
                if agent.reading and agent.unanswered >= _RENEWALS_PER_LEASE:
                    agent.disconnect(f"no heartbeat for {self._lease_s:g} s")
                else:
                    agent.unanswered += 1
                    agent.send({"method": "alive"}, wait=False)

    def _connected_agents(self) -> list[_Agent]:
        with self._guard:
            return list(self._agents.values())

    @property
    def alive(self) -> list[str]:
        """Return the hosts with a connected agent."""
        with self._guard:
            return list(self._agents)

    def send(self, host: str, **body: Any) -> None:
        """Send one message to one agent; nothing where it is lost (the queue then has its end)."""
        with self._guard:
            agent = self._agents.get(host)
        if agent is not None:
            agent.send(body)

    def send_all(self, **body: Any) -> None:
        """Send one message to every connected agent."""
        for name in self.alive:
            self.send(name, **body)

    def end(self, host: str) -> None:
        """Close the connection to one agent, which then ends; nothing where it is lost."""
        with self._guard:
            agent = self._agents.get(host)
        if agent is not None:
            agent.close()

    def receive(self, timeout_s: float) -> AgentMessage | None:
        """Return the next message of any agent, or None after ``timeout_s`` seconds.

        A caller whose time has long been over (below 0) gets none, though an agent may fill the queue without end.
        """
        if timeout_s < -_OVERDUE_S:
            return None
        try:
            return self._queue.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None

    def close(self) -> None:
        """Close the connections to all agents, which then end."""
        self._closing.set()
        with contextlib.ExitStack() as closing:  # all of them, also after a second Ctrl-C
            for agent in self._connected_agents():
                closing.callback(agent.close)

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _clock() -> float:
    """Return seconds of a clock that runs on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _close_quietly(connection: AgentConnection) -> None:
    """Close a connection, whatever its state: errors there must not keep other agents from being closed."""
    with contextlib.suppress(Exception):
        connection.close()


def _handshake(host: Host, connection: AgentConnection, bundle: bytes) -> bytes:
    """Send the program, skip what a login shell prints until the agent's hello, and return the bytes after that."""
    hello = (HELLO + "\n").encode()
    buffer = b""
    late = threading.Event()

    def on_timeout() -> None:
        late.set()
        _close_quietly(connection)

    alarm = threading.Timer(HELLO_S, on_timeout)
    alarm.daemon = True
    alarm.start()
    try:
        # A host without python3 closes the connection while the program is being sent; its standard error says why.
        with contextlib.suppress(OSError):
            connection.write(bundle)
        while hello not in buffer:
            if len(buffer) > _GREETING_BYTES:
                raise HostError(host.name, f"no agent could be started: {_TOO_LONG}")
            data = connection.read()
            if not data:
                reason = _NO_HELLO.format(seconds=HELLO_S) if late.is_set() else connection.exit_reason() or "no answer"
                if printed := buffer.decode(errors="replace").strip().rpartition("\n")[2]:
                    reason += f"; it printed: {printed[:_MAX_QUOTED_CHARS]}"
                raise HostError(host.name, f"no agent could be started: {reason}")
            buffer += data
    finally:
        alarm.cancel()
    return buffer.split(hello, 1)[1]


def sample_peers(addresses: Sequence[str]) -> dict[str, list[str]]:
    """Return for each address up to eight different ones of others, for
    :func:`plink.transport.addresses.own_address_towards`.

    Not all of them: N hosts would be sent N^2 addresses. They are spread over the list, because neighbours in it may
    all be one machine; the first is among them. Where all hosts have the same address it is that one; a single host
    has no peers.
    """
    if len(addresses) < 2:
        return {own: [] for own in addresses}
    distinct = list(dict.fromkeys(addresses))
    sample = distinct[:: -(-len(distinct) // (_MAX_PEERS + 1))]
    return {own: [peer for peer in sample if peer != own][:_MAX_PEERS] or sample for own in distinct}
