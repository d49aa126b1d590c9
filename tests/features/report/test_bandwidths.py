"""What a report takes from a network file of shared links, rates of hosts, and how it was probed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from plink.features.report.page import page
from plink.features.report.request import ReportRequest
from plink.features.report.routes import bandwidths_of, probe_summary_of
from plink.features.report.run import report_data_of
from plink.model.mesh import make_mesh
from plink.model.network import Network
from plink.model.order import RankOrder
from solvers.costs.fabric import BYTES_PER_US
from tests.solvers.costs.test_fabric import network, row

ORDER = RankOrder(algo="ring", hosts=tuple(f"h{k}" for k in range(8)), size_bytes=8e6)


def pods(**changes: Any) -> Network:
    """Two pods of two racks of two hosts."""
    racks = {"groups": [row([2 * k, 2 * k + 1], **(changes if k == 0 else {})) for k in range(4)]}
    outer = {"groups": [row([0, 1, 2, 3], out_gbps=0.5), row([4, 5, 6, 7])]}
    return network([2, 2, 2, 2], shared_links=[racks, outer])[0]


def test_tiers_are_a_tree_with_the_load_of_the_order() -> None:
    data = report_data_of(pods(interval={"out_gbps": [3.9, 4.1], "in_gbps": None}), ReportRequest(ORDER))
    racks, outer = data.bandwidths.tiers
    assert [link.parent for link in racks] == [(1, 0), (1, 0), (1, 1), (1, 1)]
    assert [link.members for link in outer] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert (racks[0].out.low, racks[0].out.high, racks[0].into.low) == (3.9, 4.1, None)
    sent = 8e6 * 2 * 7 / 8
    assert [link.out.load_bytes for link in (*racks, *outer)] == pytest.approx([sent] * 6)
    assert outer[0].out.busy_us == pytest.approx(sent / (0.5 * BYTES_PER_US))
    assert data.route is not None
    assert data.route.bottleneck is not None
    assert data.route.bottleneck.links == ((1, 0, True),)
    text = page(data)
    assert "is the way out of the tier-2 group of h0." in text
    assert "bottleneck" not in page(replace(data, route=replace(data.route, bottleneck=None))).split("<script")[0]


def test_how_sure_tiers_and_groups_are_is_shown_where_it_is_known() -> None:
    racks = {"confidence": 0.25, "groups": [row([2 * k, 2 * k + 1], confidence=0.25 + 0.1 * k) for k in range(4)]}
    outer = {"groups": [row([0, 1, 2, 3]), row([4, 5, 6, 7])]}
    data = report_data_of(network([2, 2, 2, 2], shared_links=[racks, outer])[0], ReportRequest())
    assert data.bandwidths.confidences == (0.25, None)
    assert [link.confidence for link in data.bandwidths.tiers[0]] == pytest.approx([0.25, 0.35, 0.45, 0.55])
    assert [link.confidence for link in data.bandwidths.tiers[1]] == [None, None]
    text = page(data)
    assert "four groups of tier 1 (confidence 25%)" in text
    for share in ("25%", "35%", "45%", "55%"):
        assert f"<td>{share}</td>" in text
    assert "confidence" not in page(report_data_of(pods(), ReportRequest()))


def test_what_limits_a_link_and_what_was_not_measured() -> None:
    tier = bandwidths_of(pods(out_limited_by="hosts", in_gbps=None, why="timed out"), None).tiers[0]
    assert tier[0].reason == "timed out"
    assert (tier[0].out.limited_by, tier[0].out.busy_us, tier[0].out.load_bytes) == ("hosts", None, None)
    assert tier[0].into.gbps is None
    assert tier[0].into.assumed_gbps is not None  # by the latencies
    assert tier[1].into.assumed_gbps is None


def test_hosts_in_no_group_and_groups_without_a_tier_between() -> None:
    racks = {"groups": [row([0, 1]), row([2, 3])]}
    middle, outer = {"groups": [row([4, 5])]}, {"groups": [row([0, 1, 2, 3]), row([4, 5])]}
    tiers = bandwidths_of(network([2, 2, 2, 1], shared_links=[racks, middle, outer])[0], None).tiers
    assert [link.parent for link in tiers[0]] == [(2, 0), (2, 0)]
    assert tiers[1][0].parent == (2, 1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "No shared links were measured"),
        ({"shared_links": []}, "No shared links were measured"),
    ],
)
def test_without_shared_links(changes: dict[str, Any], text: str) -> None:
    bandwidths = bandwidths_of(network([2, 2], **changes)[0], None)
    assert (bandwidths.tiers, text in bandwidths.no_tiers) == ((), True)
    assert bandwidths_of(network([2])[0], None).no_tiers.startswith("2 hosts are too few")


def test_dead_link_was_measured() -> None:
    rows = [row([0, 1]) | {"out_gbps": 0}, row([2, 3])]
    data = report_data_of(network([2, 2], shared_links=[{"groups": rows}])[0], ReportRequest())
    assert data.bandwidths.tiers[0][0].out.gbps == 0


def test_shared_links_of_which_none_was_measured() -> None:
    rows = [{"members": ["h0", "h1"], "out_gbps": None, "in_gbps": None, "why": "refused"}]
    data = report_data_of(network([2, 2], shared_links=[{"groups": rows}])[0], ReportRequest())
    assert data.bandwidths.tiers[0][0].out.gbps is None
    assert "Shared links carry an unknown rate for one group." in page(data)


def test_host_rates_are_the_best_of_flows_and_pairs() -> None:
    flows = [{"from": "h0", "to": "h1", "gbps": 0.5, "both_ways": False}]
    result = bandwidths_of(network([2, 2], host_flows=flows)[0], None)
    assert result.out_gbps is not None
    assert result.in_gbps is not None
    assert np.nan_to_num(result.out_gbps).tolist() == [0.5, 0, 0, 0]
    pair = np.full((4, 4), np.nan)
    pair[0, 2], pair[2, 0], pair[0, 0] = 0.7, 0.0, 9.0
    result = bandwidths_of(network([2, 2], pair, host_flows=flows)[0], None)
    assert result.out_gbps is not None
    assert np.nan_to_num(result.out_gbps).tolist() == [0.7, 0, 0, 0]
    assert result.pair_gbps is not None


def test_bandwidths_that_are_all_missing_are_none() -> None:
    result = bandwidths_of(network([2, 2], np.full((4, 4), np.nan))[0], None)
    assert (result.pair_gbps, result.out_gbps) == (None, None)


def test_probes_are_counted_by_the_answers() -> None:
    samples = (np.arange(16).reshape(4, 4) + 200).tolist()
    used = [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 0]]
    details = {"samples": samples, "count": 10_000, "methods": ["stamp", "mine"], "method_used": used}
    result = probe_summary_of(network([2, 2], measured_at="2026-11-24T09:12:33Z", **details)[0])
    assert result.probes == (201, 207, 214)
    assert result.methods == (("STAMP", 6), ("mine", 6))
    assert probe_summary_of(network([2, 2], count=100, method="icmp")[0]).probes == (100, 100, 100)
    assert probe_summary_of(network([2, 2])[0]).methods == ()


def test_bottleneck_is_none_where_a_pair_of_the_route_was_not_measured() -> None:
    subject = pods()
    rtt = subject.latency_us.copy()
    rtt[0, 1] = rtt[1, 0] = np.nan
    data = report_data_of(Network(subject.hosts, rtt, None, subject.details), ReportRequest(ORDER))
    assert data.route is not None
    assert data.route.bottleneck is None
    assert data.bandwidths.tiers[1][0].out.load_bytes


def test_order_of_a_mesh_loads_what_its_groups_send() -> None:
    """Two rings of a pod's four hosts, and pipelines of two stages from pod to pod."""
    mesh = make_mesh("pp=2,dp=4", ["pp=p2p:3MB*10", "dp=all-reduce:8MB"]).file()
    order = RankOrder(algo="mesh", hosts=ORDER.hosts, mesh=mesh)
    data = report_data_of(pods(), ReportRequest(order))
    racks, outer = data.bandwidths.tiers
    assert [link.out.load_bytes for link in outer] == pytest.approx([4 * 30e6] * 2)
    assert [link.into.load_bytes for link in racks] == pytest.approx([2 * 30e6 + 12e6] * 4)
    assert data.route is not None
    rings = {(k + a, k + b) for k in (0, 4) for a, b in ((0, 1), (1, 2), (2, 3), (0, 3))}
    assert {(i, j) for i, j in data.route.hops.tolist()} == rings | {(k, k + 4) for k in range(4)}
    assert data.route.bottleneck is not None
    assert "a step" in page(data)
    for axes, traffic in (("dp=8,tp=1", "tp=1GB"), ("pp=2,dp=2", "dp=1GB")):  # which send nothing, or have fewer ranks
        other = RankOrder(algo="mesh", hosts=ORDER.hosts, mesh=make_mesh(axes, [traffic]).file())
        route = report_data_of(pods(), ReportRequest(other)).route
        assert route is not None
        assert len(route.hops) == 0
