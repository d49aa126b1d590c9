"""How AggEngine cuts vectors into chunks and segments: what it does, and what prices of its schedules count with."""

import math
from dataclasses import dataclass, replace

KILOBYTE = 1024
# Segments of _UNITS units were best at _REFERENCE_GBPS (docs/results/aggengine.md). Filling the pipeline costs the
# segment's share of the time at any bandwidth. The cores' cost of messages grows with the bandwidth and falls with the
# segment. The sum is least where segments grow with the square root of the bandwidth.
_UNIT_BYTES, _UNITS, _REFERENCE_GBPS, _MAX_UNITS = 64 * KILOBYTE, 10, 0.2, 64
_MAX_SEGMENTS = 1024  # of a chunk: a program is a list in memory
HUB_PARTS = 4  # of a segment: one is one message to a hub, and others cut it into their ranks' shares


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

    def segments_at(self, size_bytes: int) -> int:
        """Return into how many segments a vector of this size is cut, where no chunk is too short for them."""
        number = max(size_bytes // self.segment_bytes, min(self.segments, size_bytes // self.min_segment_bytes))
        return max(1, min(number, _MAX_SEGMENTS))

    @property
    def sliced_from_bytes(self) -> int:
        """Size of the smallest vector that has two segments."""
        return 2 * min(self.segment_bytes, self.min_segment_bytes)

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
