"""How a vector is cut: a schedule's chunks, as many of them as the vector is worth, and each into pieces.

The chunks of a schedule do not know of each other, so any of them alone carry a vector too: a small one goes as one
chunk, whose few messages are fewer rounds of waiting than many small ones. A piece is what is sent, received and added
up at once, so that one piece travels while another is added. A cell is one piece of one
chunk; the same pieces of neighbouring chunks are neighbours in the vector, so what goes the same way is one message.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

KILOBYTE = 1024
# A piece of so many steps was best where hosts send so much (docs/results/aggengine.md). Until all rounds are full a
# share of the time is lost that is the piece's share of the vector, at any rate; and what messages cost the cores is a
# share that grows with the rate, and falls with the piece. Both are least where pieces grow with the rate's root.
_STEP, _STEPS, _AT_GBPS, _MOST_STEPS = 64 * KILOBYTE, 10, 0.2, 64
_MOST_PIECES = 1024  # of a chunk: a program is a list in memory


@dataclass(frozen=True)
class Cutting:
    """``chunk_bytes``: no chunk is smaller while a vector has several. ``piece_bytes``: so much of a large vector is
    one piece of all its chunks. ``pieces``: into so many a smaller vector is cut, for its phases to overlap, while
    each has ``least_bytes``."""

    chunk_bytes: int = 16 * KILOBYTE
    piece_bytes: int = 1024 * KILOBYTE
    pieces: int = 8
    least_bytes: int = 256 * KILOBYTE


def cutting_for(rate_gbps: float | None) -> Cutting:
    """How vectors are cut for hosts that send so much; None: nobody knows."""
    if rate_gbps is None:
        return Cutting()
    steps = min(_STEPS * math.sqrt(rate_gbps / _AT_GBPS), _MOST_STEPS)
    return Cutting(piece_bytes=max(1, round(steps)) * _STEP)


@dataclass(frozen=True)
class Cut:
    """``chunks``, shape (U,): those of the schedule that are used, sorted; ``pieces``: P of each; ``bounds``, shape
    (P * U + 1,): where the cells begin in the vector, by piece and within one by chunk."""

    chunks: npt.NDArray[np.int64]
    pieces: int
    bounds: npt.NDArray[np.int64]


def cut(elements: int, item_bytes: int, chunks: int, cutting: Cutting) -> Cut:
    """The cells of a vector; none is empty.

    :param elements: of the vector, 1 or more.
    :param chunks: of the schedule.
    """
    size = elements * item_bytes
    used = max(1, min(chunks, size // cutting.chunk_bytes, elements))
    wanted = max(size // cutting.piece_bytes, min(cutting.pieces, size // cutting.least_bytes))
    pieces = max(1, min(wanted, _MOST_PIECES, elements // used))
    cells = used * pieces
    # Spread: neighbouring chunks have the same masters where there are several a rank.
    which = np.arange(used, dtype=np.int64) * chunks // used
    return Cut(which, pieces, np.arange(cells + 1, dtype=np.int64) * elements // cells)
