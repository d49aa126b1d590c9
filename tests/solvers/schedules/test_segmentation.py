"""Segments by the size of the vector, as the libraries choose them."""

import pytest

from solvers.schedules.catalogue import ALGORITHMS, Options
from solvers.schedules.segmentation import library_segments, options_at

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size_bytes", "segments"),
    [(1, 1), (64e3, 1), (MIB, 1), (MIB + 1, 2), (16 * MIB, 16), (100e6, 96), (256 * MIB, 256), (10e9, 256)],
)
def test_nccl_sends_chunks_of_512_kib_along_each_tree(size_bytes: float, segments: int) -> None:
    assert library_segments("nccl-tree", size_bytes) == library_segments("nccl", size_bytes) == segments
    assert options_at(Options(), "nccl-tree", size_bytes).segments == segments


def test_given_segments_stay() -> None:
    assert options_at(Options(segments=3), "nccl-tree", 100e6).segments == 3


@pytest.mark.parametrize("algo", sorted(set(ALGORITHMS) - {"nccl-tree"}))
def test_other_algorithms_have_segments_only_as_set(algo: str) -> None:
    """Open MPI's fixed rules have a segment size of 0, which is the whole vector."""
    assert library_segments(algo, 100e6) is None
    assert options_at(Options(), algo, 100e6) == Options()
