"""The model ``contention``: it ranks orders as the simulator does; large collectives go by rounds."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks.clouds import three_tier
from benchmarks.simulation import HOSTS, SIZE_BYTES, fabric_of_cloud, options_for, orders_of
from plink.errors import NoAnswer
from solvers.costs.by_name import cost_function_for, parts_of
from solvers.costs.fabric import BYTES_PER_US, Fabric
from solvers.schedules.catalogue import Options
from solvers.simulation import contention
from solvers.simulation.contention import ContentionCost, cost_by_model

ORDERS = 12


def two_racks(hosts: int, uplink_gbps: float = 1.0) -> Fabric:
    rtt = np.full((hosts, hosts), 20.0)
    np.fill_diagonal(rtt, 0.0)
    rates, uplinks = np.full(hosts, 2.0), np.full(2, uplink_gbps)
    names = tuple(f"h{host}" for host in range(hosts))
    return Fabric(names, rtt, None, rates, rates, np.arange(hosts) * 2 // hosts, uplinks, uplinks, "measured")


@pytest.mark.parametrize(
    ("algo", "least"),
    [("halving-doubling", 0.95), ("recursive-doubling", 0.95), ("bcube", 0.95), ("2lha", 0.95), ("tree", 0.9),
     ("double-binary-tree", 0.9), pytest.param("nccl-tree", 0.9, marks=pytest.mark.extended),
     ("ring-chunked", 0.95)],
)  # fmt: skip
@pytest.mark.parametrize("seed", [1, pytest.param(5, marks=pytest.mark.extended)])
def test_orders_rank_as_in_the_simulator(algo: str, least: float, seed: int) -> None:
    """Uneven racks, on which adding up rounds by their busiest links ranks halving-doubling at 0.7."""
    cloud = three_tier(HOSTS, seed, "uneven")
    fabric, drawn = fabric_of_cloud(cloud, seed), orders_of(cloud, ORDERS, np.random.default_rng((seed, 3)), 4)
    args = algo, HOSTS, options_for(algo, cloud, drawn[0]), fabric, SIZE_BYTES
    predicted, simulated = (
        [cost_by_model(*args, model)(order) for order in drawn] for model in ("contention", "simulated")
    )
    assert spearmanr(predicted, simulated).statistic >= least
    assert predicted == pytest.approx(simulated, rel=0.1)


def test_cost_on_another_fabric_and_of_another_size() -> None:
    order = np.random.default_rng(0).permutation(16)
    fabric = two_racks(16)
    cost = ContentionCost.of("halving-doubling", 16, Options(), fabric, 8e6)
    faster = replace(fabric, host_out_gbps=fabric.host_out_gbps * 2, host_in_gbps=fabric.host_in_gbps * 2,
                     group_out_gbps=fabric.group_out_gbps * 2, group_in_gbps=fabric.group_in_gbps * 2)  # fmt: skip
    assert replace(cost, size_bytes=16e6, fabric=faster)(order) == pytest.approx(cost(order), rel=1e-9)


@pytest.mark.parametrize("model", ["contention", "simulated"])
def test_tree_of_two_ranks_in_segments(model: str) -> None:
    """P segments up, each followed by its way down, one hop of latency either way: (P + 1) S / (P B) + c."""
    segments, size, fabric = 10, 8e6, two_racks(2, np.inf)
    cost = cost_by_model("tree", 2, Options(segments=segments), fabric, size, model)(np.arange(2))
    assert cost == pytest.approx((segments + 1) * size / segments / (2.0 * BYTES_PER_US) + 20.0, rel=1e-9)


def test_segmented_trees_are_estimated_as_simulated() -> None:
    """Pipelined, a large vector takes far less than its way through all levels."""
    order, fabric = np.random.default_rng(3).permutation(32), two_racks(32, 8.0)
    whole, cut = (
        cost_by_model("nccl-tree", 32, Options(segments=count), fabric, 50e6, "contention")(order) for count in (1, 16)
    )
    assert cut < whole / 2
    simulated = cost_by_model("nccl-tree", 32, Options(segments=16), fabric, 50e6, "simulated")(order)
    assert cut == pytest.approx(simulated, rel=0.1)


@pytest.mark.parametrize("model", ["alpha-beta", "contention", "simulated"])
@pytest.mark.parametrize(("algo", "size", "segments"), [("nccl-tree", 20e6, 20), ("nccl", 4e6, 4)])
def test_nccl_trees_cost_as_in_segments_of_512_kib(model: str, algo: str, size: float, segments: int) -> None:
    order, fabric = np.random.default_rng(5).permutation(16), two_racks(16)
    by_size, cut, whole = (
        cost_by_model(algo, 16, Options(segments=count), fabric, size, model)(order) for count in (None, segments, 1)
    )
    assert by_size == cut < whole


def test_segments_do_not_change_latencies() -> None:
    order, fabric = np.random.default_rng(5).permutation(16), two_racks(16)
    fabric.rtt_us[:] = np.arange(16)[:, None] + np.arange(16)[None, :]
    costs = {
        cost_by_model("nccl-tree", 16, Options(segments=count), fabric, 100e6, "latency")(order)
        for count in (None, 1, 7)
    }
    assert len(costs) == 1


@pytest.mark.parametrize("segments", [4, 16, 64])
def test_overlapping_rounds_of_a_segmented_tree_take_as_long_as_simulated(segments: int) -> None:
    """Equal hosts: the way back overlaps the way there, so that rounds add up to the pipeline's time."""
    order, fabric = np.arange(32), two_racks(32, np.inf)
    args = "nccl-tree", 32, Options(segments=segments), fabric, 50e6
    rounds, simulated = cost_function_for(*args, "contention")(order), cost_by_model(*args, "simulated")(order)
    assert rounds == pytest.approx(simulated, rel=0.1)


def test_nccl_is_the_weighted_mean_of_its_parts() -> None:
    order = np.random.default_rng(1).permutation(8)
    mixed = ContentionCost.of("nccl", 8, Options(), two_racks(8), 4e6)
    expected = [(w, name, ContentionCost.of(name, 8, Options(), two_racks(8), 4e6)(order)) for w, name in
                parts_of("nccl", 4e6)]  # fmt: skip
    assert mixed.part_costs(order) == expected
    assert mixed(order) == pytest.approx(sum(weight * us for weight, _, us in expected))


@pytest.mark.parametrize("algo", ["flat", "halving-doubling"])
def test_very_large_collectives_go_by_rounds(monkeypatch: pytest.MonkeyPatch, algo: str) -> None:
    fabric, order = two_racks(16), np.random.default_rng(2).permutation(16)
    assert not ContentionCost.of(algo, 16, Options(), fabric, 8e6).is_closed_form
    monkeypatch.setattr(contention, "MAX_ESTIMATED_TRANSFERS", 10)
    monkeypatch.setattr(contention, "MAX_FLOWS_AT_ONCE", 10)
    large = ContentionCost.of(algo, 16, Options(), fabric, 8e6)
    assert large.is_closed_form
    assert large(order) == cost_function_for(algo, 16, Options(), fabric, 8e6, "contention")(order)


def test_unmeasured_pair_is_named() -> None:
    fabric = two_racks(8)
    fabric.rtt_us[0, 1] = fabric.rtt_us[1, 0] = np.nan
    with pytest.raises(NoAnswer, match="h0 - h1"):
        ContentionCost.of("halving-doubling", 8, Options(), fabric, 8e6)(np.arange(8))
