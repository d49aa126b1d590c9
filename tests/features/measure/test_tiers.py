"""Tiers of shared links, found and measured: by simulated flows that share the links of racks and pods evenly."""

import functools
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import probes.group_runs
from plink.features.measure.shared_links import measure_shared_links, tiers_by_topology
from plink.model.document import UNSET
from plink.model.network import Matrix
from plink.model.topology import Topology
from probes.measurements import METHODS, Measurements
from probes.session import ProbeSession
from probes.shared_links import SharedLinkSettings
from tests.networks import details_from, keys_of
from tests.probes.fake_fleet import FakeFleet, session_of

HOST_GBPS = 1.0


@dataclass
class Tree:
    """Hosts below racks, and racks below pods: names of both by host; ``gbps`` of each link, by name. ``runs``: the
    pairs that sent at once."""

    racks: list[str]
    pods: list[str]
    gbps: dict[str, float]
    runs: list[list[tuple[int, int]]]

    def latency_us(self) -> Matrix:
        """40 us in a rack, 90 in a pod, 130 between pods, with noise of 3 %."""
        racks, pods = np.array(self.racks), np.array(self.pods)
        rtt = np.where(racks[:, None] == racks, 40.0, np.where(pods[:, None] == pods, 90.0, 130.0))
        rtt *= np.random.default_rng(1).lognormal(0, 0.03, rtt.shape)
        np.fill_diagonal(rtt, 0.0)
        return np.asarray((rtt + rtt.T) / 2)

    def links(self, source: int, sink: int) -> list[str]:
        """The links that a flow loads."""
        links = [f"host {source} out", f"host {sink} in"]
        for tier in (self.racks, self.pods):
            if tier[source] != tier[sink]:
                links += [f"{tier[source]} out", f"{tier[sink]} in"]
        return links

    def rate(self, link: str) -> float:
        """What a link carries, Gbit/s; a router that nothing is said of carries all."""
        return HOST_GBPS if link.startswith("host") else self.gbps.get(link, math.inf)

    def flow_rates(
        self, session: ProbeSession, flows: list[tuple[int, int]], seconds: float
    ) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], str]]:
        """Instead of flows between hosts: their links are shared max-min fairly."""
        self.runs.append(flows)
        on = dict[str, set[tuple[int, int]]]()
        for flow in flows:
            for link in self.links(*flow):
                on.setdefault(link, set()).add(flow)
        free = {link: self.rate(link) for link in on}
        rates = dict[tuple[int, int], float]()
        while len(rates) < len(flows):
            full = min((link for link in on if on[link]), key=lambda link: free[link] / len(on[link]))
            share = free[full] / len(on[full])
            for flow in list(on[full]):
                rates[flow] = share
                for link in self.links(*flow):
                    on[link].remove(flow)
                    free[link] = max(0.0, free[link] - share)
        return rates, {}


def tree(racks: str, pods: str, **gbps: float) -> Tree:
    """A letter for each host; all links of a rack or pod carry what ``gbps`` says of its letter."""
    rates = {f"{name} {way}": rate for name, rate in gbps.items() for way in ("out", "in")}
    return Tree([f"r{name}" for name in racks], [f"p{name}" for name in pods], rates, [])


def session_on(fabric: Tree, monkeypatch: pytest.MonkeyPatch) -> ProbeSession:
    """Round trips are measured, and flows go through the links of the tree."""
    monkeypatch.setattr(probes.group_runs, "flow_rates", fabric.flow_rates)
    session = session_of(FakeFleet(lambda host, body: None), len(fabric.racks))
    for matrix in (session.measurements.latency, *session.measurements.halves):
        matrix[:] = fabric.latency_us()
    return session


def measured(fabric: Tree, monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict[str, Any]], Measurements]:
    """The tiers that a probe writes."""
    session = session_on(fabric, monkeypatch)
    measure_shared_links(session, SharedLinkSettings())
    return keys_of(session.measurements.details).get("shared_links", []), session.measurements


def rates(tier: dict[str, Any]) -> dict[str, tuple[float, str]]:
    """What leaves a group, and why no more, by its first member and the number of its members."""
    return {
        f"{row['members'][0]}+{len(row['members'])}": (row["out_gbps"], row["out_limited_by"]) for row in tier["groups"]
    }


