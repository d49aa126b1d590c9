"""Which part of an order is asked about next: all of it where it is small, small classes, then windows about hops."""

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.evaluator import MODELS, pair_rates
from solvers.costs.fabric import BYTES_PER_US
from solvers.ordering.neighbourhoods import _everything, _Windows, improve
from solvers.ordering.smt import Effort
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric

SIZE = 1e6


def singles(ranks: range) -> list[list[int]]:
    return [[rank] for rank in ranks]


def pairs(ranks: range) -> list[list[int]]:
    return [[rank, rank + 1] for rank in ranks[::2]]


def windows(algo: str, n: int, model: str, classes: list[list[list[int]]], seed: int = 1) -> _Windows:
    pattern = pattern_for(algo, n, Options())
    return _Windows(pattern, fabric(n, 3), SIZE, model, classes, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("algo", "n", "moving", "at_once"),
    [
        ("tree", 10, 10, True),
        ("tree", 11, 11, False),
        ("tree", 11, 10, True),
        ("ring", 10, 10, True),
        ("ring", 11, 11, True),  # it may begin with any host: ten are left to ask about
        ("ring", 12, 12, False),
        ("ring", 12, 11, False),  # of some ranks only no symmetry fixes one
        ("halving-doubling", 11, 11, False),
    ],
)
def test_ten_units_are_asked_about_at_once_and_one_more_that_a_symmetry_fixes(
    algo: str, n: int, moving: int, at_once: bool
) -> None:
    units = singles(range(moving))
    assert _everything([units], pattern_for(algo, n, Options()), "latency") == (units if at_once else None)


def test_all_that_several_classes_allow_is_what_single_ranks_allow_where_they_are_all_the_ranks() -> None:
    tree = pattern_for("tree", 8, Options())
    all_of_them, some = singles(range(8)), singles(range(4))
    assert _everything([pairs(range(8)), all_of_them], tree, "latency") == all_of_them
    assert _everything([all_of_them, pairs(range(8))], tree, "latency") == all_of_them
    assert _everything([some, pairs(range(8))], tree, "latency") is None
    assert _everything([some, singles(range(4, 8))], tree, "latency") is None
    assert _everything([pairs(range(8))], tree, "latency") == pairs(range(8))
    assert _everything([pairs(range(8)), pairs(range(8))[::-1]], tree, "latency") is None


def test_classes_of_eight_units_and_fewer_are_asked_about_whole_and_once() -> None:
    few, many, eight = pairs(range(6)), singles(range(20)), singles(range(12, 20))
    made, order = windows("ring", 20, "latency", [few, many, eight]), np.arange(20)
    searched: set[frozenset[int]] = set()
    for units in (few, eight):
        assert made.next(order, searched) == units
        searched.add(frozenset(rank for unit in units for rank in unit))
    assert made.next(order, searched) not in (few, eight)
    assert windows("ring", 20, "latency", [few]).next(order, searched) is None


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["ring", "tree", "halving-doubling"])
def test_windows_are_five_to_eight_units_of_a_class_that_were_not_asked_about(algo: str, model: str) -> None:
    """Never the same ranks twice while the order is the same; as they stand in the class."""
    classes = [singles(range(16)), pairs(range(18))]
    made, order = windows(algo, 18, model, classes), np.random.default_rng(4).permutation(18)
    searched: set[frozenset[int]] = set()
    sizes = set()
    for _ in range(60):
        units = made.next(order, searched)
        assert units is not None
        one = next(one for one in classes if units[0] in one)
        assert [unit for unit in one if unit in units] == list(units)
        ranks = frozenset(rank for unit in units for rank in unit)
        assert ranks not in searched
        searched.add(ranks)
        sizes.add(len(units))
    assert sizes == {5, 6, 7, 8}


