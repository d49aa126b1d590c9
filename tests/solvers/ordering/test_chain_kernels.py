"""Annealing of chains: what it keeps up agrees with what is found afresh, wishes hold, and good orders are found."""

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.fabric import Fabric
from solvers.ordering.annealing import Annealer
from solvers.ordering.chain_kernels import afresh, follow, later, widths
from solvers.ordering.moves import moves_of
from solvers.ordering.objectives import chain_of
from solvers.ordering.seats import Seats, Wishes
from solvers.ordering.task import Order
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.test_order_search import alike
from tests.solvers.synthetic import racks

TREES = ["tree", "double-binary-tree", "nccl-tree"]


def annealed(found: Fabric, algo: str, order: Order, wishes: Wishes, moves: int) -> tuple[Annealer, Order, float]:
    """One run: the best order, its cost."""
    annealer = Annealer(pattern_for(algo, len(order), Options()), found, 1e6, "latency")
    seats = Seats(order, found.names, wishes)
    start = seats.arrange(seats.hosts)
    exchanged = moves_of(seats.classes(start), len(order))
    assert exchanged is not None
    best, cost, last = annealer.run(start, exchanged, moves, 10.0, 1.0, 5)
    for one in (best, last):
        assert seats.arrange(list(dict.fromkeys(one.tolist()))).tolist() == one.tolist()
    assert cost <= annealer.price(start) * (1 + 1e-9)
    return annealer, best, cost


def test_the_shorter_of_two_chains_counts_when_it_is_nearly_as_long() -> None:
    assert later(5.0, 5.0, 4.0) == 6.0
    assert later(3.0, 5.0, 4.0) == later(5.0, 3.0, 4.0) == 5.25
    assert later(1.0, 5.0, 4.0) == later(5.0, 0.0, 4.0) == 5.0


def annealed_price(algo: str, n: int, order: Order) -> float:
    return Annealer(pattern_for(algo, n, Options()), fabric(n, 4), 1e6, "latency").price(order)


@pytest.mark.parametrize("wide", [1e-9, 10.0, 1e6])
@pytest.mark.parametrize("algo", TREES)
def test_followed_changes_are_what_is_found_afresh(algo: str, wide: float) -> None:
    """Also taken back, and with no width to speak of the stand-in is the longest chain."""
    n = 40
    rtt, pattern = fabric(n, 4).rtt_us, pattern_for(algo, n, Options())
    source, target, wait_ptr, waits, after, last, _, hop_ptr, hop_of = (np.asarray(a) for a in chain_of(pattern))
    hops, rng, order = len(source), np.random.default_rng(6), np.arange(n)
    width = widths(wait_ptr, waits, wide)
    done, smooth, fresh = np.zeros(hops), np.zeros(hops), np.zeros(hops)
    afresh(order, source, target, wait_ptr, waits, rtt, done, smooth, width)
    changed, was = np.empty(hops * 10, np.int64), np.empty(hops * 10)
    for _ in range(200):
        ranks = rng.choice(n, int(rng.integers(2, 6)), replace=False)
        before, kept = order.copy(), smooth.copy()
        order[ranks] = order[np.roll(ranks, 1)]
        followed = (order, source, target, wait_ptr, waits, after, hop_ptr, hop_of, rtt, smooth, width, changed, was)
        found = follow(ranks, len(ranks), *followed)
        longest = afresh(order, source, target, wait_ptr, waits, rtt, done, fresh, width)
        assert longest == pytest.approx(annealed_price(algo, n, order), rel=1e-9)
        assert smooth.tolist() == fresh.tolist()
        assert (smooth >= done - 1e-9).all()
        if wide < 1:
            assert smooth[last].max() == pytest.approx(longest)
        if rng.random() < 0.5:
            for k in range(found - 1, -1, -1):
                smooth[changed[k]] = was[k]
            order = before
            assert smooth.tolist() == kept.tolist()


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("algo", TREES)
def test_the_cost_is_that_of_the_order_and_wishes_hold(algo: str, slots: int) -> None:
    n = 16 // slots
    order = np.repeat(np.random.default_rng(8).permutation(n), slots)
    groups = [list(range(k, n, 4)) for k in range(4)]
    for wishes in (Wishes(), Wishes({3: 6}), Wishes({}, groups)):
        for moves in (0, 1, 3000):
            annealer, best, cost = annealed(fabric(n, 8), algo, order, wishes, moves)
            assert cost == pytest.approx(annealer.price(best), rel=1e-9)


@pytest.mark.parametrize("hosts", [2, 3, 5, 37])
@pytest.mark.parametrize("algo", TREES)
def test_any_number_of_ranks_will_do(algo: str, hosts: int) -> None:
    order = np.random.default_rng(hosts).permutation(hosts)
    first, second = (annealed(fabric(hosts, 3), algo, order, Wishes(), 2000) for _ in range(2))
    assert sorted(first[1].tolist()) == list(range(hosts))
    assert first[1].tolist() == second[1].tolist()


def test_round_trips_of_nothing_do_no_harm() -> None:
    _, best, cost = annealed(alike(np.zeros((8, 8))), "tree", np.arange(8), Wishes(), 2000)
    assert sorted(best.tolist()) == list(range(8))
    assert cost == 0


@pytest.mark.parametrize("algo", TREES)
def test_no_chain_leaves_racks_more_often_than_it_must(algo: str) -> None:
    """Sixteen racks of eight: far below what is dealt at random, where nearly every hop leaves a rack."""
    rtt, _ = racks([8] * 16, 1, near=1.0, far=100.0)
    annealer, _, cost = annealed(alike(rtt), algo, np.arange(128), Wishes(), 600_000)
    random = [annealer.price(np.random.default_rng(k).permutation(128)) for k in range(20)]
    assert cost < 0.7 * np.median(random)
