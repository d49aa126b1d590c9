"""The shards of the input data that a worker's process has in memory; its workers may share them."""

import threading
from collections.abc import Iterable, Sequence
from typing import Generic

from plink.elastic.app import App, Items
from plink.elastic.app_error import AppError, app_error
from plink.errors import PlinkError


class LoadedShards(Generic[Items]):
    """Shards in memory; for any thread. Shards for later are loaded beside the work, and no shard is loaded twice at a
    time."""

    def __init__(self, app: App[Items]) -> None:
        self.app = app
        self._shards: dict[int, Sequence[Items]] = {}
        self._under_way: dict[int, threading.Lock] = {}

    def get(self, shard: int) -> Sequence[Items]:
        """Return a shard's mini-batches, ``app.batches`` of them; loaded if need be.

        :raises PlinkError: what the program raised as such, of a file for example.
        :raises AppError: it raised something else, or gave another number of mini-batches.
        """
        with self._under_way.setdefault(shard, threading.Lock()):
            if shard not in self._shards:
                self._shards[shard] = self._load(shard)
            return self._shards[shard]

    def ahead(self, shards: Iterable[int]) -> None:
        """Load those that are not here; as for :meth:`get`."""
        for shard in shards:
            self.get(shard)

    def here(self) -> list[int]:
        """Return the shards in memory."""
        return sorted(self._shards)

    def _load(self, shard: int) -> Sequence[Items]:
        location = f"app {self.app.name}: load({shard})"
        try:
            batches = self.app.load(shard)
            number = len(batches)
        except PlinkError:
            raise
        except Exception as error:
            raise app_error(location, error) from error
        if number != self.app.batches:
            raise AppError(f"{location} gave {number} mini-batches, not {self.app.batches}")
        return batches
