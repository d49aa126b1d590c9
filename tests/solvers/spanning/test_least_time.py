"""Least possible time of all-reduces on tiers, against a linear programme over all trees, and weights that reach it."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from benchmarks.optimal import busiest_us_per_byte, uneven_tree
from plink.errors import UsageError
from solvers.costs.fabric import BYTES_PER_US, Fabric, TierLinks
from solvers.costs.least_time import least_time_on, tier_tree
from solvers.costs.patterns import masters_pattern
from solvers.planning import weights_by
from solvers.schedules.catalogue import Options
from solvers.schedules.masters import equal_chunks
from solvers.simulation.cost import SimulatedCost
from solvers.spanning.least_time import least_time, work
from solvers.spanning.tier_tree import TierTree, regrouped
from tests.solvers.spanning.networks import tree

Edges = list[tuple[int, int]]


def fabric(out: list[float], into: list[float], *tiers: tuple[list[int], list[float], list[float]]) -> Fabric:
    """Return hosts of these rates, Gbit/s, in tiers, each groups of hosts and what groups' links carry, inside out."""
    n = len(out)
    links = [TierLinks(np.array(labels), np.array(o), np.array(i)) for labels, o, i in tiers]
    rtt = np.ones((n, n)) - np.eye(n)
    return Fabric(
        tuple(f"h{k}" for k in range(n)), rtt, None, np.array(out), np.array(into), links[0].group_of,
        links[0].out_gbps, links[0].in_gbps, "measured", True, tuple(links[1:]),
    )  # fmt: skip


def trees(n: int) -> Iterator[Edges]:
    """Yield all spanning trees of n hosts, by Pruefer's codes."""
    for code in itertools.product(range(n), repeat=n - 2):
        degree = [1 + code.count(v) for v in range(n)]
        edges = []
        for c in code:
            leaf = degree.index(1)
            edges.append((leaf, c))
            degree[leaf] -= 1
            degree[c] -= 1
        a, b = (v for v in range(n) if degree[v] == 1)
        yield [*edges, (a, b)]


def towards(edges: Edges, root: int) -> Edges:
    """Return the edges of a tree, each from the far end to the near one."""
    directed, stack = [], [(root, -1)]
    while stack:
        v, previous = stack.pop()
        for u in [a + b - v for a, b in edges if v in (a, b)]:
            if u != previous:
                directed.append((u, v))
                stack.append((u, v))
    return directed


def by_linear_programme(network: Fabric) -> float:
    """Return the least microseconds a byte over all mixtures of reduction and broadcast trees, each with its root."""
    n = len(network.names)
    labels = [np.arange(n), *(tier.group_of for tier in network.tiers)]
    out = np.concatenate([network.host_out_gbps, *(tier.out_gbps for tier in network.tiers)]) * BYTES_PER_US
    into = np.concatenate([network.host_in_gbps, *(tier.in_gbps for tier in network.tiers)]) * BYTES_PER_US
    columns, roots = [], []
    for edges in trees(n):
        for root in range(n):
            sent, received = ([0.0] * len(out) for _ in range(2))
            for a, b in towards(edges, root):
                first = 0
                for group_of in labels:
                    if group_of[a] != group_of[b]:
                        sent[first + group_of[a]] += 1
                        received[first + group_of[b]] += 1
                    first += int(group_of.max()) + 1
            columns.append((sent, received))
            roots.append(root)
    sent, received = (np.array([column[k] for column in columns]).T for k in range(2))
    loads = np.block([[sent, received], [received, sent]])  # a broadcast is a reduction the other way round
    m = len(columns)
    same_root = np.zeros((n, 2 * m))
    same_root[roots, range(m)], same_root[roots, range(m, 2 * m)] = 1, -1
    cost = np.concatenate([-np.ones(m), np.zeros(m)])
    done = linprog(cost, A_ub=loads, b_ub=np.concatenate([out, into]), A_eq=same_root, b_eq=np.zeros(n))
    return float(-1 / done.fun)


@st.composite
def small_networks(draw: st.DrawFn) -> Fabric:
    """Three or four hosts in groups under groups, every link of another rate, and half of them alike both ways."""
    n = draw(st.integers(3, 4))
    inner = np.unique(draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), return_inverse=True)[1]
    groups = int(inner.max()) + 1
    outer = np.unique(draw(st.lists(st.integers(0, 1), min_size=groups, max_size=groups)), return_inverse=True)[1]

    def rates(number: int) -> list[float]:
        return draw(st.lists(st.floats(1, 8), min_size=number, max_size=number))

    pods = int(outer.max()) + 1
    out, alike = [rates(number) for number in (n, groups, pods)], draw(st.booleans())
    into = out if alike else [rates(number) for number in (n, groups, pods)]
    return fabric(out[0], into[0], (inner.tolist(), out[1], into[1]), (outer[inner].tolist(), out[2], into[2]))


