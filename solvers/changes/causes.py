"""Explain which pairs of hosts changed by the fewest causes: a greedy set cover (Chvatal 1979).

A cause is a set of pairs: those of a host, between two groups of hosts, from a group to all others, of a tier, or of
the whole network. It is a candidate when nearly all of its pairs changed. Explanations are scored, and the lowest cost
wins: 1 for a cause, 2 for a changed pair that is reported alone, 4 for a reported pair that did not change. So slow
hosts come before a group in which some pairs have no slow host.

The cover takes the cause that saves the most, removes its pairs, and repeats. On a tie a host comes before links and
groups. Where it took a cause with unaffected pairs, two other explanations are computed: one that covers by hosts
first, and one that covers by causes without unaffected pairs first. The cheapest of the three is returned.
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

_CHANGED_PER_UNAFFECTED = 4  # a cause has more than 4 changed pairs for each unaffected one: four fifths
_MIN_HOST_SHARE = 2 / 3  # of a host's pairs in a cause: a host with fewer changed ones is exonerated
_MAX_EXONERATED_SHARE = 0.1  # of all hosts, in a change of the whole network: other changes may hide it
_REQUEUE_BELOW_SHARE = 0.9  # of what a cause saved at first: above it the other candidates need no comparison
_MIN_PAIRS = 2  # changed pairs of a cause: one alone is reported as a pair
_MIN_PAIRS_OF_HOST_AND_GROUP = 3  # changed pairs: there are many such candidates
_PAIR_COST = 2  # causes: the cost of a pair that is reported alone, which explains nothing
_UNAFFECTED_COST = 4  # causes: the cost of a pair that did not change and is reported as if it had

# On a tie the first kind wins: a change inside a group comes before one of its hosts' pairs in it.
KINDS = ("host", "network", "inside", "link", "group", "uplink", "within", "between")


@dataclass(frozen=True)
class Cause:
    """A set of pairs of hosts that changed together.

    ``kind``: ``network`` (all pairs), ``host``, ``link`` (``near`` to ``far``: a group and a group, or a host and a
    group), ``inside`` (within one group), ``uplink`` (a group to all others), ``group`` (both of these), ``within`` and
    ``between`` (all groups of ``near``), ``pair``. ``pairs``: those it explains, as two arrays of hosts that index an
    (N, N) matrix, i < j.
    """

    kind: str
    near: tuple[int, ...]
    far: tuple[int, ...]
    pairs: Pairs = field(compare=False, repr=False)


@dataclass(frozen=True)
class _Candidate:
    kind: str
    near: tuple[int, ...]
    far: tuple[int, ...]
    changed: int  # pairs that changed and that no cause explains yet
    unaffected: int  # pairs that did not change
    parts: Callable[[], tuple[Mask, ...]]  # built on demand; nearly all pairs of each part must have changed
    least: int = _MIN_PAIRS

    @property
    def saved(self) -> int:
        """Return how much less the cause costs than its changed pairs reported alone."""
        return _PAIR_COST * self.changed - _UNAFFECTED_COST * self.unaffected


def explain(
    measured: Mask, moved: Mask, groupings: Sequence[Labels], holds: Callable[[Pairs], bool]
) -> tuple[list[Cause], Mask]:
    """Return the causes of the cheapest explanation, in the order of the cover, and the pairs that none explains.

    :param measured: which pairs were compared, shape (N, N), symmetric, False on the diagonal.
    :param moved: which of them changed, or may have.
    :param groupings: the group of every host, shape (N,), for each tier.
    :param holds: whether the change of the pairs that a cause would explain is beyond noise.
    :returns: causes, and a mask of the unexplained pairs, shape (N, N).
    """
    moved = moved & measured
    candidates = list(_candidates(moved, measured & ~moved, groupings))
    causes, unexplained = _cover(candidates, measured, moved, holds)
    if all(moved[cause.pairs].all() for cause in causes):
        return causes, unexplained
    parts = [candidate for candidate in candidates if candidate.kind != "network"]
    explanations = [
        (causes, unexplained),
        _cover_in_two_passes([candidate.kind == "host" for candidate in parts], parts, measured, moved, holds),
    ]
    if causes[0].kind != "network":
        explanations.append(
            _cover_in_two_passes([not candidate.unaffected for candidate in parts], parts, measured, moved, holds)
        )
    return min(explanations, key=lambda explanation: _cost(explanation[0], explanation[1], moved))


def _cover_in_two_passes(
    first_pass: Sequence[bool],
    candidates: Sequence[_Candidate],
    measured: Mask,
    moved: Mask,
    holds: Callable[[Pairs], bool],
) -> tuple[list[Cause], Mask]:
    """Cover with the candidates of the first pass, then cover what is unexplained with the others."""
    first, unexplained = _cover(
        [item for item, soon in zip(candidates, first_pass, strict=True) if soon], measured, moved, holds
    )
    later = [item for item, soon in zip(candidates, first_pass, strict=True) if not soon]
    rest, unexplained = _cover(later, measured, moved, holds, unexplained)
    return [*first, *rest], unexplained


def _cost(causes: Sequence[Cause], unexplained: Mask, moved: Mask) -> int:
    """Return the cost of an explanation, in causes."""
    pairs_alone = int((unexplained & moved).sum()) // 2
    unaffected = sum(int((~moved[cause.pairs]).sum()) for cause in causes)
    return len(causes) + _PAIR_COST * pairs_alone + _UNAFFECTED_COST * unaffected


def _cover(
    candidates: Sequence[_Candidate],
    measured: Mask,
    moved: Mask,
    holds: Callable[[Pairs], bool],
    unexplained: Mask | None = None,
) -> tuple[list[Cause], Mask]:
    """Cover the unexplained pairs (default: all) greedily; return the causes and the pairs that stay unexplained."""
    unexplained = measured.copy() if unexplained is None else unexplained.copy()
    unexplained_moved = moved & unexplained
    causes: list[Cause] = []
    # Taken causes remove changed pairs and no unaffected ones, so an earlier saving bounds the present one from above
    # (lazy greedy, Minoux 1978).
    waiting = [(*_rank(item), k, item) for k, item in enumerate(candidates)]
    heapq.heapify(waiting)
    tried: set[int] = set()
    while waiting:
        _, _, k, item = heapq.heappop(waiting)
        if len(item.near) == 1 and not _has_enough_left(item, unexplained_moved):
            continue
        parts = item.parts()
        changed = int(unexplained_moved[_union(parts)].sum()) // 2
        if not _is_enough(changed, item.unaffected, least=item.least):
            continue
        if k not in tried and not _is_cause(item, parts, measured, moved):
            continue
        tried.add(k)
        updated = replace(item, changed=changed)
        if updated.saved < _REQUEUE_BELOW_SHARE * item.saved:
            heapq.heappush(waiting, (*_rank(updated), k, updated))
            continue
        i, j = np.nonzero(np.triu(_union(parts) & unexplained, 1))
        if holds((i, j)):
            causes.append(Cause(item.kind, item.near, item.far, (i, j)))
            for mask in (unexplained, unexplained_moved):
                mask[i, j] = mask[j, i] = False
    return causes, unexplained


def _has_enough_left(item: _Candidate, unexplained_moved: Mask) -> bool:
    """Return whether a host's candidate still has enough changed pairs: a fast test, as they are in one row."""
    (host,), far = item.near, list(item.far) or slice(None)
    return bool(_is_enough(unexplained_moved[host, far].sum(), item.unaffected, least=item.least))


