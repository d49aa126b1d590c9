"""Slow hosts and slow shared links by bandwidth: against the same told one by one."""

import math
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from plink.network import Matrix
from solvers.diagnosis.bandwidth import SHARE, SlowHost, SlowLink, slow_rates, slow_shared_links


def finite(values: list[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def by_hand(gbps: Matrix, groups: npt.NDArray[np.intp]) -> list[SlowHost]:
    """Less than half of the median of the pairs of others: of a host alone in its group those between groups, if there
    are three; else of all, if there are three; and the host has three rates itself."""
    n, found = len(gbps), []
    for host in range(n):
        others = [(i, j) for i in range(n) for j in range(n) if i != j and host not in (i, j)]
        alone = sum(groups[k] == groups[host] for k in range(n)) == 1
        every = finite([gbps[pair] for pair in others])
        between = finite([gbps[i, j] for i, j in others if groups[i] != groups[j]])
        standard = between if alone and len(between) >= 3 else every
        if len(standard) < 3:
            continue
        rates = {}
        for way, own in (("out", gbps[host, :]), ("in", gbps[:, host])):
            its = finite([own[k] for k in range(n) if k != host])
            if len(its) >= 3 and max(its) < median(standard) / 2:
                rates[way] = (max(its), median(standard))
        if rates:
            found.append(SlowHost(host, rates))
    return sorted(found, key=lambda slow: min(rate for rate, _ in slow.rates.values()))


def test_slow_hosts_are_those_whose_best_rate_is_less_than_half_of_what_is_usual() -> None:
    """Rates of 1, 2, 4 and 8 stand often exactly at a half; some are missing."""
    spoke = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 8))
        gbps = rng.choice([1.0, 2.0, 4.0, 8.0], (n, n), p=[0.1, 0.1, 0.3, 0.5])
        for host in range(2):
            limit = rng.choice([2.0, 3.0, 9.0])
            gbps[host] = np.minimum(gbps[host], limit if rng.random() < 0.7 else 9.0)
            gbps[:, host] = np.minimum(gbps[:, host], limit if rng.random() < 0.7 else 9.0)
        gbps[rng.random((n, n)) < rng.choice([0.0, 0.3, 0.5])] = np.nan
        groups = rng.integers(0, 4, n)
        groups = np.unique(groups, return_inverse=True)[1].astype(np.intp)
        before = gbps.copy()
        found = slow_rates(gbps, groups)
        assert found == by_hand(gbps, groups), seed
        assert np.array_equal(gbps, before, equal_nan=True)
        spoke += bool(found)
    assert spoke > 10


@pytest.mark.parametrize("alone", [False, True])
def test_three_rates_are_enough_of_a_host_and_of_others(alone: bool) -> None:
    gbps = np.full((5, 5), np.nan)
    gbps[0, 1:4] = 0.4
    gbps[1, 2] = gbps[2, 3] = gbps[3, 1] = 1.0
    label = np.array([0, 1, 2, 3, 1]) if alone else np.zeros(5, dtype=np.intp)
    assert slow_rates(gbps, label) == [SlowHost(0, {"out": (0.4, 1.0)})]
    assert slow_rates(np.where(np.arange(5) == 3, np.nan, gbps), label) == []


def test_far_below_is_half() -> None:
    assert SHARE == 0.5


def test_a_host_alone_is_held_against_pairs_between_groups() -> None:
    """Those between the others' groups carry 2, and within them 10, which are more: host 7 has 1.5 or 0.9."""
    label = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    gbps = np.where(label[:, None] == label, 10.0, 2.0)
    for rate, slow in ((1.5, []), (0.9, [7])):
        gbps[7], gbps[:, 7] = rate, rate
        assert [one.host for one in slow_rates(gbps, label)] == slow
    gbps[7], gbps[:, 7] = 1.5, 1.5
    assert [one.host for one in slow_rates(gbps, np.minimum(label, 1))] == [7], "where it is not alone all count"


