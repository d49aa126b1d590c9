"""Watchdog of a group's all-reduces: reports lost ranks, hanging ranks, and ranks whose all-reduces differ.

Messages are matched by tags of what they mean, so ranks with different all-reduces wait for each other for ever, and
each knows only its peer. A watchdog thread on each rank makes errors of that. It is idle while all goes well: only a
rank that has waited for long writes its state to the group's store, and reads the others'.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

from torch.distributed import Store  # type: ignore[attr-defined]

# An all-reduce that takes longer is examined. Those of large vectors on slow networks should take less.
SLOW_S = 5.0
_CHECK_INTERVAL_S = 0.5
_STORE_TIMEOUT_S = 2.0  # the rank that hosts the store may be the one that hangs
_JOIN_TIMEOUT_S = 3.0
_MAX_NAMED_RANKS = 8

Answer = TypeVar("Answer")
Member = int | str  # of an engine's group: a rank of the job, or a hub's name


def member_name(member: Member) -> str:
    """Return ``rank 3``, or a hub's name, for errors."""
    return member if isinstance(member, str) else f"rank {member}"


class AggregationError(RuntimeError):
    """An all-reduce cannot be completed; the message has the reason and names ranks."""


class PeerLost(AggregationError):
    """The connection to a rank ended, or a message from it timed out."""

    def __init__(self, peer: Member, reason: str) -> None:
        super().__init__(f"lost connection to {member_name(peer)}: {reason}")
        self.peer = peer


@dataclass(frozen=True)
class _Running:
    number: int
    signature: str


class Watchdog:
    """Thread that monitors this rank's all-reduces. ``on_failure(error)`` is called once, when the group must end."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        slow_s: float = SLOW_S,
        names: Sequence[Member] | None = None,
    ) -> None:
        """:param names: the job's ranks and hubs that are in the group, for errors; None: all ranks."""
        self.on_failure: Callable[[str], None] = lambda error: None
        # A connection of its own: while the script's thread waits on one, it serves no other.
        self._store = store.clone() if hasattr(store, "clone") else store
        self._rank, self._size, self._slow_s = rank, size, slow_s
        self._names: list[Member] = list(range(size)) if names is None else list(names)
        self._timeout_s = timeout.total_seconds()
        self._running: dict[int, _Running] = {}
        self._oldest_since = time.monotonic()  # when it became the oldest: later ones have not begun
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, number: int, signature: str) -> None:
        """Record that the ``number``-th all-reduce of this group was submitted."""
        with self._lock:
            if not self._running:
                self._oldest_since = time.monotonic()
            self._running[number] = _Running(number, signature)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="plink-watch", daemon=True)
            self._thread.start()

    def end(self, number: int) -> None:
        """Record that an all-reduce is done or failed."""
        with self._lock:
            if self._running.pop(number, None) is not None:
                self._oldest_since = time.monotonic()

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_TIMEOUT_S)

    @property
    def hosts_store(self) -> bool:
        """Whether this rank hosts the store, as rank 0 usually does: the store ends with its process."""
        return self._names[self._rank] == 0

    def publish(self, error: str) -> str:
        """Publish this rank's error unless another rank was first, and return the group's first error."""
        own = member_name(self._names[self._rank])
        first = ask_store(lambda: self._store.compare_set("first", "", f"{own}\t{error}").decode())
        if first is None or first.startswith(f"{own}\t"):
            return error
        return _reported(first)

    def _run(self) -> None:
        late = False
        while not self._closed.wait(_CHECK_INTERVAL_S):
            with self._lock:
                oldest = min(self._running.values(), key=lambda collective: collective.number, default=None)
                waited = time.monotonic() - self._oldest_since
            if oldest is None or waited < self._slow_s:
                late = False
                continue
            # It is late only at the second check: the other ranks write their state at their first.
            answer = ask_store(partial(self._compare, oldest, waited, late))
            error = answer[0] if answer is not None else None
            if answer is None and waited > self._timeout_s:
                error = (
                    f"all-reduce {oldest.number} timed out after {self._timeout_s:g} s, and the group's store, "
                    "usually on rank 0, does not answer"
                )
            if error is not None:
                self.on_failure(self.publish(error))
                return
            late = waited > self._timeout_s

    def _compare(self, collective: _Running, waited: float, last: bool) -> tuple[str | None]:
        """Return why the all-reduce that this rank waits in cannot complete, None if no reason is known."""
        if self._store.check(["first"]):
            return (_reported(self._store.get("first").decode()),)
        self._store.set(f"at{self._rank}", json.dumps([collective.number, collective.signature]))
        states = {
            rank: json.loads(self._store.get(f"at{rank}"))
            for rank in range(self._size)
            if self._store.check([f"at{rank}"])
        }
        signatures = sorted(
            (
                (signature, self._names[rank])
                for rank, (number, signature) in states.items()
                if number == collective.number
            ),
            key=itemgetter(0),
        )
        incomplete = len(signatures) < self._size and waited < 2 * self._slow_s
        if len({signature for signature, _ in signatures}) > 1 and not incomplete:
            groups = [
                f"{_ranks([rank for _, rank in group])}: {signature}"
                for signature, group in groupby(signatures, itemgetter(0))
            ]
            return (f"all-reduce {collective.number} differs between ranks: {'; '.join(groups)}",)
        if last:
            # Ranks that are behind this one may wait for one that is further behind, which is the cause.
            numbers = [states.get(rank, [-1])[0] for rank in range(self._size)]
            smallest = min(numbers)
            absent = [self._names[rank] for rank in range(self._size) if numbers[rank] == smallest < collective.number]
            absentees = f"{_ranks(absent)} did not take part" if absent else "all ranks take part"
            return (f"all-reduce {collective.number} timed out after {self._timeout_s:g} s: {absentees}",)
        return (None,)


def ask_store(request: Callable[[], Answer], timeout_s: float = _STORE_TIMEOUT_S) -> Answer | None:
    """Return a store's answer; None when it does not answer soon, or is gone."""
    answers: list[Answer] = []

    def attempt() -> None:
        try:
            answers.append(request())
        except Exception:  # the store is gone: there is no answer
            return

    thread = threading.Thread(target=attempt, name="plink-ask", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return answers[0] if answers else None


def _ranks(members: Sequence[Member]) -> str:
    """Return ``rank 3``, ``ranks 0, 1, 2``, or ``rank 0 and hub-0 on fat-1``."""
    ranks = sorted(member for member in members if isinstance(member, int))
    more = f" and {len(ranks) - _MAX_NAMED_RANKS} more" if len(ranks) > _MAX_NAMED_RANKS else ""
    named = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:_MAX_NAMED_RANKS]))}{more}"
    return " and ".join([*([named] if ranks else []), *(member for member in members if isinstance(member, str))])


def _reported(published: str) -> str:
    """Return a published error with who reported it."""
    member, _, error = published.partition("\t")
    return f"{error} (reported by {member})"
