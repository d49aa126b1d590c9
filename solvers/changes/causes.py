"""What explains that many pairs changed: the fewest causes, each a set of pairs that belong together.

A host's pairs, the pairs between two groups of hosts, all that leaves a group, a tier, the whole network: each of these
is a cause when nearly all of its pairs changed. The one that explains most is taken first, its pairs are done with,
and so on; what is left is told pair by pair. This is the greedy cover of Chvatal 1979, in which a host comes before the
links and groups that explain as much.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.intp]
Pairs = tuple[Labels, Labels]

_NEARLY_ALL = 0.8
_MOST = 2 / 3  # of what each host has in it: one that has no part in a group's trouble is not to be blamed
_EXCEPTIONS = 0.1  # of all hosts: what happened to them besides may hide what happened to everybody
_AS_GOOD = 0.9  # of what a cause explained at first: near enough not to look at all others again
_FEWEST = 2  # pairs: one alone is a pair
_FEWEST_OF_MANY = 3  # between a host and a group, of which there are many

# A tie is the first one's.
KINDS = ("host", "network", "link", "inside", "group", "uplink", "within", "between")


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
    gain: int
    parts: Callable[[], tuple[Mask, ...]]  # made when asked for; nearly all of each must have changed
    least: int = _FEWEST


def explain(
    known: Mask, moved: Mask, groupings: Sequence[Labels], holds: Callable[[Pairs], bool]
) -> tuple[list[Cause], Mask]:
    """Causes, the one that explains most first, and the pairs that none of them explains, shape (N, N).

    :param known: which pairs there is something to say about, shape (N, N), symmetric, False on the diagonal.
    :param moved: which of them changed, or may have.
    :param groupings: groups of every host, shape (N,) each, of several tiers if need be.
    :param holds: asked about the pairs that a cause would explain: whether it is beyond noise.
    """
    moved = moved & known
    left, open_moved = known.copy(), moved.copy()
    found: list[Cause] = []
    # Gains only shrink while pairs are taken away, so an old one bounds the new one (lazy greedy, Minoux 1978).
    waiting = [(*_rank(one), k, one) for k, one in enumerate(_candidates(known, moved, groupings))]
    heapq.heapify(waiting)
    tried: set[int] = set()
    while waiting:
        _, _, k, one = heapq.heappop(waiting)
        if len(one.near) == 1 and not _left_of(one, left, open_moved):
            continue
        parts = one.parts()
        there, changed = (mask[_union(parts)].sum() // 2 for mask in (left, open_moved))
        if not _enough(changed, there, one.least) or (one.kind == "network" and found):
            continue
        if k not in tried and not _is_cause(one, parts, known, moved):
            continue
        tried.add(k)
        if changed < _AS_GOOD * one.gain:
            again = replace(one, gain=int(changed))
            heapq.heappush(waiting, (*_rank(again), k, again))
            continue
        i, j = np.nonzero(np.triu(_union(parts) & left, 1))
        if holds((i, j)):
            found.append(Cause(one.kind, one.near, one.far, (i, j)))
            for mask in (left, open_moved):
                mask[i, j] = mask[j, i] = False
    return found, left


def _left_of(one: _Candidate, left: Mask, open_moved: Mask) -> bool:
    """Whether a host's cause has enough left: of these there are thousands, and their pairs are in one row."""
    (host,), far = one.near, list(one.far) or slice(None)
    return bool(_enough(open_moved[host, far].sum(), left[host, far].sum(), one.least))


def _union(parts: tuple[Mask, ...]) -> Mask:
    return parts[0] if len(parts) == 1 else np.logical_or.reduce(parts)


def _rank(one: _Candidate) -> tuple[int, int]:
    return -one.gain, KINDS.index(one.kind)


def _is_cause(one: _Candidate, parts: tuple[Mask, ...], known: Mask, moved: Mask) -> bool:
    """Whether nearly all of each part changed, and most of what each host has in it."""
    for part in parts:
        if (part & moved).sum() <= _NEARLY_ALL * (part & known).sum():
            return False
    whole = _union(parts)
    there, changed = (whole & known).sum(axis=1), (whole & moved).sum(axis=1)
    accused = [*one.near, *(one.far if len(one.near) > 1 else ())]
    innocent = int((changed[accused] < _MOST * there[accused]).sum())
    return innocent <= (_EXCEPTIONS * len(accused) if one.kind == "network" else 0)


