"""Orders of networks in which some pairs were not measured."""

from dataclasses import replace

import numpy as np
import pytest

import plink
from benchmarks.clouds import network_of_cloud, three_tier
from plink.errors import NoAnswer
from plink.model.network import Network


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
