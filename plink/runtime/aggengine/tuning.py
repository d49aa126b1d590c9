"""Autotune's end in the ranks: what each saw goes to rank 0 and the launcher, and what the launcher decided comes back.

Ranks meet between two all-reduces whose number all know: the first lane of each rank does so before it begins the next
one, over the same connections, and the other lanes wait. So everything before a meeting went by the old schedule on
every rank, and everything after it by the new one. Nobody waits for the launcher: rank 0 hands out what has come.
"""

import base64
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from plink.model.schedule import Schedule
from plink.runtime.aggengine.aggregation import Aggregation, from_bytes, replacement_from
from plink.runtime.aggengine.connections import Connections
from plink.runtime.aggengine.crossover import Crossover
from plink.runtime.aggengine.launcher_line import LauncherLine
from plink.runtime.aggengine.transport import SIGNATURES, Transport

Seen = npt.NDArray[np.float64]

_FIRST = 10  # all-reduces until the first meeting
_GROWTH = 4  # times as many all-reduces as in the last stretch, at most
_NEVER = 1 << 62
_LONGEST_CYCLE = 128
_SIGNATURE = SIGNATURES - 1
_LANE = 0


@dataclass(frozen=True)
class _Done:
    """An all-reduce that was waited for."""

    def wait(self) -> None:
        """At once."""


