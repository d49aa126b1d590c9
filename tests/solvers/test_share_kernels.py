"""Annealing by shares: what it keeps up agrees with the price, wishes hold, and it finds what swaps alone do not."""

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.fabric import Fabric
from solvers.ordering.annealing import Annealer
from solvers.ordering.moves import moves_of
from solvers.ordering.seats import Seats, Wishes
from solvers.ordering.task import Order
from solvers.schedules.catalogue import Options
from tests.solvers.synthetic import racks
from tests.solvers.test_cost_models import fabric
from tests.solvers.test_order_search import alike

TREES = ["tree", "double-binary-tree", "nccl-tree"]


def by_shares(found: Fabric, algo: str, order: Order, wishes: Wishes, moves: int) -> tuple[Annealer, Order, float]:
    """One run: the best order, its cost."""
    annealer = Annealer(pattern_for(algo, len(order), Options()), found, 1e6, "latency")
    seats = Seats(order, found.names, wishes)
    start = seats.arrange(seats.hosts)
    exchanged = moves_of(seats.classes(start), len(order))
    assert exchanged is not None
    best, cost, last = annealer.run(start, exchanged, moves, 1000.0, 1.0, 5, None)
    for one in (best, last):
        assert seats.arrange(list(dict.fromkeys(one.tolist()))).tolist() == one.tolist()
    assert cost <= annealer.price(start) * (1 + 1e-9)
    return annealer, best, cost


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("algo", TREES)
def test_the_cost_is_that_of_the_order_and_wishes_hold(algo: str, slots: int) -> None:
    n = 16 // slots
    order = np.repeat(np.random.default_rng(8).permutation(n), slots)
    groups = [list(range(k, n, 4)) for k in range(4)]
    for wishes in (Wishes(), Wishes({3: 6}), Wishes({}, groups)):
        for moves in (0, 1, 3000):
            annealer, best, cost = by_shares(fabric(n, 8), algo, order, wishes, moves)
            assert cost == pytest.approx(annealer.price(best), rel=1e-9)


@pytest.mark.parametrize("hosts", [2, 3, 5, 37])
@pytest.mark.parametrize("algo", TREES)
def test_any_number_of_ranks_will_do(algo: str, hosts: int) -> None:
    order = np.random.default_rng(hosts).permutation(hosts)
    first, second = (by_shares(fabric(hosts, 3), algo, order, Wishes(), 2000) for _ in range(2))
    assert sorted(first[1].tolist()) == list(range(hosts))
    assert first[1].tolist() == second[1].tolist()


def test_round_trips_of_nothing_do_no_harm() -> None:
    _, best, cost = by_shares(alike(np.zeros((8, 8))), "tree", np.arange(8), Wishes(), 2000)
    assert sorted(best.tolist()) == list(range(8))
    assert cost == 0


@pytest.mark.parametrize("algo", TREES)
def test_no_chain_leaves_racks_more_often_than_it_must(algo: str) -> None:
    """Sixteen racks of eight: far below what is dealt at random, where nearly every hop leaves a rack."""
    rtt, _ = racks([8] * 16, 1, near=1.0, far=100.0)
    annealer, _, cost = by_shares(alike(rtt), algo, np.arange(128), Wishes(), 600_000)
    random = [annealer.price(np.random.default_rng(k).permutation(128)) for k in range(20)]
    assert cost < 0.7 * np.median(random)