def test_racks_and_pods_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Racks carry two hosts' rates, pods three: less than their racks."""
    racks = {f"r{name}": 2.0 for name in "abcd"}
    fabric = tree("aaaabbbbccccdddd", "xxxxxxxxyyyyyyyy", **racks, px=3.0, py=3.0)
    (inner, outer), result = measured(fabric, monkeypatch)
    assert rates(inner) == {f"h{host}+4": (2.0, "link") for host in (0, 4, 8, 12)}
    # What one pod sends the other receives: either link may be the limit.
    assert rates(outer) == {f"h{host}+8": (3.0, "others") for host in (0, 8)}
    assert len(result.network().shared_links) == 2
    # All racks at the same time, each with the other of its pod; each with more racks; then the pods. Two runs verify
    # each tier.
    assert len(fabric.runs) == (7 + 4 + 2) + (5 + 2)


def test_tiers_of_a_topology_file_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the file has them, though the round trips show others; they have no confidence."""
    fabric = tree("aaaabbbb", "xxxxyyyy", ra=2.0, rb=2.0)
    fabric.racks = [f"r{name}" for name in "abababab"]
    session = session_on(tree("aaaabbbb", "xxxxyyyy"), monkeypatch)
    monkeypatch.setattr(probes.group_runs, "flow_rates", fabric.flow_rates)
    topology = Topology({f"h{k}": ("z", "ab"[k % 2]) for k in range(8)}, "slurm-tree")
    tiers = tiers_by_topology(topology, session.measurements.hosts)
    measure_shared_links(session, SharedLinkSettings(), given_tiers=tiers)
    (racks,) = keys_of(session.measurements.details)["shared_links"]
    assert "confidence" not in racks
    assert [row["members"] for row in racks["groups"]] == [[f"h{k}" for k in range(first, 8, 2)] for first in (0, 1)]
    assert [row["out_gbps"] for row in racks["groups"]] == [2.0, 2.0]


def test_confidence_of_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Racks and pods of 40, 90 and 130 us: certain at 3 % of noise, doubtful at 50 %."""
    racks = {f"r{name}": 2.0 for name in "abcd"}
    confidences = []
    for sigma in (0.03, 0.5):
        fabric = tree("aaaabbbbccccdddd", "xxxxxxxxyyyyyyyy", **racks, px=3.0, py=3.0)
        session = session_on(fabric, monkeypatch)
        rng = np.random.default_rng(4)
        for half in session.measurements.halves:
            half *= rng.lognormal(0, sigma, half.shape)
        session.measurements.latency[:] = np.sqrt(session.measurements.halves[0] * session.measurements.halves[1])
        measure_shared_links(session, SharedLinkSettings())
        tiers = session.measurements.network().shared_links
        confidences.append([tier.confidence for tier in tiers])
        for tier in tiers:
            assert all(tier.confidence <= row.confidence <= 1.0 for row in tier.groups)
    assert confidences[0] == [1.0, 1.0]
    assert len(confidences[1]) == 2
    assert max(confidences[1]) < 0.9


def test_without_halves_tiers_have_no_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after one probe a pair."""
    session = session_on(tree("aaaabbbbcccc", "x" * 12, ra=2.0, rb=2.0, rc=2.0), monkeypatch)
    for half in session.measurements.halves:
        half[:] = np.nan
    measure_shared_links(session, SharedLinkSettings())
    (tier,) = session.measurements.network().shared_links
    assert tier.confidence is UNSET
    assert all(row.confidence is UNSET for row in tier.groups)


def test_a_rack_alone_in_its_pod_has_no_second_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its uplink is that of its pod."""
    racks = {f"r{name}": 2.0 for name in "abcd"}
    (inner, outer), _ = measured(tree("aaaabbbbccccdddd", "xxxxxxxxyyyyzzzz", **racks, px=1.0), monkeypatch)
    assert rates(outer) == {"h0+8": (1.0, "link")}
    assert rates(inner)["h0+4"] == (2.0, "link")


