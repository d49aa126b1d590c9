"""The model ``simulated``: what can be worked out by hand, beside the closed forms, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from plink.errors import NoAnswer, UsageError
from plink.model.schedule import make_schedule
from solvers.costs.by_name import cost_function_for, engine_slices, pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import BYTES_PER_US, Fabric, TierLinks
from solvers.costs.least_time import tier_tree
from solvers.costs.patterns import in_slices
from solvers.schedules.catalogue import Options, schedule_for
from solvers.simulation import collective, cost
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.cost import SimulatedCost, cost_by_model, transfers_of
from tests.solvers.simulation.collectives import simulate_collective

SIZE, GBPS, RTT_US = 8e6, 2.0, 20.0


def fabric(hosts: int, uplink_gbps: float = np.inf) -> Fabric:
    """Two racks of equal hosts."""
    rtt = np.full((hosts, hosts), RTT_US)
    np.fill_diagonal(rtt, 0.0)
    rates, uplinks = np.full(hosts, GBPS), np.full(2, uplink_gbps)
    names = tuple(f"h{host}" for host in range(hosts))
    return Fabric(names, rtt, None, rates, rates, np.arange(hosts) * 2 // hosts, uplinks, uplinks, "measured")


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "recursive-doubling", "bcube", "flat", "gloo"])
def test_symmetric_collective_costs_as_by_contention(algo: str) -> None:
    """Equal hosts without shared links: all rounds are in step, so there is nothing that rounds could overlap."""
    args = algo, 8, Options(), fabric(8), SIZE
    expected = cost_by_model(*args, "contention")(np.arange(8))
    assert cost_by_model(*args, "simulated")(np.arange(8)) == pytest.approx(expected, rel=1e-9)


def test_breakdown_names_the_busiest_link() -> None:
    """Four hosts of each rack send around a ring that alternates: eight flows over uplinks that carry half a host."""
    order = np.arange(8).reshape(2, 4).T.ravel()
    ((_, name, part),) = SimulatedCost.of("ring", 8, Options(), fabric(8, GBPS / 2), SIZE).breakdowns(order)
    assert name == "ring"
    assert part.bottleneck is not None
    assert part.bottleneck[0] == "the way out of the group of h0"
    assert part.bottleneck[1] == pytest.approx(1.0, abs=1e-3)
    assert len(part.busiest) == 0


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "double-binary-tree", "flat", "gloo"])
@pytest.mark.parametrize("size", [4.0, 1e6, 1e9])
def test_no_cost_is_below_what_its_busiest_resource_works(algo: str, size: float) -> None:
    """In slices and out of them; where latency is nothing, a large flat exchange takes no longer."""
    cost_of = SimulatedCost.of(algo, 8, Options(), fabric(8, GBPS / 2), size)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(8)
        assert 0 < cost_of.busiest_us(order) <= cost_of(order) * (1 + 1e-9)
    if (algo, size) == ("flat", 1e9):
        assert cost_of.busiest_us(order) == pytest.approx(cost_of(order), rel=0.01)


def test_cost_on_another_fabric_and_of_another_size() -> None:
    base = SimulatedCost.of("nccl-ring", 8, Options(), fabric(8), SIZE)
    order = np.arange(8)
    rounds_us = 14 * (SIZE / 8 / (GBPS * BYTES_PER_US))
    assert base(order) == pytest.approx(rounds_us + 14 * RTT_US / 2)
    assert replace(base, size_bytes=2 * SIZE)(order) == pytest.approx(2 * rounds_us + 14 * RTT_US / 2)
    far = replace(base, fabric=replace(base.fabric, rtt_us=base.fabric.rtt_us * 2))
    assert far(order) == pytest.approx(rounds_us + 14 * RTT_US)


def test_too_large_a_collective_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "MAX_SIMULATED_TRANSFERS", 100)
    with pytest.raises(NoAnswer, match=r"--model simulated: ring-chunked of 16 ranks has .* use --model contention"):
        SimulatedCost.of("ring-chunked", 16, Options(), fabric(16), SIZE)
    assert transfers_of(cost.pattern_for("flat", 8, Options())) == 2 * 8 * 7


@pytest.mark.parametrize(("uplink_gbps", "pair_gbps"), [(np.inf, None), (0.5, None), (np.inf, 0.2)])
@pytest.mark.parametrize("size", [1e4, 8e6])
def test_steady_ring_takes_the_time_of_the_simulated_one(
    monkeypatch: pytest.MonkeyPatch, uplink_gbps: float, pair_gbps: float | None, size: float
) -> None:
    """Latency, the uplinks or a slow pair hold it; the rounds in which it begins and ends are what the steady state
    leaves out."""
    order, result = np.random.default_rng(2).permutation(24), fabric(24, uplink_gbps)
    if pair_gbps is not None:
        rates = np.full((24, 24), GBPS)
        rates[order[1], order[0]] = pair_gbps
        result = replace(result, pair_gbps=rates)
    args = "gloo", 24, Options(), result, size
    simulated = SimulatedCost.of(*args)
    monkeypatch.setattr(cost, "_STEADY_RING_MIN_RANKS", 24)
    steady = SimulatedCost.of(*args)
    assert steady(order) == pytest.approx(simulated(order), rel=0.02)
    ((_, _, part),) = steady.breakdowns(order)
    assert part.bottleneck is not None


def test_ring_of_4096_hosts_is_priced() -> None:
    """NCCL's has whole blocks; in slices, while one is under way for longer than it is sent, others are sent."""
    ring, in_slices = (SimulatedCost.of(algo, 4096, Options(), fabric(4096), SIZE) for algo in ("nccl-ring", "ring"))
    sent_us, way_us = SIZE / 4096 / (GBPS * BYTES_PER_US), RTT_US / 2
    assert ring(np.arange(4096)) == pytest.approx(2 * 4095 * (sent_us + way_us), rel=1e-9)
    assert 2 * 4095 * max(sent_us, way_us) < in_slices(np.arange(4096)) < 2 * 4095 * (sent_us / 4 + way_us)


