"""Autotune in the ranks.

Sends each rank's measurements to rank 0 and the launcher, and applies the launcher's decisions.

Ranks synchronise between two all-reduces whose number all know: the first channel of each rank does so before it begins
the next one, over the same connections, and the other channels wait. So every all-reduce before it used the old
schedule on every rank, and every one after it the new one. No rank waits for the launcher: rank 0 hands out what has
arrived.
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
from plink.model.units import format_bytes
from plink.runtime.allreduce.aggregation import Aggregation, from_bytes, parse_replacement
from plink.runtime.allreduce.algorithm_selection import DispatchThreshold
from plink.runtime.allreduce.connections import PeerConnections
from plink.runtime.allreduce.launcher_channel import LauncherChannel
from plink.runtime.allreduce.transport import TAGS, Transport

Traffic = npt.NDArray[np.float64]

_FIRST_INTERVAL = 10  # all-reduces until the ranks first synchronise
_MAX_GROWTH = 4  # of the number of all-reduces between synchronisations
_NEVER = 1 << 62
_MAX_CYCLE = 128
_TAG = TAGS - 1
_CHANNEL = 0


@dataclass(frozen=True)
class _Done:
    """Handle of an all-reduce that is done."""

    def wait(self) -> None:
        """Return at once."""


class RankTuner:
    """Synchronises the ranks' schedules with the launcher's decisions."""

    def __init__(
        self,
        aggregation: Aggregation,
        rank: int,
        transport: Transport,
        connections: PeerConnections,
        launcher: LauncherChannel,
        threshold: DispatchThreshold | None = None,
    ) -> None:
        """:param aggregation: with ``tuned``, and seconds between synchronisations. :param threshold: smaller vectors
        are Gloo's; it is measured again whenever a schedule was replaced. None: all sizes use schedules."""
        assert aggregation.tuned is not None
        assert aggregation.ranks is not None
        self._aggregation, self.threshold = aggregation, threshold
        self._run_alone: Callable[[torch.Tensor, Schedule], None] | None = None
        self._original = aggregation.classes[aggregation.tuned].schedule
        self._ranks, self._every_s = aggregation.ranks, aggregation.every_s
        self._rank, self._transport, self._connections, self._launcher = rank, transport, connections, launcher
        self._current = self._original
        self._boundary = 0  # number of the last all-reduce before the next synchronisation
        self._epoch = 0
        self._sizes: deque[int] = deque(maxlen=2 * _MAX_CYCLE)
        self._bytes = 0
        self._collectives = 0
        self._latest = 0
        self._began = time.monotonic()
        self._synchronised = threading.Condition()
        self._error: str | None = None

    def start(self, number: int, run_alone: Callable[[torch.Tensor, Schedule], None]) -> None:
        """Begin after the ``number``-th all-reduce, which is the same one on all ranks.

        :param run_alone: all-reduces by a schedule in the thread and on the channel that synchronise.
        """
        self._run_alone = run_alone
        self._connections.collect()
        self._began = time.monotonic()
        self._boundary, self._latest = number + _FIRST_INTERVAL, number

    def before(self, number: int, channel: int, size_bytes: int) -> None:
        """Synchronise, if it is time, before a channel begins an all-reduce.

        :raises PeerLost: when a rank is lost. :raises RuntimeError: in the other channels then.
        """
        if number > self._boundary and channel != _CHANNEL:
            with self._synchronised:
                self._synchronised.wait_for(lambda: number <= self._boundary or self._error is not None)
            if self._error is not None:
                raise RuntimeError(self._error)
        if channel != _CHANNEL:
            return
        if number > self._boundary:
            try:
                self._synchronise()
            except BaseException as error:
                self.stop(str(error))
                raise
        if number > self._latest:
            self._latest = number
            self._sizes.append(size_bytes)
            self._bytes += size_bytes
            self._collectives += 1

    def schedule(self, schedule: Schedule) -> Schedule:
        """Return the schedule to use in place of this one."""
        return self._current if schedule is self._original and self._current is not None else schedule

    def stop(self, error: str) -> None:
        """Wake the channels that wait, with an error."""
        with self._synchronised:
            self._error = self._error or error
            self._synchronised.notify_all()

    def close(self) -> None:
        """Stop synchronising."""
        self.stop("the group was closed")
        self._launcher.close()

    def _synchronise(self) -> None:
        traffic = torch.from_numpy(self._connections.collect())
        head = torch.zeros(3, dtype=torch.int64)
        if self._rank == 0:
            traffic_by_rank = [traffic, *(torch.empty_like(traffic) for _ in range(self._ranks - 1))]
            receptions = [
                (peer, self._transport.receive(traffic_by_rank[peer], peer, _CHANNEL, _TAG))
                for peer in range(1, self._ranks)
            ]
            for peer, pending in receptions:
                self._transport.wait(pending, peer, _CHANNEL)
            reports = torch.stack(traffic_by_rank).numpy()
            decision = self._decision()
            self._report(reports)
            head[0], head[1], head[2] = (
                self._next_boundary(),
                self._epoch + (decision is not None),
                len(decision or b""),
            )
            body = torch.frombuffer(bytearray(decision), dtype=torch.uint8) if decision else None
            sends = [(peer, self._transport.send(head, peer, _CHANNEL, _TAG)) for peer in range(1, self._ranks)]
            if body is not None:
                sends += [(peer, self._transport.send(body, peer, _CHANNEL, _TAG)) for peer in range(1, self._ranks)]
            for peer, pending in sends:
                self._transport.wait(pending, peer, _CHANNEL)
        else:
            self._transport.wait(self._transport.send(traffic, 0, _CHANNEL, _TAG), 0, _CHANNEL)
            self._receive(head, 0)
            body = torch.empty(int(head[2]), dtype=torch.uint8) if head[2] else None
            if body is not None:
                self._receive(body, 0)
        if body is not None:
            self._current = from_bytes(body.numpy().tobytes()).classes[0].schedule
            if self.threshold is not None:
                self._measure(self.threshold)
        self._epoch = int(head[1])
        self._bytes = self._collectives = 0
        self._connections.collect()  # discard the traffic of this synchronisation
        self._began = time.monotonic()
        with self._synchronised:
            self._boundary = int(head[0])
            self._synchronised.notify_all()

    def _measure(self, threshold: DispatchThreshold) -> None:
        """Measure from which size on the new schedule is used."""

        def engine(data: torch.Tensor, op: object) -> _Done:
            schedule = self._aggregation.choose(data.nbytes).schedule
            assert schedule is not None
            assert self._run_alone is not None
            self._run_alone(data, self.schedule(schedule))
            return _Done()

        changed = threshold.remeasure(engine, lambda size: self._aggregation.choose(size).schedule is not None)
        if changed and self._rank == 0:
            least = threshold.min_bytes
            split = f"gloo below {format_bytes(least)}" if least else "all-reduces of any size are plink's"
            print(f"plink: {split} from now on", file=sys.stderr, flush=True)

    def _receive(self, tensor: torch.Tensor, peer: int) -> None:
        self._transport.wait(self._transport.receive(tensor, peer, _CHANNEL, _TAG), peer, _CHANNEL)

    def _decision(self) -> bytes | None:
        """Return the launcher's latest new decision, as ranks exchange it; None for none."""
        for answer in reversed(self._launcher.received()):  # the latest counts
            try:
                decision = base64.b64decode(answer["plan"], validate=True)
                if answer["epoch"] == self._epoch + 1 and parse_replacement(decision, self._ranks) is not None:
                    return decision
            except (KeyError, TypeError, ValueError):
                continue
        return None

    def _report(self, traffic: Traffic) -> None:
        """Send the measured traffic, shape (N, N, 3), to the launcher."""
        head = {
            "epoch": self._epoch,
            "jobs": self._collectives,
            "bytes": self._bytes,
            "seconds": round(time.monotonic() - self._began, 6),
        }
        self._launcher.send(lambda: {**head, "seen": rows_of(traffic)})

    def _next_boundary(self) -> int:
        """Return the number of the last all-reduce before the next synchronisation.

        It is about ``every_s`` from now, and a whole number of the cycles in which the script repeats itself.
        """
        if not self._launcher.connected:
            return _NEVER
        elapsed = max(1e-6, time.monotonic() - self._began)
        cycle = cycle_of(self._sizes)
        # A script may begin with short all-reduces, and go on with long ones.
        target = min(self._collectives * self._every_s / elapsed, _MAX_GROWTH * max(self._collectives, _FIRST_INTERVAL))
        return self._boundary + cycle * max(1, round(target / cycle))


def rows_of(traffic: Traffic) -> list[list[float]]:
    """Return the rows of pairs with traffic: from, to, bytes, busy seconds, round trip."""
    source, target = np.nonzero((traffic[:, :, 0] > 0) & np.isfinite(traffic).all(axis=2))
    values = np.round(traffic[source, target], 6).tolist()
    return [[i, j, *row] for i, j, row in zip(source.tolist(), target.tolist(), values, strict=True)]


def cycle_of(sizes: Sequence[int]) -> int:
    """Return the shortest cycle that the later half of the sizes repeats at least twice; 1 for none."""
    all_sizes = list(sizes)
    for length in range(1, min(len(all_sizes) // 2, _MAX_CYCLE) + 1):
        recent = all_sizes[-max(2 * length, len(all_sizes) // 2) :]
        if recent[length:] == recent[:-length]:
            return length
    return 1
