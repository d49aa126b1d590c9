"""How vectors are cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.model.segmentation import SegmentationConfig
from plink.runtime.allreduce.segmentation import segment


@given(
    st.integers(1, 1 << 28), st.sampled_from([1, 2, 4, 8]), st.integers(1, 600), st.integers(1, 1 << 20),
    st.integers(1, 1 << 22), st.integers(1, 16), st.integers(1, 1 << 20),
)  # fmt: skip
def test_cells_cover_the_vector(
    elements: int, item: int, chunks: int, chunk_bytes: int, segment_bytes: int, segments: int, min_segment_bytes: int
) -> None:
    """Every element is in one cell, none is empty, cells differ by one element at most, chunks are distinct."""
    segmentation = segment(
        elements, item, chunks, SegmentationConfig(chunk_bytes, segment_bytes, segments, min_segment_bytes)
    )
    assert segmentation.bounds[0] == 0
    assert segmentation.bounds[-1] == elements
    sizes = np.diff(segmentation.bounds)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) == len(segmentation.chunks) * segmentation.segments
    assert len(set(segmentation.chunks.tolist())) == len(segmentation.chunks)
    assert segmentation.chunks.max() < chunks


@pytest.mark.parametrize(
    ("size", "chunks", "segments"),
    [(4, 1, 1), (48 << 10, 3, 1), (1 << 20, 16, 4), (64 << 20, 16, 64)],
)  # fmt: skip
def test_small_vectors_go_as_few_chunks_and_large_ones_as_many_segments(size: int, chunks: int, segments: int) -> None:
    """With the usual settings: 16 KB a chunk at least, 1 MB a piece."""
    segmentation = segment(size // 4, 4, 16, SegmentationConfig())
    assert (len(segmentation.chunks), segmentation.segments) == (chunks, segments)
