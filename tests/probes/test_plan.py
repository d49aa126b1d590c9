"""Plans of which pairs to measure: disjoint rounds, no pair twice, a budget that is kept, hosts that die."""

import itertools
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fabric import SimulatedFabric, three_tier
from plink.model.network import Matrix
from probes.adaptive import AdaptivePlan, AdaptiveSettings, GroupConvergence, neighbourhood_overlap
from probes.disjoint_pairs import Pair, RoundRobin, as_pairs, disjoint, nearest_pairs
from probes.plan import AllPairs, LinkAwarePlan, LinkLimit, ProbePlan
from solvers.prediction.tiered import predict_tiered

SEEDS = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Guess:
    """A prediction that knows nothing."""

    distance: Matrix
    groups: npt.NDArray[np.intp]

    def lower_bound_us(self, hosts: npt.NDArray[np.intp]) -> Matrix:
        return self.distance[hosts]


@dataclass
class Guesser:
    """Predicts at random and keeps what it was shown."""

    seed: int
    shown: list[Matrix] = field(default_factory=list)

    def __call__(self, measured: Matrix) -> Guess:
        self.shown.append(measured.copy())
        rng = np.random.default_rng([self.seed, len(self.shown)])
        n = len(measured)
        return Guess(rng.random((n, n)) + 1.0, rng.integers(0, 3, n))


def carry_out(
    plan: ProbePlan, n: int, seed: int = 0, dead: frozenset[int] = frozenset(), measured: Matrix | None = None
) -> tuple[list[list[Pair]], Matrix]:
    """Measure what the plan asks for on a made-up network; pairs with a dead host give nothing."""
    rng = np.random.default_rng(seed)
    measured = np.full((n, n), np.nan) if measured is None else measured
    rounds: list[list[Pair]] = []
    while (pairs := plan.next_round(measured)) is not None:
        rounds.append(pairs)
        for i, j in pairs:
            if not {i, j} & dead:
                measured[i, j], measured[j, i] = rng.uniform(10, 100, 2)
    return rounds, measured


def check(rounds: list[list[Pair]], n: int) -> None:
    """Rounds are disjoint, nothing is asked twice, pairs are pairs."""
    for pairs in rounds:
        hosts = list(itertools.chain(*pairs))
        assert pairs
        assert len(hosts) == len(set(hosts))
    every = list(itertools.chain(*rounds))
    assert len(every) == len(set(every))
    assert all(0 <= i < j < n for i, j in every)


@given(n=st.integers(1, 40), seed=SEEDS)
def test_circle_has_every_pair_once_in_disjoint_rounds(n: int, seed: int) -> None:
    """Also for one host, and for odd numbers; in as few rounds as there can be."""
    schedule = RoundRobin(n, seed)
    rounds = [as_pairs(schedule[k]) for k in range(len(schedule))]
    check(rounds, n)
    assert sorted(itertools.chain(*rounds)) == list(itertools.combinations(range(n), 2))
    assert len(rounds) == (0 if n == 1 else n - 1 + n % 2)


@given(n=st.integers(2, 30), seed=SEEDS)
def test_all_pairs_asks_each_pair_once(n: int, seed: int) -> None:
    rounds, measured = carry_out(AllPairs(n, seed), n)
    check(rounds, n)
    assert sum(map(len, rounds)) == AllPairs(n, seed).max_pairs
    assert np.isfinite(measured[~np.eye(n, dtype=bool)]).all()


@given(n=st.integers(2, 20), seed=SEEDS, again=SEEDS, data=st.data())
def test_all_pairs_resumes_with_what_is_missing(n: int, seed: int, again: int, data: st.DataObject) -> None:
    """Whatever the seed of the earlier run, and when only one direction of a pair came through."""
    dead = frozenset(data.draw(st.sets(st.integers(0, n - 1), max_size=3)))
    _, measured = carry_out(AllPairs(n, seed), n, dead=dead)
    one_way = data.draw(st.integers(0, n - 1))
    measured[one_way, (one_way + 1) % n] = np.nan
    missing = {(i, j) for i, j in itertools.combinations(range(n), 2) if np.isnan(measured[i, j] + measured[j, i])}
    rounds, _ = carry_out(AllPairs(n, again), n, measured=measured)
    check(rounds, n)
    assert set(itertools.chain(*rounds)) == missing


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 40), seed=SEEDS, budget=st.floats(0.05, 1.0), dead=st.frozensets(st.integers(0, 39), max_size=8)
)
def test_adaptive_keeps_its_promises(n: int, seed: int, budget: float, dead: frozenset[int]) -> None:
    """Disjoint, never twice, within budget, to an end: whatever the predictor says and whoever is dead."""
    plan = AdaptivePlan(n, seed, Guesser(seed), AdaptiveSettings(budget=budget, max_failures=3))
    rounds, _ = carry_out(plan, n, seed, dead)
    check(rounds, n)
    assert sum(map(len, rounds)) <= plan.max_pairs <= max(budget * n * (n - 1) / 2, 1)


