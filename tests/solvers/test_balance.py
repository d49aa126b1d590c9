"""Balance of an exchange and links: bytes by hand, racks by the thesis's rule and by the cost model."""

import numpy as np
import pytest

from benchmarks.balance import fitted, made_up_network, ratios, simulated_forms, table_2_1, thesis_ratios
from solvers.balance import busiest_link, rack_times, wide_hosts
from solvers.balance_money import NetworkParts
from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric
from solvers.schedules.catalogue import Options

RACKS, WORKERS, SIZE = 4, 4, 1e7
HOST_GBPS, HUB_GBPS = 0.1, 0.4


def racks(uplink_gbps: float) -> tuple[Fabric, list[list[int]]]:
    """Four racks of four workers and a hub, hubs last, with no latency; their groups of ranks."""
    group_of = np.array([k // WORKERS for k in range(RACKS * WORKERS)] + list(range(RACKS)))
    rates = np.where(np.arange(len(group_of)) < RACKS * WORKERS, HOST_GBPS, HUB_GBPS)
    links = np.full(RACKS, uplink_gbps)
    names = tuple(f"h{k}" for k in range(len(group_of)))
    rtt = np.zeros((len(names), len(names)))
    fabric = Fabric(names, rtt, None, rates, rates, group_of, links, links, "measured")
    return fabric, [np.flatnonzero(group_of == rack).tolist() for rack in range(RACKS)]


@pytest.mark.parametrize(
    ("uplink", "sequential", "streamed"),
    [(0.05, 2.40, 4.0), (0.1, 1.714, 4.0), (0.2, 1.09, 2.182), (0.4, 0.632, 1.091)],
)
def test_rack_by_rack_is_what_the_cost_model_says(uplink: float, sequential: float, streamed: float) -> None:
    """Phase after phase; the cost model stretches eight equal links, four out and four in, by 8^(1/16). There and back
    is twice as long as one way, and with both at once only where a link has bytes of both each way."""
    times = rack_times([WORKERS] * RACKS, [HUB_GBPS] * RACKS, [uplink] * RACKS, HOST_GBPS, SIZE)
    assert times.flat_s / times.sequential_s == pytest.approx(sequential, rel=0.01)
    assert times.flat_s / times.streamed_s == pytest.approx(streamed, rel=0.01)
    fabric, groups = racks(uplink)
    order = np.arange(len(fabric.names))
    options = Options(servers=RACKS, groups=groups)
    hubs_s = 2 * RACKS * WORKERS * SIZE * 8 / 1e9 / (RACKS * HUB_GBPS)
    for algo, seconds in (("phub", max(times.flat_s, hubs_s)), ("phub-2l", times.sequential_s)):
        cost_us = closed_form(pattern_for(algo, len(order), options), fabric, SIZE, "contention")(order)
        assert seconds * 0.999 <= cost_us / 1e6 <= seconds * 1.14, algo


def test_racks_may_be_uneven() -> None:
    """Seven and one worker: the larger rack's link is the limit, or the smaller one's, and the larger one's hub."""
    times = rack_times([7, 1], [0.4, 0.4], [0.1, 0.1], 0.1, 1.25e7)
    assert (times.flat_s, times.sequential_s, times.streamed_s) == pytest.approx((4.0, 3.5 + 1.0, 1.75 + 0.25))
    assert rack_times([7, 1], [0.4, 0.4], [0.1, 0.05], 0.1, 1.25e7).flat_s == pytest.approx(8.0)


def test_the_busiest_link_is_named_with_its_bytes() -> None:
    fabric, groups = racks(0.05)
    ring = pattern_for("ring", RACKS * WORKERS, Options())
    link = busiest_link(ring, fabric, np.arange(RACKS * WORKERS), SIZE)
    assert link is not None
    assert (link.name, link.gbps, link.equals) == ("the way out of the group of h0", 0.05, 2 * RACKS - 1)
    assert link.bytes == pytest.approx(SIZE * 2 * 15 / 16)
    hubs = pattern_for("phub", len(fabric.names), Options(servers=RACKS, groups=groups))
    link = busiest_link(hubs, fabric, np.arange(len(fabric.names)), SIZE, shared=False)
    assert link is not None
    assert link.bytes / link.gbps == pytest.approx(SIZE / HOST_GBPS)  # of workers, and of hubs
    assert busiest_link(ring, fabric, np.zeros(RACKS * WORKERS, dtype=np.intp), SIZE) is None


def test_wide_hosts_come_the_widest_first() -> None:
    assert wide_hosts([1, 1, 2, 1, 10, 1]) == [4, 2]
    assert wide_hosts([1, 1.9, 1, 1]) == []
    assert wide_hosts([1, 10]) == []  # of two nobody knows which is usual


def test_parts_add_up() -> None:
    """A link: 10 + 1 + 2, and half of four ports and two cables."""
    parts = NetworkParts(100, 50, 10, 1, 2, 500, 20, 3, oversubscription=2)
    assert parts.link(10) == 17
    assert parts.total(8, 2) == 8 * 167 + 2 * (500 + 3 * 27)


def test_servers_need_what_table_2_1_says() -> None:
    """Within a row its cells are the bytes of plink's schedules; the times of Table 6.1 are others by 10 % at most."""
    for model, row in table_2_1().items():
        for form, cell in row.items():
            assert cell["by_ncc"] == pytest.approx(cell["thesis"], abs=1), (model, form)
            assert cell["thesis"] == pytest.approx(cell["by_table_6_1"], rel=0.1), (model, form)


def test_money_gains_what_table_6_3_says() -> None:
    fit, error = fitted()
    assert error <= 0.015
    for own, thesis, gain in zip(ratios(fit), thesis_ratios(), (0.25, 0.06, 0.36), strict=True):
        assert own == pytest.approx(thesis, rel=0.015)
        assert own[1] - 1 == pytest.approx(gain, abs=0.02)


@pytest.mark.parametrize("seed", [2, 3, 7])
def test_the_first_form_is_the_simulators_fastest(seed: int) -> None:
    seconds, first = simulated_forms(made_up_network(seed))
    assert first <= 1.05 * min(seconds.values())
