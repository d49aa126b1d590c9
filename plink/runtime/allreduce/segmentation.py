"""Segmentation of a vector: as many of a schedule's chunks as its size is worth, each cut into segments.

The chunks of a schedule are independent, so any of them alone can carry a vector: a small one uses one chunk, with
fewer rounds of waiting than many small messages. A segment is sent, received and added as a whole, so that one travels
while another is added. A cell is one segment of one chunk. The same segments of neighbouring chunks are neighbours in
the vector, so those with the same route form one message.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.segmentation import SegmentationConfig


@dataclass(frozen=True)
class Segmentation:
    """Cells of a vector.

    ``chunks``, shape (U,): the used chunks of the schedule, sorted; ``segments``: P of each; ``bounds``, shape (P * U +
    1,): where the cells begin in the vector, by segment and within one by chunk.
    """

    chunks: npt.NDArray[np.int64]
    segments: int
    bounds: npt.NDArray[np.int64]


def segment(elements: int, item_bytes: int, chunks: int, config: SegmentationConfig) -> Segmentation:
    """Return the cells of a vector; none is empty.

    :param elements: of the vector, 1 or more.
    :param chunks: of the schedule.
    """
    size = elements * item_bytes
    used = max(1, min(chunks, size // config.chunk_bytes, elements))
    segments = max(1, min(config.segments_at(size), elements // used))
    cells = used * segments
    # Spread the used chunks: neighbouring ones have the same masters where a rank has several.
    used_chunks = np.arange(used, dtype=np.int64) * chunks // used
    return Segmentation(used_chunks, segments, np.arange(cells + 1, dtype=np.int64) * elements // cells)
