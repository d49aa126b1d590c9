"""What a network file says to the cost models: measured capacities, and what is inferred where there are none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from plink.errors import InputError, NoAnswer
from plink.model.codec import convert
from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from plink.model.network_file import SharedLinkEntry
from solvers.costs.by_name import model_for
from solvers.costs.fabric import ASSUMED_GBPS, fabric_of
from solvers.costs.shared_rows import rate_sigma, shared_rows
from tests.networks import details_from
from tests.solvers.synthetic import racks


def links(rows: list[Any]) -> list[SharedLinkEntry]:
    return convert(list[SharedLinkEntry], rows, "rows")


def network(sizes: list[int], bandwidth: Any = None, **details: Any) -> tuple[Network, Any]:
    """Racks of these sizes, 40 us inside and 90 us between, and the rack of every host."""
    rtt, rack_of = racks(sizes, 1)
    hosts = Hosts(tuple(Host(f"h{i}", f"h{i}") for i in range(len(rtt))))
    return Network(hosts, rtt, bandwidth, details_from(details)), rack_of


def row(members: list[int], **changes: Any) -> dict[str, Any]:
    """What the probe writes of one group."""
    usual = {
        "out_gbps": 4.0, "in_gbps": 3.0, "out_flows": 4, "in_flows": 4, "out_limited_by": "link",
        "in_limited_by": "link", "out_one_flow_gbps": 2.0, "in_one_flow_gbps": 1.9,
    }  # fmt: skip
    return {"members": [f"h{i}" for i in members], **usual, **changes}


def test_measured_capacities() -> None:
    """A host's rate is the better of its single flows; a host in no group shares nothing."""
    result = fabric_of(
        network([4, 4, 1], shared_links=[{"groups": [row([0, 1, 2, 3]), row([4, 5, 6, 7], out_gbps=5.0)]}])[0]
    )
    assert result.measured
    assert result.group_of.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert result.group_out_gbps.tolist() == [4.0, 5.0, np.inf]
    assert result.group_in_gbps.tolist() == [3.0, 3.0, np.inf]
    assert result.host_out_gbps.tolist() == [2.0] * 9  # of the lone item too: the usual
    assert result.rate_gbps == 2.0
    assert model_for("auto", result) == "contention"


def test_outer_tiers_are_links_above_the_groups() -> None:
    """A pod of two racks; a third rack is in none: its hosts stay together. What groups limited is no limit."""
    racks = {"groups": [row([0, 1]), row([2, 3]), row([4, 5])]}
    pods = {"groups": [row([0, 1, 2, 3], out_gbps=5.0, in_limited_by="groups")]}
    result = fabric_of(network([2, 2, 2], shared_links=[racks, pods])[0])
    inner, outer = result.tiers
    assert inner.group_of.tolist() == [0, 0, 1, 1, 2, 2]
    assert outer.group_of[:4].tolist() == [0] * 4
    assert outer.group_of[4] == outer.group_of[5] > 0
    assert (outer.out_gbps[0], outer.in_gbps[0]) == (5.0, np.inf)
    assert np.isinf(outer.out_gbps[1:]).all()
    unmeasured = {"groups": [row([0, 1, 2, 3], out_gbps=None)]}
    assert fabric_of(network([2, 2, 2], shared_links=[racks, unmeasured])[0]).outer_tiers[0].out_gbps[0] == np.inf


def test_host_limited_link_is_unlimited() -> None:
    result = fabric_of(
        network([2, 2], shared_links=[{"groups": [row([0, 1], out_limited_by="hosts"), row([2, 3])]}])[0]
    )
    assert result.group_out_gbps.tolist() == [np.inf, 4.0]


def test_link_that_others_limit_carries_what_they_do() -> None:
    groups = [row([0, 1], out_limited_by="others"), row([2, 3], in_limited_by="others")]
    result = fabric_of(network([2, 2], shared_links=[{"groups": groups}])[0])
    assert (result.group_out_gbps.tolist(), result.group_in_gbps.tolist()) == ([4.0, 4.0], [3.0, 3.0])


@pytest.mark.parametrize(
    "rows",
    [[], [row([0, 1], out_gbps=None)], [row([0, 1], in_gbps=None)]],
)
def test_capacities_inferred_from_tiers(rows: Any) -> None:
    """Racks by their latencies; a way out carries the four hosts' rates over 2.5."""
    values, rack_of = network([4, 4], shared_links=[{"groups": rows}])
    result = fabric_of(values)
    assert not result.measured
    assert "inferred" in result.capacities
    assert len(set(zip(result.group_of.tolist(), rack_of.tolist(), strict=True))) == 2
    assert result.group_out_gbps == pytest.approx([4 * ASSUMED_GBPS / 2.5] * 2)
    assert model_for("auto", result) == "latency"
    assert result.rate_gbps is None  # what is assumed is not measured


