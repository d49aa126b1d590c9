"""Slow hosts and slow shared links by bandwidth: against the same told one by one."""

import json
import math
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.model.codec import convert
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from plink.model.network_file import SharedLinkEntry
from solvers.diagnosis.bandwidth import SlowHost, SlowLink, slow_rates, slow_shared_links
from solvers.diagnosis.findings import diagnose
from tests.networks import details_from
from tests.solvers.synthetic import Matrix, racks


def finite(values: list[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def by_hand(gbps: Matrix, groups: npt.NDArray[np.intp]) -> list[SlowHost]:
    """Less than half of the median of the pairs of others: of a host alone in its group those between groups, if there
    are three; else of all, if there are three; and the host has three rates itself."""
    n, result = len(gbps), []
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
            result.append(SlowHost(host, rates))
    return sorted(result, key=lambda slow: min(rate for rate, _ in slow.rates.values()))


def test_slow_host_has_less_than_half_of_the_usual_rate() -> None:
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
        result = slow_rates(gbps, groups)
        assert result == by_hand(gbps, groups), seed
        assert np.array_equal(gbps, before, equal_nan=True)
        spoke += bool(result)
    assert spoke > 10


# Shared links


def one_way(members: list[str], out: Any, limited: Any = "link", high: Any = None) -> dict[str, Any]:
    result = {"members": members, "out_gbps": out, "out_limited_by": limited}
    return result if not high else result | {"interval": {"out_gbps": [0.1, high]}}


def linked(rows: list[dict[str, Any]]) -> list[SharedLinkEntry]:
    return convert(list[SharedLinkEntry], json.loads(json.dumps(rows)), "rows")


def links_by_hand(rows: list[dict[str, Any]]) -> list[SlowLink]:
    """Of three groups or more: one whose link was full and carries, at the top of its range, less than half of the
    median of the others', and of theirs for each host."""
    result = []
    rated = [item for item in rows if item["out_gbps"]]
    for item in rated if len(rated) >= 3 else []:
        others = [other for other in rated if other is not item]
        usual = median(other["out_gbps"] for other in others)
        each = median(other["out_gbps"] / len(other["members"]) for other in others)
        most = max([item["out_gbps"], *item.get("interval", {}).get("out_gbps", [])])
        if item["out_limited_by"] == "link" and most < usual / 2 and most / len(item["members"]) < each / 2:
            result.append(SlowLink(tuple(int(name) for name in item["members"]), "out", item["out_gbps"], usual))
    return sorted(result, key=lambda link: link.gbps)


def test_slow_link_is_less_than_half_in_all_and_for_each_host() -> None:
    spoke = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1, 5, int(rng.integers(1, 7)))
        names = [str(k) for k in range(int(sizes.sum()))]
        places = np.split(rng.permutation(len(names)), np.cumsum(sizes)[:-1])
        rows = [
            one_way(
                [names[k] for k in sorted(place)], rng.choice([1.0, 2.0, 4.0, 8.0, 0.0], p=[0.3, 0.2, 0.2, 0.2, 0.1]),
                rng.choice(["link", "hosts"], p=[0.8, 0.2]), rng.choice([0.0, 1.5, 4.0]),
            )
            for place in places
        ]  # fmt: skip
        result = slow_shared_links(linked(rows), names)
        assert result == links_by_hand(rows), seed
        spoke += bool(result)
    assert spoke > 20


# Healthy clouds and limited ones.

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) >= 4)
SEEDS = st.integers(0, 2**32 - 1)
some = settings(max_examples=40, deadline=None)


def rates(sizes: list[int], seed: int, near: float, far: float, noise: float) -> tuple[Matrix, npt.NDArray[np.intp]]:
    """What pairs in one rack and across racks carry, Gbit/s, each direction with noise of its own; the racks."""
    distance, rack_of = racks(sizes, seed, near=near, far=far)
    result = distance * np.random.default_rng(seed).uniform(1 - noise, 1 + noise, distance.shape)
    np.fill_diagonal(result, np.nan)
    return result, rack_of


def row(members: list[str], out: float, into: float, limited: str = "link") -> dict[str, Any]:
    interval = {"out_gbps": [0.95 * out, 1.05 * out], "in_gbps": [0.95 * into, 1.05 * into]}
    limits = {"out_limited_by": limited, "in_limited_by": limited}
    return {"members": members, "out_gbps": out, "in_gbps": into, "interval": interval} | limits


def names(count: int) -> list[str]:
    return [f"h{i}" for i in range(count)]


