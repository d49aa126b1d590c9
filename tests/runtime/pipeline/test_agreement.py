"""Ranks that end together because of what a store says."""

import threading

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from plink.errors import PlinkError
from plink.runtime.pipeline.agreement import read_by_all


def test_rank_with_the_store_leaves_last() -> None:
    store = HashStore()

    def leave(rank: int) -> None:
        with pytest.raises(PlinkError, match="refused"), read_by_all(store, rank, 2):
            raise PlinkError("refused")

    first = threading.Thread(target=leave, args=(0,))
    first.start()
    first.join(0.5)
    assert first.is_alive()
    leave(1)
    first.join(60)
    assert not first.is_alive()
