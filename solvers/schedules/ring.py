"""The ring all-reduce (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms", section 4), whole and in
pieces."""

import numpy as np

from plink.errors import UsageError
from plink.model.schedule import Indices, Schedule, forward_and_reverse, make_schedule

_MAX_PIECES = 4096


def ring(ranks: int, step: int = 1, start: int = 0) -> Schedule:
    """The all-reduce: 2(N-1) rounds, every rank always sends to rank + ``step`` (1 or -1): 2(N-1)/N of the vector
    through every link. ``start`` names the chunks: rank r begins with sending chunk r + ``start`` (modulo N).

    :raises UsageError: for fewer than two ranks.
    """
    return forward_and_reverse(ring_reduce_scatter(ranks, step, start), ring_all_gather(ranks, step, start))


def ring_reduce_scatter(ranks: int, step: int = 1, start: int = 0, pieces: int = 1) -> Schedule:
    """N-1 rounds; rank r ends with chunk r + ``start`` + ``step`` (modulo N). In every round each rank passes one
    chunk, of 1/N of the vector, to its neighbour, which adds its own. For ``pieces`` see :func:`ring_chunked`.

    :raises UsageError: for fewer than two ranks, or no pieces.
    """
    rows, owners = _rows(ranks, step, start, pieces, 0), _owners(ranks, step, start, pieces)
    return make_schedule(_name(pieces), ranks, ranks * pieces, rows, "reduce-scatter", owners, timing="pipeline")


def ring_all_gather(ranks: int, step: int = 1, start: int = 0, pieces: int = 1) -> Schedule:
    """N-1 rounds; rank r begins with chunk r + ``start`` + ``step`` and passes on what it has got last.

    :raises UsageError: for fewer than two ranks, or no pieces.
    """
    rows, owners = _rows(ranks, step, start, pieces, 1), _owners(ranks, step, start, pieces)
    return make_schedule(_name(pieces), ranks, ranks * pieces, rows, "all-gather", owners, timing="pipeline")


def ring_chunked(ranks: int, pieces: int, step: int = 1) -> Schedule:
    """The ring with each of its N blocks cut into P ``pieces`` that travel one behind the other: 2(N-1)+P-1 rounds.

    Piece p of a block (chunk block * P + p) makes its hop t in round t + p, so a rank sends piece p on while it is
    still getting piece p + 1, and the all-gather of the first pieces begins before the reduce-scatter of the last ones
    has ended. Every piece waits for itself only. All links are busy in the whole ring too, so no byte is saved and the
    rounds are P-1 more: what is gained is that adding up one piece overlaps with sending the next, which is why Gloo
    cuts its blocks into two or more.

    Table 4.1 of the PLink thesis ("Ring-Chunked", NC nodes) counts 2NC-1 hops: those of one chunk that goes all the way
    round twice. The last hop brings a rank what it has sent itself, so 2(NC-1) are enough, and these are made here.

    :raises UsageError: for fewer than two ranks, or no pieces.
    """
    there = _rows(ranks, step, 0, pieces, 0)
    back = _rows(ranks, step, 0, pieces, 1)
    back[:, 0] += ranks - 1
    return make_schedule("ring-chunked", ranks, ranks * pieces, np.concatenate([there, back]), timing="pipeline")


def check_pieces(pieces: int) -> None:
    """:raises UsageError: for a number of pieces that no block can be cut into, or that nobody would want."""
    if not 1 <= pieces <= _MAX_PIECES:
        raise UsageError(f"a block cannot be cut into {pieces} pieces: 1 to {_MAX_PIECES}")


def _name(pieces: int) -> str:
    return "ring" if pieces == 1 else "ring-chunked"


def _owners(ranks: int, step: int, start: int, pieces: int) -> Indices:
    return np.repeat((np.arange(ranks) - start - step) % max(1, ranks), pieces).astype(np.int32)


def _rows(ranks: int, step: int, start: int, pieces: int, copies: int) -> Indices:
    """Rank r sends block r + start - t * step in hop t of the reduce-scatter, the next one when it already has its own;
    piece p of it p rounds later."""
    check_pieces(pieces)
    shape = (max(0, ranks - 1), max(0, ranks), pieces)
    hop, rank, piece = (axis.ravel() for axis in np.indices(shape, dtype=np.int32))
    rows = np.empty((len(rank), 6), dtype=np.int32)
    rows[:, 0] = hop + piece
    rows[:, 1] = rank
    rows[:, 2] = (rank + step) % max(1, ranks)
    rows[:, 3] = (rank + (start + step * copies) - step * hop) % max(1, ranks) * pieces + piece
    rows[:, 4] = 1
    rows[:, 5] = copies
    return rows
