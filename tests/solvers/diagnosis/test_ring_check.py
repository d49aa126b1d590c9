"""Flows of a ring at once against what was measured: what they can be expected to have, and who is slow."""

from typing import Any

import numpy as np
import pytest

from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from solvers.diagnosis.ring_check import SlowPart, expected_gbps, slow_parts
from tests.networks import details_from, keys_of

HOST_GBPS, RACKS, PER_RACK = 0.2, 4, 4
N = RACKS * PER_RACK
NAMES = [f"n{host:02d}" for host in range(N)]
RACK_OF = np.arange(N) // PER_RACK


def network(uplink_gbps: float | None = HOST_GBPS, **details: Any) -> Network:
    """Racks of equal hosts, each rate measured both ways at once, and uplinks; None: nobody measured these."""
    rows: list[dict[str, Any]] = []
    for a in range(0, N, 2):
        for source, target in ((a, a + 1), (a + 1, a)):
            flow = {"from": NAMES[source], "to": NAMES[target], "gbps": HOST_GBPS}
            rows += [{**flow, "both_ways": way} for way in (False, True)]
    link = {"out_gbps": uplink_gbps, "in_gbps": uplink_gbps, "out_limited_by": "link", "in_limited_by": "link"}
    groups = [{"members": [NAMES[host] for host in np.flatnonzero(rack == RACK_OF)], **link} for rack in range(RACKS)]
    links = {} if uplink_gbps is None else {"shared_links": [{"groups": groups}]}
    latency = np.where(RACK_OF[:, None] == RACK_OF, 50.0, 100.0) * (1 - np.eye(N))
    hosts = Hosts(tuple(Host(name, f"10.0.0.{k}") for k, name in enumerate(NAMES)))
    return Network(hosts, latency, None, details_from({"host_flows": rows} | links | details))


def ring(order: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The flows of a ring in that order."""
    return np.array(order), np.roll(order, -1)


def rates(order: list[int], hosts: dict[int, float] | None = None, racks: dict[int, float] | None = None) -> np.ndarray:
    """What flows of a ring have when these hosts and uplinks are slow; flows divide an uplink evenly."""
    source, target = ring(order)
    host = np.array([(hosts or {}).get(k, HOST_GBPS) for k in range(N)])
    now = np.minimum(host[source], host[target])
    for rack in range(RACKS):
        for ends, others in ((source, target), (target, source)):
            crossing = (RACK_OF[ends] == rack) & (RACK_OF[others] != rack)
            now[crossing] = np.minimum(now[crossing], (racks or {}).get(rack, HOST_GBPS) / max(1, crossing.sum()))
    return now


IN_RACKS = list(range(N))
ACROSS = [rack * PER_RACK + place for place in range(PER_RACK) for rack in range(RACKS)]  # every flow leaves its rack


@pytest.mark.parametrize("order", [IN_RACKS, ACROSS], ids=["racks one after the other", "every flow crosses uplinks"])
def test_a_network_as_it_was_measured_has_no_slow_part(order: list[int]) -> None:
    """Flows that share an uplink are expected to have a share of it."""
    source, target = ring(order)
    expected = expected_gbps(network(), source, target)
    assert expected == pytest.approx(rates(order))
    noisy = rates(order) * np.random.default_rng(0).uniform(0.6, 1.1, N)
    assert slow_parts(network(), source, target, noisy, expected) == []


def parts(measured: Network, order: list[int], now: np.ndarray) -> list[SlowPart]:
    """The slow parts of a ring."""
    source, target = ring(order)
    return slow_parts(measured, source, target, now, expected_gbps(measured, source, target))


@pytest.mark.parametrize("slow", range(RACKS))
def test_a_slow_uplink_is_named_where_groups_of_groups_are(slow: int) -> None:
    """Pairs of hosts that noise made near are an inner tier, whose links are no limit."""
    inner = [
        {"members": [NAMES[k], NAMES[k + 1]], "out_gbps": 0.4, "in_gbps": 0.4, "out_limited_by": "hosts",
         "in_limited_by": "hosts"}
        for k in range(0, N, 2)
    ]  # fmt: skip
    tiered = network(shared_links=[{"groups": inner}, *network().shared_links])
    (part,) = parts(tiered, IN_RACKS, rates(IN_RACKS, racks={slow: 0.02}))
    assert part.what == f"the link that n[{slow * PER_RACK:02d}-{slow * PER_RACK + PER_RACK - 1:02d}] share"


@pytest.mark.parametrize("slow", [0, 5, 6, N - 1])
@pytest.mark.parametrize("uplink", [HOST_GBPS, None], ids=["links measured", "links not measured"])
def test_a_slow_host_is_named_with_both_figures(slow: int, uplink: float | None) -> None:
    (part,) = parts(network(uplink), IN_RACKS, rates(IN_RACKS, hosts={slow: 0.02}))
    assert NAMES[slow] in part.what
    assert (part.now, part.before) == pytest.approx((0.02, HOST_GBPS))
    assert NAMES[slow] in (part.source, part.target)


def test_two_causes_are_two_parts() -> None:
    slow = parts(network(), IN_RACKS, rates(IN_RACKS, hosts={6: 0.01}, racks={3: 0.02}))
    assert [("n06" in part.what, "n[12-15]" in part.what) for part in slow] == [(True, False), (False, True)]


def test_links_that_nobody_measured_are_no_slow_part() -> None:
    """An uplink of an eighth of its hosts' rate may have been so all along."""
    assert parts(network(None), IN_RACKS, rates(IN_RACKS, racks=dict.fromkeys(range(RACKS), 0.025))) == []


def test_rates_both_ways_at_once_count() -> None:
    """Hosts that send and receive half as much at once, as half duplex, are expected to."""
    measured = network()
    halved = [{**row, "gbps": row["gbps"] / (3 if row["both_ways"] else 1)} for row in keys_of(measured)["host_flows"]]
    assert parts(network(host_flows=halved), IN_RACKS, rates(IN_RACKS) / 3) == []


def test_measured_pairs_are_enough() -> None:
    """A file with a matrix of rates and nothing else."""
    hosts = network().hosts
    pairs = np.where(np.eye(N, dtype=bool), np.nan, HOST_GBPS)
    measured = Network(hosts, network().latency_us.copy(), pairs)
    assert parts(measured, IN_RACKS, rates(IN_RACKS)) == []
    (part,) = parts(measured, IN_RACKS, rates(IN_RACKS, hosts={9: 0.02}))
    assert "n09" in part.what


def test_a_file_without_rates_expects_nothing() -> None:
    source, target = ring(IN_RACKS)
    measured = Network(network().hosts, network().latency_us.copy(), None)
    assert np.isnan(expected_gbps(measured, source, target)).all()