def test_measured_pairs_give_the_hosts_rates() -> None:
    pairs = np.full((4, 4), 3.0)
    pairs[1, 2], pairs[:, 3] = 7.0, np.nan
    result = fabric_of(network([2, 2], pairs)[0])
    assert result.host_out_gbps.tolist() == [3.0, 7.0, 3.0, 3.0]
    assert result.host_in_gbps.tolist() == [3.0, 3.0, 7.0, ASSUMED_GBPS]  # nobody was heard to reach the last
    assert model_for("auto", result) == "alpha-beta"
    assert result.rate_gbps == 3.0


def test_single_group_shares_nothing() -> None:
    for sizes in ([4], [1, 1], [2]):
        result = fabric_of(network(sizes)[0])
        assert set(result.group_out_gbps.tolist()) == {np.inf}


def test_unmeasured_pairs_stay_unknown_unless_predicted() -> None:
    values, _ = network([2, 2])
    latency = values.latency_us.copy()
    latency[0, 1] = latency[1, 0] = np.nan
    values = replace(values, latency_us=latency)
    assert np.isnan(fabric_of(values).rtt_us[0, 1])
    assert fabric_of(replace(values, details=details_from({"predicted_us": [[55.0] * 4] * 4}))).rtt_us[0, 1] == 55.0


def test_unmeasured_group_is_inferred() -> None:
    """It stays a group: its way out is guessed from the latencies, not taken for unlimited."""
    values, rack_of = network([4, 4])
    members = [[int(i) for i in np.flatnonzero(rack_of == rack)] for rack in (0, 1)]
    links = [{"groups": [row(members[0]), row(members[1], out_gbps=None) | {"why": "no answer"}]}]
    result = fabric_of(replace(values, details=details_from({"shared_links": links})))
    assert result.group_of[members[1]].tolist() == [1] * 4
    assert result.group_out_gbps.tolist() == pytest.approx([4.0, 4 * 2.0 / 2.5])
    assert result.measured
    assert "of 1 of 2 groups inferred" in result.capacities


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([row([0, 1]), {"members": ["h2", "x"]}], "'x' is not one of the hosts"),
        ([row([0, 1]), row([1, 2, 3], out_gbps=9.0)], "host 'h1' is in groups[0], too"),
    ],
)
def test_groups_are_of_the_network_s_hosts_and_do_not_overlap(rows: Any, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        fabric_of(network([2, 2], shared_links=[{"groups": rows}])[0])
    assert (caught.value.location, caught.value.reason) == ("network: shared_links[0].groups[1].members", reason)


@pytest.mark.parametrize(
    ("changes", "way"), [({"in_gbps": 0.0}, "into"), ({"out_gbps": 0.0}, "out of"), ({"out_gbps": 0}, "out of")]
)
@pytest.mark.parametrize("tier", [1, 2])
def test_dead_link_blocks_the_pairs_that_cross_it(tier: int, changes: dict[str, Any], way: str) -> None:
    """Neither is it a link without a limit, nor one that nobody measured: whatever crosses it is refused."""
    racks = {"groups": [row([0, 1]), row([2, 3]), row([4, 5])]}
    pods = {"groups": [row([0, 1, 2, 3])]}
    (racks, pods)[tier - 1]["groups"][0] |= changes
    result = fabric_of(network([2, 2, 2], shared_links=[racks, pods])[0])
    assert result.measured
    cut_off = range(2 * tier)
    for a in range(6):
        for b in range(6):
            assert np.isnan(result.rtt_us[a, b]) == ((a in cut_off) != (b in cut_off))
    ends = np.array([5]), np.array([0])
    with pytest.raises(NoAnswer, match=f"the way {way} the {'tier-2 ' if tier == 2 else ''}group of h0 carries 0"):
        result.require(result.rtt_us[ends], *ends, "")


def test_a_rate_of_nothing_is_no_rate() -> None:
    """Nothing gets through between such a pair. Neither is a matrix without any."""
    pairs = np.full((4, 4), 3.0)
    pairs[0, 1] = 0.0
    result = fabric_of(network([2, 2], pairs)[0])
    assert result.pair_gbps is not None
    assert np.isnan(result.pair_gbps[0, 1])
    ends = np.array([1]), np.array([0])
    with pytest.raises(NoAnswer, match="nothing gets through between h1 and h0: 0 Gbit/s were measured"):
        result.require(result.rtt_us[ends], *ends, "")
    nothing = fabric_of(network([2, 2], np.full((4, 4), np.nan))[0])
    assert nothing.pair_gbps is None
    assert model_for("auto", nothing) == "latency"


def test_groups_that_the_halves_do_not_confirm_are_noise() -> None:
    """Halves that are none confirm nothing and deny nothing."""
    for halves in (UNSET, [[[0]], [[0]]], [1, 2]):
        assert len(set(fabric_of(network([4, 4], halves_us=halves)[0]).group_of.tolist())) == 2
    values, _ = network([4, 4])
    real = [values.latency_us.tolist()] * 2
    alike = np.full((8, 8), 60.0) * ~np.eye(8, dtype=bool)
    noise = [(alike * np.random.default_rng(seed).lognormal(0, 0.2, (8, 8))).tolist() for seed in (1, 2)]
    assert len(set(fabric_of(network([4, 4], halves_us=real)[0]).group_of.tolist())) == 2
    assert set(fabric_of(network([4, 4], halves_us=noise)[0]).group_of.tolist()) == {0}


def test_rows_are_groups_by_the_numbers_of_their_hosts() -> None:
    """In the order of the file, the hosts in theirs."""
    names = ["h0", "h1", "h2", "h3", "h4"]
    first, later = links([row([3, 1]), row([4])])
    assert shared_rows([first, later], names) == [([1, 3], first), ([4], later)]
    assert shared_rows(links([row([2, 2])]), names)[0][0] == [2]


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({}, 2.0),  # the better of 2.0 and 1.9
        ({"in_one_flow_gbps": 2.5}, 2.5),
        ({"out_one_flow_gbps": None}, 1.9),  # the only one there is
        ({"out_one_flow_gbps": 0, "in_one_flow_gbps": None}, 1.0),  # 4 Gbit/s of four flows, 3 Gbit/s of four
        ({"out_one_flow_gbps": None, "in_one_flow_gbps": None, "in_flows": 2}, 1.5),
        ({"out_one_flow_gbps": None, "in_one_flow_gbps": None, "out_flows": 0, "in_flows": 2}, 4.0),  # taken for one
        ({"out_one_flow_gbps": None, "in_one_flow_gbps": None, "out_flows": 8, "in_flows": 0}, 3.0),
    ],
)
def test_host_rate_from_one_flow(changes: dict[str, Any], rate: float) -> None:
    """Of a host of another group and of one in none, with the usual of all: the middle of 8, 8 and what is asked."""
    rows = [row([0, 1], **changes), row([2, 3, 4], out_one_flow_gbps=8.0)]
    result = fabric_of(network([2, 3, 1], shared_links=[{"groups": rows}])[0])
    assert result.host_out_gbps.tolist() == result.host_in_gbps.tolist() == [rate, rate, 8.0, 8.0, 8.0, 8.0]