def test_windows_are_found_in_vain_fifty_times_and_then_no_more() -> None:
    """Nine units: every window of them was asked about."""
    made, order = windows("ring", 9, "latency", [singles(range(9))]), np.arange(9)
    asked: set[frozenset[int]] = {frozenset(k for k in range(9) if mask >> k & 1) for mask in range(1 << 9)}
    assert made.next(order, asked) is None


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["ring", "tree", "halving-doubling", "double-binary-tree"])
def test_hops_that_take_longest_in_their_round_come_first_and_of_these_the_longest_of_all(
    algo: str, model: str
) -> None:
    """By whole hundredths of the longest; half a round trip and the bytes over the pair's rate, where these count, and
    nothing between ranks of one host; rounds that do not count have none."""
    n = 10
    pattern, found = pattern_for(algo, n, Options()), fabric(n, 3, pairs=True)
    rates, order = pair_rates(found), np.random.default_rng(2).integers(0, n, n)
    often = pattern.there if model == "latency" else pattern.repeat
    hops = []
    rows = zip(pattern.round.tolist(), pattern.source.tolist(), pattern.target.tolist(), pattern.share, strict=True)
    for when, a, b, share in rows:
        i, j = int(order[a]), int(order[b])
        moves = 0.0 if i == j else share * SIZE / BYTES_PER_US / rates[i, j]
        takes = found.rtt_us[i, j] if model == "latency" else found.rtt_us[i, j] / 2 + moves
        if often[when] > 0:
            hops.append((when, a, b, takes))
    longest = {when: max(takes for other, *_, takes in hops if other == when) or 1.0 for when, *_ in hops}
    ranked = [(-round(takes / longest[when], 2), -takes * often[when]) for when, _, _, takes in hops]
    made = _Windows(pattern, found, SIZE, model, [singles(range(n))], np.random.default_rng(1))
    first = made._dearest(order).tolist()
    assert sorted(first) == list(range(len(hops)))
    seen = [ranked[k] for k in first]
    assert [key for key, _ in seen] == sorted(key for key, _ in ranked)
    assert [value for _, value in seen] == pytest.approx([value for _, value in sorted(ranked)])


def test_windows_are_about_hops_that_take_long_more_often_than_chance() -> None:
    """Six or seven of 32 ranks: one of five has a certain rank in it, and more where that rank's host is far from all.
    Two windows of three are about a hop, each hop's share of them is that of the cube root: (2 / 32) ** (1 / 3) * 2 / 3
    is a quarter that comes on top."""
    n, hits = 32, []
    for there in (10.0, 1e5):
        found = fabric(n, 3)
        found.rtt_us[:] = 10.0 * ~np.eye(n, dtype=bool)
        found.rtt_us[7, :] = found.rtt_us[:, 7] = there
        found.rtt_us[7, 7] = 0.0
        made = _Windows(
            pattern_for("ring", n, Options()), found, SIZE, "latency", [singles(range(n))], np.random.default_rng(3)
        )
        hits.append(sum([7] in (made.next(np.arange(n), set()) or []) for _ in range(300)))
    assert hits[1] > 1.4 * hits[0]


def test_a_hop_between_ranks_that_stay_is_about_none_of_the_units() -> None:
    """All long hops are among ranks 0 to 11: windows of the others are anywhere, any unit in about a third of them."""
    n = 32
    found = fabric(n, 3)
    found.rtt_us[:12, :12] *= 1000
    units = singles(range(13, n))
    made = _Windows(pattern_for("ring", n, Options()), found, SIZE, "latency", [units], np.random.default_rng(3))
    asked = [made.next(np.arange(n), set()) or [] for _ in range(200)]
    for unit in units:
        assert 20 < sum(unit in window for window in asked) < 120


def test_where_nothing_can_be_exchanged_the_order_is_the_best_without_a_question() -> None:
    order = np.random.default_rng(1).permutation(6)
    pattern, found = pattern_for("tree", 6, Options()), fabric(6, 3)
    for classes in ([], [[[0]], [[1, 2]]]):
        result = improve(pattern, found, SIZE, "latency", order, classes, lambda: True, Effort(), 1, 9)
        assert (result.order.tolist(), result.proved, result.asked) == (order.tolist(), True, 0)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_no_more_questions_are_asked_than_allowed(most: int) -> None:
    pattern, found = pattern_for("tree", 6, Options()), fabric(6, 3)
    result = improve(
        pattern, found, SIZE, "latency", np.arange(6), [singles(range(6))], lambda: True, Effort(), 1, most
    )
    assert result.asked == most
    assert not result.proved
