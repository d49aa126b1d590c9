"""What explains that many pairs changed: against every cause there could be, written out by the book."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pytest

from solvers.changes.causes import KINDS, Mask, Pairs, explain

Pair = tuple[int, int]


def mask_of(n: int, pairs: set[Pair]) -> Mask:
    """Symmetric, True at these pairs."""
    mask = np.zeros((n, n), dtype=bool)
    for i, j in pairs:
        mask[i, j] = mask[j, i] = True
    return mask


def every(n: int) -> set[Pair]:
    return set(combinations(range(n), 2))


def explained(
    n: int, moved: set[Pair], groups: Sequence[Sequence[int]] = (), measured: set[Pair] | None = None
) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Kind, near and far of what explains that these pairs changed; ``groups``: the label of every host, by tier."""
    labels = [np.array(group) for group in groups]
    result, _ = explain(
        mask_of(n, every(n) if measured is None else measured), mask_of(n, moved), labels, lambda pairs: True
    )
    return [(cause.kind, cause.near, cause.far) for cause in result]


def between(near: Sequence[int], far: Sequence[int]) -> set[Pair]:
    return {(min(i, j), max(i, j)) for i in near for j in far if i != j}


# By the book: every cause there can be


Book = tuple[int, int, str, tuple[int, ...], tuple[int, ...], set[Pair]]


def by_the_book(n: int, measured: set[Pair], moved: set[Pair], label: Sequence[int]) -> Iterator[Book]:
    """(what it saves, negative, turn among ties, kind, near, far, its pairs) of each cause that holds."""
    groups = [tuple(h for h in range(n) if label[h] == g) for g in range(max(label) + 1)]
    large = [group for group in groups if len(group) >= 2]
    everybody = tuple(range(n))
    inside = {group: between(group, group) for group in groups}
    out = {group: between(group, [h for h in everybody if h not in group]) for group in groups}
    within = set().union(*inside.values())
    tiers = [part for part in (within & measured, (every(n) - within) & measured) if part]
    result: list[tuple[str, tuple[int, ...], tuple[int, ...], list[set[Pair]], Sequence[int], int]] = []
    result += [("host", (h,), (), [between([h], everybody)], [h], 2) for h in everybody]
    result.append(("network", everybody, (), [every(n), *tiers], everybody, 3))
    if len(groups) > 1:
        result += [("link", a, b, [between(a, b)], a + b, 2) for a, b in combinations(large, 2)]
        for h in everybody:
            for group in groups:
                far = tuple(other for other in group if other != h)
                result.append(("link", (h,), far, [between([h], far)], [h], 3))
        for group in large:
            result.append(("inside", group, (), [inside[group]], group, 2))
            result.append(("group", group, (), [out[group], inside[group]], group, 2))
            result.append(("uplink", group, (), [out[group]], group, 2))
        result.append(("within", tuple(sorted(sum(large, ()))), (), [within], tuple(sorted(sum(large, ()))), 2))
        result.append(("between", everybody, (), [every(n) - within], everybody, 2))
    for kind, near, far, parts, blamed, least in result:
        pairs = set().union(*parts) & measured
        if len(pairs & moved) < least:
            continue
        if any(5 * len(part & moved) <= 4 * len(part & measured) for part in parts):  # nearly all: more than 0.8
            continue
        exonerated = 0
        for host in blamed:  # whose changed pairs are less than two thirds
            its = {pair for pair in pairs if host in pair}
            exonerated += 3 * len(its & moved) < 2 * len(its)
        if 10 * exonerated <= (n if kind == "network" else 0):
            yield 4 * len(pairs - moved) - 2 * len(pairs & moved), KINDS.index(kind), kind, near, far, pairs


def may_be_first(wanted: Sequence[Book], moved: set[Pair]) -> list[Book]:
    """Of causes in the book's order: the first; where it tells of pairs that did not change, also the first host, and
    where it is not the whole network, the first that tells of none; each with those that tie with it."""
    best = wanted[:1]
    if best[0][5] - moved:
        best += [item for item in wanted if item[2] == "host"][:1]
        if best[0][2] != "network":
            best += [item for item in wanted if item[2] != "network" and not item[5] - moved][:1]
    return [item for item in wanted if item[:2] in [chosen[:2] for chosen in best]]