def test_assumed_links_carry_the_fastest_host() -> None:
    """Racks of three and four; every host sends 6 and gets 3 at best, but the first sends 9 to one other."""
    values, rack_of = network([3, 4])
    pairs = np.full((7, 7), 3.0)
    pairs[:, 6], pairs[6, 0] = 6.0, 9.0
    result = fabric_of(Network(values.hosts, values.latency_us, pairs))
    sends = np.array([6.0] * 6 + [9.0])
    gets = np.array([9.0] + [3.0] * 5 + [6.0])
    assert result.host_out_gbps.tolist() == sends.tolist()
    assert result.host_in_gbps.tolist() == gets.tolist()
    for group in (0, 1):
        mine = result.group_of == group
        assert len(set(rack_of[mine].tolist())) == 1
        assert result.group_out_gbps[group] == pytest.approx(max(sends[mine].sum() / 2.5, sends[mine].max()))
        assert result.group_in_gbps[group] == pytest.approx(max(gets[mine].sum() / 2.5, gets[mine].max()))


def test_links_of_all_tiers_are_assumed() -> None:
    """Four racks of four under two pods: what enters a link over 2.5; draws stay within 1.5 to 4 of each tier."""
    rack, pod = np.arange(16) // 4, np.arange(16) // 8
    rtt = np.where(rack[:, None] == rack, 20.0, np.where(pod[:, None] == pod, 60.0, 150.0))
    np.fill_diagonal(rtt, 0.0)
    result = fabric_of(Network(Hosts(tuple(Host(f"h{i}", f"h{i}") for i in range(16))), rtt))
    inner, outer = result.tiers
    assert (inner.group_of.tolist(), outer.group_of.tolist()) == (rack.tolist(), pod.tolist())
    assert inner.out_gbps == pytest.approx([4 * ASSUMED_GBPS / 2.5] * 4)
    assert outer.in_gbps == pytest.approx([8 * ASSUMED_GBPS / 2.5 / 2.5] * 2)
    inner, outer = result.with_drawn_links(np.random.default_rng(0)).tiers
    assert len(set(inner.out_gbps.tolist())) == 4
    assert np.all((inner.out_gbps >= 4 * ASSUMED_GBPS / 4) & (inner.out_gbps <= 4 * ASSUMED_GBPS / 1.5))
    entering = inner.out_gbps.reshape(2, 2).sum(axis=1)
    assert np.all((outer.out_gbps >= entering / 4) & (outer.out_gbps <= entering / 1.5))


