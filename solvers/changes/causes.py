"""What explains that many pairs changed: the fewest causes, each a set of pairs that belong together.

A host's pairs, the pairs between two groups of hosts, all that leaves a group, a tier, the whole network: each of these
is a cause when nearly all of its pairs changed. A telling costs what it says: a cause little, a pair alone more, a pair
that did not change and is told of the most, so slow hosts come before a group in which some pairs have no slow host.
The cause that saves most is taken first, its pairs are done with, and so on; what is left is told pair by pair. This is
the greedy cover of Chvatal 1979, in which a host comes before links and groups that save as much.

It takes a large cause at once and never looks back, so where it took one with pairs that did not change, two other
tellings are made: hosts first, and first what spares no pair. The cheapest of the three stands.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.intp]
Pairs = tuple[Labels, Labels]

_NEARLY_ALL = 4  # times as many pairs changed as did not, and more: four fifths
_MOST = 2 / 3  # of what each host has in it: one that has no part in a group's trouble is not to be blamed
_EXCEPTIONS = 0.1  # of all hosts: what happened to them besides may hide what happened to everybody
_AS_GOOD = 0.9  # of what a cause saved at first: near enough not to look at all others again
_FEWEST = 2  # pairs: one alone is a pair
_FEWEST_OF_MANY = 3  # between a host and a group, of which there are many
_ALONE = 2  # causes cost as much as one pair that is told alone, for it says nothing of why
_UNTRUE = 4  # and so many as one that did not change and is told of as if it had

# A tie is the first one's: what is inside a group comes before what one of its hosts has in it.
KINDS = ("host", "network", "inside", "link", "group", "uplink", "within", "between")


@dataclass(frozen=True)
class Cause:
    """``kind``: ``network`` (all pairs), ``host``, ``link`` (``near`` to ``far``: a group and a group, or a host and a
    group), ``inside`` (within one group), ``uplink`` (a group to all others), ``group`` (both of these), ``within`` and
    ``between`` (all groups of ``near``), ``pair``. ``pairs``: those it explains, as two
    arrays of hosts that index an (N, N) matrix, i < j."""

    kind: str
    near: tuple[int, ...]
    far: tuple[int, ...]
    pairs: Pairs = field(compare=False, repr=False)


@dataclass(frozen=True)
class _Candidate:
    kind: str
    near: tuple[int, ...]
    far: tuple[int, ...]
    changed: int  # pairs that are not done with
    spared: int  # those that did not change
    parts: Callable[[], tuple[Mask, ...]]  # made when asked for; nearly all of each must have changed
    least: int = _FEWEST

    @property
    def saved(self) -> int:
        """What telling it costs less than its changed pairs alone do."""
        return _ALONE * self.changed - _UNTRUE * self.spared


def explain(
    measured: Mask, moved: Mask, groupings: Sequence[Labels], holds: Callable[[Pairs], bool]
) -> tuple[list[Cause], Mask]:
    """Causes, the one that saves most first (or of hosts, or of those without a spared pair, and others then), and the
    pairs that none of them explains, shape (N, N).

    :param known: which pairs there is something to say about, shape (N, N), symmetric, False on the diagonal.
    :param moved: which of them changed, or may have.
    :param groupings: groups of every host, shape (N,) each, of several tiers if need be.
    :param holds: asked about the pairs that a cause would explain: whether it is beyond noise.
    """
    moved = moved & measured
    candidates = list(_candidates(moved, measured & ~moved, groupings))
    result, left = _cover(candidates, measured, moved, holds)
    if all(moved[cause.pairs].all() for cause in result):
        return result, left
    parts = [candidate for candidate in candidates if candidate.kind != "network"]
    tellings = [
        (result, left),
        _in_two([candidate.kind == "host" for candidate in parts], parts, measured, moved, holds),
    ]
    if result[0].kind != "network":
        tellings.append(_in_two([not candidate.spared for candidate in parts], parts, measured, moved, holds))
    return min(tellings, key=lambda telling: _cost(telling[0], telling[1], moved))


def _in_two(
    sooner: Sequence[bool],
    candidates: Sequence[_Candidate],
    measured: Mask,
    moved: Mask,
    holds: Callable[[Pairs], bool],
) -> tuple[list[Cause], Mask]:
    """The greedy way twice: with some of the candidates, then the others with what these leave."""
    first, left = _cover([item for item, soon in zip(candidates, sooner, strict=True) if soon], measured, moved, holds)
    later = [item for item, soon in zip(candidates, sooner, strict=True) if not soon]
    rest, left = _cover(later, measured, moved, holds, left)
    return [*first, *rest], left


def _cost(result: Sequence[Cause], left: Mask, moved: Mask) -> int:
    """Of telling it so, in causes."""
    alone = int((left & moved).sum()) // 2
    untrue = sum(int((~moved[cause.pairs]).sum()) for cause in result)
    return len(result) + _ALONE * alone + _UNTRUE * untrue


def _cover(
    candidates: Sequence[_Candidate],
    measured: Mask,
    moved: Mask,
    holds: Callable[[Pairs], bool],
    left: Mask | None = None,
) -> tuple[list[Cause], Mask]:
    """Causes of these candidates, the greedy way, of pairs that are ``left`` (all), and what they leave."""
    left = measured.copy() if left is None else left.copy()
    open_moved = moved & left
    result: list[Cause] = []
    # Changed pairs only become fewer while causes are taken, and those that did not change stay as many, so what one
    # saved before bounds what it saves now (lazy greedy, Minoux 1978).
    waiting = [(*_rank(item), k, item) for k, item in enumerate(candidates)]
    heapq.heapify(waiting)
    tried: set[int] = set()
    while waiting:
        _, _, k, item = heapq.heappop(waiting)
        if len(item.near) == 1 and not _left_of(item, open_moved):
            continue
        parts = item.parts()
        changed = int(open_moved[_union(parts)].sum()) // 2
        if not _enough(changed, item.spared, least=item.least):
            continue
        if k not in tried and not _is_cause(item, parts, measured, moved):
            continue
        tried.add(k)
        again = replace(item, changed=changed)
        if again.saved < _AS_GOOD * item.saved:
            heapq.heappush(waiting, (*_rank(again), k, again))
            continue
        i, j = np.nonzero(np.triu(_union(parts) & left, 1))
        if holds((i, j)):
            result.append(Cause(item.kind, item.near, item.far, (i, j)))
            for mask in (left, open_moved):
                mask[i, j] = mask[j, i] = False
    return result, left


def _left_of(item: _Candidate, open_moved: Mask) -> bool:
    """Whether a host's cause has enough left: of these there are thousands, and their pairs are in one row."""
    (host,), far = item.near, list(item.far) or slice(None)
    return bool(_enough(open_moved[host, far].sum(), item.spared, least=item.least))


