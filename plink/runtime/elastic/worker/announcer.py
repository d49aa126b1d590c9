"""How a worker asks partition 0's arbiter before it sends an update (MLfabric, Viswanathan and Akella 2020, section
4)."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import structs

from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock, total
from plink.runtime.elastic.transport.messages import Announce, Answer, Grant, Read, Update
from plink.runtime.elastic.worker.local_groups import Group, LocalGroups, Updates

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

    def read(self, request: Mapping[int, Read], ask: Callable[[], dict[int, Answer]]) -> dict[int, Answer]:
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
