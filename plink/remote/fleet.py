"""Agents on many hosts as one: started side by side, their messages in one queue, all ended together."""

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from plink.errors import HostError
from plink.model.hosts import Host
from plink.remote.connector import Connector, Line
from plink.remote.json_lines import LineBuffer, encode_line
from plink.remote.stdio_channel import HELLO
from plink.remote.program import AgentProgram
from plink.remote.message_schema import ProtocolError, said_on

LEASE_S = 30.0
_RENEWALS_PER_LEASE = 5
# Handshakes are CPU work in this process: more at once only makes each of them later.
_FAN_OUT = 16
# A login shell may print a greeting first; an agent that has not said hello within so many bytes is not ours.
_GREETING_BYTES = 1 << 16
# ... or within so many seconds: a log-in that ends in a menu, a python3 that hangs.
HELLO_S = 30.0
_SILENT = "silence for {seconds:.0f} s after the log-in; does a file that its shell starts with (~/.bashrc) wait?"
# The longest genuine message gives a program's arguments back: 2 MB at most (ARG_MAX), six times that as JSON.
MAX_LINE_BYTES = 1 << 24
# Messages that nobody has taken yet. Whoever has more to say waits: a rank's output is read no faster than it is shown.
MOST_WAITING = 256
_LOOK_S = 0.2
_TICK_S = 0.5
_TICKS_APART_S = 2.0  # more than that is a pause


@dataclass(frozen=True)
class Message:
    """What one agent said; ``body`` is None when it is gone, and ``error`` then says why."""

    host: str
    body: dict[str, Any] | None
    error: HostError | None = None


@dataclass
class _Agent:
    """One agent as its fleet knows it: the renewals of its lease since it last said anything (it answers each), whether
    its listener waits for its words rather than for room in the queue, and why it was given up."""

    line: Line
    unanswered: int = 0
    heard_at: float = field(default_factory=time.monotonic)
    listened_to: bool = False
    given_up: str = ""
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def send(self, body: dict[str, Any], wait: bool = True) -> None:
        """One message, never in the middle of another; ``wait``: while another is still being sent."""
        if self._writing.acquire(blocking=wait):
            try:
                self.line.write(encode_line(body))
            except OSError:
                self.cut()
            finally:
                self._writing.release()

    def give_up(self, why: str) -> None:
        """Cut the line: the listener finds its end."""
        self.given_up = why
        self.cut()

    def cut(self) -> None:
        """Close the line."""
        _cut(self.line)


