"""Aggregations as files (``plink.aggregation/2``), which jobs of benchmarks and tests are started with."""

from typing import Any

from plink.runtime.allreduce.aggregation import SCHEMA, Aggregation


def aggregation_to_json(aggregation: Aggregation, **details: Any) -> dict[str, Any]:
    """Return the document as written to disk."""
    return {
        "schema": SCHEMA,
        "channels": aggregation.channels,
        "chunk_bytes": aggregation.segmentation.chunk_bytes,
        "segment_bytes": aggregation.segmentation.segment_bytes,
        "segments": aggregation.segmentation.segments,
        "min_segment_bytes": aggregation.segmentation.min_segment_bytes,
        "smallest_bytes": aggregation.smallest_bytes,
        "ring": list(aggregation.ring),
        **details,
        "classes": [
            {
                "up_to_bytes": entry.up_to_bytes,
                "algo": entry.algo,
                "schedule": None if entry.schedule is None else entry.schedule.to_json(),
            }
            for entry in aggregation.classes
        ],
    }
