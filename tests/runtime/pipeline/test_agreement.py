"""Ranks that end together because of what a store says."""

import threading

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from plink.errors import PlinkError
from plink.runtime.pipeline import agreement
from plink.runtime.pipeline.agreement import read_by_all


class Leaving(threading.Thread):
    """A rank that leaves with an error."""

    def __init__(self, store: HashStore, rank: int) -> None:
        super().__init__(daemon=True)
        self._store, self._rank = store, rank
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with read_by_all(self._store, self._rank, 2):
                raise PlinkError(f"refused on {self._rank}")
        except BaseException as error:
            self.error = error

    def ended(self) -> BaseException | None:
        """Return its error, None where it has not left long before its limit."""
        self.join(20)
        return None if self.is_alive() else self.error


def test_rank_with_the_store_leaves_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the other has left, though it could wait for much longer."""
    monkeypatch.setattr(agreement, "_LEAVING_S", 300.0)
    store = HashStore()
    first, second = Leaving(store, 0), Leaving(store, 1)
    first.start()
    first.join(0.5)
    assert first.is_alive()
    second.start()
    for rank, leaving in enumerate((first, second)):
        error = leaving.ended()
        assert isinstance(error, PlinkError)
        assert str(error) == f"refused on {rank}"


def test_rank_with_the_store_leaves_though_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "_LEAVING_S", 0.2)
    alone = Leaving(HashStore(), 0)
    alone.start()
    error = alone.ended()
    assert isinstance(error, PlinkError)
    assert str(error) == "refused on 0"