def _union(parts: tuple[Mask, ...]) -> Mask:
    return parts[0] if len(parts) == 1 else np.logical_or.reduce(parts)


def _rank(item: _Candidate) -> tuple[int, int]:
    return -item.saved, KINDS.index(item.kind)


def _is_cause(item: _Candidate, parts: tuple[Mask, ...], measured: Mask, moved: Mask) -> bool:
    """Return whether nearly all pairs of each part changed, and most pairs of each blamed host."""
    for part in parts:
        if not _is_enough((part & moved).sum(), (part & measured & ~moved).sum(), least=1):
            return False
    whole = _union(parts)
    measured_of, changed = (whole & measured).sum(axis=1), (whole & moved).sum(axis=1)
    blamed = [*item.near, *(item.far if len(item.near) > 1 else ())]
    exonerated = int((changed[blamed] < _MIN_HOST_SHARE * measured_of[blamed]).sum())
    return exonerated <= (_MAX_EXONERATED_SHARE * len(blamed) if item.kind == "network" else 0)


def network_wide(measured: Mask, moved: Mask, groupings: Sequence[Labels]) -> bool:
    """Return whether the whole network is the best explanation.

    Nearly all pairs of every tier and most pairs of every host must have changed, and no few hosts explain it better.
    """
    moved = moved & measured
    for item in _network(moved, measured & ~moved, groupings):
        if _is_cause(item, item.parts(), measured, moved):
            causes, _ = explain(measured, moved, groupings, lambda pairs: True)
            return causes[0].kind == item.kind
    return False


