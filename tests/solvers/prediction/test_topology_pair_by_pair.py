"""Levels and assumed times against slower ways to find them: path by path, and isotonic regression by its formula."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.topology import Path, Topology
from solvers.prediction.topology import (
    UNKNOWN,
    _assumed_us,
    _growing,
    _through,
    assumed_network,
    filled,
    latencies_of,
    levels_apart,
)

NAME = st.sampled_from("ab")
PATHS = st.lists(st.lists(NAME, min_size=1, max_size=4).map(tuple), min_size=1, max_size=9)
GAPPED = st.lists(st.lists(st.none() | NAME, min_size=1, max_size=4).map(tuple), min_size=1, max_size=9)


def named(path: Path) -> Path:
    """As far as it is named."""
    return path[: path.index(None)] if None in path else path


def met(paths: list[Path], one: Path, other: Path) -> int:
    """How high the nearest common ancestor is above the deepest leaf below it; without one the longest path."""
    own, its = named(one), named(other)
    common = 0
    while common < min(len(own), len(its)) and own[common] == its[common]:
        common += 1
    gap_of_one = common == len(own) and len(own) < len(one) and common < len(other)
    gap_of_other = common == len(its) and len(its) < len(other) and common < len(one)
    if gap_of_one or gap_of_other:
        return UNKNOWN
    if common == 0:
        return max(len(path) for path in paths)
    below = [path for path in paths if named(path)[:common] == own[:common]]
    return max(len(path) for path in below) - common


@given(PATHS)
def test_hosts_are_as_far_apart_as_their_nearest_common_ancestor_is_high(paths: list[Path]) -> None:
    expected = [[0 if i == j else met(paths, a, b) for j, b in enumerate(paths)] for i, a in enumerate(paths)]
    assert levels_apart(paths).tolist() == expected


@given(GAPPED)
def test_and_unknown_where_one_of_them_is_not_named_just_below_it(paths: list[Path]) -> None:
    expected = [[0 if i == j else met(paths, a, b) for j, b in enumerate(paths)] for i, a in enumerate(paths)]
    assert levels_apart(paths).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), min_size=1, max_size=8))
def test_growing_values_are_those_of_the_formula(given_: list[tuple[int, int]]) -> None:
    """The most over all beginnings of the least over all ends of the weighted mean between (Barlow et al. 1972)."""
    values, weights = (np.array(some, dtype=float) for some in zip(*given_, strict=True))

    def mean(first: int, last: int) -> float:
        part = slice(first, last + 1)
        return float((values[part] * weights[part]).sum() / weights[part].sum())

    n = len(values)
    expected = [max(min(mean(a, b) for b in range(k, n)) for a in range(k + 1)) for k in range(n)]
    assert _growing(values, weights.astype(np.intp)).tolist() == pytest.approx(expected)


def test_between_points_lines_are_straight_and_beyond_them_in_proportion() -> None:
    x, y = np.array([25.0, 60.0, 120.0]), np.array([10.0, 80.0, 90.0])
    wanted = np.array([5.0, 25.0, 32.0, 60.0, 90.0, 120.0, 240.0])
    assert _through(x, y, wanted) == pytest.approx([2, 10, 24, 80, 85, 90, 180])
    assert _through(x[:1], y[:1], wanted[:3]) == pytest.approx([2, 10, 12.8])


@pytest.mark.parametrize("farthest", range(7))
def test_assumed_times_double_above_the_third(farthest: int) -> None:
    assert _assumed_us(farthest).tolist() == [25, 60, 120, 240, 480, 960, 1920][: farthest + 1]


def test_unknown_pairs_are_assumed_as_far_as_the_farthest_known_one() -> None:
    levels = np.array([[0, UNKNOWN, 2], [UNKNOWN, 0, 1], [2, 1, 0]], dtype=np.int16)
    assert latencies_of(levels).tolist() == [[0, 120, 120], [120, 0, 60], [120, 60, 0]]


def test_the_median_of_a_level_is_of_pairs_and_not_of_directions() -> None:
    """The worse of both counts, once: of 30, 50 and 90 the middle one."""
    nan = np.nan
    rtt = np.array([[0, 10, nan, nan], [30, 0, 50, nan], [nan, nan, 0, 90], [nan, nan, nan, 0.0]])
    whole = filled(rtt, np.zeros((4, 4), dtype=np.int16))
    assert whole.tolist() == [[0, 10, 50, 50], [30, 0, 50, 50], [50, 50, 0, 90], [50, 50, 90, 0]]


def test_one_host_alone_is_a_network() -> None:
    network = assumed_network(Topology({"a": ("z", None)}, "aws", where="t"))
    assert network.latency_us.tolist() == [[0]]
    assert network.where == "t"


def test_one_pair_that_is_told_apart_is_enough() -> None:
    network = assumed_network(Topology({"a": ("z", None), "b": ("z", None), "c": ("y", None)}, "aws", where="t"))
    assert network.latency_us.tolist() == [[0, 120, 120], [120, 0, 120], [120, 120, 0]]
