"""What hosts take for messages and bytes, fitted to made timings."""

from collections.abc import Sequence

import numpy as np
import pytest

from plink.errors import NoAnswer
from solvers.checking import CollectiveTiming, fit_host_costs
from solvers.costs.evaluator import with_host_costs
from solvers.costs.fabric import Fabric
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import cost_by_model
from tests.solvers.synthetic import random_costs

NOW = "2026-11-28T12:00:00Z"
HOSTS, REPEATS, NOISE = 16, 15, 0.05
SIZES = [1024 * 4**k for k in range(8)]
OPTIONS = Options(groups=tuple(tuple(range(first, first + 4)) for first in range(0, HOSTS, 4)))
ALGORITHMS = ("ring", "halving-doubling", "2lha")


def fabric(uplink_gbps: float = 20.0) -> Fabric:
    """Four racks of four hosts."""
    rates, uplinks = np.full(HOSTS, 10.0), np.full(4, uplink_gbps)
    names = tuple(f"h{host}" for host in range(HOSTS))
    rtt_us = random_costs(HOSTS, 0, 20, 100)
    return Fabric(names, rtt_us, None, rates, rates, np.arange(HOSTS) // 4, uplinks, uplinks, "measured")


def timings(
    overhead_us: float, byte_ns: float, sizes: Sequence[int] = SIZES, algorithms: Sequence[str] = ALGORITHMS,
    slow: int = 0,
) -> list[CollectiveTiming]:  # fmt: skip
    """Simulated times under lognormal noise. ``slow``: so many timings take three times as long."""
    rng, order, costly = np.random.default_rng(1), np.arange(HOSTS), with_host_costs(fabric(), overhead_us, byte_ns)
    made = []
    for algo in algorithms:
        for size in sizes:
            factor = 3.0 if len(made) < slow else 1.0
            exact_us = cost_by_model(algo, HOSTS, OPTIONS, costly, size, "simulated")(order)
            seconds = exact_us / 1e6 * factor * np.exp(NOISE * rng.standard_normal(REPEATS))
            made.append(CollectiveTiming(algo, OPTIONS, order, size, tuple(seconds.tolist())))
    return made


@pytest.mark.parametrize(
    ("overhead_us", "byte_ns"),
    [(30.0, 1.0), *(pytest.param(*costs, marks=pytest.mark.extended) for costs in ((100.0, 0.5), (8.0, 3.0)))],
)
def test_planted_costs_are_recovered(overhead_us: float, byte_ns: float) -> None:
    """Within 5 % under noise of 5 %, and the interval holds them."""
    costs = fit_host_costs(fabric(), timings(overhead_us, byte_ns), "contention", NOW)
    assert costs.overhead_us == pytest.approx(overhead_us, rel=0.05)
    assert costs.byte_ns == pytest.approx(byte_ns, rel=0.05)
    assert costs.overhead_interval_us is not None
    assert costs.byte_interval_ns is not None
    assert costs.overhead_interval_us[0] <= overhead_us <= costs.overhead_interval_us[1]
    assert costs.byte_interval_ns[0] <= byte_ns <= costs.byte_interval_ns[1]
    assert costs.error < NOISE


@pytest.mark.extended
def test_single_slow_timings_do_not_move_the_fit() -> None:
    costs = fit_host_costs(fabric(), timings(30.0, 1.0, slow=2), "contention", NOW)
    assert costs.overhead_us == pytest.approx(30.0, rel=0.05)
    assert costs.byte_ns == pytest.approx(1.0, rel=0.05)


def test_hosts_that_take_nothing_have_no_negative_costs() -> None:
    costs = fit_host_costs(fabric(), timings(0.0, 0.0), "contention", NOW)
    assert 0 <= costs.overhead_us < 1
    assert 0 <= costs.byte_ns < 0.05


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([], "4 sizes or more"),
        (timings(30.0, 1.0, [1024, 4096, 16384]), "there are 3: "),
        (timings(30.0, 1.0, [1024, 2048, 4096, 8192]), "16 times the smallest"),
        (timings(30.0, 0.0, [64, 256, 1024, 4096]), "ring: times do not grow with the size"),
    ],
)
def test_timings_that_do_not_tell_are_refused(made: list[CollectiveTiming], message: str) -> None:
    with pytest.raises(NoAnswer, match=message):
        fit_host_costs(fabric(), made, "contention", NOW)


def test_costs_that_leave_the_model_further_off_are_refused() -> None:
    """Small vectors take a cost of messages that the more numerous large ones do not show: these were exact without."""
    small = timings(100.0, 0.0, SIZES[:3], ["ring"])
    large = timings(0.0, 0.0, [size + 4 * k for size in SIZES[6:8] for k in range(2)], ["ring"])
    with pytest.raises(NoAnswer, match="off by"):
        fit_host_costs(fabric(), small + large, "contention", NOW)


def test_a_cost_that_the_links_hide_is_none() -> None:
    """All bytes cross slow uplinks, so that those of hosts are not seen: no figure, and no interval."""
    slow, order = fabric(uplink_gbps=0.5), np.arange(HOSTS).reshape(4, 4).T.ravel()
    costly = with_host_costs(slow, 30.0, 0.5)
    made = []
    for size in SIZES:
        cost_us = cost_by_model("ring", HOSTS, OPTIONS, costly, size, "simulated")(order)
        made.append(CollectiveTiming("ring", OPTIONS, order, size, (cost_us / 1e6,)))
    costs = fit_host_costs(slow, made, "contention", NOW)
    assert (costs.byte_ns, costs.byte_interval_ns) == (0.0, None)
    assert costs.overhead_us == pytest.approx(30.0, rel=0.15)