def test_an_interrupted_probe_keeps_the_tiers_it_has(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    racks = {f"r{name}": 2.0 for name in "abcd"}
    fabric = tree("aaaabbbbccccdddd", "xxxxxxxxyyyyyyyy", **racks, px=3.0, py=3.0)
    session = session_on(fabric, monkeypatch)
    messages: list[tuple[int, int]] = []
    with caplog.at_level("INFO", "plink.probe"):
        measure_shared_links(
            session, SharedLinkSettings(), lambda *done: messages.append(done),
            lambda: not session.measurements.details.shared_links,
        )  # fmt: skip
    assert len(session.measurements.details.shared_links or []) == 1
    assert messages[-1] == (6, 6)
    assert "what 2 groups of 8 hosts share is not known: the budget was spent" in caplog.text


def test_traffic_of_others_in_one_run_is_repeated_and_the_best_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of what the first rack's uplink carries is taken in the first of the repeats."""
    fabric = tree("aaaabbbbcccc", "x" * 12, ra=2.0, rb=2.0, rc=2.0)
    monkeypatch.setattr(fabric, "rate", lambda link: _busy(fabric, link))
    with caplog.at_level("INFO", "plink.probe"):
        (inner,), _ = measured(fabric, monkeypatch)
    assert rates(inner) == {f"h{host}+4": (2.0, "link") for host in (0, 4, 8)}
    assert list(inner["groups"][0]["interval"]["out_gbps"]) == [1.0, 2.0]
    assert "as if others sent meanwhile" in caplog.text


def _busy(fabric: Tree, link: str) -> float:
    """What a link carries: the first rack's uplink half as much in the sixth run."""
    rate = Tree.rate(fabric, link)
    return rate / 2 if link == "ra out" and len(fabric.runs) == 6 else rate


def test_racks_measured_by_themselves_do_not_have_the_rates_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """All uplinks carry half at first; later on racks send to other pods, too, whose links are narrower."""
    for seed in range(10):
        racks, pods = {f"r{name}": 2.0 for name in "abcd"}, {"px": 1.0, "py": 1.0}
        fabric = tree("aaaabbbbccccdddd", "xxxxxxxxyyyyyyyy", **racks, **pods)
        monkeypatch.setattr(fabric, "rate", functools.partial(_slow_at_first, fabric))
        session = session_on(fabric, monkeypatch)
        measure_shared_links(session, SharedLinkSettings(seed=seed))
        inner, outer = keys_of(session.measurements.details)["shared_links"]
        assert {*rates(inner).values()} == {(2.0, "link")}
        assert {gbps for gbps, _ in rates(outer).values()} == {1.0}


def _slow_at_first(fabric: Tree, link: str) -> float:
    """What a link carries: uplinks of racks half as much in the first runs."""
    rate = Tree.rate(fabric, link)
    return rate / 2 if link.startswith("r") and len(fabric.runs) <= 7 else rate


def test_up_and_down_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = tree("aaaabbbbcccc", "xxxxxxxxxxxx", ra=2.0, rb=2.0, rc=2.0)
    fabric.gbps["ra out"] = 1.0
    (inner,), _ = measured(fabric, monkeypatch)
    assert [(row["out_gbps"], row["in_gbps"]) for row in inner["groups"]] == [
        (1.0, pytest.approx(2.0)), (2.0, pytest.approx(2.0)), (2.0, pytest.approx(2.0))
    ]  # fmt: skip


def test_groups_that_disturb_each_other_are_measured_by_themselves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A core that carries what two racks send, below eight racks: by itself each gets its uplink's rate."""
    fabric = tree("aaaabbbbccccddddeeeeffffgggghhhh", "x" * 32, **{f"r{name}": 2.0 for name in "abcdefgh"})
    links = fabric.links
    monkeypatch.setattr(
        fabric, "links", lambda a, b: [*links(a, b), *(["core"] if fabric.racks[a] != fabric.racks[b] else [])]
    )
    fabric.gbps["core"] = 4.0
    with caplog.at_level("INFO", "plink.probe"):
        (inner,), _ = measured(fabric, monkeypatch)
    assert set(rates(inner).values()) == {(2.0, "link")}
    assert "disturb each other" in caplog.text


def test_a_link_at_half_duplex_is_measured_one_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = tree("aaaabbbbccccdddd", "x" * 16, **{f"r{name}": 2.0 for name in "bcd"})
    links = fabric.links
    monkeypatch.setattr(fabric, "links", lambda a, b: [link.replace("ra out", "ra in") for link in links(a, b)])
    fabric.gbps["ra in"] = 2.0
    (inner,), _ = measured(fabric, monkeypatch)
    assert (inner["groups"][0]["out_gbps"], inner["groups"][0]["in_gbps"]) == (2.0, 2.0)
    assert all(row["out_gbps"] > 1.7 for row in inner["groups"])


def test_groups_that_send_to_a_slow_one_are_measured_again_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = tree("aaaabbbbccccdddd", "x" * 16, ra=0.2)
    (inner,), _ = measured(fabric, monkeypatch)
    assert rates(inner)["h0+4"] == (pytest.approx(0.2), "link")
    assert [rates(inner)[f"h{host}+4"] for host in (4, 8, 12)] == [(4.0, "hosts")] * 3


def test_hosts_that_disagree_about_the_tree_are_outvoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One host finds all as near as its own rack; what the others find of it counts, too."""
    fabric = tree("aaaabbbbcccc", "x" * 12, ra=2.0, rb=2.0, rc=2.0)
    session = session_on(fabric, monkeypatch)
    for matrix in (session.measurements.latency, *session.measurements.halves):
        matrix[1, [0, *range(2, 12)]] = 40.0
    measure_shared_links(session, SharedLinkSettings())
    (inner,) = keys_of(session.measurements.details)["shared_links"]
    assert [len(row["members"]) for row in inner["groups"]] == [4, 4, 4]


def test_groups_with_hosts_without_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that waits for a closed host would spoil its group's run."""
    fabric = tree("aaaabbbbcccc", "x" * 12, ra=2.0, rb=2.0, rc=2.0)
    session = session_on(fabric, monkeypatch)
    names = session.measurements.hosts.names
    session.measurements.details = details_from(keys_of(session.measurements.details) | {"host_flows": [
        {"from": names[a], "to": names[b], "gbps": 1.0, "both_ways": False}
        for a in range(12) for b in range(12) if a != b and b not in (1, 6)
    ]})  # fmt: skip
    session.measurements.details = details_from(
        keys_of(session.measurements.details)
        | {"host_flow_errors": [{"from": names[0], "to": names[closed], "why": "timed out"} for closed in (1, 6)]}
    )
    measure_shared_links(session, SharedLinkSettings())
    (inner,) = keys_of(session.measurements.details)["shared_links"]
    assert {1, 6}.isdisjoint(host for flows in fabric.runs for flow in flows for host in flow)
    assert rates(inner) == {f"h{host}+4": (2.0, "link") for host in (0, 4, 8)}
    assert [sorted(row["members"]) for row in inner["groups"]] == [names[0:4], names[4:8], sorted(names[8:12])]
    assert not session.scheduler.lost_hosts


def flat(*groups: tuple[int, float] | tuple[int, float, float]) -> Tree:
    """Groups of one tier: hosts, and what the link carries out and in, times a host's rate."""
    racks = [f"r{number}" for number, (hosts, *_) in enumerate(groups) for _ in range(hosts)]
    gbps = {
        f"r{number} {way}": rate
        for number, (_, *rates) in enumerate(groups)
        for way, rate in zip(("out", "in"), rates * 2, strict=False)
    }
    return Tree(racks, ["px"] * len(racks), gbps, [])


SHAPES = {
    "35, 24 and 5 hosts at 8:1": flat((35, 4.375), (24, 3.0), (5, 1.0)),
    "even": flat(*[(8, 2.0)] * 8),
    "two of which one is wider": flat((8, 4.0), (8, 2.0)),
    "two of which one has few hosts": flat((12, 4.0), (3, 2.0)),
    "one wide, few narrow": flat((12, 10.0), *[(6, 1.0)] * 3),
    "one wide, many narrow": flat((8, 6.0), *[(8, 1.0)] * 12),
    "one narrow, many wide": flat((8, 1.0), *[(8, 4.0)] * 8),
    "half wide, half narrow": flat(*[(8, 4.0), (8, 1.0)] * 6),
    "each wider than the next": flat((16, 9.6), (14, 6.4), (12, 4.8), (10, 3.2), (8, 2.0), (6, 1.2)),
    "hosts are the limit": flat((12, 99.0), (3, 99.0), (5, 99.0), (9, 99.0)),
    "more in than out": flat(*[(8, 2.0, 4.0)] * 6),
    "more in than out and the other way round": flat(*[(8, 2.0, 4.0), (8, 4.0, 2.0)] * 3),
    "all different": flat((5, 3.1, 1.4), (17, 4.2, 9.0), (9, 1.8, 5.5), (12, 2.2, 2.6), (3, 1.0, 1.7)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_own_link_as_the_limit_of_a_group(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capacity is stated as the link's only where it is; it is where the others could send and receive far more."""
    fabric = SHAPES[shape]
    (tier,), _ = measured(fabric, monkeypatch)
    hosts = Counter(fabric.racks)
    assert len(tier["groups"]) == len(hosts)
    for row in tier["groups"]:
        own = fabric.racks[int(row["members"][0][1:])]
        for way, far_way in (("out", "in"), ("in", "out")):
            true, stated, limit = fabric.rate(f"{own} {way}"), row[f"{way}_gbps"], row[f"{way}_limited_by"]
            others = {rack: min(fabric.rate(f"{rack} {far_way}"), hosts[rack]) for rack in hosts if rack != own}
            reachable = min(hosts[own], len(fabric.racks) - hosts[own], sum(others.values()))
            assert stated == pytest.approx(min(true, reachable), rel=0.1), (own, way)
            assert limit == "link" or true > 0.8 * reachable or len(hosts) == 2, (own, way)
            assert limit != "link" or true < 1.1 * stated, (own, way)


@pytest.mark.parametrize(("wide", "limit"), [(5.0, "others"), (2.0, "link")])
def test_a_wide_rack_below_a_narrow_pod(wide: float, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbour takes 1.5 hosts' rates, and its pod's link 2: a link that carries more cannot be filled."""
    racks = {f"r{name}": 1.5 for name in "bcdef"}
    pods = {f"p{name}": 2.0 for name in "xyz"}
    names = ("".join(name * 6 for name in "abcdef"), "".join(name * 12 for name in "xyz"))
    (inner, outer), _ = measured(tree(*names, ra=wide, **racks, **pods), monkeypatch)
    assert rates(inner)["h0+6"] == (pytest.approx(min(wide, 3.5), rel=0.05), limit)
    assert {*rates(inner).values()} - {rates(inner)["h0+6"]} == {(1.5, "link")}
    assert {*rates(outer).values()} == {(2.0, "link")}


def test_a_slow_uplink_is_not_its_sibling_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Racks of a pod send to each other: the slow one makes both slow, until both send to other pods too."""
    racks = {f"r{name}": 2.0 for name in "bcd"}
    (inner, *_), _ = measured(tree("aaaabbbbccccdddd", "xxxxxxxxyyyyyyyy", ra=0.2, **racks), monkeypatch)
    assert rates(inner)["h0+4"] == (pytest.approx(0.2), "link")
    assert rates(inner)["h4+4"][0] > 1.5


def test_round_trips_of_another_method_put_no_host_out_of_its_rack(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ICMP's take longer, which made a rack of its own of a host, and twice its rate of its rack's link."""
    fabric = tree("aaaabbbb", "xxxxxxxx", ra=1.0, rb=1.0)
    session = session_on(fabric, monkeypatch)
    measurements = session.measurements
    measurements.method[:] = METHODS.index("stamp")
    for way in (np.s_[5, :], np.s_[:, 5]):
        measurements.method[way] = METHODS.index("icmp")
        for matrix in (measurements.latency, *measurements.halves):
            matrix[way] += 60.0
    with caplog.at_level("INFO"):
        measure_shared_links(session, SharedLinkSettings())
    (tier,) = keys_of(measurements.details)["shared_links"]
    assert {key: gbps for key, (gbps, _) in rates(tier).items()} == {"h0+4": 1.0, "h4+3": 1.0}
    assert f"{measurements.hosts.names[5]}: measured by another method" in caplog.text