# Shared links


def row(members: list[str], out: Any, limited: Any = "link", high: Any = None) -> dict[str, Any]:
    found = {"members": members, "out_gbps": out, "out_limited_by": limited}
    return found if not high else found | {"interval": {"out_gbps": [0.1, high]}}


def links_by_hand(rows: list[dict[str, Any]]) -> list[SlowLink]:
    """Of three groups or more: one whose link was full and carries, at the top of its range, less than half of the
    median of the others', and of theirs for each host."""
    found = []
    rated = [one for one in rows if one["out_gbps"]]
    for one in rated if len(rated) >= 3 else []:
        others = [other for other in rated if other is not one]
        usual = median(other["out_gbps"] for other in others)
        each = median(other["out_gbps"] / len(other["members"]) for other in others)
        most = max([one["out_gbps"], *one.get("interval", {}).get("out_gbps", [])])
        if one["out_limited_by"] == "link" and most < usual / 2 and most / len(one["members"]) < each / 2:
            found.append(SlowLink(tuple(int(name) for name in one["members"]), "out", one["out_gbps"], usual))
    return sorted(found, key=lambda link: link.gbps)


def test_a_slow_link_is_less_than_half_of_the_others_in_all_and_for_each_host() -> None:
    spoke = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1, 5, int(rng.integers(1, 7)))
        names = [str(k) for k in range(int(sizes.sum()))]
        places = np.split(rng.permutation(len(names)), np.cumsum(sizes)[:-1])
        rows = [
            row([names[k] for k in sorted(place)], rng.choice([1.0, 2.0, 4.0, 8.0, 0.0], p=[0.3, 0.2, 0.2, 0.2, 0.1]),
                rng.choice(["link", "hosts"], p=[0.8, 0.2]), rng.choice([0.0, 1.5, 4.0]))
            for place in places
        ]  # fmt: skip
        found = slow_shared_links(rows, names)
        assert found == links_by_hand(rows), seed
        spoke += bool(found)
    assert spoke > 20


@pytest.mark.parametrize("way", ["out", "in"])
def test_each_way_is_told_by_groups_that_have_a_figure_of_it(way: str) -> None:
    """Three have one of this way, and two of the other; a slow one of these is not told."""
    rows = [{"members": [str(k)], f"{way}_gbps": 0.3 if k else 1.0, f"{way}_limited_by": "link"} for k in (0, 1)] + [
        {"members": ["2"], f"{way}_gbps": 1.0},
        {"members": ["3"], f"{way}_gbps": 1.0},
    ]
    assert [(link.members, link.way) for link in slow_shared_links(rows, list("0123"))] == [((1,), way)]
    other = "in" if way == "out" else "out"
    for row in rows[:2]:
        row |= {f"{other}_gbps": row[f"{way}_gbps"], f"{other}_limited_by": "link"}
    assert [(link.members, link.way) for link in slow_shared_links(rows, list("0123"))] == [((1,), way)]


@pytest.mark.parametrize(("interval", "slow"), [
    ({"out_gbps": [0.1, 2.0]}, False), ({"out_gbps": [2.0, 0.4]}, True), ({"out_gbps": [2.0]}, True), (None, True),
    ({"out_gbps": [0.1, 2.0, 0.3]}, True), ({"out_gbps": [0.1, "2"]}, True), ({"in_gbps": [0.1, 2.0]}, True),
    ({"out_gbps": None}, True), ([0.1, 2.0], True),
])  # fmt: skip
def test_the_top_of_a_range_excuses_where_there_is_one(interval: Any, slow: bool) -> None:
    rows = [row([str(2 * k), str(2 * k + 1)], 1.0) for k in range(4)]
    rows[1] |= {"out_gbps": 0.3, "interval": interval}
    assert bool(slow_shared_links(rows, [str(k) for k in range(8)])) is slow
