"""Several rings at once over BCube(n, k), one for each interface of a host."""

import numpy as np
import numpy.typing as npt

from plink.model.schedule import Schedule, make_schedule
from solvers.schedules.bcube import levels_of
from solvers.schedules.ring import ring_all_gather, ring_reduce_scatter


def ring_tours(ranks: int, base: int) -> npt.NDArray[np.int32]:
    """Return k cyclic tours of N = n^k ranks (n the base), shape (k, N), each hop between ranks on one switch.

    Tour 0 is the modular Gray code: digit 0 goes up by one, every n-th time digit 1 instead, and so on. Tour r has r
    added to the numbers of all digits. With two levels every rank sends on one level in tour 0 and on the other in tour
    1, and so it receives. With more levels that holds for all ranks but those whose digits add up to n - 1 modulo n.
    For three levels of two ports no three tours are better: none use each cable once each way.

    :raises UsageError: for a number of ranks that is no power of the base.
    """
    levels = levels_of("multi-ring", ranks, base)
    count = np.arange(ranks)[:, None] // base ** np.arange(levels + 1) % base
    gray = (count[:, :-1] - count[:, 1:]) % base
    places = base ** ((np.arange(levels)[None, :] + np.arange(levels)[:, None]) % levels)
    return np.asarray(places @ gray.T, dtype=np.int32)


def multi_ring(ranks: int, base: int) -> tuple[Schedule, Schedule]:
    """The all-reduce in two halves, of N-1 rounds each: k rings side by side, each for 1/k of the vector.

    In between every rank has one chunk of each ring.

    :raises UsageError: for a number of ranks that is no power of the base.
    """
    tours = ring_tours(ranks, base)
    return _on_each_tour(ring_reduce_scatter(ranks), tours), _on_each_tour(ring_all_gather(ranks), tours)


def _on_each_tour(single: Schedule, tours: npt.NDArray[np.int32]) -> Schedule:
    ranks = single.ranks
    assert single.owners is not None
    rows = [
        np.stack(
            [
                single.round,
                tour[single.source],
                tour[single.target],
                single.first + number * ranks,
                single.count,
                single.copies,
            ],
            axis=1,
        )
        for number, tour in enumerate(tours)
    ]
    owners = np.concatenate([tour[single.owners] for tour in tours])
    return make_schedule(
        "multi-ring", ranks, len(tours) * ranks, np.concatenate(rows), single.collective, owners, timing="pipeline"
    )
