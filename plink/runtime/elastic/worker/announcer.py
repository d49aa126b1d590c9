"""Announcements of updates to partition 0's arbiter, before a worker sends them (MLfabric, Viswanathan and Akella 2020,
section 4)."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Future
from math import inf

from msgspec import structs

from plink.errors import PlinkError
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock, total
from plink.runtime.elastic.transport.messages import Announce, Grant, Read, ServerAnswer, Update

_JOIN_S = 2.0  # that a sender waits for the others, whose answers come with its own
_SENT_S = 30.0  # that these wait for it: what they read next should have their updates
_SLICE_S = 0.2  # between looks whether the waiting worker is given up
_MAX_CLOSED = 64  # groups, of which a worker may not have noticed yet that they are closed

Group = tuple[int, int, int]  # generation, the arbiter's term, number of the transfer
Updates = Mapping[int, Update]  # of one step of a worker, by partition


class LocalGroups:
    """Updates that workers of one host leave for the one that sends the sum; for any thread.

    A worker leaves an update only after servers have counted its step, as an empty one. So it counts once or, where its
    sender does not wait that long or is given up, never.

    :ivar unsent: updates of partitions that were left, and that nobody has sent.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left: dict[Group, list[Updates]] = {}
        self._joined: dict[Group, list[Updates]] = {}  # their sender has them
        self.unsent = 0
        self._closed: dict[Group, float] = {}  # when, in this order
        self._reads: dict[Hashable, tuple[float, Future[dict[int, ServerAnswer]]]] = {}  # under way, since when

    def leave(self, group: Group, updates: Updates, given_up: Callable[[], bool]) -> float:
        """Leave a step's updates for the sender, and wait until it has sent them; return when it had.

        :param given_up: whether to wait no longer; asked now and then.
        """
        with self._changed:
            end_s, left = time.monotonic() + _SENT_S, self._left.setdefault(group, [])
            left.append(updates)
            self._changed.notify_all()
            while not (group in self._closed or given_up() or time.monotonic() > end_s):
                self._changed.wait(_SLICE_S)
            if self._left.get(group) is left:  # nobody has joined or closed it since
                left[:] = [each for each in left if each is not updates]
                self.unsent += len(updates)
                if not left:
                    del self._left[group]
            return self._closed.get(group, time.monotonic())

    def join(self, group: Group, others: int) -> list[Updates]:
        """Return what the others have left, once all have; what comes later is not sent."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._left.get(group, ())) >= others, _JOIN_S)
            self._joined[group] = self._left.pop(group, [])
            return self._joined[group]

    def close(self, group: Group, sent: bool) -> None:
        """Let the others go on: what was joined is sent, or will not be."""
        with self._changed:
            joined = self._joined.pop(group, [])
            lost = [*self._left.pop(group, []), *([] if sent else joined)]
            self.unsent += sum(map(len, lost))
            self._closed[group] = time.monotonic()
            if len(self._closed) > _MAX_CLOSED:
                self._closed.pop(next(iter(self._closed)))
            self._changed.notify_all()

    def read(
        self, what: Hashable, since_s: float, ask: Callable[[], dict[int, ServerAnswer]]
    ) -> dict[int, ServerAnswer]:
        """Return the answers to a read: those of another worker that asks the same now and began after a time, by
        ``time.monotonic``; else one's own."""
        own: Future[dict[int, ServerAnswer]] = Future()
        with self._changed:
            begun_s, answers = self._reads.get(what, (-inf, own))
            if begun_s < since_s:
                self._reads[what] = time.monotonic(), own
        if begun_s >= since_s:
            with contextlib.suppress(PlinkError):
                return answers.result()
            return ask()
        try:
            own.set_result(ask())
        except BaseException as error:
            own.set_exception(error)
        with self._changed:
            if self._reads.get(what, (0.0, None))[1] is own:
                del self._reads[what]
        return own.result()


_MAX_UNANNOUNCED = 128  # steps between questions, while the answers are that transfers are too short to be planned


