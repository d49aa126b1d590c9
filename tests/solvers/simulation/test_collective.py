"""Collectives on simulated networks, against what can be worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from plink.errors import NoAnswer, UsageError
from plink.model.schedule import make_schedule
from solvers.costs.fabric import BYTES_PER_US, Fabric, TierLinks, alike_hosts
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from solvers.simulation.collective import EAGER_BYTES
from tests.solvers.simulation.collectives import simulate_collective

SIZE = 8e6
LATENCY_US = 10.0
GBPS = 2.0


def network(hosts: int, *tiers: TierLinks, latency_us: float = LATENCY_US) -> Fabric:
    """Equal hosts under shared links."""
    alike = alike_hosts([f"h{host}" for host in range(hosts)], GBPS)
    return replace(alike, rtt_us=np.full((hosts, hosts), 2 * latency_us), outer_tiers=tiers)


def racks(hosts: int, number: int, gbps: float) -> TierLinks:
    """Racks of equal size, each with a way out and in of that rate."""
    return TierLinks(np.arange(hosts) * number // hosts, np.full(number, gbps), np.full(number, gbps))


@pytest.mark.parametrize("hosts", [2, 3, 8, 16])
def test_ring_takes_the_time_of_its_rounds(hosts: int) -> None:
    """2 (N - 1) rounds of a block each (Patarasuk and Yuan 2009)."""
    result = simulate_collective(schedule_for("ring", hosts), network(hosts), np.arange(hosts), SIZE)
    expected = 2 * (hosts - 1) * (SIZE / hosts / (GBPS * BYTES_PER_US) + LATENCY_US)
    assert result.makespan_us == pytest.approx(expected, rel=1e-9)


def test_halving_doubling_takes_the_time_of_its_rounds() -> None:
    """Each half takes log2(N) rounds and moves (N - 1) / N of the data (Thakur et al. 2005)."""
    hosts = 16
    result = simulate_collective(schedule_for("halving-doubling", hosts), network(hosts), np.arange(hosts), SIZE)
    expected = 2 * ((hosts - 1) / hosts * SIZE / (GBPS * BYTES_PER_US) + 4 * LATENCY_US)
    assert result.makespan_us == pytest.approx(expected, rel=1e-9)


def test_ring_is_held_by_the_uplink_that_most_of_its_hops_cross() -> None:
    """A ring by racks crosses each uplink once, one that alternates between racks four times; the uplink has half a
    host's rate. The last hops of a ring by racks wait for nobody: every hop is as slow as the slowest."""
    tier, schedule = racks(8, 2, GBPS / 2), schedule_for("ring", 8)
    by_rack = simulate_collective(schedule, network(8, tier, latency_us=0.0), np.arange(8), SIZE).makespan_us
    alternating = np.arange(8).reshape(2, 4).T.ravel()
    mixed = simulate_collective(schedule, network(8, tier, latency_us=0.0), alternating, SIZE).makespan_us
    rounds_us = 14 * SIZE / 8 / (GBPS / 2 * BYTES_PER_US)
    assert by_rack == pytest.approx(rounds_us, rel=0.08)
    assert mixed == pytest.approx(4 * rounds_us, rel=1e-9)