def network_wide(known: Mask, moved: Mask, groupings: Sequence[Labels]) -> bool:
    """Whether nearly all pairs moved: of every tier, and most of every host's."""
    pairs = int(np.triu(known, 1).sum())
    one = _network(pairs, known, groupings)
    return pairs >= one.least and _is_cause(one, one.parts(), known, moved)


def _network(gain: int, known: Mask, groupings: Sequence[Labels]) -> _Candidate:
    def parts() -> tuple[Mask, ...]:
        off = ~np.eye(len(known), dtype=bool)
        tiers = [part for label in groupings for part in (_same(label), off & ~_same(label))]
        return (off, *(part for part in tiers if (part & known).any()))

    return _Candidate("network", tuple(range(len(known))), (), gain, parts, _FEWEST_OF_MANY)


def _enough(gain: npt.ArrayLike, of: npt.ArrayLike, least: int = _FEWEST) -> Mask:
    gains = np.asarray(gain)
    return np.asarray((gains >= least) & (gains > _NEARLY_ALL * np.asarray(of)))


def _candidates(known: Mask, moved: Mask, groupings: Sequence[Labels]) -> Iterator[_Candidate]:
    """Whatever has enough changed pairs, and nearly all of its pairs changed."""
    gains, of = moved.sum(axis=1), known.sum(axis=1)
    everybody = tuple(range(len(known)))
    for host in np.flatnonzero(_enough(gains, of)).tolist():
        yield _Candidate("host", (host,), (), int(gains[host]), _pairs_of(len(known), (host,), everybody))
    if _enough(gains.sum() // 2, of.sum() // 2, _FEWEST_OF_MANY):
        yield _network(int(gains.sum() // 2), known, groupings)
    for label in groupings:
        yield from _of_groups(label, known, moved)


def _of_groups(label: Labels, known: Mask, moved: Mask) -> Iterator[_Candidate]:
    n = len(label)
    members = [tuple(np.flatnonzero(label == group).tolist()) for group in range(int(label.max()) + 1)]
    if len(members) < 2:
        return
    sizes = np.array([len(group) for group in members])
    shared = sizes >= 2
    belongs = np.eye(len(members), dtype=np.float32)[label]
    to_group, known_to_group = (mask.astype(np.float32) @ belongs for mask in (moved, known))
    blocks, known_blocks = (np.rint(belongs.T @ found).astype(int) for found in (to_group, known_to_group))
    inside, known_inside = np.diagonal(blocks) // 2, np.diagonal(known_blocks) // 2
    out, known_out = (found.sum(axis=1) - np.diagonal(found) for found in (blocks, known_blocks))
    for a, b in np.argwhere(np.triu(_enough(blocks, known_blocks) & shared[:, None] & shared[None, :], 1)).tolist():
        yield _Candidate("link", members[a], members[b], int(blocks[a, b]), _pairs_of(n, members[a], members[b]))
    for host, group in np.argwhere(_enough(to_group, known_to_group, _FEWEST_OF_MANY)).tolist():
        far = tuple(other for other in members[group] if other != host)
        gain = round(float(to_group[host, group]))
        yield _Candidate("link", (host,), far, gain, _pairs_of(n, (host,), far), _FEWEST_OF_MANY)
    for group in np.flatnonzero(shared & _enough(inside, known_inside)).tolist():
        here = members[group]
        yield _Candidate("inside", here, (), int(inside[group]), _pairs_of(n, here, here))
    for group in np.flatnonzero(shared & _enough(out, known_out)).tolist():
        here, others = members[group], tuple(np.flatnonzero(label != group).tolist())
        yield _Candidate("uplink", here, (), int(out[group]), _pairs_of(n, here, others))
        if _enough(inside[group], known_inside[group], 1):
            both = int(out[group] + inside[group])
            yield _Candidate("group", here, (), both, _pairs_of(n, here, others, here))
    if _enough(inside.sum(), known_inside.sum()):
        together = tuple(np.flatnonzero(sizes[label] >= 2).tolist())
        yield _Candidate("within", together, (), int(inside.sum()), lambda: (_same(label),))
    if _enough(out.sum() // 2, known_out.sum() // 2):
        apart = lambda: (~_same(label) & ~np.eye(n, dtype=bool),)  # noqa: E731
        yield _Candidate("between", tuple(range(n)), (), int(out.sum() // 2), apart)


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