class Announcer:
    """Announcements of one worker.

    :ivar home: the address of its host's server. :ivar planned: whether this step's updates are a planned transfer.
    :param bytes_s: what its host sends in a second; 0: it is not known.
    :param groups: of its host, all of whose workers share it.
    """

    def __init__(self, layout: Layout, home: str, bytes_s: float, groups: LocalGroups) -> None:
        self._reserved, self.home, self._bytes_s, self._groups = layout.reserved, home, bytes_s, groups
        self._unannounced, self._left, self.planned = 0, 0, False
        self._group: Group | None = None  # that this step belongs to
        self._for_others: Updates | None = None  # what another worker is to send
        self._read_since_s = time.monotonic()  # what is read since then has all updates in its name

    def announcement(self, updates: Updates, local: Collection[int]) -> Announce | None:
        """Return the announcement of a step's updates, by partition; None where nobody need be asked.

        :param local: partitions that are served on this host: what goes there takes no link.
        """
        any_update, self.planned = updates[0], False
        if self._left or not any_update.clock or not any(map(self._content, updates.values())):
            self._left = max(0, self._left - 1)
            return None
        remote = (block for number, each in updates.items() if number not in local for block in each.blocks)
        size, text = sum(block.values.nbytes for block in remote), f"{self.home} {self._bytes_s}"
        step = any_update.worker, any_update.generation, any_update.clock, any_update.step, any_update.version
        return Announce(0, *step, size, text)

    def admitted(self, grant: Grant, updates: Updates) -> Updates:
        """Return what is to be sent of the updates by the arbiter's answer."""
        self._unannounced = min(_MAX_UNANNOUNCED, 2 * self._unannounced + 1) if grant.unplanned else 0
        self._left, self.planned = self._unannounced, not grant.unplanned
        group = grant.generation, grant.term, grant.transfer
        if grant.dropped:
            return {number: self._emptied(update, unsent=True) for number, update in updates.items()}
        if grant.grouped:
            self._group = group
            self._for_others = {number: update for number, update in updates.items() if self._content(update)}
            return {number: self._emptied(update) for number, update in updates.items()}
        if grant.others:
            self._group = group
            others = self._groups.join(group, grant.others)
            return {
                number: self._added_up([each[number] for each in (updates, *others) if number in each])
                for number in updates
            }
        return updates

    def finished(self, sent: bool, given_up: Callable[[], bool] = lambda: False) -> None:
        """End the step: let others go on for whom this worker has sent, or wait for the one that sends for this.

        :param given_up: whether this worker is to wait no longer.
        """
        group, for_others, self._group, self._for_others = self._group, self._for_others, None, None
        self._read_since_s = time.monotonic()
        if group is not None and for_others is None:
            self._groups.close(group, sent)
        elif group is not None and for_others is not None and sent:
            self._read_since_s = self._groups.leave(group, for_others, given_up)

    def read(self, request: Mapping[int, Read], ask: Callable[[], dict[int, ServerAnswer]]) -> dict[int, ServerAnswer]:
        """Return the answers to reads, by partition; of those that another worker of the host has asked since."""
        wanted = (
            (structs.replace(each, worker=-1, wanted=()), part) for each in request.values() for part in each.wanted
        )
        what = tuple(
            (each, table, str(rows) if isinstance(rows, range) else rows.tobytes()) for each, (table, rows) in wanted
        )
        return self._groups.read(what, self._read_since_s, ask)

    def _content(self, update: Update) -> list[RowBlock]:
        return [block for block in update.blocks if block.table not in self._reserved]

    def _emptied(self, update: Update, unsent: bool = False) -> Update:
        blocks = tuple(block for block in update.blocks if block.table in self._reserved)
        return structs.replace(update, blocks=blocks, unsent=unsent and bool(self._content(update)))

    def _added_up(self, updates: Sequence[Update]) -> Update:
        """Add updates of one partition to the first of them."""
        members = [update for update in updates if self._content(update)]
        sums: dict[int, RowBlock] = {}
        for block in (block for update in members for block in self._content(update)):
            sums[block.table] = total(sums[block.table], block) if block.table in sums else block
        blocks = (*sums.values(), *self._emptied(updates[0]).blocks)
        version = min((update.version for update in members), default=updates[0].version)
        return structs.replace(updates[0], blocks=blocks, version=version, others=max(0, len(members) - 1))