def _union(parts: tuple[Mask, ...]) -> Mask:
    return parts[0] if len(parts) == 1 else np.logical_or.reduce(parts)


def _rank(item: _Candidate) -> tuple[int, int]:
    return -item.saved, KINDS.index(item.kind)


def _is_cause(item: _Candidate, parts: tuple[Mask, ...], measured: Mask, moved: Mask) -> bool:
    """Whether nearly all of each part changed, and most of what each host has in it."""
    for part in parts:
        if not _enough((part & moved).sum(), (part & measured & ~moved).sum(), least=1):
            return False
    whole = _union(parts)
    there, changed = (whole & measured).sum(axis=1), (whole & moved).sum(axis=1)
    accused = [*item.near, *(item.far if len(item.near) > 1 else ())]
    innocent = int((changed[accused] < _MOST * there[accused]).sum())
    return innocent <= (_EXCEPTIONS * len(accused) if item.kind == "network" else 0)


def network_wide(measured: Mask, moved: Mask, groupings: Sequence[Labels]) -> bool:
    """Whether what moved is best told of the whole network: nearly all pairs did, of every tier, and most of every
    host's, and no few hosts explain it better."""
    moved = moved & measured
    for item in _network(moved, measured & ~moved, groupings):
        if _is_cause(item, item.parts(), measured, moved):
            result, _ = explain(measured, moved, groupings, lambda pairs: True)
            return result[0].kind == item.kind
    return False


def _enough(changed: npt.ArrayLike, spared: npt.ArrayLike, *, least: int = _FEWEST) -> Mask:
    counts = np.asarray(changed)
    return np.asarray((counts >= least) & (counts > _NEARLY_ALL * np.asarray(spared)))


def _candidates(moved: Mask, spared: Mask, groupings: Sequence[Labels]) -> Iterator[_Candidate]:
    """Whatever has enough changed pairs, and nearly all of its pairs changed."""
    each, everybody = [mask.sum(axis=1) for mask in (moved, spared)], tuple(range(len(moved)))
    for host in np.flatnonzero(_enough(*each)).tolist():
        yield _Candidate("host", (host,), (), *_at(each, host), _pairs_of(len(moved), (host,), everybody))
    yield from _network(moved, spared, groupings)
    for label in groupings:
        yield from _of_groups(label, moved, spared)


