"""How a worker asks partition 0's arbiter before it sends an update (MLfabric, Viswanathan and Akella 2020, section
4)."""

from collections.abc import Collection, Mapping

from plink.runtime.agileml.arrays.layout import Layout
from plink.runtime.agileml.transport.wire import DROPPED, UNPLANNED, Kind, Message

_MAX_UNANNOUNCED = 128  # steps between questions, while the answers are that transfers are too short to be planned


class Announcer:
    """Announcements of one worker.

    :ivar home: the address of its host's server. :param bytes_s: what its host sends in a second; 0: it is not known.
    """

    def __init__(self, layout: Layout, home: str, bytes_s: float) -> None:
        self._reserved, self.home, self._bytes_s = layout.reserved, home, bytes_s
        self._unannounced = self._left = 0

    def announcement(self, updates: Mapping[int, Message], local: Collection[int]) -> Message | None:
        """Return the announcement of a step's updates, by partition; None where nobody need be asked.

        :param local: partitions that are served on this host: what goes there takes no link.
        """
        any_update = updates[0]
        if self._left or not any_update.clock or not any(self._has_content(update) for update in updates.values()):
            self._left = max(0, self._left - 1)
            return None
        size = sum(
            block.values.nbytes for number, each in updates.items() if number not in local for block in each.blocks
        )
        return any_update._replace(
            kind=Kind.ANNOUNCE, flags=0, before=size, blocks=(), text=f"{self.home} {self._bytes_s}"
        )

    def admitted(self, answer: Message, updates: Mapping[int, Message]) -> dict[int, Message]:
        """Return what is to be sent of the updates by the arbiter's answer."""
        self._unannounced = min(_MAX_UNANNOUNCED, 2 * self._unannounced + 1) if answer.flags & UNPLANNED else 0
        self._left = self._unannounced
        if not answer.flags & DROPPED:
            return dict(updates)
        return {number: self._emptied(update) for number, update in updates.items()}

    def _has_content(self, update: Message) -> bool:
        return any(block.table not in self._reserved for block in update.blocks)

    def _emptied(self, update: Message) -> Message:
        blocks = tuple(block for block in update.blocks if block.table in self._reserved)
        return update._replace(blocks=blocks, flags=update.flags | DROPPED * self._has_content(update))
