"""Segmentation of a vector: as many of a schedule's chunks as its size is worth, each cut into segments.

The chunks of a schedule are independent, so any of them alone can carry a vector: a small one uses one chunk, with
fewer rounds of waiting than many small messages. A segment is sent, received and added as a whole, so that one travels
while another is added. A cell is one segment of one chunk. The same segments of neighbouring chunks are neighbours in
the vector, so those with the same route form one message.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

KILOBYTE = 1024
# Segments of _UNITS units were best at _REFERENCE_GBPS (docs/results/aggengine.md). Filling the pipeline costs the
# segment's share of the time at any bandwidth. The cores' cost of messages grows with the bandwidth and falls with the
# segment. The sum is least where segments grow with the square root of the bandwidth.
_UNIT_BYTES, _UNITS, _REFERENCE_GBPS, _MAX_UNITS = 64 * KILOBYTE, 10, 0.2, 64
_MAX_SEGMENTS = 1024  # of a chunk: a program is a list in memory


@dataclass(frozen=True)
class SegmentationConfig:
    """Sizes of chunks and segments.

    ``chunk_bytes``: the smallest chunk of a vector with several. ``segment_bytes``: one segment of all chunks of a
    large vector. ``segments``: into how many a smaller vector is cut so that its phases overlap, while each has
    ``min_segment_bytes``.
    """

    chunk_bytes: int = 16 * KILOBYTE
    segment_bytes: int = 1024 * KILOBYTE
    segments: int = 8
    min_segment_bytes: int = 256 * KILOBYTE

    def finer(self, parts: int) -> "SegmentationConfig":
        """Return the configuration with so many times as many segments."""
        return replace(
            self,
            segment_bytes=max(1, self.segment_bytes // parts),
            segments=self.segments * parts,
            min_segment_bytes=max(1, self.min_segment_bytes // parts),
        )


def segmentation_for_rate(rate_gbps: float | None) -> SegmentationConfig:
    """Return the segmentation for hosts of this bandwidth, Gbit/s; None if it is unknown."""
    if rate_gbps is None:
        return SegmentationConfig()
    units = min(_UNITS * math.sqrt(rate_gbps / _REFERENCE_GBPS), _MAX_UNITS)
    return SegmentationConfig(segment_bytes=max(1, round(units)) * _UNIT_BYTES)


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
    target = max(size // config.segment_bytes, min(config.segments, size // config.min_segment_bytes))
    segments = max(1, min(target, _MAX_SEGMENTS, elements // used))
    cells = used * segments
    # Spread the used chunks: neighbouring ones have the same masters where a rank has several.
    used_chunks = np.arange(used, dtype=np.int64) * chunks // used
    return Segmentation(used_chunks, segments, np.arange(cells + 1, dtype=np.int64) * elements // cells)
