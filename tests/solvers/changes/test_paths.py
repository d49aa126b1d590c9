"""Pairs that are missing in one file, and ways that lead over another number of routers."""

import math
from typing import Any

import numpy as np
import pytest

from plink.model.comparison import NetworkChange
from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, Network
from solvers.changes.compare import compare
from solvers.changes.differences import ChangeThresholds, hops, missing
from solvers.changes.noise import align
from tests.solvers.changes.files import even, flat, named


def without(n: int, *directions: tuple[int, int]) -> Matrix:
    """Round trips that lack these."""
    rows = flat(n)
    for i, j in directions:
        rows[i, j] = np.nan
    return rows


def both(*pairs: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return (*pairs, *((j, i) for i, j in pairs))


def lacks(old: Matrix, new: Matrix, **details: Any) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """What is missing in the new file, or was in the old one; ``details`` of the new one."""
    names = "abcdefgh"[: len(old)]
    result = missing(align(named(names, old), named(names, new, **details)), [], ChangeThresholds())
    assert all(item.what == "unmeasured" and item.old is item.new is None for item in result)
    return [(item.verdict, item.where, item.hosts, item.others) for item in result]


def test_pair_without_both_directions_is_missing() -> None:
    assert lacks(flat(4), without(4, (0, 1))) == []
    assert lacks(flat(4), without(4, *both((0, 1)))) == [("worse", "pair", ("a",), ("b",))]
    assert lacks(without(4, (0, 1)), without(4, *both((0, 1)))) == [("worse", "pair", ("a",), ("b",))]
    assert lacks(without(4, *both((0, 1))), without(4, (1, 0))) == [("better", "pair", ("a",), ("b",))]
    assert lacks(without(4, *both((0, 1))), without(4, *both((0, 1)))) == []


def test_a_host_with_all_pairs_missing_is_one_change() -> None:
    """A cause must be true of all its pairs here: what one file has nobody can say to be gone."""
    all_of_c = [(2, j) for j in range(8) if j != 2]
    assert lacks(flat(8), without(8, *both(*all_of_c))) == [("worse", "host", ("c",), ())]
    assert len(lacks(flat(8), without(8, *both(*all_of_c[1:])))) == 6


def test_only_the_file_without_a_pair_decides_if_it_is_missing() -> None:
    gone = without(4, *both((0, 1)))
    old, sparse = named("abcd"), named("abcd", gone, plan="adaptive")
    assert len(missing(align(named("abcd", plan="adaptive"), named("abcd", gone)), [], ChangeThresholds())) == 1
    assert missing(align(sparse, old), [], ChangeThresholds()) == []
    assert len(missing(align(named("abcd", gone), named("abcd", plan="adaptive")), [], ChangeThresholds())) == 1


# Hops


def routers(old: list[list[float | None]] | None, new: list[list[float | None]] | None) -> list[NetworkChange]:
    files = [named("abcdef", hops=rows) for rows in (old, new)]
    return hops(align(*files), [])


def test_of_a_pair_the_direction_that_changed_speaks() -> None:
    for there in ("x01", "x10"):
        (item,) = routers(even(6, 3), even(6, 3, **{there: 5}))
        assert (item.what, item.verdict, item.where, item.hosts, item.others) == (
            "hops",
            "changed",
            "pair",
            ("a",),
            ("b",),
        )
        assert (item.old, item.new, item.pairs) == (3, 5, 1)
    (item,) = routers(even(6, 3, x01=4, x10=2), even(6, 3, x01=7, x10=1))
    assert (item.old, item.new) == (4, 7), "of both the first"


def test_without_hops_in_both_files_there_is_nothing_to_say() -> None:
    assert routers(None, even(6, 3)) == routers(even(6, 3), None) == routers(None, None) == []


@pytest.mark.parametrize(("alike", "where"), [(0, "host"), (1, "pair")])
def test_a_host_has_other_ways_where_all_of_them_changed(alike: int, where: str) -> None:
    """Those that are known: of five one is not, and one may be alike."""
    but = {f"x0{j}": 3.0 + j for j in range(1 + alike, 5)} | {"x05": math.nan, "x50": math.nan}
    result = routers(even(6, 3), even(6, 3, **but))
    assert {item.where for item in result} == {where}
    if where == "host":
        assert (result[0].old, result[0].new, result[0].pairs) == (3, 6, 4)  # 4, 5, 6 and 7


# Pairs that failed by chance


def scattered_failures(seed: int, count: int, n: int = 64) -> Matrix:
    """Round trips of n hosts without so many pairs, drawn at random."""
    pairs = np.argwhere(np.triu(np.ones((n, n)), 1))
    picked = pairs[np.random.default_rng(seed).choice(len(pairs), count, replace=False)]
    return without(n, *both(*((int(i), int(j)) for i, j in picked)))


def severities_of(old: Matrix, new: Matrix) -> list[tuple[str, str, str]]:
    """Severity, verdict and cause of what was measured in one file only, each once."""
    names = [f"h{k}" for k in range(len(old))]
    files = [Network(Hosts(tuple(Host(name, name) for name in names)), rows) for rows in (old, new)]
    result = missing(align(*files), [], ChangeThresholds())
    return sorted({(str(item.severity), item.verdict, item.where) for item in result})


def test_as_many_other_pairs_that_failed_are_nothing_worse() -> None:
    assert severities_of(scattered_failures(1, 6), scattered_failures(2, 6)) == [
        ("info", "better", "pair"),
        ("info", "changed", "pair"),
    ]
    assert ("error", "worse", "pair") in severities_of(scattered_failures(1, 6), scattered_failures(2, 40))


def test_first_failed_pair_is_an_error_of_few_hosts_and_a_warning_of_many() -> None:
    assert severities_of(flat(8), scattered_failures(1, 1, 8)) == [("error", "worse", "pair")]
    assert severities_of(flat(64), scattered_failures(1, 1)) == [("warning", "worse", "pair")]


def test_host_that_cannot_be_measured_is_worse_among_pairs_that_failed_by_chance() -> None:
    new = scattered_failures(2, 6)
    new[9] = new[:, 9] = np.nan
    assert ("error", "worse", "host") in severities_of(scattered_failures(1, 6), new)
    new[9, :50] = new[:50, 9] = 50.0
    assert ("error", "worse", "pair") in severities_of(scattered_failures(1, 6), new), "it reaches most of them"


def test_a_pair_that_came_back_does_not_make_up_for_one_that_is_lost() -> None:
    """Of five hosts any lost pair is an error."""
    rows = np.where(np.eye(5), 0.0, 100.0)
    old, new = rows.copy(), rows.copy()
    old[0, 1] = old[1, 0] = new[2, 4] = new[4, 2] = np.nan
    assert not compare(named("abcde", old), named("abcde", new), ChangeThresholds()).ok