def _network(moved: Mask, spared: Mask, groupings: Sequence[Labels]) -> Iterator[_Candidate]:
    def parts() -> tuple[Mask, ...]:
        off = ~np.eye(len(moved), dtype=bool)
        tiers = [part for label in groupings for part in (_same(label), off & ~_same(label))]
        return (off, *(part for part in tiers if (part & (moved | spared)).any()))

    counts = _sums((moved, spared), of=2)
    if _enough(*counts, least=_FEWEST_OF_MANY):
        yield _Candidate("network", tuple(range(len(moved))), (), *counts, parts, _FEWEST_OF_MANY)


def _of_groups(label: Labels, moved: Mask, spared: Mask) -> Iterator[_Candidate]:
    n = len(label)
    members = [tuple(np.flatnonzero(label == group).tolist()) for group in range(int(label.max()) + 1)]
    if len(members) < 2:
        return
    sizes = np.array([len(group) for group in members])
    shared = sizes >= 2
    belongs = np.eye(len(members), dtype=np.float32)[label]
    # Of each host and group, and of each two groups: pairs that changed, and those that did not.
    single = [np.rint(mask.astype(np.float32) @ belongs).astype(int) for mask in (moved, spared)]
    blocks = [np.rint(belongs.T @ counts).astype(int) for counts in single]
    inside = [np.diagonal(counts) // 2 for counts in blocks]
    out = [counts.sum(axis=1) - np.diagonal(counts) for counts in blocks]
    for a, b in np.argwhere(np.triu(_enough(*blocks) & shared[:, None] & shared[None, :], 1)).tolist():
        yield _Candidate("link", members[a], members[b], *_at(blocks, a, b), _pairs_of(n, members[a], members[b]))
    for host, group in np.argwhere(_enough(*single, least=_FEWEST_OF_MANY)).tolist():
        far = tuple(other for other in members[group] if other != host)
        yield _Candidate("link", (host,), far, *_at(single, host, group), _pairs_of(n, (host,), far), _FEWEST_OF_MANY)
    for group in np.flatnonzero(shared & _enough(*inside)).tolist():
        here = members[group]
        yield _Candidate("inside", here, (), *_at(inside, group), _pairs_of(n, here, here))
    for group in np.flatnonzero(shared & _enough(*out)).tolist():
        here, others = members[group], tuple(np.flatnonzero(label != group).tolist())
        yield _Candidate("uplink", here, (), *_at(out, group), _pairs_of(n, here, others))
        if _enough(inside[0][group], inside[1][group], least=1):
            both = _at([leaving + within for leaving, within in zip(out, inside, strict=True)], group)
            yield _Candidate("group", here, (), *both, _pairs_of(n, here, others, here))
    near, far_apart = _sums(inside), _sums(out, of=2)
    if _enough(*near):
        together = tuple(np.flatnonzero(sizes[label] >= 2).tolist())
        yield _Candidate("within", together, (), *near, lambda: (_same(label),))
    if _enough(*far_apart):
        apart = lambda: (~_same(label) & ~np.eye(n, dtype=bool),)  # noqa: E731
        yield _Candidate("between", tuple(range(n)), (), *far_apart, apart)


def _at(counts: Sequence[Labels], *place: int) -> tuple[int, int]:
    changed, spared = counts
    return int(changed[place]), int(spared[place])


def _sums(counts: Sequence[npt.NDArray[Any]], of: int = 1) -> tuple[int, int]:
    """Where every pair is there ``of`` times."""
    changed, spared = counts
    return int(changed.sum()) // of, int(spared.sum()) // of


def _pairs_of(n: int, near: Sequence[int], *fars: Sequence[int]) -> Callable[[], tuple[Mask, ...]]:
    return lambda: tuple(_between(n, near, far) for far in fars)


def _between(n: int, near: Sequence[int], far: Sequence[int]) -> Mask:
    mask = np.zeros((n, n), dtype=bool)
    mask[np.ix_(list(near), list(far))] = True
    mask |= mask.T
    np.fill_diagonal(mask, False)
    return mask


def _same(label: Labels) -> Mask:
    same = label[:, None] == label[None, :]
    np.fill_diagonal(same, False)
    return np.asarray(same)