@settings(max_examples=25, deadline=None)
@given(small_networks())
def test_closed_form_equals_the_best_mixture_of_trees(network: Fabric) -> None:
    least = least_time_on(network, np.arange(len(network.names)))
    assert least is not None
    best = by_linear_programme(network)
    assert least.us_per_byte <= best * (1 + 1e-9)
    if np.array_equal(network.host_out_gbps, network.host_in_gbps):
        assert least.us_per_byte == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_closed_form_with_rates_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = [[0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 1, 2]][seed % 3]
    hosts, groups = rng.uniform(1, 8, (2, 4)).tolist(), rng.uniform(1, 8, (2, max(labels) + 1)).tolist()
    network = fabric(*hosts, (labels, *groups))
    least = least_time_on(network, np.arange(4))
    assert least is not None
    assert least.us_per_byte == pytest.approx(by_linear_programme(network), rel=1e-9)


def test_a_group_that_works_one_way_and_exports_the_other_way_takes_longer_than_the_bound() -> None:
    """Both go out of its link; so no trees reach the bound where rates are apart like this."""
    network = fabric([4.0, 4, 1, 1], [1.0, 1, 4, 4], ([0, 0, 1, 1], [2.0, 10], [10.0, 10]))
    least = least_time_on(network, np.arange(4))
    assert least is not None
    assert by_linear_programme(network) == pytest.approx(7 / 6 * least.us_per_byte)


@pytest.mark.parametrize("hosts", [2, 3, 8, 33])
def test_equal_hosts_need_what_a_ring_takes(hosts: int) -> None:
    network = fabric([10.0] * hosts, [10.0] * hosts, ([0] * hosts, [np.inf], [np.inf]))
    least = least_time_on(network, np.arange(hosts))
    assert least is not None
    assert least.us_per_byte == pytest.approx(2 * (hosts - 1) / hosts / (10 * BYTES_PER_US), rel=1e-12)


def test_links_that_limit_are_named() -> None:
    slow = fabric([10.0] * 15 + [2.5], [10.0] * 15 + [2.5], ([0] * 16, [np.inf], [np.inf]))
    least = least_time_on(slow, np.arange(16))
    assert least is not None
    assert "h15 at 2.5" in least.limited_by
    assert least.us_per_byte == pytest.approx(1 / (2.5 * BYTES_PER_US))
    racks = fabric([10.0] * 8, [10.0] * 8, ([0] * 4 + [1] * 4, [3.0, 9.0], [3.0, 9.0]))
    least = least_time_on(racks, np.arange(8))
    assert least is not None
    assert "group of h0 at 3" in least.limited_by


def test_ranks_of_one_host_exchange_for_nothing() -> None:
    network = fabric([10.0, 10.0], [10.0, 10.0], ([0, 0], [np.inf], [np.inf]))
    several = least_time_on(network, np.array([0, 0, 0, 1]))
    single = least_time_on(network, np.array([0, 1]))
    assert several == single


def test_unknown_rates_have_no_least_time() -> None:
    network = fabric([10.0, 10.0], [10.0, 10.0], ([0, 0], [np.inf], [np.inf]))
    unknown = Fabric(*(getattr(network, name) for name in list(network.__dataclass_fields__)[:8]), "assumed")
    assert least_time_on(unknown, np.arange(2)) is None


def busiest_link(network: Fabric, groups: list[list[int]], weights: str) -> float:
    """Return the microseconds a byte of the busiest link under two-level aggregation with such weights."""
    masters = equal_chunks(groups, 1024, weights_by(weights, network, np.arange(len(network.names)), groups))
    return busiest_us_per_byte(masters_pattern(groups, *masters), network)


