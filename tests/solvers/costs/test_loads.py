"""Loads of links and bottlenecks: the cost model's own figures, by link."""

from typing import Any

import numpy as np
import pytest

from solvers.costs.by_name import parts_of, pattern_for
from solvers.costs.evaluator import evaluate
from solvers.costs.fabric import BYTES_PER_US, fabric_of
from solvers.costs.loads import bottleneck_of, link_bytes
from solvers.schedules.catalogue import Options, schedule_for
from tests.solvers.costs.test_fabric import network, row

ORDER = np.array([0, 1, 2, 3, 4, 5, 6, 7])
SIZE = 8e6


def fabric_of_racks(**changes: Any) -> Any:
    links = [{"groups": [row([0, 1, 2, 3], **changes), row([4, 5, 6, 7])]}]
    return fabric_of(network([4, 4], shared_links=links)[0])


def patterns_for(algo: str) -> Any:
    return [(weight, pattern_for(name, 8, Options())) for weight, name in parts_of(algo, SIZE, fabric_of_racks())]


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "flat", "tree"])
def test_bytes_over_links_are_those_of_the_schedule(algo: str) -> None:
    fabric = fabric_of_racks()
    schedule = schedule_for(algo, 8, Options())
    crossing = fabric.group_of[schedule.source] != fabric.group_of[schedule.target]
    moved = schedule.count * (SIZE / schedule.chunks) * crossing
    expected = np.bincount(fabric.group_of[schedule.source], moved, 2)
    out, into = link_bytes(patterns_for(algo), ORDER, SIZE, fabric.group_of, 2)
    assert out == pytest.approx(expected)
    assert into == pytest.approx(np.bincount(fabric.group_of[schedule.target], moved, 2))


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "flat"])
def test_bottleneck_costs_what_the_evaluator_says(algo: str) -> None:
    fabric = fabric_of_racks(out_gbps=0.5)
    price = evaluate(schedule_for(algo, 8, Options()), fabric, ORDER, SIZE, "contention")
    result = bottleneck_of(patterns_for(algo), fabric, ORDER, SIZE, "contention")
    assert result is not None
    assert result.cost_us == pytest.approx(price.cost_us)
    assert set(result.resources) <= set(price.busiest)


def test_slow_uplink_is_blamed_with_the_hops_over_it() -> None:
    fabric = fabric_of_racks(out_gbps=0.5)
    result = bottleneck_of(patterns_for("ring"), fabric, ORDER, SIZE, "contention")
    assert result is not None
    assert (result.kind, result.hosts, result.links) == ("links", (0, 1, 2, 3), ((0, 0, True),))
    assert result.resources == ("the way out of the group of h0",)
    assert result.hops.tolist() == [[3, 4]]
    sent = SIZE * 2 * 7 / 8
    assert result.time_us == pytest.approx(sent / (0.5 * BYTES_PER_US))


def test_slow_uplink_of_a_pod_is_blamed() -> None:
    racks = {"groups": [row([2 * k, 2 * k + 1]) for k in range(4)]}
    pods = {"groups": [row([0, 1, 2, 3], in_gbps=0.25), row([4, 5, 6, 7])]}
    fabric = fabric_of(network([2, 2, 2, 2], shared_links=[racks, pods])[0])
    result = bottleneck_of(patterns_for("ring"), fabric, ORDER, SIZE, "contention")
    assert result is not None
    assert (result.hosts, result.links) == ((0, 1, 2, 3), ((1, 0, False),))
    assert result.resources == ("the way into the tier-2 group of h0",)
    assert result.hops.tolist() == [[7, 0]]


def test_latency_is_blamed_for_small_vectors() -> None:
    result = bottleneck_of(patterns_for("ring"), fabric_of_racks(), ORDER, 80.0, "contention")
    assert result is not None
    assert (result.kind, result.resources) == ("latency", ())


def test_ranks_of_one_host_have_no_bottleneck() -> None:
    fabric = fabric_of_racks()
    assert bottleneck_of(patterns_for("ring"), fabric, np.zeros(8, dtype=np.intp), SIZE, "contention") is None