def test_unmeasured_groups_are_counted() -> None:
    rows = [row([0, 1, 2], out_gbps=None), row([3, 4, 5, 6], in_gbps=None), row([7, 8])]
    result = fabric_of(network([3, 4, 2], shared_links=[{"groups": rows}])[0])
    assert result.group_out_gbps.tolist() == pytest.approx([3 * 2.0 / 2.5, 4 * 2.0 / 2.5, 4.0])
    assert result.group_in_gbps.tolist() == pytest.approx([3 * 2.0 / 2.5, 4 * 2.0 / 2.5, 3.0])
    assert result.capacities == "measured, but of 2 of 3 groups inferred from the latencies"


def test_unmeasured_pair_is_named() -> None:
    result = fabric_of(network([4])[0])
    source, target = np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0])
    result.require(np.zeros(4), source, target, "")
    values = np.array([1.0, np.nan, np.nan, 2.0])
    with pytest.raises(NoAnswer, match=r"^the round trip h1 - h2 is needed .* --resume` measures it$"):
        result.require(values, source, target, "")
    with pytest.raises(NoAnswer, match=r"^the bandwidth h3 - h0 is needed .* --resume --bandwidth` measures it$"):
        result.require(values[::-1].copy()[[0, 3, 3, 1]], source, target, " --bandwidth")


def test_capacity_noise_of_three_runs() -> None:
    """Estimated from the ranges alone: as much as medians of three do spread."""
    rng = np.random.default_rng(0)
    rows, medians = [], []
    for _ in range(2000):
        low, middle, high = np.sort(rng.lognormal(0, 0.08, 3)).tolist()
        rows.append({"members": ["h"], "out_gbps": middle, "interval": {"out_gbps": [low, high]}})
        medians.append(middle)
    assert rate_sigma(links(rows)) == pytest.approx(float(np.std(np.log(medians))), rel=0.05)
    steady = {"members": ["h"], "out_gbps": 1.0, "interval": {"out_gbps": [1.0, 1.0]}}
    assert rate_sigma([]) == rate_sigma(links([steady]))


def test_two_hosts_have_the_rate_that_was_measured_between_them() -> None:
    """Not the one that is assumed where nobody measured any."""
    flows = [{"from": a, "to": b, "gbps": gbps, "both_ways": False} for a, b, gbps in
             (("h0", "h1", 0.05), ("h1", "h0", 0.04))]  # fmt: skip
    result = fabric_of(network([2], host_flows=flows)[0])
    assert result.host_out_gbps.tolist() == pytest.approx([0.045, 0.045], rel=0.15)
    assert result.rate_gbps == pytest.approx(0.045, rel=0.15)
    assert fabric_of(network([2])[0]).rate_gbps is None


def test_noise_of_a_shared_rate() -> None:
    """It is that of a median of their rates; a slow host, and hosts without flows, have noise of their own."""
    pairs = [(a, b) for a in range(8) for b in range(8) if a != b]
    flows = [{"from": f"h{a}", "to": f"h{b}", "gbps": 0.1 if a == 7 else 1.0, "both_ways": False} for a, b in pairs]
    usual = fabric_of(network([4, 4], host_flows=flows)[0])
    rng = np.random.default_rng(0)
    drawn = np.log([usual.with_rate_noise(rng).host_out_gbps for _ in range(2000)])
    assert np.ptp(drawn[:, :7], axis=1).max() == 0.0
    assert drawn[:, 0].std() == pytest.approx(usual.rate_sigma * np.sqrt(np.pi / 2 / 7), rel=0.1)
    assert drawn[:, 7].std() == pytest.approx(usual.rate_sigma, rel=0.1)
    alone = fabric_of(network([4, 4])[0])
    drawn = np.log([alone.with_rate_noise(rng).host_out_gbps for _ in range(2000)])
    assert drawn.std(axis=0) == pytest.approx([alone.rate_sigma] * 8, rel=0.1)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.1


def test_uncertain_groups_limit_no_order() -> None:
    """Groups that few resamples show are as if nothing of them had been measured."""
    sure, doubtful = row([0, 1], confidence=0.9), row([2, 3], confidence=0.4)
    result = fabric_of(network([2, 2], shared_links=[{"groups": [sure, doubtful]}])[0])
    assert result.measured
    assert result.group_out_gbps.tolist() == [4.0, np.inf]
    result = fabric_of(network([2, 2], shared_links=[{"groups": [row([0, 1], confidence=0.1), doubtful]}])[0])
    assert not result.measured
    assert model_for("auto", result) == "latency"
