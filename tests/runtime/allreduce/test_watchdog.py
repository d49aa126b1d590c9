"""Who is named when an all-reduce does not end."""

import threading
from datetime import timedelta

import torch.distributed as dist

from plink.runtime.allreduce.watchdog import Watchdog


def test_least_progress_is_blamed() -> None:
    """Rank 3 has stopped; ranks 1 and 2 wait for it in one all-reduce, and rank 0 waits for these in the next."""
    store, blamed, ended = dist.HashStore(), [], threading.Event()
    watches = [
        Watchdog(dist.PrefixStore("w", store), rank, 4, timedelta(seconds=wait_s), slow_s=0.5)
        for rank, wait_s in ((0, 1.5), (1, 600), (2, 600))
    ]

    def stop(error: str) -> None:
        blamed.append(error)
        ended.set()

    watches[0].on_failure = stop
    try:
        for watchdog in watches[1:]:
            watchdog.begin(7, "sum")
        # Rank 0 comes last: the others have written what they are at by the time it looks.
        dist.PrefixStore("w", store).wait(["at1", "at2"], timedelta(seconds=60))
        watches[0].begin(8, "sum")
        assert ended.wait(60)
    finally:
        for watchdog in watches:
            watchdog.close()
    assert "rank 3" in blamed[0]
    assert "ranks" not in blamed[0]  # several
