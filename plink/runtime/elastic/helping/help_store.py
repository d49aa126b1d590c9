"""The parameters as a helper sees them: read as of the helpee's clock, and additions that go to the helpee."""

from collections.abc import Mapping

from plink.elastic.tables import Table, Values
from plink.errors import InputError
from plink.runtime.elastic.arrays.checked_sums import Overflow, no_room
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.transport.store_config import StoreConfig
from plink.runtime.elastic.worker.cache import Cache, added_blocks
from plink.runtime.elastic.worker.client import Client, PrimaryAddress, Timeouts


class _AnyState:
    """Rule of a reader that says itself which state it needs."""

    apart, steps = 0, False

    def __init__(self, sees_ahead: bool) -> None:
        self.sees_ahead = sees_ahead

    def needs(self, clock: int) -> int:
        """Return no bound: no state is older than that of clock -1."""
        return -1


class HelpStore:
    """Store of what is done for others; for one thread, but for :meth:`set_primary` and :meth:`give_up`.

    Nothing is read from a cache of the helper's own work: it may lack what the helpee itself has added before, on which
    programs that keep state of a shard in tables rely.
    """

    def __init__(self, config: StoreConfig, primaries: Mapping[int, PrimaryAddress], timeouts: Timeouts) -> None:
        reading = StoreConfig(config.layout, config.keys, _AnyState(config.sees_ahead))
        self._layout, self._client = config.layout, Client(reading, -1, primaries, timeouts=timeouts)
        self._added = [Cache(table) for table in config.layout.tables]
        self._session: tuple[int, int, int] | None = None
        self.set_primary, self.give_up = self._client.set_primary, self._client.give_up

    def begin(self, helpee: int, clock: int, generation: int, state: int) -> None:
        """Begin a request of a helpee's clock; what was read for another one of the same clock is read no more."""
        if self._session != (helpee, clock, generation):
            self._session = helpee, clock, generation
            self._client.read_as_of(clock, generation, state)
        self.discard()

    def table(self, name: str) -> Table:
        """Return a table. :raises InputError: there is none of that name."""
        return self._client.table(name)

    def read(self, table: str, rows: object, *, own: bool = False) -> Values:
        """Return vectors without what is added here; errors as :meth:`Client.read`."""
        return self._client.read(table, rows, own=False)

    def update(self, table: str, rows: object, deltas: object) -> None:
        """Add to what is done for the helpee. :raises InputError: as :meth:`Client.update`."""
        cache = self._added[self._layout.table(table)]
        try:
            cache.add(cache.rows(rows), deltas)
        except Overflow as error:
            reason = f"row {error.row}: with what a helper adds there is {no_room(cache.table.dtype)}"
            raise InputError(f"update of table {table!r}", reason) from None

    def take(self) -> dict[int, tuple[RowBlock, ...]]:
        """Take what was added, by partition."""
        blocks = added_blocks(self._layout, self._added)
        self.discard()
        return blocks

    def discard(self) -> None:
        """Forget what was added."""
        for cache in self._added:
            cache.discard()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