@settings(deadline=None, max_examples=30)
@given(n=st.integers(4, 30), seed=SEEDS)
def test_adaptive_is_reproducible_by_its_seed(n: int, seed: int) -> None:
    runs = [carry_out(AdaptivePlan(n, seed, Guesser(1), AdaptiveSettings(budget=0.5)), n)[0] for _ in range(2)]
    assert runs[0] == runs[1]


@settings(deadline=None, max_examples=30)
@given(n=st.integers(8, 40), seed=SEEDS)
def test_the_predictor_never_sees_a_held_out_pair(n: int, seed: int) -> None:
    predictor = Guesser(seed)
    plan = AdaptivePlan(n, seed, predictor, AdaptiveSettings(budget=0.5))
    rounds, measured = carry_out(plan, n)
    hidden = plan.held_out.tolist()
    assert len(hidden) >= len(rounds[0])
    for shown in predictor.shown:
        assert all(np.isnan(shown[i, j]) and np.isnan(shown[j, i]) for i, j in hidden)
    visible = np.isfinite(predictor.shown[-1])
    assert visible.sum() == np.isfinite(measured).sum() - 2 * len(hidden)
    assert (predictor.shown[-1][visible] == measured[visible]).all()


@settings(deadline=None, max_examples=30)
@given(n=st.integers(8, 30), seed=SEEDS, after=st.integers(1, 6))
def test_adaptive_resumes_within_the_same_budget(n: int, seed: int, after: int) -> None:
    """Rounds of an earlier run count; the pairs held out stay the same."""
    first = AdaptivePlan(n, seed, Guesser(1), AdaptiveSettings(budget=0.6))
    measured = np.full((n, n), np.nan)
    done: list[list[Pair]] = []
    for _ in range(after):
        if (pairs := first.next_round(measured)) is None:
            break
        done.append(pairs)
        i, j = np.array(pairs).T
        measured[i, j] = measured[j, i] = 50.0
    second = AdaptivePlan(n, seed, Guesser(1), AdaptiveSettings(budget=0.6))
    rounds, _ = carry_out(second, n, measured=measured)
    check(done + rounds, n)
    assert sum(map(len, done + rounds)) <= first.max_pairs


def test_dead_host_is_evicted_and_its_partners_are_not() -> None:
    """Twenty rounds on, nobody waits for it any more."""
    n, dead = 64, frozenset({3, 17})
    plan = AdaptivePlan(n, 5, Guesser(5), AdaptiveSettings(budget=0.5))
    rounds, measured = carry_out(plan, n, dead=dead)
    assert not any({i, j} & dead for pairs in rounds[20:] for i, j in pairs)
    assert sum(3 in pair for pairs in rounds for pair in pairs) == 5
    assert np.isnan(measured[3, np.arange(n) != 3]).all()


def test_all_hosts_dead_comes_to_an_end() -> None:
    rounds, measured = carry_out(AdaptivePlan(16, 1, predict_tiered), 16, dead=frozenset(range(16)))
    check(rounds, 16)
    assert np.isnan(measured).all()


def on_fabric(fabric: SimulatedFabric, plan: ProbePlan) -> Matrix:
    """The matrix after ``plan`` was carried out."""
    n = len(fabric)
    measured = np.full((n, n), np.nan)
    while (pairs := plan.next_round(measured)) is not None:
        i, j = np.array(pairs).T
        measured[i, j], measured[j, i] = fabric.rtt_us(i, j), fabric.rtt_us(j, i)
    return measured