def test_outer_tier_limits_what_the_inner_one_lets_through() -> None:
    """Two hosts of one rack send, one of them to another pod: pods carry a tenth of a host's rate, and what the flow
    between pods does not take of their rack's uplink is left to the flow between racks."""
    pods = TierLinks(np.arange(8) // 4, np.full(2, GBPS / 10), np.full(2, GBPS / 10))
    schedule = make_schedule("cross", 8, 1, [[0, 0, 4, 0, 1, 1], [0, 1, 2, 0, 1, 1]], "broadcast")
    result = simulate_collective(schedule, network(8, racks(8, 4, GBPS), pods), np.arange(8), SIZE)
    alone_us = SIZE / (GBPS * BYTES_PER_US)
    assert result.end_us == pytest.approx([10 * alone_us + LATENCY_US, alone_us / 0.9 + LATENCY_US], rel=1e-9)


def test_measured_rate_of_a_pair_limits_its_flow() -> None:
    limited = replace(network(2), pair_gbps=np.array([[np.nan, GBPS / 4], [np.nan, np.nan]]))
    schedule = make_schedule("one", 2, 1, [[0, 0, 1, 0, 1, 1]], "broadcast")
    result = simulate_collective(schedule, limited, np.arange(2), SIZE)
    assert result.makespan_us == pytest.approx(4 * SIZE / (GBPS * BYTES_PER_US) + LATENCY_US, rel=1e-9)


def slow_receiver(host: int) -> Fabric:
    """Return four hosts, one of which receives at a quarter of the others' rate."""
    even = network(4)
    rates = np.where(np.arange(4) == host, GBPS / 4, GBPS)
    return replace(even, host_in_gbps=rates)


def test_rank_goes_on_when_all_it_sent_has_left() -> None:
    """Rank 0 sends to 1 and 2, which is slow; what it sends to 3 waits for both, and not for the latency."""
    schedule = make_schedule("three", 4, 1, [[0, 0, 1, 0, 1, 1], [0, 0, 2, 0, 1, 1], [1, 0, 3, 0, 1, 1]], "broadcast")
    alone_us = SIZE / (GBPS * BYTES_PER_US)
    lockstep = simulate_collective(schedule, slow_receiver(2), np.arange(4), SIZE)
    assert lockstep.begin_us[2] == pytest.approx(4 * alone_us)
    assert lockstep.makespan_us == pytest.approx(5 * alone_us + LATENCY_US)
    assert simulate_collective(schedule, slow_receiver(2), np.arange(4), SIZE, lockstep=False).begin_us[2] == 0


def test_rank_that_only_receives_goes_on_when_its_rounds_before_are_over() -> None:
    """Rank 0 sends to 1, which is slow, receives from 2 at once, and sends to 2 when the first has left."""
    rows = [[0, 0, 1, 0, 1, 1], [1, 2, 0, 0, 1, 1], [2, 0, 2, 0, 1, 1]]
    result = simulate_collective(make_schedule("three", 4, 1, rows, "broadcast"), slow_receiver(1), np.arange(4), 6e4)
    assert result.end_us[1] < result.begin_us[2] == pytest.approx(result.end_us[0] - LATENCY_US)


@pytest.mark.parametrize(("size", "begins", "ends"), [(SIZE, 4, 8), (65_536.0, 1, 8)])
def test_large_message_waits_for_its_receiver(size: float, begins: float, ends: float) -> None:
    """Rank 1 receives slowly from 0, then from 2, which is ready earlier. A small message shares what 1 receives."""
    schedule = make_schedule("two", 4, 1, [[0, 0, 1, 0, 1, 1], [0, 2, 3, 0, 1, 1], [1, 2, 1, 0, 1, 1]], "broadcast")
    alone_us, waits = size / (GBPS * BYTES_PER_US), size > EAGER_BYTES
    result = simulate_collective(schedule, slow_receiver(1), np.arange(4), size)
    assert result.begin_us[2] == pytest.approx(begins * alone_us + LATENCY_US * waits)
    assert result.end_us[2] == pytest.approx(ends * alone_us + LATENCY_US * (1 + waits))


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_every_algorithm_of_the_catalogue_runs_and_moves_what_it_says(algo: str) -> None:
    """Nothing is faster than its busiest host, and hosts send what the schedule says."""
    ranks = 8
    groups = [[0, 1, 2, 6], [3, 4, 5, 7]]
    options = (
        Options(groups=groups) if algo == "2lha" else Options(groups=groups, servers=2) if algo == "phub-2l" else None
    )
    schedule = schedule_for(algo, ranks, options)
    order = np.arange(schedule.ranks)
    result = simulate_collective(schedule, network(schedule.ranks, racks(schedule.ranks, 2, GBPS)), order, SIZE)
    sent = np.bincount(schedule.source, schedule.count * (SIZE / schedule.chunks), schedule.ranks)
    assert result.moved[: schedule.ranks] == pytest.approx(sent, rel=1e-9)
    assert result.makespan_us >= sent.max() / (GBPS * BYTES_PER_US) * (1 - 1e-9)


def test_unmeasured_pair_and_wrong_order_are_refused() -> None:
    schedule, unknown = schedule_for("ring", 3), network(3)
    unknown.rtt_us[0, 1] = np.nan
    with pytest.raises(NoAnswer, match="h0 - h1"):
        simulate_collective(schedule, unknown, np.arange(3), SIZE)
    with pytest.raises(UsageError, match="2 ranks"):
        simulate_collective(schedule, network(2), np.arange(2), SIZE)
    with pytest.raises(UsageError, match="0 bytes"):
        simulate_collective(schedule, network(3), np.arange(3), 0)
