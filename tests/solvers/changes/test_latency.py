"""Round trips compared: directions and their mean, the shift of all of them, and what stands out from it."""

from typing import Any

import numpy as np
import pytest

from plink.model.document import UNSET
from plink.model.network import Matrix, to_rows
from solvers.changes.differences import ChangeThresholds, RoundTrips, compared, round_trips
from solvers.changes.noise import Mask, align
from tests.solvers.changes.files import flat, named

HOSTS = "abcdefghijkl"


def nothing(n: int) -> Mask:
    return np.zeros((n, n), dtype=bool)


def trips(
    old: Matrix,
    new: Matrix,
    limits: ChangeThresholds | None = None,
    differ: Mask | None = None,
    groups: list[int] | None = None,
) -> RoundTrips:
    names = HOSTS[: len(old)]
    groupings = [] if groups is None else [np.array(groups)]
    return round_trips(
        align(named(names, old), named(names, new)), groupings, nothing(len(old)) if differ is None else differ,
        limits or ChangeThresholds(),
    )  # fmt: skip


def whose(result: RoundTrips) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    return [(finding.verdict, finding.where, finding.hosts, finding.others) for finding in result.findings]


def test_a_pair_s_round_trip_is_the_geometric_mean_of_its_directions() -> None:
    old, new = flat(3, 40.0), flat(3, 90.0)
    old[0, 1], new[0, 1] = 160.0, 40.0
    was, now, measured = compared(align(named("abc", old), named("abc", new)), nothing(3))
    assert measured.tolist() == (~np.eye(3, dtype=bool)).tolist()
    assert (was[0, 1], was[1, 0], was[0, 2]) == pytest.approx((80, 80, 40))
    assert (now[0, 1], now[1, 0], now[0, 2]) == pytest.approx((60, 60, 90))
    assert np.isnan(was.diagonal()).all()


def test_a_direction_counts_where_both_files_have_it_and_measured_it_alike() -> None:
    old, new = flat(4, 40.0), flat(4, 40.0)
    old[0, 1], old[1, 0] = np.nan, 50.0
    new[0, 1], new[1, 0] = 70.0, 80.0
    new[0, 2], old[2, 0] = np.nan, np.nan
    old[1, 2], old[2, 1], new[1, 2], new[2, 1] = 10.0, 20.0, 30.0, 40.0
    differ = nothing(4)
    differ[1, 2] = True
    was, now, measured = compared(align(named("abcd", old), named("abcd", new)), differ)
    assert (was[0, 1], now[0, 1], was[1, 0], now[1, 0]) == pytest.approx((50, 80, 50, 80))
    assert (was[1, 2], now[1, 2]) == pytest.approx((20, 40))
    assert np.isnan([was[0, 2], now[2, 0]]).all()
    assert np.argwhere(np.triu(measured, 1)).tolist() == [[0, 1], [0, 3], [1, 2], [1, 3], [2, 3]]


def one_pair(n: int, us: float, more: float) -> tuple[Matrix, Matrix]:
    new = flat(n, us)
    new[0, 1] = new[1, 0] = us + more
    return flat(n, us), new


@pytest.mark.parametrize(("more", "worse"), [(9.9, 0), (10.1, 1)])
def test_a_change_is_worth_naming_beyond_the_floor(more: float, worse: int) -> None:
    """To 16 us or more: the share is not what it lacks."""
    assert len(trips(*one_pair(6, 16.0, more), ChangeThresholds(floor_us=10.0)).findings) == worse


@pytest.mark.parametrize(("times", "named"), [(1.249, 0), (1.251, 1), (1 / 1.249, 0), (1 / 1.251, 1)])
def test_a_change_is_worth_naming_beyond_the_share(times: float, named: int) -> None:
    assert len(trips(*one_pair(6, 1000.0, 1000.0 * (times - 1))).findings) == named


def test_global_slowdown_is_one_finding_of_the_median_pair() -> None:
    """Of ten pairs four take 100 us, two 200, and the four of neighbours 300."""
    apart = np.abs(np.arange(5)[:, None] - np.arange(5))
    old = np.where(apart == 1, 300.0, flat(5, 100.0))
    old[0, 2:4] = old[2:4, 0] = 200.0
    result = trips(old, 2 * old)
    (item,) = result.findings
    assert (item.what, item.severity, item.verdict, item.where) == ("latency", "error", "worse", "network")
    assert (item.hosts, item.others, item.unit, item.pairs, item.way) == (tuple("abcde"), (), "us", 10, UNSET)
    assert (item.old, item.new) == pytest.approx((200, 400))
    assert (result.pairs, result.shift, result.noise) == pytest.approx((10, 2, 0))
    result = trips(2 * old, old)
    (item,) = result.findings
    assert item.verdict == "better"
    assert (item.old, item.new) == pytest.approx((400, 200))
    assert result.shift == pytest.approx(0.5)


