"""Slow and half-duplex hosts, told from flows between disjoint pairs with rotating partners."""

import numpy as np
import pytest

from probes.disjoint_pairs import RoundRobin
from solvers.costs.host_flows import Flow
from solvers.diagnosis.bandwidth import fast_partner, half_duplex, slow_by_flows

GBPS = 0.2


def rotating_flows(
    rates: list[float], rounds: int = 3, noise: float = 0.0, seed: int = 0, shared: frozenset[int] = frozenset()
) -> list[Flow]:
    """Each round pairs all hosts with others than before: one way, the other, and both at once.

    ``shared`` hosts are half duplex.
    """
    rng = np.random.default_rng(seed)
    flows = []
    schedule = RoundRobin(len(rates), seed)
    for k in range(min(rounds, len(schedule))):
        for a, b in schedule[k].tolist():
            for source, target in ((a, b), (b, a)):
                rate = min(rates[a], rates[b]) * float(np.exp(rng.normal(0, noise)))
                flows.append(Flow(source, target, rate))
                flows.append(Flow(source, target, rate / 2 if shared & {a, b} else rate, both_ways=True))
    return flows


@pytest.mark.parametrize("hosts", [3, 9, 16, 64])
def test_slow_host_is_named_and_its_partners_are_not(hosts: int) -> None:
    rates = [GBPS] * hosts
    rates[1] = GBPS / 10
    for seed in range(20):
        (slow,) = slow_by_flows(rotating_flows(rates, noise=0.1, seed=seed), hosts)
        assert slow.host == 1
        assert set(slow.rates) == {"out", "in"}
        assert all(rate == pytest.approx(GBPS / 10, rel=0.5) for rate, _ in slow.rates.values())


def test_equal_hosts_are_not_blamed_for_noise() -> None:
    assert not any(slow_by_flows(rotating_flows([GBPS] * 16, noise=0.15, seed=seed), 16) for seed in range(50))


def test_host_that_only_sends_slowly_is_named_for_that() -> None:
    flows = [Flow(a, b, GBPS / 20 if a == 0 else GBPS) for a in range(4) for b in range(4) if a != b]
    (slow,) = slow_by_flows(flows, 4)
    assert (slow.host, list(slow.rates)) == (0, ["out"])


def test_host_that_met_only_a_slow_one_is_not_blamed() -> None:
    flows = [Flow(a, b, GBPS / 20 if a == 0 else GBPS) for a in range(6) for b in range(6) if a != b and b != 5]
    (slow,) = slow_by_flows([*flows, Flow(0, 5, GBPS / 20)], 6)
    assert (slow.host, list(slow.rates)) == (0, ["out"])


def test_slowest_host_comes_first() -> None:
    rates = [GBPS] * 12
    rates[3], rates[7] = GBPS / 5, GBPS / 50
    assert [slow.host for slow in slow_by_flows(rotating_flows(rates, rounds=6), 12)] == [7, 3]


def test_half_duplex_host_is_not_confused_with_its_partners() -> None:
    for seed in range(20):
        flows = rotating_flows([GBPS] * 12, noise=0.05, seed=seed, shared=frozenset({5}))
        assert half_duplex(flows, 12) == [5]


def test_fast_partner_is_near_and_above_suspicion() -> None:
    rtt = np.array([[0, 10, 20, 30], [10, 0, 1, 1], [20, 1, 0, 1], [30, 1, 1, 0.0]])
    flows = [Flow(a, b, rate) for a, rate in enumerate([0.01, 0.02, 0.2, 0.2]) for b in range(4) if a != b]
    flows += [Flow(b, a, rate) for a, rate in enumerate([0.01, 0.02, 0.2, 0.2]) for b in range(4) if a != b]
    assert fast_partner(flows, [0, 1], 0, rtt) == 2
    assert fast_partner([], [0], 0, rtt) is None


def test_busy_cores_are_no_half_duplex() -> None:
    """All hosts have half of the rate both ways: no one of them is to blame."""
    for seed in range(20):
        flows = rotating_flows([GBPS] * 12, noise=0.05, seed=seed, shared=frozenset(range(12)))
        assert half_duplex(flows, 12) == []
