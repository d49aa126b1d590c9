"""Weights by bandwidth: a host's mean rate, a group's way out, and what is missing."""

from typing import Any

import numpy as np
import pytest

from plink.errors import UsageError
from solvers.costs.fabric import Fabric, fabric_of
from solvers.planning import bandwidth_weights
from tests.solvers.costs.test_fabric import network, row


def measured(rates: Any, **details: Any) -> Fabric:
    """Six hosts, or as many as there are rates, in two racks."""
    matrix = np.array(rates, dtype=np.float64)
    return fabric_of(network([len(matrix) // 2, len(matrix) - len(matrix) // 2], matrix, **details)[0])


def test_equal_rates_weigh_as_sizes() -> None:
    """And not as s (N - s), which the sum over all hosts outside would be."""
    result = bandwidth_weights(measured(np.full((6, 6), 2.0)), np.arange(6), [[0, 1, 2, 3, 4], [5]])
    assert result.groups.tolist() == pytest.approx([10.0, 2.0])
    assert result.ranks.tolist() == pytest.approx([2.0] * 6)


def test_the_slower_direction_counts_and_unmeasured_pairs_do_not() -> None:
    rates = np.full((4, 4), 4.0)
    rates[0, 1:] = [3.0, 1.0, np.nan]  # sends 2 on average, gets 4
    rates[3, :] = rates[:, 3] = np.nan  # nothing is known: the usual of the others
    result = bandwidth_weights(measured(rates), np.arange(4), [[0, 1], [2, 3]])
    assert result.ranks[:3].tolist() == pytest.approx([2.0, 3.5, 2.5])
    assert result.ranks[3] > 0
    assert result.groups[0] == pytest.approx(1.0 + 4.0)  # to hosts outside: 1 (not 3), and 4


def test_slots_share_a_host_s_rate() -> None:
    order = np.array([0, 0, 1, 2, 3])
    result = bandwidth_weights(measured(np.full((4, 4), 2.0)), order, [[0, 2], [1, 3, 4]])
    assert result.ranks.tolist() == pytest.approx([1.0, 1.0, 2.0, 2.0, 2.0])
    assert result.groups.tolist() == pytest.approx([3.0, 5.0])


def test_a_group_has_its_part_of_the_links_it_goes_out_by() -> None:
    """Hosts of 2 Gbit/s in racks of four whose ways out and in let 4 and 3 through: half a rack has 1.5."""
    rows = [row([0, 1, 2, 3]), row([4, 5, 6, 7], out_limited_by="hosts", in_limited_by="hosts")]
    shared = fabric_of(network([4, 4], None, shared_links=[{"groups": rows}])[0])
    result = bandwidth_weights(shared, np.arange(8), [[0, 1], [2, 3], [4, 5, 6, 7]])
    assert result.groups.tolist() == pytest.approx([1.5, 1.5, 8.0])
    assert result.ranks.tolist() == pytest.approx([2.0] * 8)


def test_a_group_has_its_part_of_the_links_of_all_tiers() -> None:
    """The way in of both racks lets 3 through, that of the pod over them 4: a rack's half is 2, of another rack 3."""
    racks, pods = [row(list(range(k, k + 4))) for k in (0, 4, 8)], [row(list(range(8)), in_gbps=4.0, out_gbps=4.5)]
    shared = fabric_of(network([4, 4, 4], None, shared_links=[{"groups": racks}, {"groups": pods}])[0])
    result = bandwidth_weights(shared, np.arange(12), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    assert result.groups.tolist() == pytest.approx([2.0, 2.0, 3.0])


def test_without_bandwidths_there_are_none() -> None:
    with pytest.raises(UsageError, match="holds no bandwidths"):
        bandwidth_weights(fabric_of(network([2, 2])[0]), np.arange(4), [[0, 1], [2, 3]])