@some
@given(SIZES, SEEDS, st.floats(0.2, 1.0), st.floats(0, 0.25))
def test_a_healthy_cloud_s_noise_is_no_slow_host(sizes: list[int], seed: int, uplink: float, noise: float) -> None:
    """Also where pairs across racks carry less than pairs within them."""
    result, rack_of = rates(sizes, seed, 10.0, 10.0 * (uplink if min(sizes) > 1 else max(uplink, 0.9)), noise)
    assert slow_rates(result, rack_of) == []


@some
@given(st.lists(st.integers(3, 5), min_size=2, max_size=4), SEEDS, st.floats(0.1, 1.0), st.floats(0.01, 0.25))
def test_a_host_alone_across_a_slow_link_is_no_slow_host(sizes: list[int], seed: int, far: float, noise: float) -> None:
    result, rack_of = rates([*sizes, 1], seed, 1.0, far, noise)
    assert slow_rates(result, rack_of) == []


@some
@given(SIZES, SEEDS, st.floats(0.01, 0.3), st.sampled_from(["out", "in", "both"]), st.data())
def test_a_host_with_a_limited_rate_is_named_with_the_way_and_no_other_is(
    sizes: list[int], seed: int, limit: float, way: str, data: st.DataObject
) -> None:
    result, rack_of = rates(sizes, seed, 1.0, 1.0, 0.1)
    host = data.draw(st.integers(0, len(result) - 1))
    if way != "in":
        result[host] = np.minimum(result[host], limit)
    if way != "out":
        result[:, host] = np.minimum(result[:, host], limit)
    (slow,) = slow_rates(result, rack_of)
    assert slow.host == host
    assert set(slow.rates) == ({"out", "in"} if way == "both" else {way})
    assert all(most <= limit < usual / 2 for most, usual in slow.rates.values())


@some
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), SEEDS, st.floats(0, 0.25), st.booleans())
def test_healthy_uplinks_are_not_named(sizes: list[int], seed: int, noise: float, by_size: bool) -> None:
    """Whether all racks have one kind of uplink, or one for their number of hosts."""
    rng, rows, first = np.random.default_rng(seed), [], 0
    for size in sizes:
        out, into = (10.0 * (size if by_size else 1) * rng.uniform(1 - noise, 1 + noise) for _ in range(2))
        rows.append(row(names(sum(sizes))[first : first + size], out, into))
        first += size
    assert slow_shared_links(linked(rows), names(sum(sizes))) == []


@pytest.mark.parametrize("way", ["out", "in"])
def test_a_slow_uplink_is_named_with_its_hosts_and_way(way: str) -> None:
    rows = [row([f"h{2 * k}", f"h{2 * k + 1}"], 1.0, 1.0) for k in range(4)]
    rows[2] = row(["h4", "h5"], 0.2 if way == "out" else 1.0, 0.2 if way == "in" else 1.0)
    (link,) = slow_shared_links(linked(rows), names(8))
    assert (link.members, link.way, link.gbps, link.usual_gbps) == ((4, 5), way, 0.2, 1.0)
    assert slow_shared_links(linked([rows[2], rows[3]]), names(8)) == []  # of two neither is usual
    rows[2][f"{way}_limited_by"] = "hosts"
    assert slow_shared_links(linked(rows), names(8)) == []
    rows[2] |= {f"{way}_limited_by": "link", "interval": {f"{way}_gbps": [0.1, 0.9]}}
    assert slow_shared_links(linked(rows), names(8)) == []  # its runs were too far apart to tell


def test_findings_have_evidence_in_people_s_units() -> None:
    latency, rack_of = racks([4, 4], 1)
    result, _ = rates([4, 4], 1, 1.5, 1.5, 0.0)
    result[3], result[:, 3] = 0.02, 0.021
    result[3, 3] = np.nan
    shared = [row([f"h{2 * k}", f"h{2 * k + 1}"], 1.0 if k else 0.1, 1.0) for k in range(4)]
    hosts = Hosts(tuple(Host(name, name) for name in names(8)))
    slow, link = diagnose(
        Network(hosts, latency, result, details_from({"shared_links": [{"groups": shared}]})), rack_of, {}
    )
    assert (slow.kind, slow.hosts) == ("slow host (bandwidth)", ["h3"])
    assert slow.evidence == (
        "sends at most 20 Mbit/s and receives at most 21 Mbit/s with any partner, other pairs 1.5 Gbit/s (median)"
    )
    assert (link.kind, link.hosts) == ("slow shared link", ["h0", "h1"])
    assert link.evidence == "together they get 100 Mbit/s out, other groups 1 Gbit/s (median)"