def test_least_time_weights_leave_a_slow_host_its_own_bytes() -> None:
    """Autotune's lab (PLink thesis, 6.3): 16 hosts, one at a quarter. In proportion to rates its link takes 1.26 of the
    least possible time, by the work that is left to it 1.00."""
    rates = [1.0] * 15 + [0.25]
    network = fabric(rates, rates, ([k // 4 for k in range(16)], [4.0] * 4, [4.0] * 4))
    groups = [list(range(4 * g, 4 * g + 4)) for g in range(4)]
    least = least_time_on(network, np.arange(16))
    assert least is not None
    ratio = {name: busiest_link(network, groups, name) / least.us_per_byte for name in ("bandwidth", "least-time")}
    assert ratio["least-time"] == pytest.approx(1.0, abs=1e-6)
    assert ratio["bandwidth"] > 1.2


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_no_schedule_is_below_the_least_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.integers(0, 3, 8))
    labels = np.unique(labels, return_inverse=True)[1]
    number = int(labels.max()) + 1
    rates, links = rng.uniform(1, 4, 8).tolist(), rng.uniform(2, 9, number).tolist()
    network = fabric(rates, rates, (labels.tolist(), links, links))
    least = least_time_on(network, np.arange(8))
    assert least is not None
    groups = [np.flatnonzero(labels == k).tolist() for k in range(number)]
    assert busiest_link(network, groups, "least-time") >= least.us_per_byte * (1 - 1e-9)
    for algo in ("ring", "halving-doubling", "double-binary-tree", "flat"):
        cost = SimulatedCost.of(algo, 8, Options(), network, 1e7)(rng.permutation(8))
        assert cost >= least.us_per_byte * 1e7 * (1 - 1e-6)


def test_a_host_in_two_groups_is_refused() -> None:
    network = fabric([1.0] * 2, [1.0] * 2, ([0, 0], [np.inf], [np.inf]))
    with pytest.raises(UsageError, match="h0"):
        weights_by("least-time", network, np.array([0, 0, 1, 1]), [[0, 2], [1, 3]])


def best_cut(network: TierTree) -> float:
    """The best bound of a partition into K parts, 2 (K - 1) over the sum of their rates, or of one link."""
    rates = network.slower

    def exceeded(time: float) -> bool:
        """Whether 2 (K - 1) is more than the rates carry in the time, for the subtrees below some set of switches."""
        parts = np.zeros(len(rates))
        for node in reversed(range(len(rates))):
            own, below = float(2 - rates[node] * time), sum(parts[child] for child in network.children[node])
            if network.children[node] and below + (own if node else 0.0) > 2:
                return True
            parts[node] = max(own, below) if network.children[node] else own
        return bool((rates * time < 1).any())

    low, high = 0.0, 10.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeded(middle) else (low, middle)
    return high


@pytest.mark.parametrize("seed", range(12))
def test_bound_is_the_best_cut_of_large_networks(seed: int) -> None:
    network = uneven_tree(seed)
    assert least_time(network).us_per_byte == pytest.approx(best_cut(network), rel=1e-9)


def test_straggler_of_more_than_half_costs_one_part() -> None:
    """OptCC (2606.01680): N / (N - 1 + beta) of the time, here of 2 (N - 1) / N."""
    gbps = np.full(8, 10.0)
    gbps[0] *= 0.75
    assert least_time(tree([], [(gbps, gbps)])).us_per_byte == pytest.approx(2 * 7 / gbps.sum())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), factor=st.floats(0.1, 10), link=st.integers(0, 10**6))
def test_bound_follows_rates_and_is_its_cuts(seed: int, factor: float, link: int) -> None:
    network = uneven_tree(seed)
    before = least_time(network)

    def times(rates: list[float]) -> TierTree:
        changed = network.out * np.array(rates), network.into * np.array(rates)
        return TierTree(network.parent, *changed, network.rank, network.level, network.names)

    nodes = len(network.parent)
    assert least_time(times([factor] * nodes)).us_per_byte == pytest.approx(before.us_per_byte / factor)
    wider = [1.0] * nodes
    wider[1 + link % (nodes - 1)] = 2.0
    assert least_time(times(wider)).us_per_byte <= before.us_per_byte * (1 + 1e-12)
    parts = len(before.links)
    carried = network.slower[list(before.links)].sum()
    assert before.us_per_byte == pytest.approx((2 * (parts - 1) if parts > 1 else 1) / carried)


def test_groups_have_the_links_of_the_tiers_that_they_are() -> None:
    """Two racks of two hosts with two ranks each: the racks as groups have the racks' links, other groups none."""
    rates, racks = [1.0, 1.0, 1.0, 0.25], ([0, 0, 1, 1], [1.5, 1.0], [1.5, 1.0])
    tree = tier_tree(fabric(rates, rates, racks), np.repeat(np.arange(4), 2))
    own = regrouped(tree, [[0, 1, 2, 3], [4, 5, 6, 7]])
    mixed = regrouped(tree, [[0, 1, 4, 5], [2, 3, 6, 7]])
    assert own is not None
    assert mixed is not None
    assert (own.out[own.level == 2] / own.out[own.level == 1][0]).tolist() == [1.5, 1.0]
    assert np.isinf(mixed.out[mixed.level == 2]).all()
    for each in (own, mixed):
        assert sorted((each.out[each.level == 1] / each.out[each.level == 1].max()).tolist()) == [0.25, 1.0, 1.0, 1.0]
        assert np.isinf(each.out[each.level == 0]).all()
    assert regrouped(tree, [[0, 2, 3, 4], [1, 5, 6, 7]]) is None  # parts two hosts


def test_ranks_of_a_single_host() -> None:
    links = tier_tree(fabric([10.0], [10.0], ([0], [40.0], [40.0])), np.zeros(8, dtype=np.intp))
    assert np.isfinite(work(links)).all()
