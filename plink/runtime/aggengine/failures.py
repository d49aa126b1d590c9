"""What ends an all-reduce for everybody: a lost rank, one that hangs, ranks that mean different things.

Messages are matched by what they mean, so ranks that mean different things wait for each other for ever, and each knows
only whom it waits for. A thread a rank that looks on makes errors of that. Nothing of it happens while all goes
well: only a rank that has waited for long writes into the group's store what it is at, and reads what others wrote.
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

# An all-reduce that takes longer is looked into; those of large vectors on slow networks should not be.
SLOW_S = 5.0
_PERIOD_S = 0.5
_STORE_S = 2.0  # the rank that keeps the store may be the one that hangs
_END_S = 3.0
_NAMED = 8

Answer = TypeVar("Answer")


class AggregationError(RuntimeError):
    """An all-reduce cannot be completed; the message says why and names ranks."""


class PeerLost(AggregationError):
    """The connection to a rank ended, or nothing came from it in time."""

    def __init__(self, peer: int, why: str) -> None:
        super().__init__(f"nothing more from rank {peer}: {why}")
        self.peer = peer


@dataclass(frozen=True)
class _Running:
    number: int
    meaning: str


class Watch:
    """Looks on while this rank's all-reduces run. ``stop``, set by who is looked on at, is called once with what ends
    the group here."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        slow_s: float = SLOW_S,
        names: Sequence[int] | None = None,
    ) -> None:
        """:param names: the job's ranks, where the group has some of them: by these they are named."""
        self.stop: Callable[[str], None] = lambda why: None
        # A connection of its own: one that the script's thread waits on answers nobody else.
        self._store = store.clone() if hasattr(store, "clone") else store
        self._rank, self._size, self._slow_s = rank, size, slow_s
        self._names = list(range(size)) if names is None else list(names)
        self._timeout_s = timeout.total_seconds()
        self._running: dict[int, _Running] = {}
        self._since = time.monotonic()  # when the oldest became that: those behind it have not begun
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, number: int, meaning: str) -> None:
        """An all-reduce was asked for: the ``number``-th of this group."""
        with self._lock:
            if not self._running:
                self._since = time.monotonic()
            self._running[number] = _Running(number, meaning)
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="plink-watch", daemon=True)
            self._thread.start()

    def end(self, number: int) -> None:
        """It is done, or failed."""
        with self._lock:
            if self._running.pop(number, None) is not None:
                self._since = time.monotonic()

    def close(self) -> None:
        """Look no longer."""
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_END_S)

    @property
    def keeps_store(self) -> bool:
        """Whether this is the rank that keeps the store, as a rule: it goes with its process."""
        return self._names[self._rank] == 0

    def explain(self, mine: str) -> str:
        """Tell the others why this rank gives up, unless somebody told before; and say what happened first of all."""
        me = self._names[self._rank]
        first = _bounded(lambda: self._store.compare_set("first", "", f"{me} {mine}").decode())
        if first is None:
            return mine
        who, _, what = first.partition(" ")
        return mine if who == str(me) else f"{what} (rank {who} says so)"

    def _look(self) -> None:
        late = False
        while not self._closed.wait(_PERIOD_S):
            with self._lock:
                oldest = min(self._running.values(), key=lambda job: job.number, default=None)
                waited = time.monotonic() - self._since
            if oldest is None or waited < self._slow_s:
                late = False
                continue
            # Too late only at the second look: others write what they are at when they look.
            answer = _bounded(partial(self._compare, oldest, waited, late))
            why = answer[0] if answer is not None else None
            if answer is None and waited > self._timeout_s:
                why = (
                    f"all-reduce {oldest.number} was not done within {self._timeout_s:g} s, and the group's store, "
                    "which rank 0 keeps as a rule, does not answer"
                )
            if why is not None:
                self.stop(self.explain(why))
                return
            late = waited > self._timeout_s

    def _compare(self, job: _Running, waited: float, last: bool) -> tuple[str | None]:
        """Why the all-reduce that this rank waits in cannot end, None as far as is known."""
        if self._store.check(["first"]):
            who, _, what = self._store.get("first").decode().partition(" ")
            return (f"{what} (rank {who} says so)",)
        self._store.set(f"at{self._rank}", json.dumps([job.number, job.meaning]))
        at = {
            rank: json.loads(self._store.get(f"at{rank}"))
            for rank in range(self._size)
            if self._store.check([f"at{rank}"])
        }
        meanings = sorted(
            (meaning, self._names[rank]) for rank, (number, meaning) in at.items() if number == job.number
        )
        patient = len(meanings) < self._size and waited < 2 * self._slow_s
        if len({meaning for meaning, _ in meanings}) > 1 and not patient:
            said = [
                f"{_ranks([rank for _, rank in same])}: {meaning}" for meaning, same in groupby(meanings, itemgetter(0))
            ]
            return (f"all-reduce {job.number} differs between ranks: {'; '.join(said)}",)
        if last:
            # Ranks that are behind this one may themselves wait for one that is further behind: that is to blame.
            numbers = [at.get(rank, [-1])[0] for rank in range(self._size)]
            least = min(numbers)
            absent = [self._names[rank] for rank in range(self._size) if numbers[rank] == least < job.number]
            who = f"{_ranks(absent)} did not take part" if absent else "all take part"
            return (f"all-reduce {job.number} was not done within {self._timeout_s:g} s: {who}",)
        return (None,)


def _bounded(ask: Callable[[], Answer]) -> Answer | None:
    """What the store says; None when it does not answer soon, or is gone."""
    found: list[Answer] = []

    def attempt() -> None:
        try:
            found.append(ask())
        except Exception:  # it is gone: the answer is that there is none
            return

    thread = threading.Thread(target=attempt, name="plink-ask", daemon=True)
    thread.start()
    thread.join(_STORE_S)
    return found[0] if found else None


def _ranks(ranks: list[int]) -> str:
    """``rank 3``, ``ranks 0, 1, 2``."""
    ranks = sorted(ranks)
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:_NAMED]))}{more}"
