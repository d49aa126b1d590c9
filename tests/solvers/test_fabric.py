"""What a network file says to the cost models: measured capacities, and what is inferred where there are none."""

from typing import Any

import numpy as np
import pytest

from plink.hosts import Host, Hosts
from plink.network import Network
from solvers.costs.by_name import model_for
from solvers.costs.fabric import ASSUMED_GBPS, fabric_of
from tests.solvers.synthetic import racks


def network(sizes: list[int], bandwidth: Any = None, **details: Any) -> tuple[Network, Any]:
    """Racks of these sizes, 40 us inside and 90 us between, and the rack of every host."""
    rtt, rack_of = racks(sizes, 1)
    hosts = Hosts(tuple(Host(f"h{i}", f"h{i}") for i in range(len(rtt))))
    return Network(hosts, rtt, bandwidth, details), rack_of


def row(members: list[int], **changes: Any) -> dict[str, Any]:
    """What the probe writes of one group."""
    usual = {
        "out_gbps": 4.0, "in_gbps": 3.0, "out_flows": 4, "in_flows": 4, "out_limited_by": "link",
        "in_limited_by": "link", "out_one_flow_gbps": 2.0, "in_one_flow_gbps": 1.9,
    }  # fmt: skip
    return {"members": [f"h{i}" for i in members], **usual, **changes}


def test_measured_capacities_are_taken_as_they_are() -> None:
    """A host's rate is the better of its single flows; a host in no group shares nothing."""
    found = fabric_of(network([4, 4, 1], shared_links=[row([0, 1, 2, 3]), row([4, 5, 6, 7], out_gbps=5.0)])[0])
    assert found.measured
    assert found.group_of.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert found.group_out_gbps.tolist() == [4.0, 5.0, np.inf]
    assert found.group_in_gbps.tolist() == [3.0, 3.0, np.inf]
    assert found.host_out_gbps.tolist() == [2.0] * 9  # of the lone one too: the usual
    assert found.rate_gbps == 2.0
    assert model_for("auto", found) == "contention"


def test_what_the_hosts_limited_is_no_limit_of_the_link() -> None:
    found = fabric_of(network([2, 2], shared_links=[row([0, 1], out_limited_by="hosts"), row([2, 3])])[0])
    assert found.group_out_gbps.tolist() == [np.inf, 4.0]


def test_older_files_know_no_single_flows() -> None:
    """Then a host sends what it had of the sum."""
    rows = [row([0, 1]), row([2, 3])]
    for one in rows:
        del one["out_one_flow_gbps"], one["in_one_flow_gbps"]
    assert fabric_of(network([2, 2], shared_links=rows)[0]).host_out_gbps.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    "rows",
    [None, [], "no", [7], [{"members": ["h0", "who"]}], [row([0, 1], out_gbps=None)], [row([0, 1], in_gbps=0.0)]],
)
def test_without_usable_capacities_they_are_inferred_from_the_tiers(rows: Any) -> None:
    """Racks by their latencies; a way out is slower by near over far: 40 / 90 of four hosts together."""
    given, rack_of = network([4, 4], shared_links=rows)
    found = fabric_of(given)
    assert not found.measured
    assert "inferred" in found.capacities
    assert len(set(zip(found.group_of.tolist(), rack_of.tolist(), strict=True))) == 2
    assert found.group_out_gbps == pytest.approx([4 * ASSUMED_GBPS * 40 / 90] * 2)
    assert model_for("auto", found) == "latency"
    assert found.rate_gbps is None  # what is assumed is not measured


def test_measured_pairs_give_the_hosts_rates() -> None:
    pairs = np.full((4, 4), 3.0)
    pairs[1, 2], pairs[:, 3] = 7.0, np.nan
    found = fabric_of(network([2, 2], pairs)[0])
    assert found.host_out_gbps.tolist() == [3.0, 7.0, 3.0, 3.0]
    assert found.host_in_gbps.tolist() == [3.0, 3.0, 7.0, ASSUMED_GBPS]  # nobody was heard to reach the last
    assert model_for("auto", found) == "alpha-beta"
    assert found.rate_gbps == 3.0


def test_one_rack_shares_nothing_and_few_hosts_are_no_groups() -> None:
    for sizes in ([4], [1, 1], [2]):
        found = fabric_of(network(sizes)[0])
        assert set(found.group_out_gbps.tolist()) == {np.inf}


def test_unmeasured_pairs_stay_unknown_unless_predicted() -> None:
    given, _ = network([2, 2])
    given.latency_us[0, 1] = given.latency_us[1, 0] = np.nan
    assert np.isnan(fabric_of(given).rtt_us[0, 1])
    assert fabric_of(given, np.full((4, 4), 55.0)).rtt_us[0, 1] == 55.0


def test_a_group_that_could_not_be_measured_is_inferred_and_said() -> None:
    """It stays a group: its way out is guessed from the latencies, not taken for unlimited."""
    given, rack_of = network([4, 4])
    members = [[int(i) for i in np.flatnonzero(rack_of == rack)] for rack in (0, 1)]
    given.details["shared_links"] = [row(members[0]), row(members[1], out_gbps=None, why="no answer")]
    found = fabric_of(given)
    assert found.group_of[members[1]].tolist() == [1] * 4
    assert found.group_out_gbps.tolist() == pytest.approx([4.0, 4 * 2.0 * 40 / 90])
    assert found.measured
    assert "of 1 of 2 groups inferred" in found.capacities


@pytest.mark.parametrize(
    "rows",
    [
        [{"members": [["x"]]}, row([0, 1]), row([2, 3])],
        [row([0, 1]), row([1, 2, 3], out_gbps=9.0), row([2, 3])],  # a host in two groups: the first has it
        [row([0, 1], out_flows="x"), row([2, 3], in_one_flow_gbps="y")],
        [row([0, 1]), row([2, 3]), {"members": []}, {}],
    ],
)
def test_what_is_no_group_is_passed_over(rows: Any) -> None:
    found = fabric_of(network([2, 2], shared_links=rows)[0])
    assert found.group_of.tolist() == [0, 0, 1, 1]
    assert found.group_out_gbps.tolist() == [4.0, 4.0]


def test_a_rate_of_nothing_is_no_rate() -> None:
    """Neither is a matrix without any."""
    pairs = np.full((4, 4), 3.0)
    pairs[0, 1] = 0.0
    found = fabric_of(network([2, 2], pairs)[0])
    assert found.pair_gbps is not None
    assert np.isnan(found.pair_gbps[0, 1])
    nothing = fabric_of(network([2, 2], np.full((4, 4), np.nan))[0])
    assert nothing.pair_gbps is None
    assert model_for("auto", nothing) == "latency"


@pytest.mark.parametrize("halves", [None, "no", [[[0]], [[0]]], [1, 2]])
def test_halves_that_are_none_confirm_nothing_and_deny_nothing(halves: Any) -> None:
    assert len(set(fabric_of(network([4, 4], halves_us=halves)[0]).group_of.tolist())) == 2


def test_groups_that_the_halves_do_not_confirm_are_noise() -> None:
    given, _ = network([4, 4])
    real = [given.latency_us.tolist()] * 2
    alike = np.full((8, 8), 60.0) * ~np.eye(8, dtype=bool)
    noise = [(alike * np.random.default_rng(seed).lognormal(0, 0.2, (8, 8))).tolist() for seed in (1, 2)]
    assert len(set(fabric_of(network([4, 4], halves_us=real)[0]).group_of.tolist())) == 2
    assert set(fabric_of(network([4, 4], halves_us=noise)[0]).group_of.tolist()) == {0}
