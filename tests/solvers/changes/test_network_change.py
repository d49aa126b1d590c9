"""From pairs that changed to findings: what is large enough, what holds, and how it is told."""

import numpy as np
import pytest

from plink.model.document import UNSET
from plink.model.network import Matrix
from solvers.changes.causes import Cause
from solvers.changes.differences import BETTER, CHANGED, WORSE, PairChanges, describe
from solvers.changes.noise import Noise

N = 8
ALL = ~np.eye(N, dtype=bool)
NONE = Noise(np.zeros((N, N)), 3.0)


def by(*pairs: tuple[int, int], value: float = 1.0) -> Matrix:
    """These pairs changed by so much, in both directions."""
    result = np.zeros((N, N))
    for i, j in pairs:
        result[i, j] = result[j, i] = value
    return result


HOST = [(2, j) for j in range(N) if j != 2]


def kinds(change: PairChanges, sign: int = 1) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    return [(cause.kind, cause.near, cause.far) for cause in change.causes([], sign)]


@pytest.mark.parametrize(("value", "named"), [(0.5, False), (0.51, True)])
def test_a_cause_and_a_pair_are_named_beyond_the_least(value: float, named: bool) -> None:
    assert kinds(PairChanges(by(*HOST, value=value), ALL, ALL, 0.5, NONE)) == ([("host", (2,), ())] if named else [])
    pair = [("pair", (1,), (3,))] if named else []
    assert kinds(PairChanges(by((1, 3), value=value), ALL, ALL, 0.5, NONE)) == pair


@pytest.mark.parametrize(("signs", "named"), [(0.26, True), (0.25, False)])
def test_half_of_the_threshold_is_a_sign_and_the_median_decides(signs: float, named: bool) -> None:
    """Host 2 takes 0.6 more to four others, and a little to three."""
    change = by(*HOST, value=0.6)
    for j in (0, 1, 3):
        change[2, j] = change[j, 2] = signs
    result = kinds(PairChanges(change, ALL, ALL, 0.5, NONE))
    assert result == ([("host", (2,), ())] if named else [("pair", (2,), (j,)) for j in range(4, N)])


def test_what_got_worse_is_not_what_got_better() -> None:
    change = PairChanges(by(*HOST) - by((4, 5), value=2.0), ALL, ALL, 0.5, NONE)
    assert kinds(change, 1) == [("host", (2,), ())]
    assert kinds(change, -1) == [("pair", (4,), (5,))]


def test_pairs_come_after_causes_and_the_largest_first() -> None:
    change = by(*HOST) + by((4, 5)) + by((6, 7), value=3.0) + by((0, 1), value=2.0)
    result = kinds(PairChanges(change, ALL, ALL, 0.5, NONE))
    assert result == [("host", (2,), ()), ("pair", (6,), (7,)), ("pair", (0,), (1,)), ("pair", (4,), (5,))]


def test_a_pair_must_matter_and_be_known_and_be_beyond_noise() -> None:
    change = by((0, 1), (2, 3), (4, 5))
    less = ALL ^ (by((2, 3)) > 0)
    assert [near for _, near, _ in kinds(PairChanges(change, ALL, less, 0.5, NONE))] == [(0,), (4,)]
    assert [near for _, near, _ in kinds(PairChanges(change, less, ALL, 0.5, NONE))] == [(0,), (4,)]
    noisy = Noise(by((2, 3), value=0.34), 3.0)
    assert [near for _, near, _ in kinds(PairChanges(change, ALL, ALL, 0.5, noisy))] == [(0,), (4,)]


@pytest.mark.parametrize(("matter", "named"), [(3, False), (4, True)])
def test_of_a_cause_s_pairs_more_than_half_must_matter(matter: int, named: bool) -> None:
    """Of six; of seven it would be four too, the middle one."""
    measured = ALL ^ (by((2, 7)) > 0)
    matters = by(*HOST[:matter]) > 0
    result = kinds(PairChanges(by(*HOST), measured, matters, 0.5, NONE))
    assert result == ([("host", (2,), ())] if named else [("pair", (2,), (far,)) if far > 2 else ("pair", (far,), (2,))
                                                         for far in (0, 1, 3)])  # fmt: skip


def test_a_cause_must_be_beyond_noise_too() -> None:
    """Its median counts as that of four: 3 x 1.2533 x sigma / 2 is 1 at sigma = 0.532; a pair is beyond at 1 / 3."""
    for sigma, named in ((0.53, True), (0.54, False)):
        result = kinds(PairChanges(by(*HOST), ALL, ALL, 0.5, Noise(np.full((N, N), sigma), 3.0)))
        assert result == ([("host", (2,), ())] if named else [])


def test_a_finding_has_names_and_nothing_where_there_is_no_matrix() -> None:
    rows = grid()
    cause = Cause("link", (0, 1), (2, 3), (np.array([0, 0, 1]), np.array([2, 3, 3])))  # 2, 3 and 13
    result = describe(cause, list("wxyz"), "latency", WORSE, (rows, 2 * rows, rows))
    assert (result.what, result.verdict, result.where) == ("latency", WORSE, "link")
    assert (result.hosts, result.others, result.pairs, result.way) == (("w", "x"), ("y", "z"), 3, UNSET)
    assert (result.old, result.new) == (3, 6)
    lone = Cause("pair", (1,), (3,), (np.array([1]), np.array([3])))
    result = describe(lone, list("wxyz"), "unmeasured", BETTER)
    assert (result.old, result.new, result.unit) == (None, None, None)
    assert describe(lone, list("wxyz"), "hops", CHANGED, (rows, rows, rows)).new == 13


def test_before_and_after_are_of_the_deciding_pair() -> None:
    """Not of the one whose difference is the median: by 3, 1 and 2 as it is judged, by 60, 7 and 2 us."""
    old = np.array([[0.0, 100.0, 7.0, 5.0]])
    new, by = old + np.array([[0.0, 60.0, 7.0, 2.0]]), np.array([[0.0, 3.0, 1.0, 2.0]])
    three = Cause("host", (0,), (), (np.array([0, 0, 0]), np.array([1, 2, 3])))
    result = describe(three, list("wxyz"), "latency", WORSE, (old, new, by))
    assert (result.old, result.new) == (5, 7)


def grid() -> Matrix:
    """10 i + j."""
    i, j = np.indices((4, 4))
    return np.asarray(10.0 * i + j)
