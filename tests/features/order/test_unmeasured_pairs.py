"""Orders of networks in which some pairs were not measured."""

from dataclasses import replace

import numpy as np
import pytest

import plink
from benchmarks.clouds import network_of_cloud, three_tier
from plink.errors import NoAnswer
from plink.model.hosts import Host, Hosts
from plink.model.mesh import make_mesh
from plink.model.network import Network
from tests.networks import details_from


def without_some_pairs(network: Network, share: float) -> Network:
    latency = network.latency_us.copy()
    missing = np.triu(np.random.default_rng(0).random(latency.shape) < share, 1)
    latency[missing | missing.T] = np.nan
    return replace(network, latency_us=latency)


def test_a_good_order_stays_where_every_order_needs_unmeasured_pairs() -> None:
    """An order that needs fewer of them is not taken for that; the given one has 2LHA's groups on racks."""
    network = without_some_pairs(network_of_cloud(three_tier(32, 2), 2, shared_links=True), 0.05)
    result = plink.reorder(network, plink.OrderRequest(algo="2lha", size_bytes=100e6, max_moves=500))
    assert result.cost is not None
    assert result.baseline is not None
    assert result.cost <= result.baseline["given"]


def test_a_few_dead_pairs_do_not_rule_out_what_cannot_avoid_them() -> None:
    network = network_of_cloud(three_tier(32, 2), 2, shared_links=True)
    few, many = without_some_pairs(network, 0.008), without_some_pairs(network, 0.05)
    a, b = np.argwhere(np.isnan(few.latency_us))[0]
    names = list(network.hosts.names)
    neighbours = [names[a], names[b], *(name for k, name in enumerate(names) if k not in (a, b))]
    for algo in ("2lha", "hubs", "flat", "halving-doubling"):
        request = plink.CostRequest(algo, 100e6, random=0)
        assert plink.cost(few, None, request).cost_us == pytest.approx(plink.cost(network, None, request).cost_us, 0.02)
    with pytest.raises(NoAnswer, match="not measured"):  # a ring in another order needs no such pair
        plink.cost(few, plink.RankOrder(algo="ring", hosts=tuple(neighbours)), plink.CostRequest("ring"))
    with pytest.raises(NoAnswer, match="not measured"):
        plink.cost(many, None, plink.CostRequest("flat"))
    assert plink.plan(few, algo="2lha").cost_us > 0
    advice = plink.advise(few, plink.AdviseRequest(100e6, 100e6, algorithms=("ring", "2lha", "flat")))
    assert not advice.left_out


def with_dead_uplink() -> tuple[Network, set[str]]:
    """Return two racks of four hosts, handed out in turns, and the hosts of the one that nothing gets out of."""
    rack_of = np.arange(8) % 2
    latency_us = np.where(rack_of[:, None] == rack_of, 40.0, 90.0)
    np.fill_diagonal(latency_us, 0.0)
    rates = {"in_gbps": 9.0, "out_limited_by": "link", "in_limited_by": "link"}
    names = [f"h{host}" for host in range(8)]
    groups = [{"members": names[k::2], "out_gbps": 9.0 * k, **rates} for k in range(2)]
    hosts = Hosts(tuple(Host(name, name) for name in names))
    return Network(hosts, latency_us, None, details_from({"shared_links": [{"groups": groups}]})), set(names[::2])


def test_no_order_crosses_a_dead_uplink() -> None:
    """What has to cross it is refused; the groups of a mesh that fit into racks are ordered so that none does."""
    network, rack = with_dead_uplink()
    for algo in ("ring", "halving-doubling", "nccl", "flat"):
        with pytest.raises(NoAnswer, match="carries 0 Gbit/s"):
            plink.reorder(network, plink.OrderRequest(algo=algo, max_moves=100))
        with pytest.raises(NoAnswer, match="carries 0 Gbit/s"):
            plink.cost(network, None, plink.CostRequest(algo, random=0))
    with pytest.raises(NoAnswer, match="carries 0 Gbit/s"):
        plink.advise(network)
    with pytest.raises(NoAnswer, match="carries 0 Gbit/s"):
        plink.plan(network, algo="2lha")
    pairs = make_mesh("a=4,b=2", ["b=all-reduce:100MB"])
    order = plink.reorder(network, plink.OrderRequest(mesh=pairs, max_moves=4000))
    assert not any((a in rack) != (b in rack) for a, b in zip(order.hosts[::2], order.hosts[1::2], strict=True))
    with pytest.raises(NoAnswer, match="carries 0 Gbit/s"):
        plink.reorder(network, plink.OrderRequest(mesh=make_mesh("a=8", ["a=all-reduce:1MB"]), max_moves=4000))


@pytest.mark.parametrize("model", ["auto", "latency"])
def test_order_avoids_a_pair_that_nothing_gets_between(model: str) -> None:
    """One that would be in the best order, and is in halves of the samples as any other."""
    network = network_of_cloud(three_tier(24, 2), 2, shared_links=False)
    assert network.half_rtts_us
    request = plink.OrderRequest(model=model, max_moves=2000, force=True)
    best = plink.reorder(network, request).hosts
    ends = [network.hosts.names.index(name) for name in best[:2]]
    rates = np.full((24, 24), 9.0)
    rates[ends[0], ends[1]] = 0.0
    order = plink.reorder(replace(network, bandwidth_gbps=rates), request)
    neighbours = zip(order.hosts, (*order.hosts[1:], order.hosts[0]), strict=True)
    assert all(set(pair) != set(best[:2]) for pair in neighbours)


@pytest.mark.parametrize("model", ["auto", "latency"])
def test_an_unmeasured_pair_is_rather_taken_than_a_dead_one(model: str) -> None:
    """The last of eight hosts was measured to one other alone."""
    network = network_of_cloud(three_tier(8, 2), 2, shared_links=False)
    latency, rates = network.latency_us.copy(), np.full((8, 8), 9.0)
    latency[7, :7], latency[:7, 7], rates[7], rates[:, 7] = np.nan, np.nan, np.nan, np.nan
    latency[7, 3] = latency[3, 7] = 50.0
    for dead in (0, 4, 6):
        own = rates.copy()
        own[7, dead] = own[dead, 7] = 0.0
        dirty = replace(network, latency_us=latency, bandwidth_gbps=own)
        order = plink.reorder(dirty, plink.OrderRequest(model=model, max_moves=500, force=True))
        neighbours = zip(order.hosts, (*order.hosts[1:], order.hosts[0]), strict=True)
        ends = {network.hosts.names[7], network.hosts.names[dead]}
        assert all(set(pair) != ends for pair in neighbours)


def test_search_says_that_capacities_are_inferred() -> None:
    from plink.features.order.search import solve

    network = network_of_cloud(three_tier(16, 2), 2, shared_links=False)
    for model, expected in (("contention", True), ("simulated", True), ("alpha-beta", False), ("latency", False)):
        notes = solve(network, plink.OrderRequest(model=model, max_moves=100)).notes
        assert any("shared capacities were not measured" in note for note in notes) == expected