def _is_enough(changed: npt.ArrayLike, unaffected: npt.ArrayLike, *, least: int = _MIN_PAIRS) -> Mask:
    counts = np.asarray(changed)
    return np.asarray((counts >= least) & (counts > _CHANGED_PER_UNAFFECTED * np.asarray(unaffected)))


def _candidates(moved: Mask, unaffected: Mask, groupings: Sequence[Labels]) -> Iterator[_Candidate]:
    """Yield each set of pairs that has enough changed pairs, nearly all of which changed."""
    each, everybody = [mask.sum(axis=1) for mask in (moved, unaffected)], tuple(range(len(moved)))
    for host in np.flatnonzero(_is_enough(*each)).tolist():
        yield _Candidate("host", (host,), (), *_at(each, host), _pairs_of(len(moved), (host,), everybody))
    yield from _network(moved, unaffected, groupings)
    for label in groupings:
        yield from _of_groups(label, moved, unaffected)


def _network(moved: Mask, unaffected: Mask, groupings: Sequence[Labels]) -> Iterator[_Candidate]:
    def parts() -> tuple[Mask, ...]:
        off = ~np.eye(len(moved), dtype=bool)
        tiers = [part for label in groupings for part in (_same(label), off & ~_same(label))]
        return (off, *(part for part in tiers if (part & (moved | unaffected)).any()))

    counts = _sums((moved, unaffected), of=2)
    if _is_enough(*counts, least=_MIN_PAIRS_OF_HOST_AND_GROUP):
        yield _Candidate("network", tuple(range(len(moved))), (), *counts, parts, _MIN_PAIRS_OF_HOST_AND_GROUP)


def _of_groups(label: Labels, moved: Mask, unaffected: Mask) -> Iterator[_Candidate]:
    n = len(label)
    members = [tuple(np.flatnonzero(label == group).tolist()) for group in range(int(label.max()) + 1)]
    if len(members) < 2:
        return
    sizes = np.array([len(group) for group in members])
    shared = sizes >= 2
    belongs = np.eye(len(members), dtype=np.float32)[label]
    # Numbers of changed and unaffected pairs of each host and group, and of each two groups.
    single = [np.rint(mask.astype(np.float32) @ belongs).astype(int) for mask in (moved, unaffected)]
    blocks = [np.rint(belongs.T @ counts).astype(int) for counts in single]
    inside = [np.diagonal(counts) // 2 for counts in blocks]
    out = [counts.sum(axis=1) - np.diagonal(counts) for counts in blocks]
    for a, b in np.argwhere(np.triu(_is_enough(*blocks) & shared[:, None] & shared[None, :], 1)).tolist():
        yield _Candidate("link", members[a], members[b], *_at(blocks, a, b), _pairs_of(n, members[a], members[b]))
    for host, group in np.argwhere(_is_enough(*single, least=_MIN_PAIRS_OF_HOST_AND_GROUP)).tolist():
        far = tuple(other for other in members[group] if other != host)
        yield _Candidate(
            "link", (host,), far, *_at(single, host, group), _pairs_of(n, (host,), far), _MIN_PAIRS_OF_HOST_AND_GROUP
        )
    for group in np.flatnonzero(shared & _is_enough(*inside)).tolist():
        here = members[group]
        yield _Candidate("inside", here, (), *_at(inside, group), _pairs_of(n, here, here))
    for group in np.flatnonzero(shared & _is_enough(*out)).tolist():
        here, others = members[group], tuple(np.flatnonzero(label != group).tolist())
        yield _Candidate("uplink", here, (), *_at(out, group), _pairs_of(n, here, others))
        if _is_enough(inside[0][group], inside[1][group], least=1):
            both = _at([leaving + within for leaving, within in zip(out, inside, strict=True)], group)
            yield _Candidate("group", here, (), *both, _pairs_of(n, here, others, here))
    near, far_apart = _sums(inside), _sums(out, of=2)
    if _is_enough(*near):
        together = tuple(np.flatnonzero(sizes[label] >= 2).tolist())
        yield _Candidate("within", together, (), *near, lambda: (_same(label),))
    if _is_enough(*far_apart):
        apart = lambda: (~_same(label) & ~np.eye(n, dtype=bool),)  # noqa: E731
        yield _Candidate("between", tuple(range(n)), (), *far_apart, apart)


def _at(counts: Sequence[Labels], *place: int) -> tuple[int, int]:
    changed, unaffected = counts
    return int(changed[place]), int(unaffected[place])


def _sums(counts: Sequence[npt.NDArray[Any]], of: int = 1) -> tuple[int, int]:
    """Return the total numbers of pairs, each of which is counted ``of`` times."""
    changed, unaffected = counts
    return int(changed.sum()) // of, int(unaffected.sum()) // of


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