class Tuning:
    """When ranks meet, and by which schedule they aggregate in between."""

    def __init__(
        self,
        aggregation: Aggregation,
        rank: int,
        transport: Transport,
        connections: Connections,
        line: LauncherLine,
        crossover: Crossover | None = None,
    ) -> None:
        """:param aggregation: with ``tuned``, and seconds between meetings. :param crossover: what is smaller goes to
        Gloo, and is measured again whenever a schedule was replaced; None: nothing is smaller."""
        assert aggregation.tuned is not None
        assert aggregation.ranks is not None
        self._aggregation, self.crossover = aggregation, crossover
        self._alone: Callable[[torch.Tensor, Schedule], None] | None = None
        self._original = aggregation.classes[aggregation.tuned].schedule
        self._ranks, self._every_s = aggregation.ranks, aggregation.every_s
        self._rank, self._transport, self._connections, self._line = rank, transport, connections, line
        self._current = self._original
        self._boundary = 0  # the number of the last all-reduce before the next meeting
        self._epoch = 0
        self._sizes: deque[int] = deque(maxlen=2 * _LONGEST_CYCLE)
        self._bytes = 0
        self._jobs = 0
        self._last = 0
        self._began = time.monotonic()
        self._met = threading.Condition()
        self._over: str | None = None

    def start(self, number: int, alone: Callable[[torch.Tensor, Schedule], None]) -> None:
        """From the all-reduce after the ``number``-th on, which is the same one on all ranks. ``alone``: sums up by a
        schedule in the thread and on the lane of meetings."""
        self._alone = alone
        self._connections.since()
        self._began = time.monotonic()
        self._boundary, self._last = number + _FIRST, number

    def before(self, number: int, lane: int, size_bytes: int) -> None:
        """A lane is about to begin an all-reduce.

        :raises PeerLost: when a rank cannot be met. :raises RuntimeError: in other lanes, then.
        """
        if number > self._boundary and lane != _LANE:
            with self._met:
                self._met.wait_for(lambda: number <= self._boundary or self._over is not None)
            if self._over is not None:
                raise RuntimeError(self._over)
        if lane != _LANE:
            return
        if number > self._boundary:
            try:
                self._meet()
            except BaseException as error:
                self.stop(str(error))
                raise
        if number > self._last:
            self._last = number
            self._sizes.append(size_bytes)
            self._bytes += size_bytes
            self._jobs += 1

    def schedule(self, asked: Schedule) -> Schedule:
        """What to use in its place."""
        return self._current if asked is self._original and self._current is not None else asked

    def stop(self, why: str) -> None:
        """Nobody waits for a meeting any longer."""
        with self._met:
            self._over = self._over or why
            self._met.notify_all()

    def close(self) -> None:
        """There will be no more meetings."""
        self.stop("the group was closed")
        self._line.close()

    def _meet(self) -> None:
        seen = torch.from_numpy(self._connections.since())
        head = torch.zeros(3, dtype=torch.int64)
        if self._rank == 0:
            everyone = [seen, *(torch.empty_like(seen) for _ in range(self._ranks - 1))]
            coming = [
                (peer, self._transport.receive(everyone[peer], peer, _LANE, _SIGNATURE))
                for peer in range(1, self._ranks)
            ]
            for peer, pending in coming:
                self._transport.wait(pending, peer, _LANE)
            told = torch.stack(everyone).numpy()
            plan = self._decided()
            self._tell(told)
            head[0], head[1], head[2] = self._next(), self._epoch + (plan is not None), len(plan or b"")
            body = torch.frombuffer(bytearray(plan), dtype=torch.uint8) if plan else None
            sent = [(peer, self._transport.send(head, peer, _LANE, _SIGNATURE)) for peer in range(1, self._ranks)]
            if body is not None:
                sent += [(peer, self._transport.send(body, peer, _LANE, _SIGNATURE)) for peer in range(1, self._ranks)]
            for peer, pending in sent:
                self._transport.wait(pending, peer, _LANE)
        else:
            self._transport.wait(self._transport.send(seen, 0, _LANE, _SIGNATURE), 0, _LANE)
            self._receive(head, 0)
            body = torch.empty(int(head[2]), dtype=torch.uint8) if head[2] else None
            if body is not None:
                self._receive(body, 0)
        if body is not None:
            self._current = from_bytes(body.numpy().tobytes()).classes[0].schedule
            if self.crossover is not None:
                self._measure(self.crossover)
        self._epoch = int(head[1])
        self._bytes = self._jobs = 0
        self._connections.since()  # without this meeting
        self._began = time.monotonic()
        with self._met:
            self._boundary = int(head[0])
            self._met.notify_all()

    def _measure(self, crossover: Crossover) -> None:
        """From which size on the new schedule is used."""

        def engine(data: torch.Tensor, op: object) -> _Done:
            schedule = self._aggregation.choose(data.nbytes).schedule
            assert schedule is not None
            assert self._alone is not None
            self._alone(data, self.schedule(schedule))
            return _Done()

        changed = crossover.again(engine, lambda size: self._aggregation.choose(size).schedule is not None)
        if changed and self._rank == 0:
            print(f"plink: gloo below {crossover.smallest} bytes from now on", file=sys.stderr, flush=True)

    def _receive(self, tensor: torch.Tensor, peer: int) -> None:
        self._transport.wait(self._transport.receive(tensor, peer, _LANE, _SIGNATURE), peer, _LANE)

    def _decided(self) -> bytes | None:
        """What the launcher has decided since, as ranks hand it to each other; None for nothing new."""
        for answer in reversed(self._line.received()):  # the latest counts
            try:
                plan = base64.b64decode(answer["plan"], validate=True)
                if answer["epoch"] == self._epoch + 1 and replacement_from(plan, self._ranks) is not None:
                    return plan
            except (KeyError, TypeError, ValueError):
                continue
        return None

    def _tell(self, seen: Seen) -> None:
        """Tell the launcher what was seen, shape (N, N, 3)."""
        head = {"epoch": self._epoch, "jobs": self._jobs, "bytes": self._bytes,
                "seconds": round(time.monotonic() - self._began, 6)}  # fmt: skip
        self._line.send(lambda: {**head, "seen": rows_of(seen)})

    def _next(self) -> int:
        """The number of the last all-reduce before the meeting after this one: about ``every_s`` from now, and a whole
        number of the steps in which the script repeats itself."""
        if not self._line.connected:
            return _NEVER
        elapsed = max(1e-6, time.monotonic() - self._began)
        cycle = cycle_of(self._sizes)
        # What begins with short all-reduces goes on with long ones.
        wanted = min(self._jobs * self._every_s / elapsed, _GROWTH * max(self._jobs, _FIRST))
        return self._boundary + cycle * max(1, round(wanted / cycle))


def rows_of(seen: Seen) -> list[list[float]]:
    """What was seen of each pair that exchanged something, as it is told: from, to, bytes, busy seconds, round trip."""
    source, target = np.nonzero((seen[:, :, 0] > 0) & np.isfinite(seen).all(axis=2))
    values = np.round(seen[source, target], 6).tolist()
    return [[i, j, *row] for i, j, row in zip(source.tolist(), target.tolist(), values, strict=True)]


def cycle_of(sizes: Sequence[int]) -> int:
    """The shortest stretch that the later half of the sizes repeats, twice at least; 1 for none."""
    listed = list(sizes)
    for length in range(1, min(len(listed) // 2, _LONGEST_CYCLE) + 1):
        recent = listed[-max(2 * length, len(listed) // 2) :]
        if recent[length:] == recent[:-length]:
            return length
    return 1
