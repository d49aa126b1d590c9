"""The pieces of the input data that a worker's process has in memory; its workers may share them."""

import threading
from collections.abc import Iterable, Sequence
from typing import Generic

from plink.elastic.app import App, Items
from plink.elastic.app_error import AppError, app_error
from plink.errors import PlinkError


class Loaded(Generic[Items]):
    """For any thread: pieces of a later day are loaded beside the work, and nobody loads one that is under way."""

    def __init__(self, app: App[Items]) -> None:
        self.app = app
        self._pieces: dict[int, Sequence[Items]] = {}
        self._under_way: dict[int, threading.Lock] = {}

    def get(self, piece: int) -> Sequence[Items]:
        """Its mini-batches, ``app.batches`` of them; loaded if need be.

        :raises PlinkError: what the program raised as such, of a file for example.
        :raises AppError: it raised something else, or gave another number of mini-batches.
        """
        with self._under_way.setdefault(piece, threading.Lock()):
            if piece not in self._pieces:
                self._pieces[piece] = self._load(piece)
            return self._pieces[piece]

    def ahead(self, pieces: Iterable[int]) -> None:
        """Load those that are not here; as for :meth:`get`."""
        for piece in pieces:
            self.get(piece)

    def here(self) -> list[int]:
        """Those in memory."""
        return sorted(self._pieces)

    def _load(self, piece: int) -> Sequence[Items]:
        where = f"app {self.app.name}: load({piece})"
        try:
            batches = self.app.load(piece)
            number = len(batches)
        except PlinkError:
            raise
        except Exception as error:
            raise app_error(where, error) from error
        if number != self.app.batches:
            raise AppError(f"{where} gave {number} mini-batches, not {self.app.batches}")
        return batches