class Fleet:
    """Agents of one program on many hosts; a context manager that ends every agent on the way out.

    :param connector: how hosts are reached.
    :param program: what the agents run.
    :param lease_s: seconds after which an agent that hears nothing ends by itself, and one that says nothing is gone.
    """

    def __init__(self, connector: Connector, program: AgentProgram, lease_s: float = LEASE_S) -> None:
        self._connector, self._program, self._lease_s = connector, program, lease_s
        self._agents: dict[str, _Agent] = {}
        self._guard = threading.Lock()
        self._queue: queue.Queue[Message] = queue.Queue(MOST_WAITING)
        self._closing = threading.Event()
        self._ticked = _clock()  # when this process was last known to run
        self._paused_s, self._paused_at = 0.0, self._ticked

    def start(
        self, hosts: Iterable[Host], settings: dict[str, object], on_start: Callable[[], None] = lambda: None
    ) -> dict[str, HostError]:
        """Start an agent on every host, several at a time; returns the hosts where that failed, and why.

        ``on_start`` is called once a host, whether it worked or not, for a progress bar.
        """
        bundle = self._program.bundle(settings | {"lease_s": self._lease_s})
        failures: dict[str, HostError] = {}
        self._ticked = _clock()
        # From the beginning: where many hosts do not answer, connecting takes longer than a lease.
        threading.Thread(target=self._renew_leases, daemon=True, name="plink-lease").start()
        waiting = deque(hosts)
        names = [host.name for host in waiting]
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
            # Daemons, not a pool: on Ctrl-C nobody waits for connections still being made; they find the fleet closing.
            threading.Thread(target=connect, daemon=True, name="plink-connect").start()
        try:
            for _ in names:
                name, error = done.get()
                if isinstance(error, HostError):
                    failures[name] = error
                elif error is not None:
                    raise error
                on_start()
        finally:
            waiting.clear()
        return {name: failures[name] for name in names if name in failures}

    def _open(self, host: Host, bundle: bytes) -> None:
        if self._closing.is_set():
            raise HostError(host.name, "not started")
        line = self._connector.open(host)
        try:
            rest = _shake_hands(host, line, bundle)
        except HostError:
            _cut(line)
            raise
        with self._guard:
            if self._closing.is_set():
                _cut(line)
                raise HostError(host.name, "not started")
            agent = self._agents[host.name] = _Agent(line)
        threading.Thread(target=self._listen, args=(host, agent, rest), daemon=True, name=f"plink-{host.name}").start()

    def _listen(self, host: Host, agent: _Agent, data: bytes) -> None:
        buffer = LineBuffer()
        while True:
            try:
                for text in buffer.lines(data):
                    body = said_on(text, self._program.says)
                    if body is not None and body["is"] != "alive":
                        self._put(Message(host.name, body))
                if len(buffer) > MAX_LINE_BYTES:
                    raise ProtocolError(f"it sent more than {MAX_LINE_BYTES >> 20} MiB without the end of a line")
            except ProtocolError as error:
                agent.give_up(str(error))
                break
            agent.unanswered, agent.heard_at, agent.listened_to = 0, time.monotonic(), True
            data = agent.line.read()
            agent.listened_to = False
            if not data or agent.given_up:
                break
        why = agent.given_up or agent.line.exit_reason() or "the connection was cut"
        if self.pause_s and not agent.given_up:
            why = f"{self.pause_told}: its lease of {self._lease_s:g} s ran out"
        agent.cut()  # its end of it: a job may lose hosts for days
        with self._guard:
            self._agents.pop(host.name, None)
        self._put(Message(host.name, None, HostError(host.name, f"its agent is gone: {why}")))

    def _put(self, message: Message) -> None:
        """Add to the queue; waits while it is full, as long as the fleet is not closing."""
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(message, timeout=_LOOK_S)
                return

    @property
    def pause_s(self) -> float:
        """How long this process has lately not run at all (SIGSTOP, a suspended machine), where that was long enough
        for leases to run out; else 0."""
        now, period = _clock(), self._lease_s / _RENEWALS_PER_LEASE
        pause_s = max(now - self._ticked, self._paused_s if now - self._paused_at < self._lease_s else 0.0)
        return pause_s if pause_s >= max(_TICKS_APART_S, self._lease_s - period) else 0.0

    @property
    def pause_told(self) -> str:
        """The same, for a person."""
        return f"plink itself was not running for {self.pause_s:.0f} s (it was stopped, or this machine suspended)"

    def silent_since(self, moment: float) -> list[str]:
        """Hosts of which nothing was heard since then (``time.monotonic``), though their agents are not known to be
        gone."""
        with self._guard:
            return [name for name, agent in self._agents.items() if agent.heard_at < moment]

    def _tick(self) -> None:
        now = _clock()
        if now - self._ticked > max(_TICKS_APART_S, self._paused_s if now - self._paused_at < self._lease_s else 0.0):
            self._paused_s, self._paused_at = now - self._ticked, now
        self._ticked = now

    def _renew_leases(self) -> None:
        renewed, period = time.monotonic(), self._lease_s / _RENEWALS_PER_LEASE
        while not self._closing.wait(min(_TICK_S, period)):
            self._tick()
            if time.monotonic() - renewed < period:
                continue
            renewed = time.monotonic()
            for agent in self._there():
                if agent.listened_to and agent.unanswered >= _RENEWALS_PER_LEASE:
                    agent.give_up(f"no sign of life for {self._lease_s:g} s")
                else:
                    agent.unanswered += 1
                    agent.send({"do": "alive"}, wait=False)

    def _there(self) -> list[_Agent]:
        with self._guard:
            return list(self._agents.values())

    @property
    def alive(self) -> list[str]:
        """Hosts whose agent is there."""
        with self._guard:
            return list(self._agents)

    def send(self, host: str, **body: Any) -> None:
        """One message to one agent; one that is gone is passed over (its end stands in the queue)."""
        with self._guard:
            agent = self._agents.get(host)
        if agent is not None:
            agent.send(body)

    def send_all(self, **body: Any) -> None:
        """One message to every agent that is there."""
        for name in self.alive:
            self.send(name, **body)

    def end(self, host: str) -> None:
        """End one agent: its line is cut, and it ends by itself. Fine where it is gone."""
        with self._guard:
            agent = self._agents.get(host)
        if agent is not None:
            agent.cut()

    def receive(self, timeout_s: float) -> Message | None:
        """The next message of any agent, or None after ``timeout_s`` seconds."""
        try:
            return self._queue.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None

    def close(self) -> None:
        """End every agent: its line is cut, and it ends by itself."""
        self._closing.set()
        with contextlib.ExitStack() as all_of_them:  # whatever comes in between, a second Ctrl-C included
            for agent in self._there():
                all_of_them.callback(agent.cut)

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _clock() -> float:
    """Seconds; they go on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _cut(line: Line) -> None:
    """Trouble in a line while it closes is nobody's: the other agents go on, or are to end as well."""
    with contextlib.suppress(Exception):
        line.close()


def _shake_hands(host: Host, line: Line, bundle: bytes) -> bytes:
    """Send the program and skip what a login shell prints until the agent says hello; returns the bytes after that."""
    hello = (HELLO + "\n").encode()
    buffer = b""
    late = threading.Event()

    def give_up() -> None:
        late.set()
        _cut(line)

    alarm = threading.Timer(HELLO_S, give_up)
    alarm.daemon = True
    alarm.start()
    try:
        # A host without python3 cuts the line while the program is still being sent: what it said tells why.
        with contextlib.suppress(OSError):
            line.write(bundle)
        while hello not in buffer:
            if len(buffer) > _GREETING_BYTES:
                raise HostError(host.name, "no agent could be started: what answers there is a program of another kind")
            data = line.read()
            if not data:
                why = _SILENT.format(seconds=HELLO_S) if late.is_set() else line.exit_reason() or "no answer"
                raise HostError(host.name, f"no agent could be started: {why}")
            buffer += data
    finally:
        alarm.cancel()
    return buffer.split(hello, 1)[1]