@pytest.mark.parametrize(("times", "named"), [(1.25, False), (1.26, True), (1 / 1.25, False), (1 / 1.26, True)])
def test_a_shift_is_a_finding_beyond_the_share_and_a_drift_below(times: float, named: bool) -> None:
    result = trips(flat(6, 1000.0), flat(6, 1000.0) * times)
    assert result.shift == pytest.approx(times)
    assert [finding.where for finding in result.findings] == (["network"] if named else [])


def test_a_shift_must_be_that_of_every_tier() -> None:
    """Of six hosts in twos all but the three pairs within take twice as long: that is between the groups."""
    groups = [0, 0, 1, 1, 2, 2]
    apart = np.array(groups)[:, None] != np.array(groups)
    result = trips(flat(6, 100.0), np.where(apart, 2.0, 1.0) * flat(6, 100.0), groups=groups)
    assert whose(result) == [("worse", "between", tuple("abcdef"), ())]
    assert result.shift == 1.0


@pytest.mark.parametrize(("now", "named"), [(81.0, False), (79.0, True)])
def test_a_pair_without_the_network_s_change_is_not_better(now: float, named: bool) -> None:
    """All take twice as long but one pair: it is named where it takes less than 1 / 1.25 of what it took."""
    new = flat(8, 200.0)
    new[6, 7] = new[7, 6] = now
    result = whose(trips(flat(8, 100.0), new))
    assert result == [
        ("worse", "network", tuple("abcdefgh"), ()),
        *([("better", "pair", ("g",), ("h",))] if named else []),
    ]


def test_drift_is_removed_before_a_pair_is_tested() -> None:
    """All take 1.2 times as long, one pair 1.45 times: 1.208 times what is usual now; or 1.6: 1.33 times."""
    for times, worse in ((1.45, 0), (1.6, 1)):
        new = 1.2 * flat(6, 1000.0)
        new[2, 3] = new[3, 2] = times * 1000
        result = trips(flat(6, 1000.0), new)
        assert len(result.findings) == worse
        assert result.shift == pytest.approx(1.2)


def test_pairs_that_were_measured_otherwise_are_not_compared() -> None:
    old, new = one_pair(6, 100.0, 500.0)
    differ = nothing(6)
    differ[0, 1] = differ[1, 0] = True
    result = trips(old, new, differ=differ)
    assert (result.findings, result.pairs) == ([], 14)


def test_worse_comes_before_better() -> None:
    new = flat(8, 100.0)
    new[0], new[:, 0] = 40.0, 40.0
    new[1], new[:, 1] = 300.0, 300.0
    new[0, 0] = new[1, 1] = 0.0
    result = whose(trips(flat(8, 100.0), new))
    assert [item[0] for item in result] == ["worse", "better"]


def shaken(rng: np.random.Generator, own: float, times: float, n: int = 3) -> dict[str, Any]:
    """Hosts that are 250 us apart, times as far as that; both halves of the samples, and so their mean, are off by
    chance, by so much of it."""
    halves = [times * 250 * np.exp(rng.normal(0, own, (n, n))) * ~np.eye(n, dtype=bool) for _ in range(2)]
    return {"rows": np.sqrt(halves[0] * halves[1]), "halves_us": [to_rows(half, 9) for half in halves]}


@pytest.mark.parametrize(("own", "times", "least", "most"), [
    (0.4, 1.0, 0, 2), (0.01, 1.3, 200, 200), (0.01, 1 / 1.3, 200, 200), (0.02, 1.3, 190, 200),
])  # fmt: skip
def test_the_whole_network_is_found_beyond_the_noise_of_its_samples(
    own: float, times: float, least: int, most: int
) -> None:
    """Of 200 comparisons of three hosts: where nothing changed and halves are far apart nothing is named (of 0.4 it was
    the whole network 13 times), where all take 1.3 times as long and halves agree it is."""
    rng = np.random.default_rng(12)
    result = 0
    for _ in range(200):
        old, new = (named("abc", **shaken(rng, own, factor)) for factor in (1.0, times))
        message = round_trips(align(old, new), [], nothing(3), ChangeThresholds()).findings
        result += any(item.where == "network" for item in message)
        if times == 1:
            result += bool(message) and all(item.where != "network" for item in message)
    assert least <= result <= most, result


def test_before_and_after_are_of_one_pair_whose_change_is_the_median() -> None:
    """A slow host of two racks with one unaffected pair: the medians of all seven by themselves are the same."""
    old = np.where(np.equal.outer([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]), 100.0, 200.0)
    np.fill_diagonal(old, 0.0)
    new = old.copy()
    new[0, [1, 2, 3, 5, 6, 7]] *= 2
    new[:, 0] = new[0]
    (result,) = trips(old, new).findings
    assert (result.where, result.hosts) == ("host", ("a",))
    assert (result.old, result.new) == pytest.approx((100.0, 200.0))
