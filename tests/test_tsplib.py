"""Distances of TSPLIB's files, by hand."""

from pathlib import Path

import pytest

from benchmarks.tsplib import read_instance


@pytest.mark.parametrize(("kind", "expected"), [("EUC_2D", [2, 5]), ("CEIL_2D", [3, 5]), ("ATT", [1, 2])])
def test_rounded_distances(kind: str, expected: list[int], tmp_path: Path) -> None:
    """From the first point to (2, 1.1) and to (3, 4): 2.28 and 5; pseudo-Euclidean 0.72 and 1.58, rounded up."""
    text = f"NAME: x\nEDGE_WEIGHT_TYPE : {kind}\nNODE_COORD_SECTION\n1 0 0\n2 2.0 1.1\n3 3 4\nEOF\n"
    (tmp_path / "x.tsp").write_text(text)
    (tmp_path / "solutions").write_text("y : 3\nx : 12 (a note)\n")
    instance = read_instance(tmp_path, "x")
    assert instance.distance[0, 1:].tolist() == expected
    assert (instance.distance == instance.distance.T).all()
    assert instance.optimum == 12


def test_unknown_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tsp").write_text("EDGE_WEIGHT_TYPE: EXPLICIT\nNODE_COORD_SECTION\n1 0 0\n2 2 1\nEOF\n")
    (tmp_path / "solutions").write_text("x : 12\n")
    with pytest.raises(ValueError, match="EXPLICIT"):
        read_instance(tmp_path, "x")