def test_tolerance_of_wide_rounds_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """2LHA of uneven racks, whose flows end one by one."""
    groups = [list(range(10)), list(range(10, 40))]
    args = "2lha", 40, Options(groups=groups), fabric(40, 1.5), SIZE
    order = np.random.default_rng(3).permutation(40)
    exact = SimulatedCost.of(*args)(order)
    monkeypatch.setattr(collective, "_WIDE_TRANSFERS", 1)
    quick = SimulatedCost.of(*args)(order)
    assert quick != exact
    assert quick == pytest.approx(exact, rel=0.01)


def test_collective_that_takes_too_long_says_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "MAX_SIMULATED_US", 100.0)
    with pytest.raises(NoAnswer, match=r"after 100 us.*transfer 0 \(round 0, .* is under way over h0, out"):
        SimulatedCost.of("ring", 4, Options(), fabric(4), SIZE)(np.arange(4))


def test_transfer_to_nobody_and_unknown_host_are_refused() -> None:
    schedule = make_schedule("wrong", 2, 1, [[0, 0, 2, 0, 1, 1]], "broadcast")
    with pytest.raises(UsageError, match=r"transfer 0 \(round 0, rank 0 -> 2.*there are ranks 0 to 1"):
        PreparedCollective.of(schedule)
    with pytest.raises(UsageError, match="host 7 at rank 1"):
        simulate_collective(schedule_for("ring", 2), fabric(2), np.array([0, 7]), SIZE)


def test_cycle_in_what_a_schedule_lists_is_refused() -> None:
    rows = [[0, 0, 1, 0, 1, 1], [1, 1, 0, 0, 1, 1]]
    schedule = make_schedule("circle", 2, 1, rows, "broadcast")
    waiting = np.array([0, 1, 2]), np.array([1, 0], dtype=np.int32)
    with pytest.raises(NoAnswer, match=r"transfer 0 .* waits for others \(transfer 1"):
        simulate_collective(replace(schedule, after=waiting), fabric(2), np.arange(2), SIZE)
    with pytest.raises(UsageError, match="does not exist"):
        PreparedCollective.of(replace(schedule, after=(waiting[0], np.array([1, 5], dtype=np.int32))))


