"""Orders that take as long as the given one."""

from dataclasses import replace

import pytest

import plink
from benchmarks.clouds import network_of_cloud, three_tier
from plink.model.document import UNSET
from tests.networks import details_from, keys_of


def test_a_ring_limited_by_a_slow_host_is_ordered_by_round_trips() -> None:
    """Host 0 has a fiftieth of the others' rate: all orders take as long, and the one with near neighbours is taken."""
    made = network_of_cloud(three_tier(24, 1), 1, shared_links=True)
    flows = [
        {"from": f"host{a}", "to": f"host{b}", "gbps": 0.2 if 0 in (a, b) else 10.0, "both_ways": False}
        for a, b in zip(range(24), [*range(1, 24), 0], strict=True)
    ]
    network = replace(made, details=details_from(keys_of(made) | {"host_flows": flows}))
    order = plink.reorder(network, plink.OrderRequest(algo="ring", size_bytes=100e6, max_moves=2000))
    assert order.baseline is not None
    assert order.cost == pytest.approx(order.baseline["given"], 1e-3)
    assert order.kept_baseline is UNSET
    hops, hops_before = (
        sum(network.rtt_us[a, b] for a, b in zip(hosts, [*hosts[1:], hosts[0]], strict=True))
        for hosts in ([network.hosts.names.index(name) for name in order.hosts], list(range(24)))
    )
    assert hops < 0.8 * hops_before