def drawn(seed: int) -> tuple[int, set[Pair], set[Pair], list[int]]:
    """Up to nine hosts in groups; of some kind of trouble nearly all pairs changed, of others few."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 10))
    label = rng.integers(0, int(rng.integers(1, 4)), n)
    label = np.unique(label, return_inverse=True)[1]
    a, b = rng.integers(0, label.max() + 1, 2)
    near, far = np.flatnonzero(label == a).tolist(), np.flatnonzero(label == b).tolist()
    everybody = list(range(n))
    others = [h for h in everybody if label[h] != a]
    trouble = [
        between([int(rng.integers(n))], everybody), every(n), between(near, far), between(near, near),
        between(near, others), between(near, everybody), between([int(rng.integers(n))], far),
        {(i, j) for i, j in every(n) if label[i] == label[j]}, {(i, j) for i, j in every(n) if label[i] != label[j]},
    ][int(rng.integers(9))]  # fmt: skip
    miss, stray = rng.choice([0.0, 0.1, 0.2, 0.3]), rng.choice([0.0, 0.1, 0.3])
    measured = {pair for pair in sorted(every(n)) if rng.random() < rng.choice([0.85, 1.0])}
    moved = {pair for pair in sorted(measured) if rng.random() < (1 - miss if pair in trouble else stray)}
    return n, measured, moved, label.tolist()


@pytest.mark.parametrize("block", range(3))
def test_the_first_cause_saves_the_most(
    block: int,
) -> None:
    """Or the first host, or the first cause without an unaffected pair, where the best one has unaffected pairs."""
    spoke = 0
    for seed in range(40 * block, 40 * block + 40):
        n, measured, moved, label = drawn(seed)
        wanted = sorted(by_the_book(n, measured, moved, label), key=lambda item: item[:2])
        result, left = explain(mask_of(n, measured), mask_of(n, moved), [np.array(label)], lambda pairs: True)
        assert bool(result) is bool(wanted), seed
        if not result:
            assert (left == mask_of(n, measured)).all()
            continue
        first, ties = result[0], [item[2:] for item in may_be_first(wanted, moved)]
        its = set(zip(*(places.tolist() for places in first.pairs), strict=True))
        assert (first.kind, first.near, first.far, its) in ties, seed
        spoke += 1
    assert spoke > 10


def test_a_cause_within_noise_is_skipped() -> None:
    """Refused: all that save as much as the first one."""
    for seed in range(1000, 1060):
        n, measured, moved, label = drawn(seed)
        wanted = sorted(by_the_book(n, measured, moved, label), key=lambda item: item[:2])
        refused = [sorted(item[5]) for item in wanted if wanted and item[0] == wanted[0][0]]

        def holds(pairs: Pairs, refused: list[list[Pair]] = refused) -> bool:
            return sorted(zip(*(places.tolist() for places in pairs), strict=True)) not in refused

        rest = [item for item in wanted if sorted(item[5]) not in refused]
        result, _ = explain(mask_of(n, measured), mask_of(n, moved), [np.array(label)], holds)
        assert bool(result) is bool(rest), seed
        if result:
            first = result[0].kind, result[0].near, result[0].far
            assert first in [item[2:5] for item in may_be_first(rest, moved)]


def test_groups_of_every_tier_are_candidates() -> None:
    """Eight hosts in racks of two and pods of four: what changed is between pods, and no rack explains it."""
    racks, pods = [0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1]
    assert explained(8, between(range(4), range(4, 8)), [racks, pods]) == [("link", (0, 1, 2, 3), (4, 5, 6, 7))]
    assert explained(8, between([0, 1], range(2, 8)), [racks, pods]) == [("uplink", (0, 1), ())]


# What is nearly all, and most of what each has


# Slow hosts, of whom every pair changed, wherever they stand


@pytest.mark.parametrize(("label", "slow", "wanted"), [
    ([0, 0, 1, 1, 0, 0, 1, 1], [0, 1, 2, 3], "hosts"),
    ([0, 0, 0, 1, 0, 1, 1, 1], [0, 1, 2, 3], "hosts"),
    ([0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 2], "hosts"),
    ([0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 4], "hosts"),
    ([0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 2, 4, 5], "hosts"),
    ([0, 0, 0, 0, 1, 1, 1, 1], [5], "hosts"),
    ([0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 2, 3], "group"),
    ([0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5, 6], "network"),
    ([0] * 4 + [1] * 4 + [2] * 4 + [3] * 4, [0, 1, 4, 5, 8, 9, 12, 13], "hosts"),
    ([0] * 4 + [1] * 4 + [2] * 4 + [3] * 4, [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14], "hosts"),
])  # fmt: skip
def test_slow_hosts_come_before_a_group_with_unaffected_pairs(label: list[int], slow: list[int], wanted: str) -> None:
    """Of a group of four with two slow hosts five pairs of six have one of these; of eight hosts with five slow ones 25
    pairs of 28. Where all but one are slow every pair is, and nothing tells it from a slow network."""
    n = len(label)
    result = explained(n, between(slow, range(n)), [label])
    everybody = tuple(range(n))
    assert (
        sorted(result)
        == {
            "hosts": [("host", (host,), ()) for host in slow],
            "group": [("group", tuple(slow), ())],
            "network": [("network", everybody, ())],
        }[wanted]
    )


@pytest.mark.parametrize(("sizes", "slow", "beside"), [
    ([4, 4], [4, 5], ("link", (0, 1, 2, 3), (4, 5, 6, 7))),
    ([4, 4, 4], [0, 2, 3, 5, 6, 7], ("link", (4, 5, 6, 7), (8, 9, 10, 11))),
    ([4, 4, 4], [4, 6, 7, 8, 11], ("uplink", (0, 1, 2, 3), ())),
    ([4, 4, 4], [4, 5, 8, 9], ("inside", (0, 1, 2, 3), ())),
])  # fmt: skip
def test_slow_hosts_beside_another_cause_are_named_with_it(
    sizes: list[int], slow: list[int], beside: tuple[str, tuple[int, ...], tuple[int, ...]]
) -> None:
    """And no group or tier instead, of which one or two pairs are untouched."""
    label = np.repeat(np.arange(len(sizes)), sizes).tolist()
    n, (kind, near, far) = len(label), beside
    others = [host for host in range(n) if host not in near]
    moved = between(slow, range(n)) | between(near, {"link": far, "uplink": others, "inside": near}[kind])
    assert sorted(explained(n, moved, [label])) == [*(("host", (host,), ()) for host in slow), beside]


# Causes with a few unaffected pairs


@pytest.mark.parametrize(("sizes", "kind", "near", "unaffected"), [
    ([4, 4], "host", [0], {(0, 1)}),
    ([4, 4], "host", [0], {(0, 4)}),
    ([8, 8], "host", [0], {(0, 1), (0, 2)}),
    ([2, 4, 4], "uplink", [0, 1], {(0, 2), (1, 3)}),
    ([4, 4, 4], "uplink", [0, 1, 2, 3], {(0, 4), (1, 5), (2, 6), (3, 7)}),
    ([4, 4, 4], "between", range(12), {(0, 4), (1, 5), (2, 6), (3, 7), (4, 8), (5, 9)}),
    ([4, 4, 4], "inside", [0, 1, 2, 3], {(0, 1)}),
])  # fmt: skip
def test_a_cause_with_unaffected_pairs_beats_a_smaller_exact_one(
    sizes: list[int], kind: str, near: Sequence[int], unaffected: set[Pair]
) -> None:
    """Such as a group without unaffected pairs: the other pairs would then be reported one by one."""
    label = np.repeat(np.arange(len(sizes)), sizes).tolist()
    n = len(label)
    apart = {(i, j) for i, j in every(n) if label[i] != label[j]}
    moved = {
        "host": between(near, range(n)),
        "uplink": between(near, range(n)) & apart,
        "between": apart,
        "inside": between(near, near),
    }[kind]
    assert explained(n, moved - unaffected, [label]) == [(kind, tuple(near), ())]


# One after the other


@pytest.mark.parametrize(
    ("sizes", "slow"),
    [
        ([8, 8, 8, 7], [0, 1]), ([3, 5, 5, 4], [1, 2]), ([2, 2, 2, 2, 2], [0, 2, 4]), ([4] * 6, [0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_slow_uplinks_are_named_and_not_all_that_is_between_groups(sizes: list[int], slow: list[int]) -> None:
    """Of which nearly all has changed; it saves as much as one uplink, or more. Nor is a host blamed of a rack whose
    hosts are not slow to each other."""
    label = np.repeat(range(len(sizes)), sizes)
    hosts = [tuple(np.flatnonzero(label == group).tolist()) for group in range(len(sizes))]
    moved = {pair for pair in every(len(label)) if label[pair[0]] != label[pair[1]] and set(label[[*pair]]) & set(slow)}
    result = explained(len(label), moved, [label])
    assert sorted(result) == [("uplink", hosts[group], ()) for group in slow]