def test_dependencies_that_a_schedule_lists_are_kept() -> None:
    """Two transfers of unrelated ranks: in one file the second waits for the first."""
    schedule = make_schedule("pair", 4, 1, [[0, 0, 1, 0, 1, 1], [0, 2, 3, 0, 1, 1]], "broadcast")
    alone_us = SIZE / (GBPS * BYTES_PER_US) + RTT_US / 2
    listed = replace(schedule, after=(np.array([0, 0, 1]), np.array([0], dtype=np.int32)))
    for case, expected in ((schedule, alone_us), (listed, 2 * alone_us)):
        assert simulate_collective(case, fabric(4), np.arange(4), SIZE).makespan_us == pytest.approx(expected)


def test_link_without_capacity_is_named() -> None:
    dead = replace(fabric(4), outer_tiers=(TierLinks(np.arange(4) // 2, np.array([1.0, 0.0]), np.ones(2)),))
    with pytest.raises(NoAnswer, match=r"is under way over .*the way out of the tier-2 group of h2"):
        SimulatedCost.of("ring", 4, Options(), dead, SIZE)(np.arange(4))


@pytest.mark.parametrize("model", ["alpha-beta", "contention", "simulated"])
@pytest.mark.parametrize(("algo", "size", "segments"), [("nccl-tree", 20e6, 20), ("nccl", 4e6, 4)])
def test_nccl_trees_cost_as_in_segments_of_512_kib(model: str, algo: str, size: float, segments: int) -> None:
    order, network = np.random.default_rng(5).permutation(16), fabric(16, 1.0)
    by_size, cut, whole = (
        cost_by_model(algo, 16, Options(segments=count), network, size, model)(order) for count in (None, segments, 1)
    )
    assert by_size == cut < whole


@pytest.mark.parametrize("segments", [4, 16, 64])
def test_overlapping_rounds_of_a_segmented_tree_take_as_long_as_simulated(segments: int) -> None:
    """Equal hosts: the way back overlaps the way there, so that rounds add up to the pipeline's time."""
    order, network = np.arange(32), fabric(32)
    args = "nccl-tree", 32, Options(segments=segments), network, 50e6
    rounds, simulated = cost_function_for(*args, "contention")(order), cost_by_model(*args, "simulated")(order)
    assert rounds == pytest.approx(simulated, rel=0.1)


@pytest.mark.parametrize("algo", ["flat", "halving-doubling"])
def test_very_large_collectives_go_by_rounds(monkeypatch: pytest.MonkeyPatch, algo: str) -> None:
    network, order = fabric(16, 1.0), np.random.default_rng(2).permutation(16)
    assert not SimulatedCost.of(algo, 16, Options(), network, SIZE, "contention").is_closed_form
    for limit in ("_MAX_TRANSFERS", "_MAX_WIDE_TRANSFERS", "_MAX_FLOWS_AT_ONCE"):
        monkeypatch.setattr(cost, limit, 10)
    large = SimulatedCost.of(algo, 16, Options(), network, SIZE, "contention")
    assert large.is_closed_form
    pattern = in_slices(pattern_for(algo, 16, Options()), engine_slices(algo, Options(), network, SIZE))
    assert large(order) == closed_form(pattern, network, SIZE, "contention")(order)


def test_large_collectives_by_rounds_are_in_slices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hubs add up in some rounds and return the sums in others, which slices do at once: whole it takes twice."""
    network, order = fabric(16, 1.0), np.arange(16)
    options = Options(tree=tier_tree(network, order))
    simulated = SimulatedCost.of("hubs", 16, options, network, 1e9)(order)
    monkeypatch.setattr(cost, "_MAX_WIDE_TRANSFERS", 10)
    by_rounds = SimulatedCost.of("hubs", 16, options, network, 1e9, "contention")
    assert by_rounds.is_closed_form
    assert by_rounds(order) == pytest.approx(simulated, rel=0.1)  # four equal links add 9 %


def test_unmeasured_pair_is_named() -> None:
    network = fabric(8)
    network.rtt_us[0, 1] = network.rtt_us[1, 0] = np.nan
    with pytest.raises(NoAnswer, match="h0 - h1"):
        SimulatedCost.of("halving-doubling", 8, Options(), network, SIZE)(np.arange(8))
