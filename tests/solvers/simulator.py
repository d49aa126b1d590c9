"""A schedule run chunk by chunk and rank by rank on numbers, from the definition in plink/model/schedule.py alone."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from plink.model.schedule import Schedule


class Wrong(AssertionError):
    """The schedule does not do what its name says."""


def must(holds: bool, reason: str) -> None:
    """:raises Wrong: unless it holds."""
    if not holds:
        raise Wrong(reason)


def simulate(schedule: Schedule, seed: int = 0) -> None:
    """Run it on random numbers and compare with their sum. What has not been handed out yet is None, which nobody may
    send; servers of their own hold nothing until something is added.

    :raises Wrong: for a wrong result, and for writes that have no order.
    """
    ranks, chunks = schedule.ranks, schedule.chunks
    contributors = schedule.contributors or list(range(ranks))
    draw = np.random.default_rng([seed, ranks]).integers(1, 2**40, (ranks, chunks)).tolist()
    reduces = schedule.collective in ("all-reduce", "reduce-scatter", "reduce")
    owners = [-1] * chunks if schedule.owners is None else schedule.owners.tolist()
    begins = [contributors if reduces else [owners[chunk]] for chunk in range(chunks)]
    state = {
        (rank, chunk): draw[rank][chunk] if rank in begins[chunk] else None
        for rank in range(ranks)
        for chunk in range(chunks)
    }
    for moves in rounds_of(schedule):
        before = dict(state)
        writes = Counter((target, chunk) for _, target, chunk, _ in moves)
        for source, target, chunk, copies in moves:
            must(source != target and (source, chunk) in state and (target, chunk) in state, "there is no such place")
            carried, there = before[source, chunk], state[target, chunk]
            must(carried is not None, "sent before it was there")
            if copies:
                must(writes[target, chunk] == 1, "two writes, one of them a copy")
                state[target, chunk] = carried
            else:
                must(reduces or there is not None, "added to nothing")
                state[target, chunk] = carried if there is None else there + carried
    for chunk in range(chunks):
        total = sum(draw[rank][chunk] for rank in begins[chunk])
        for rank in [owners[chunk]] if schedule.collective in ("reduce-scatter", "reduce") else contributors:
            must(state[rank, chunk] == total, f"{schedule.algo} {schedule.collective}: rank {rank}, chunk {chunk}")


def rounds_of(schedule: Schedule) -> Iterator[list[tuple[int, int, int, bool]]]:
    """The (source, target, chunk, copies) of every round."""
    columns = [a.tolist() for a in (schedule.round, schedule.source, schedule.target, schedule.first, schedule.count)]
    rounds: dict[int, list[tuple[int, int, int, bool]]] = {}
    for t, a, b, first, count, copies in zip(*columns, schedule.copies.tolist(), strict=True):
        rounds.setdefault(t, []).extend((a, b, chunk, copies) for chunk in range(first, first + count))
    for t in sorted(rounds):
        yield rounds[t]
