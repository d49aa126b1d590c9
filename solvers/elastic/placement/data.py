"""Pieces of the input data: whose they are, whose they were, and who has them in memory (Harlap thesis, 4.2.3).

Hosts by their number; ``slots`` maps those that may work to the workers that each has.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Loading:
    """Under way into a host's memory; ``ticket``: of the order to load. ``ahead``: for a later day, nobody waits."""

    ticket: int
    ahead: bool


@dataclass(frozen=True)
class Piece:
    """``owner``: works on it, or will once it is loaded. ``previous``: who did before and still has it, the latest
    last. ``loaded``: who has it in memory; ``loading``: who soon will. ``next_owner``: who works on it once it is
    loaded there; the owner does until then."""

    owner: int
    previous: tuple[int, ...] = ()
    loaded: frozenset[int] = frozenset()
    loading: Mapping[int, Loading] = field(default_factory=dict)
    next_owner: int | None = None

    @property
    def near(self) -> set[int]:
        """Who has it or soon will."""
        return {*self.loaded, *self.loading}


Pieces = tuple[Piece, ...]


def shares(number: int, slots: Mapping[int, int], held: Mapping[int, int]) -> dict[int, int]:
    """How many pieces each host is due: in proportion to its slots, off by less than one; the odd ones to who is due
    the most of one, then to who holds most."""
    total = sum(slots.values())
    due = {host: number * count // total for host, count in slots.items()}
    rest = sorted(slots, key=lambda host: (-(number * slots[host] % total), -held.get(host, 0), host))
    for host in rest[: number - sum(due.values())]:
        due[host] += 1
    return due


def dealt(number: int, slots: Mapping[int, int]) -> Pieces:
    """All pieces given out for the first time, each host a run of them (they are likely to lie together in a file)."""
    due = shares(number, slots, {})
    return tuple(Piece(host) for host in sorted(due) for _ in range(due[host]))


def without(pieces: Pieces, gone: Collection[int], slots: Mapping[int, int]) -> Pieces:
    """Hosts are gone: what was theirs goes back to the previous owner that is still there, the latest first; else to
    one that has it in memory, else to one that is loading it, else to the one with the least to do, who must."""
    pieces = tuple(_forget(piece, gone) for piece in pieces)
    held = Counter(piece.owner for piece in pieces)
    results = []
    for piece in pieces:
        if piece.owner in gone:
            next_owner = _successor(piece, slots, held)
            held[next_owner] += 1
            previous = tuple(host for host in piece.previous if host != next_owner)
            piece = replace(piece, owner=next_owner, previous=previous, next_owner=None)
        results.append(piece)
    return tuple(results)


def _forget(piece: Piece, gone: Collection[int]) -> Piece:
    if not ({*piece.previous, *piece.near, piece.next_owner} & set(gone)):
        return piece
    return replace(
        piece,
        previous=tuple(host for host in piece.previous if host not in gone),
        loaded=piece.loaded - frozenset(gone),
        loading={host: loading for host, loading in piece.loading.items() if host not in gone},
        next_owner=None if piece.next_owner in gone else piece.next_owner,
    )


def _successor(piece: Piece, slots: Mapping[int, int], held: Mapping[int, int]) -> int:
    for host in reversed(piece.previous):
        if host in slots and host in piece.loaded:
            return host
    for some in (piece.loaded, piece.loading, slots):
        if able := [host for host in some if host in slots]:
            return min(able, key=lambda host: (held[host] / slots[host], host))
    raise AssertionError("pieces without anybody who works")


def rebalanced(pieces: Pieces, slots: Mapping[int, int]) -> Pieces:
    """Heirs named so that every host gets its share and the fewest pieces change hands, among these those first that
    need not be loaded. An owner that is not among ``slots`` gives up all."""
    now = [_bound_for(piece, slots) for piece in pieces]
    held = Counter(host for host in now if host is not None)
    due = shares(len(pieces), slots, held)
    room = {host: due[host] - held[host] for host in slots}
    # Pieces that nobody may keep come first; of a host that has too many, those first that it has not loaded yet.
    order = sorted(range(len(now)), key=lambda i: (now[i] is not None, now[i] in pieces[i].loaded, -i))
    for has_it in (lambda piece: piece.loaded, lambda piece: piece.loading, lambda piece: slots):
        for index in order:
            giver, piece = now[index], pieces[index]
            if giver is not None and room[giver] >= 0:
                continue
            if able := [host for host in has_it(piece) if room.get(host, 0) > 0]:
                last = {host: place for place, host in enumerate(piece.previous)}
                to = max(able, key=lambda host: (last.get(host, -1), room[host], -host))
                now[index], room[to] = to, room[to] - 1
                if giver is not None:
                    room[giver] += 1
    assert not any(room.values())
    return tuple(
        piece
        if piece.next_owner == (next_owner := None if to == piece.owner else to)
        else replace(piece, next_owner=next_owner)
        for piece, to in zip(pieces, now, strict=True)
    )


def _bound_for(piece: Piece, slots: Mapping[int, int]) -> int | None:
    if piece.next_owner in slots:
        return piece.next_owner
    return piece.owner if piece.owner in slots else None


def taken_over(pieces: Pieces, able: Collection[int]) -> Pieces:
    """Heirs that are ``able`` to work and have loaded their pieces own them from now on, and those of pieces that the
    owner has not even begun to load; who owned a piece is a previous owner."""
    return tuple(
        _taken(piece)
        if piece.next_owner in able and (piece.next_owner in piece.loaded or piece.owner not in piece.near)
        else piece
        for piece in pieces
    )


def _taken(piece: Piece) -> Piece:
    assert piece.next_owner is not None
    previous = tuple(host for host in piece.previous if host not in (piece.next_owner, piece.owner))
    if piece.owner in piece.loaded:
        previous += (piece.owner,)
    return replace(piece, owner=piece.next_owner, previous=previous, next_owner=None)


def with_homes(pieces: Pieces, homes: Sequence[int]) -> Pieces:
    """A reliable host at the bottom of every piece's stack, so that a previous owner always exists (Harlap thesis,
    4.2.3). It loads the piece ahead of the day that it is needed."""
    held = Counter(host for piece in pieces for host in piece.near if host in homes)
    results = []
    for piece in pieces:
        if not {*piece.near, piece.owner, piece.next_owner} & set(homes):
            home = min(homes, key=lambda host: (held[host], host))
            held[home] += 1
            piece = replace(piece, previous=(home, *piece.previous))
        results.append(piece)
    return tuple(results)


def spares(pieces: Pieces, host: int, number: int, transient: Collection[int]) -> tuple[int, ...]:
    """Pieces that a newcomer loads beside its share, so that it can step in for whoever leaves (Figure 4.4: it loads
    twice what it works on): those that the fewest transient hosts have, then its givers', of which it has some."""
    givers = {piece.owner for piece in pieces if piece.next_owner == host}
    able = [i for i, piece in enumerate(pieces) if host not in piece.near and piece.next_owner != host]

    def rank(index: int) -> tuple[int, bool, int]:
        piece = pieces[index]
        near = {*piece.near, piece.owner} if piece.next_owner is None else {*piece.near, piece.owner, piece.next_owner}
        return len(near & set(transient)), piece.owner not in givers, index

    return tuple(sorted(able, key=rank)[:number])


def to_load(pieces: Pieces) -> dict[tuple[int, bool], tuple[int, ...]]:
    """What hosts have to load and are not loading as urgently yet, by host and whether it is ``ahead`` of need: pieces
    that they own or will, and those at the bottom of whose stack they are."""
    results: dict[tuple[int, bool], list[int]] = {}
    for index, piece in enumerate(pieces):
        for host in dict.fromkeys((piece.owner, piece.next_owner)):
            if host is None or host in piece.loaded:
                continue
            if host not in piece.loading or piece.loading[host].ahead:
                results.setdefault((host, False), []).append(index)
        for host in piece.previous:
            if host not in piece.near and host != piece.next_owner:
                results.setdefault((host, True), []).append(index)
    return {key: tuple(results[key]) for key in sorted(results)}


def ordered(pieces: Pieces, host: int, which: Iterable[int], loading: Loading) -> Pieces:
    """The host has been told to load these."""
    chosen = set(which)
    return tuple(
        replace(piece, loading={**piece.loading, host: loading}) if index in chosen else piece
        for index, piece in enumerate(pieces)
    )


def arrived(pieces: Pieces, host: int, ticket: int) -> Pieces:
    """The host has loaded what that order named."""
    return tuple(
        replace(
            piece,
            loaded=piece.loaded | {host},
            loading={other: loading for other, loading in piece.loading.items() if other != host},
        )
        if host in piece.loading and piece.loading[host].ticket == ticket
        else piece
        for piece in pieces
    )


def worked_on(pieces: Pieces) -> dict[int, tuple[int, ...]]:
    """What each host works on: pieces that it owns and has in memory."""
    results: dict[int, list[int]] = {}
    for index, piece in enumerate(pieces):
        if piece.owner in piece.loaded:
            results.setdefault(piece.owner, []).append(index)
    return {host: tuple(results[host]) for host in sorted(results)}


def unready(pieces: Pieces, host: int) -> bool:
    """Whether the host still has to load something before it can do its share."""
    return any(host in (piece.next_owner, piece.owner) and host not in piece.loaded for piece in pieces)


def imbalance(pieces: Pieces, slots: Mapping[int, int]) -> float:
    """How far the host that is farthest from its share is off it, in pieces."""
    held = Counter(piece.owner for piece in pieces)
    total = sum(slots.values())
    return max((abs(held[host] - len(pieces) * count / total) for host, count in slots.items()), default=math.inf)
