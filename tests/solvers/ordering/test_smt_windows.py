"""Tables over undecided orders: for every way to exchange contents they say what the cost says, never more."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric, TierLinks
from solvers.ordering.smt_windows import LongestLoad, Window, longest_loads
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.synthetic import Matrix, Tour

SIZE = 1e5


def one_way(n: int, seed: int, high: int = 1000) -> Matrix:
    """Whole numbers, other ones there than back; from a host to itself as well."""
    cost: Matrix = np.random.default_rng(seed).integers(0, high, (n, n)).astype(float)
    return cost


def windows(order: Tour, seed: int) -> list[list[list[int]]]:
    """Units to exchange: every rank, three of them, two and three blocks of two, of ranks anywhere."""
    ranks = np.random.default_rng(seed).permutation(len(order)).tolist()
    return [
        [[rank] for rank in ranks],
        [[rank] for rank in ranks[:3]],
        [ranks[:2], ranks[2:4]],
        [ranks[:2], ranks[2:4], ranks[4:6]],
    ]


def placed(order: Tour, units: Sequence[Sequence[int]], contents: Sequence[int]) -> Tour:
    """The order after unit u got what unit ``contents[u]`` had."""
    changed = order.copy()
    for unit, content in zip(units, contents, strict=True):
        for to, of in zip(unit, units[content], strict=True):
            changed[to] = order[of]
    return changed


def test_exchanged_contents_keep_their_places_in_a_unit() -> None:
    window = Window(np.array([10, 11, 12, 13, 14, 15, 16]) - 10, [[0, 2], [5, 3], [6, 1]], 100.0)
    assert window.identity() == [0, 1, 2]
    assert window.materialise([0, 1, 2]).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert window.materialise([1, 2, 0]).tolist() == [5, 2, 3, 1, 4, 6, 0]
    assert window.unit_of.tolist() == [0, 2, 0, 1, -1, 1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_a_load_of_whole_costs_is_the_sum_of_its_hops_whatever_is_exchanged(seed: int) -> None:
    """Hops between units, inside one, to ranks that stay and among these, also from a rank to the same one."""
    n = 6
    rng, cost = np.random.default_rng(seed), one_way(n, seed)
    order = rng.permutation(n) if seed % 2 else rng.integers(0, n, n)
    for units in windows(order, seed):
        source, target = rng.integers(0, n, (2, 9))
        weight = rng.integers(1, 5, 9).astype(float)
        window = Window(order, units, 1e5)
        load = window.load(source, target, weight, lambda i, j: cost[i, j])
        for contents in itertools.permutations(range(len(units))):
            other = placed(order, units, contents)
            assert window.materialise(contents).tolist() == other.tolist()
            expected = sum(w * cost[other[a], other[b]] for a, b, w in zip(source, target, weight, strict=True))
            assert load.value(list(contents)) == expected * window.scale
            assert load.minimum <= expected * window.scale
        for term in load.terms:
            assert (term.values >= 0).all()


def test_a_cost_that_is_not_known_is_more_than_the_bound() -> None:
    """Only where it plays a part: between the contents of two units, or of a unit and a rank that stays."""
    cost = np.full((4, 4), 10.0)
    cost[0, 1] = np.nan
    cost[2, 3] = np.inf
    for units in ([[0], [1], [2]], [[0], [2], [3]], [[1], [0], [2], [3]]):
        window = Window(np.arange(4), units, 50.0)
        load = window.load(np.array([1]), np.array([2]), np.ones(1), lambda i, j: cost[i, j])
        for contents in itertools.permutations(range(len(units))):
            hop = cost[tuple(placed(np.arange(4), units, contents)[[1, 2]])]
            value = load.value(list(contents))
            assert value == 10 * window.scale if np.isfinite(hop) else value > window.bound
    still = Window(np.arange(4), [[2], [3]], 50.0)
    assert still.load(np.array([0]), np.array([1]), np.ones(1), lambda i, j: cost[i, j]).minimum > still.bound


def table_cost(parts: list[LongestLoad], contents: list[int]) -> float:
    """What the tables say of a choice: of each part the largest load, and the 16-norm of what groups share."""
    total = 0.0
    for part in parts:
        shared = np.array([load.value(contents) for load in part.shared], dtype=float)
        most = shared.max(initial=0.0)
        norm = most * float(((shared / most) ** 16).sum()) ** (1 / 16) if most > 0 else 0.0
        total += max(norm, max((load.value(contents) for load in part.loads), default=0))
    return total


def narrow(n: int, seed: int, pairs: bool) -> Fabric:
    """Two racks that share less than their hosts could send, other rates out than in, and item that shares nothing;
    the first two in a pod that shares less still."""
    result = fabric(n, seed, pairs=pairs)
    out, into = np.array([0.3, 0.4, np.inf]), np.array([0.5, np.inf, 0.7])
    pods = TierLinks(np.arange(n) % 3 // 2, np.array([0.25, np.inf]), np.array([0.2, 0.3]))
    return dataclasses.replace(
        result, group_of=np.arange(n) % 3, group_out_gbps=out, group_in_gbps=into, outer_tiers=(pods,)
    )


@pytest.mark.parametrize(
    ("algo", "model", "slots"),
    [
        ("ring", "latency", 1),
        ("ring-chunked", "latency", 2),
        ("halving-doubling", "latency", 2),
        ("halving-doubling", "alpha-beta", 1),
        ("2lha", "alpha-beta", 2),
        ("ring", "contention", 2),
        ("halving-doubling", "contention", 1),
    ],
)
def test_tables_match_the_cost_of_every_choice(algo: str, model: str, slots: int) -> None:
    """Never more; and less only by one for each hop, scaled, that is rounded down in a table."""
    n = 6
    result = narrow(n, slots, slots == 2)
    order = np.repeat(np.random.default_rng(slots).permutation(n)[: n // slots], slots)
    pattern = pattern_for(algo, n, Options(groups=[[0, 1], [2, 3, 4], [5]], segments=2))
    cost_of = closed_form(pattern, result, SIZE, model)
    most = 3 * float(pattern.repeat.sum()) * (len(pattern.source) + n)
    for units in windows(order, 1)[1:3]:
        window = Window(order, units, 2 * cost_of(order))
        parts = longest_loads(window, pattern, result, SIZE, model)
        for contents in itertools.permutations(range(len(units))):
            exact = cost_of(placed(order, units, contents)) * window.scale
            assert exact - most <= table_cost(parts, list(contents)) <= exact * (1 + 1e-9)
