"""The ring all-reduce (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms", section 4), whole and in
segments."""

import numpy as np

from plink.errors import UsageError
from plink.model.schedule import Indices, Schedule, forward_and_reverse, make_schedule

_MAX_SEGMENTS = 4096


def ring(ranks: int, step: int = 1, start: int = 0) -> Schedule:
    """The all-reduce: 2(N-1) rounds, every rank always sends to rank + ``step`` (1 or -1): 2(N-1)/N of the vector
    through every link. ``start`` names the chunks: rank r begins with sending chunk r + ``start`` (modulo N).

    :raises UsageError: for fewer than two ranks.
    """
    return forward_and_reverse(ring_reduce_scatter(ranks, step, start), ring_all_gather(ranks, step, start))


def ring_reduce_scatter(ranks: int, step: int = 1, start: int = 0, segments: int = 1) -> Schedule:
    """N-1 rounds; rank r ends with chunk r + ``start`` + ``step`` (modulo N).

    In every round each rank passes one chunk, of 1/N of the vector, to its neighbour, which adds its own. For
    ``segments`` see :func:`ring_chunked`.

    :raises UsageError: for fewer than two ranks, or no segments.
    """
    rows, owners = _rows(ranks, step, start, segments, 0), _owners(ranks, step, start, segments)
    return make_schedule(_name(segments), ranks, ranks * segments, rows, "reduce-scatter", owners, timing="pipeline")


def ring_all_gather(ranks: int, step: int = 1, start: int = 0, segments: int = 1) -> Schedule:
    """N-1 rounds; rank r begins with chunk r + ``start`` + ``step`` and passes on what it has got last.

    :raises UsageError: for fewer than two ranks, or no segments.
    """
    rows, owners = _rows(ranks, step, start, segments, 1), _owners(ranks, step, start, segments)
    return make_schedule(_name(segments), ranks, ranks * segments, rows, "all-gather", owners, timing="pipeline")


def ring_chunked(ranks: int, segments: int) -> Schedule:
    """The ring with each of its N blocks cut into P ``segments`` that travel one behind the other: 2(N-1)+P-1 rounds.

    Segment p of a block (chunk block * P + p) makes its hop t in round t + p, so a rank sends segment p on while it is
    still receiving segment p + 1. The all-gather of the first segments begins before the reduce-scatter of the last
    ones has ended. Every segment waits for itself only. All links are busy in the whole ring too, so no byte is saved
    and the rounds are P-1 more: what is gained is that adding up one segment overlaps with sending the next, which is
    why Gloo cuts its blocks into two or more.

    Table 4.1 of the PLink thesis ("Ring-Chunked", NC nodes) counts 2NC-1 hops: those of one chunk that goes all the way
    round twice. The last hop brings a rank what it has sent itself, so 2(NC-1) are enough, and these are made here.

    :raises UsageError: for fewer than two ranks, or no segments.
    """
    there, back = (_rows(ranks, 1, 0, segments, phase) for phase in (0, 1))
    back[:, 0] += ranks - 1
    return make_schedule("ring-chunked", ranks, ranks * segments, np.concatenate([there, back]), timing="pipeline")


def check_segments(segments: int) -> None:
    """:raises UsageError: for a number of segments that no block can be cut into, or that nobody would want."""
    if not 1 <= segments <= _MAX_SEGMENTS:
        raise UsageError(f"a block cannot be cut into {segments} segments: 1 to {_MAX_SEGMENTS}")


def _name(segments: int) -> str:
    return "ring" if segments == 1 else "ring-chunked"


def _owners(ranks: int, step: int, start: int, segments: int) -> Indices:
    return np.repeat((np.arange(ranks) - start - step) % max(1, ranks), segments).astype(np.int32)


def _rows(ranks: int, step: int, start: int, segments: int, copies: int) -> Indices:
    """Rank r sends block r + start - t * step in hop t of the reduce-scatter, the next one when it already has its own;
    segment p of it p rounds later."""
    check_segments(segments)
    shape = (max(0, ranks - 1), max(0, ranks), segments)
    hop, rank, segment = (axis.ravel() for axis in np.indices(shape, dtype=np.int32))
    rows = np.empty((len(rank), 6), dtype=np.int32)
    rows[:, 0] = hop + segment
    rows[:, 1] = rank
    rows[:, 2] = (rank + step) % max(1, ranks)
    rows[:, 3] = (rank + (start + step * copies) - step * hop) % max(1, ranks) * segments + segment
    rows[:, 4] = 1
    rows[:, 5] = copies
    return rows
