"""Prices: the thesis's formulas written out, rounds worked by hand, and closed forms against the evaluator."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import NoAnswer, UsageError
from plink.model.schedule import make_schedule
from solvers.costs.by_name import cost_function_for, pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import MODELS, evaluate, latest
from solvers.costs.fabric import Fabric, TierLinks
from solvers.costs.patterns import pattern_of
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from tests.solvers.synthetic import Matrix, Tour, random_costs

SIZE = 1e6


def fabric(n: int, seed: int = 0, groups: int = 3, pairs: bool = False) -> Fabric:
    """Random round trips and rates; the first groups share less than their hosts could send."""
    rng = np.random.default_rng(seed)
    group_of = rng.integers(0, groups, n)
    return Fabric(
        tuple(f"h{i}" for i in range(n)),
        random_costs(n, seed, 10, 1000),
        # Nobody measures a host with itself, as in a network file.
        rng.uniform(1, 10, (n, n)) + np.diag(np.full(n, np.nan)) if pairs else None,
        rng.uniform(1, 10, n),
        rng.uniform(1, 10, n),
        group_of,
        np.where(rng.random(groups) < 0.3, np.inf, rng.uniform(1, 20, groups)),
        rng.uniform(1, 20, groups),
        "measured",
    )


def options_for(algo: str, n: int, seed: int) -> Options:
    """Options that fit: groups dealt at random, of whatever sizes."""
    groups = np.random.default_rng(seed).integers(0, max(1, n // 3), n)
    groups_of_ranks = tuple(tuple(int(rank) for rank in np.flatnonzero(groups == g)) for g in np.unique(groups))
    if algo == "phub-2l":  # each group has one of the hubs, the last ranks
        groups_of_ranks = tuple(tuple(range(k, n, max(1, n // 3))) for k in range(max(1, n // 3)))
        return Options(segments=1 + seed % 4, groups=groups_of_ranks, servers=len(groups_of_ranks))
    return Options(fan_out=2 + seed % 3, segments=1 + seed % 4, groups=groups_of_ranks)


def fitting(algo: str, n: int) -> int:
    """A number of ranks that the algorithm takes."""
    return 1 << max(1, n.bit_length() - 1) if algo in ("bcube", "bml", "multi-ring") else n


# The thesis's formulas (5.2.1), one term after the other; N is a power of two (of B).


def thesis_halving_doubling(c: Matrix, r: Tour) -> float:
    n = len(r)
    return sum(max(c[r[j], r[j ^ (1 << i)]] for j in range(n)) for i in range(int(math.log2(n))))


def thesis_tree(c: Matrix, r: Tour, i: int, j: int) -> float:
    if i >= j:
        return 0.0
    m = (i + j) // 2
    best = 0.0
    for low, high in ((i, m - 1), (m + 1, j)):
        if low <= high:
            best = max(best, c[r[m], r[(low + high) // 2]] + thesis_tree(c, r, low, high))
    return best


def thesis_bcube(c: Matrix, r: Tour, base: int) -> float:
    n, total = len(r), 0.0
    for i in range(round(math.log(n, base))):
        peers = [
            (j, j - digit * base**i + k * base**i)
            for j in range(n)
            for digit in [j // base**i % base]
            for k in range(base)
            if k != digit
        ]
        total += max(c[r[a], r[b]] for a, b in peers)
    return total


@given(st.integers(1, 5), st.integers(0, 99))
def test_latency_cost_of_halving_doubling_is_the_thesis_s(power: int, seed: int) -> None:
    n = 1 << power
    result, order = fabric(n, seed), np.random.default_rng(seed).permutation(n)
    cost = evaluate(schedule_for("halving-doubling", n), result, order, SIZE, "latency")
    assert cost.cost_us == pytest.approx(thesis_halving_doubling(result.rtt_us, order), rel=1e-12)


@given(st.integers(2, 33), st.integers(0, 99))
def test_latency_cost_of_rings_is_the_thesis_s(n: int, seed: int) -> None:
    result, order = fabric(n, seed), np.random.default_rng(seed).permutation(n)
    wanted = sum(result.rtt_us[order[i], order[i - 1]] for i in range(n))
    for algo in ("ring", "ring-chunked", "gloo", "nccl-ring"):
        assert evaluate(schedule_for(algo, n), result, order, SIZE, "latency").cost_us == pytest.approx(wanted)


@given(st.integers(2, 33), st.integers(0, 99))
def test_latency_cost_of_the_double_tree_is_the_thesis_s(n: int, seed: int) -> None:
    """The dearer of a tree over the ranks and the same one with every rank one lower."""
    result, order = fabric(n, seed), np.random.default_rng(seed).permutation(n)
    cost = evaluate(schedule_for("double-binary-tree", n), result, order, SIZE, "latency").cost_us
    item = thesis_tree(result.rtt_us, order, 0, n - 1)
    lower = thesis_tree(result.rtt_us, np.roll(order, 1), 0, n - 1)
    assert cost == pytest.approx(max(item, lower))


@given(st.sampled_from([(2, 1), (2, 4), (3, 2), (4, 2), (5, 1), (3, 3)]), st.integers(0, 99))
def test_latency_cost_of_bcube_is_the_thesis_s(shape: tuple[int, int], seed: int) -> None:
    base, levels = shape
    n = base**levels
    result, order = fabric(n, seed), np.random.default_rng(seed).permutation(n)
    cost = evaluate(schedule_for("bcube", n, Options(base=base)), result, order, SIZE, "latency")
    assert cost.cost_us == pytest.approx(thesis_bcube(result.rtt_us, order, base), rel=1e-12)


@pytest.mark.parametrize("algo", ALGORITHMS)
@settings(max_examples=25, deadline=None)
@given(model=st.sampled_from(MODELS), n=st.integers(2, 30), seed=st.integers(0, 999), pairs=st.booleans())
def test_closed_forms_say_what_the_evaluator_says(algo: str, model: str, n: int, seed: int, pairs: bool) -> None:
    n = fitting(algo, n)
    result, options = fabric(n, seed, pairs=pairs), options_for(algo, n, seed)
    schedule, rng = schedule_for(algo, n, options), np.random.default_rng(seed)
    direct, derived = (
        closed_form(pattern, result, SIZE, model) for pattern in (pattern_for(algo, n, options), pattern_of(schedule))
    )
    for order in (rng.permutation(n), rng.permutation(n), rng.integers(0, n, n)):  # the last with shared hosts
        wanted = evaluate(schedule, result, order, SIZE, model).cost_us
        assert direct(order) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
        assert derived(order) == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@given(model=st.sampled_from(MODELS), n=st.integers(2, 24), seed=st.integers(0, 999), number=st.integers(1, 23))
def test_separate_servers_need_no_schedule_for_their_cost(model: str, n: int, seed: int, number: int) -> None:
    options = Options(colocated=False, servers=min(number, n - 1))
    result, order = fabric(n, seed), np.random.default_rng(seed).permutation(n)
    wanted = evaluate(schedule_for("ps", n, options), result, order, SIZE, model).cost_us
    cost_of = closed_form(pattern_for("ps", n, options), result, SIZE, model)
    assert cost_of(order) == pytest.approx(wanted, rel=1e-9)


def two_racks() -> Fabric:
    """Hosts 0 and 1, 2 and 3; 8 Gbit/s (1,000 bytes a microsecond) a host, half of that out of a rack."""
    rtt = np.array([[0, 10, 50, 50], [10, 0, 50, 50], [50, 50, 0, 10], [50, 50, 10, 0]], dtype=float)
    eight = np.full(4, 8.0)
    return Fabric(tuple("abcd"), rtt, None, eight, eight, np.array([0, 0, 1, 1]), eight[:2] / 2, eight[:2], "measured")


LATER = (2 + 2 / 2**16) ** (1 / 16)  # of two ways out equally busy, and two ways in half as busy, the latest


def test_a_ring_over_two_racks_by_hand() -> None:
    """4 MB: 1 MB a hop and round, 1,000 us on a host's link; one hop leaves each rack: 2,000 us, and a little more
    because both have to; six rounds, and the mean of half of 10 and 50 us each."""
    order = np.arange(4)
    cost = evaluate(schedule_for("ring", 4), two_racks(), order, 4e6, "contention")
    assert cost.cost_us == pytest.approx(6 * (2000 * LATER + 15))
    assert set(cost.busiest) == {"the way out of the group of a", "the way out of the group of c"} & set(cost.busiest)
    assert cost.slowest in (("b", "c"), ("d", "a"))
    apart = evaluate(schedule_for("ring", 4), two_racks(), np.array([0, 2, 1, 3]), 4e6, "contention")
    assert apart.cost_us == pytest.approx(6 * (4000 * LATER + 25))
    alone = evaluate(schedule_for("ring", 4), two_racks(), order, 4e6, "alpha-beta")
    assert alone.cost_us == pytest.approx(6 * (1000 + 25))
    assert alone.busiest[0].startswith("a, ")


def two_pods() -> Fabric:
    """Racks of one host with 4 Gbit/s each way, 0 and 1 in a pod with 2 Gbit/s each way, 2 and 3 in another."""
    result, four = two_racks(), np.full(4, 4.0)
    pods = TierLinks(result.group_of, four[:2] / 2, four[:2] / 2)
    return replace(result, group_of=np.arange(4), group_out_gbps=four, group_in_gbps=four, outer_tiers=(pods,))


def test_a_flow_loads_the_links_of_all_tiers_by_hand() -> None:
    """4 MB: 1 MB a hop and round, 2,000 us on a rack's link of 500 bytes a microsecond. One hop leaves each pod: 4,000
    us at 250; with hosts of both pods in turn two do: 8,000 us. All four ways of pods are as busy, which delays the
    latest; so does, by next to nothing, what is half as busy or less: eight ways of racks."""
    fabric, schedule = two_pods(), schedule_for("ring", 4)
    together, apart = np.arange(4), np.array([0, 2, 1, 3])
    price = evaluate(schedule, fabric, together, 4e6, "contention")
    assert price.cost_us == pytest.approx(6 * (4000 * (4 + 8 / 2**16) ** (1 / 16) + 15))
    names = {f"the way {way} the tier-2 group of {host}" for way in ("out of", "into") for host in "ac"}
    assert set(price.busiest) <= names
    assert evaluate(schedule, fabric, apart, 4e6, "contention").cost_us == pytest.approx(
        6 * (8000 * (4 + 8 / 4**16) ** (1 / 16) + 25)
    )


@given(st.integers(0, 99), st.sampled_from(["ring", "halving-doubling", "tree", "flat"]))
def test_closed_forms_know_all_tiers(seed: int, algo: str) -> None:
    """As the sum over the rounds does, where they have the algorithm."""
    rng = np.random.default_rng(seed)
    result = fabric(8, seed)
    outer = TierLinks(result.group_of % 2, rng.uniform(0.1, 1.0, 2), rng.uniform(0.1, 1.0, 2))
    result, order = replace(result, outer_tiers=(outer,)), rng.permutation(8)
    wanted = evaluate(schedule_for(algo, 8), result, order, SIZE, "contention").cost_us
    price = closed_form(pattern_for(algo, 8, Options()), result, SIZE, "contention")
    assert price(order) == pytest.approx(wanted, rel=1e-9)


@given(st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=40))
def test_the_latest_of_links_is_the_busiest_and_a_little_more(loads: list[float]) -> None:
    late = float(latest(np.array([loads]))[0])
    assert max(loads) * (1 - 1e-12) <= late <= max(loads) * len(loads) ** (1 / 16) * (1 + 1e-12)
    assert late == pytest.approx(sum((x / max(loads)) ** 16 for x in loads) ** (1 / 16) * max(loads) if late else 0)


@pytest.mark.parametrize("model", MODELS)
def test_a_pair_that_was_not_measured_matters_only_where_it_is_used(model: str) -> None:
    result = two_racks()
    result.rtt_us[0, 2] = result.rtt_us[2, 0] = np.nan
    schedule = schedule_for("ring", 4)
    cost_of = closed_form(pattern_of(schedule), result, SIZE, model)
    assert math.isfinite(evaluate(schedule, result, np.arange(4), SIZE, model).cost_us)
    assert math.isfinite(cost_of(np.arange(4)))
    for say in (
        lambda: evaluate(schedule, result, np.array([0, 2, 1, 3]), SIZE, model),
        lambda: cost_of(np.array([0, 2, 1, 3])),
    ):
        with pytest.raises(NoAnswer, match=r"the round trip a - c .*`plink probe HOSTS --resume`"):
            say()
    with pytest.raises(NoAnswer, match="a - c"):
        cost_function_for("flat", 4, Options(), result, SIZE, model)(np.arange(4))


def test_a_bandwidth_that_was_not_measured_is_asked_for() -> None:
    result = fabric(4, pairs=True)
    assert result.pair_gbps is not None
    result.pair_gbps[1, 2] = np.nan
    for algo in ("ring", "flat"):
        with pytest.raises(NoAnswer, match=r"the bandwidth h1 - h2 .*--resume --bandwidth"):
            cost_function_for(algo, 4, Options(), result, SIZE, "alpha-beta")(np.arange(4))
    with pytest.raises(NoAnswer, match="h1 - h2"):
        evaluate(schedule_for("ring", 4), result, np.arange(4), SIZE, "alpha-beta")


def test_a_size_that_is_none_is_refused() -> None:
    for model, size in product(MODELS, (0, -1, float("nan"), float("inf"))):
        with pytest.raises(UsageError, match="--size"):
            cost_function_for("ring", 4, Options(), two_racks(), size, model)
        with pytest.raises(UsageError, match="--size"):
            evaluate(schedule_for("ring", 4), two_racks(), np.arange(4), size, model)


def test_unknown_names_are_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="latency, alpha-beta, contention"):
        evaluate(schedule_for("ring", 4), two_racks(), np.arange(4), SIZE, "guess")
    with pytest.raises(UsageError, match="halving-doubling"):
        cost_function_for("rong", 4, Options(), two_racks(), SIZE, "latency")
    with pytest.raises(UsageError, match="3 ranks, the schedule 4"):
        evaluate(schedule_for("ring", 4), two_racks(), np.arange(3), SIZE, "latency")
    strange = make_schedule("mine", 2, 1, [(0, 0, 1, 0, 1, 0)], timing="allegro")
    with pytest.raises(UsageError, match="allegro"):
        evaluate(strange, two_racks(), np.arange(2), SIZE, "latency")