@pytest.mark.parametrize(("seed", "offset_us"), [(1, 0.0), (2, 3.0)])
def test_adaptive_finds_the_racks_of_64_hosts(seed: int, offset_us: float) -> None:
    """Eight racks of eight in two pods, with two fifths of the pairs."""
    fabric = three_tier(64, seed, rack_size=8, racks_per_pod=4, one_way=True, offset_us=offset_us)
    plan = AdaptivePlan(64, seed, predict_tiered, AdaptiveSettings(budget=0.4))
    measured = on_fabric(fabric, plan)
    i, j = plan.held_out.T
    shown = measured.copy()
    shown[i, j] = shown[j, i] = np.nan
    prediction, held_out_us = predict_tiered(shown), np.fmax(measured[i, j], measured[j, i])
    assert neighbourhood_overlap(fabric.rack, predict_tiered(measured).groups) >= 0.95
    assert np.median(np.abs(prediction.rtt_us(np.arange(64))[i, j] / held_out_us - 1)) < 0.12


def test_adaptive_passes_the_bars_at_256_hosts_and_stops_early() -> None:
    """A quarter of the pairs is allowed, fewer are taken (at 1,024 hosts: benchmarks/adaptive_probing.py)."""
    fabric = three_tier(256, 1, uneven=True)
    plan = AdaptivePlan(256, 1, predict_tiered, AdaptiveSettings(budget=0.25))
    measured = on_fabric(fabric, plan)
    prediction = predict_tiered(measured)
    assert plan.converged
    assert np.isfinite(measured).sum() < 0.24 * 256 * 255
    assert neighbourhood_overlap(fabric.rack, prediction.groups) >= 0.95
    i, j = np.nonzero(np.triu(np.isnan(measured), 1))
    error = np.abs(prediction.rtt_us(np.arange(256))[i, j] / fabric.true_us(i, j) - 1)
    assert np.median(error) <= 0.06


@given(n=st.integers(2, 30), seed=SEEDS)
def test_matching_takes_the_nearest_first_and_whoever_is_left(n: int, seed: int) -> None:
    """The nearest open pair is in; two hosts left over have no open pair, or were unlucky eight times."""
    rng = np.random.default_rng(seed)
    distance = rng.random((n, n)) + 1.0
    distance = distance + distance.T
    closed = np.triu(rng.random((n, n)) < 0.3, 1)
    closed = closed | closed.T | np.eye(n, dtype=bool)
    alive = rng.random(n) < 0.9
    priority = nearest_pairs(lambda hosts: distance[hosts], closed, alive, 4, rng)
    pairs = disjoint(priority, closed, alive, rng)
    check([[(i, j) for i, j in pairs.tolist()]] if len(pairs) else [], n)
    assert alive[pairs].all()
    assert not closed[pairs[:, 0], pairs[:, 1]].any()
    if len(priority):
        assert pairs[0].tolist() == priority[0].tolist()
        open_ = ~closed & alive & alive[:, None]
        assert distance[tuple(priority[0])] <= distance[open_].min() * 1.011


def test_groups_converge_when_unchanged_for_long_enough() -> None:
    """Not before, not while all hosts stand alone, and again only after a change."""
    apart, halves = np.arange(8), np.repeat([0, 1], 4)
    convergence = GroupConvergence(rounds=4, min_overlap=0.99)
    assert not any(convergence.update(k, apart) for k in range(10))
    assert [convergence.update(k, halves) for k in range(10, 16)] == [False, False, False, False, True, True]
    assert not convergence.update(16, np.repeat([0, 1, 2, 3], 2))


@pytest.mark.parametrize(("racks", "per_rack", "max_flows"), [(4, 4, 2), (2, 8, 1), (3, 5, 2), (4, 4, 4)])
def test_flows_on_a_shared_link_are_limited(racks: int, per_rack: int, max_flows: int) -> None:
    n, rack = racks * per_rack, np.arange(racks * per_rack) // per_rack
    plan = LinkAwarePlan(n, 1, [LinkLimit(rack == label, max_flows) for label in range(racks)])
    rounds, _ = carry_out(plan, n)
    check(rounds, n)
    assert sum(map(len, rounds)) == n * (n - 1) // 2
    for pairs in rounds:
        crossing = [label for a, b in pairs for label in (rack[a], rack[b]) if rack[a] != rack[b]]
        assert max(map(crossing.count, crossing), default=0) <= max_flows
    fewest = max(n - 1, per_rack * (n - per_rack) / max_flows)
    assert len(rounds) <= 1.15 * fewest + 1


def test_link_aware_plan_resumes_with_the_missing_pairs() -> None:
    measured = np.ones((6, 6))
    measured[1, 4] = measured[2, 3] = np.nan
    plan = LinkAwarePlan(6, 0, [LinkLimit(np.arange(6) < 3, 1)])
    assert plan.next_round(measured) is not None
    assert plan.next_round(measured) is not None
    assert plan.next_round(measured) is None
