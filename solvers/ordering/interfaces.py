"""Recognise a BCube, or rails, from which interfaces of hosts are on the same switch.

A BCube(n, k) is a Hamming graph: hosts are the words of k digits below n, and a switch of level l connects those that
differ in digit l only (Guo et al., "BCube", SIGCOMM 2009, section 3.1). Hamming graphs are recognised in linear time:
give the neighbours of any host digits, then every farther host the digits of its neighbours that are nearer
(Imrich and Klavzar, "Product Graphs", 2000, chapter 7).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

from plink.errors import PlinkError

Port = tuple[int, int]  # host, interface
MISSING = 1 << 16  # an interface whose number nobody knows
_MAX_SUSPECTS = 12  # of a kind
_MAX_TRIED_PORTS = 64  # of so few, every two are tried


@dataclass(frozen=True)
class BCube:
    """Hosts as a BCube(``base``, ``levels``).

    ``digits[i, l]``, shape (N, levels): the digit of host i at level l. ``interfaces[i, l]``, same shape: the
    interface of host i that is on its switch of that level.
    """

    base: int
    levels: int
    digits: npt.NDArray[np.int64]
    interfaces: npt.NDArray[np.int64]

    def rank_order(self) -> list[int]:
        """Return the host of each rank: ranks are numbers whose digits of base n are the hosts', level 0 lowest."""
        ranks = self.digits @ self.base ** np.arange(self.levels)
        return np.argsort(ranks, kind="stable").tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Rails:
    """All hosts on each of several switches. ``interfaces[i, r]``, shape (N, rails): that of host i on rail r."""

    interfaces: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Defect(PlinkError):
    """Hosts that are neither a BCube nor on rails. ``ports``: interfaces with the wrong cable, or ``MISSING`` ones."""

    reason: str
    ports: tuple[Port, ...] = field(default=())

    def __str__(self) -> str:
        return self.reason


def recognise(n_hosts: int, switches: Sequence[Sequence[Port]], names: Sequence[str] | None = None) -> BCube | Rails:
    """Return what the interfaces of hosts form.

    :param switches: the (host, interface) pairs on each switch; an interface is on one switch at most.
    :param names: of the hosts, for messages.
    :raises Defect: when they form neither; names the interfaces to blame where a BCube lacks one cable, or has two in
        each other's place.
    """
    called = list(names or map(str, range(n_hosts)))
    members = [list(switch) for switch in switches if len(switch) > 1]
    if not members:
        raise Defect("no two interfaces of hosts are on the same switch")
    if all(len({host for host, _ in switch}) == n_hosts for switch in members):
        if len(members) == 1:
            raise Defect("they reach each other by one of them only")
        return _rails(n_hosts, members)
    try:
        return _bcube(n_hosts, members)
    except Defect as error:
        raise _explain(n_hosts, members, called) or error from None


def _rails(n_hosts: int, members: list[list[Port]]) -> Rails:
    interfaces = np.zeros((n_hosts, len(members)), dtype=np.int64)
    for rail, switch in enumerate(sorted(members, key=min)):
        for host, interface in switch:
            interfaces[host, rail] = interface
    return Rails(interfaces)


def _bcube(n_hosts: int, members: list[list[Port]]) -> BCube:
    """Return the BCube. :raises Defect: when there is none, with a reason of counts only."""
    base = max(map(len, members))
    on: list[list[tuple[int, int]]] = [[] for _ in range(n_hosts)]  # of each host: (interface, switch)
    for number, switch in enumerate(members):
        for host, interface in switch:
            on[host].append((interface, number))
    levels = max(map(len, on))
    if base**levels != n_hosts:
        raise Defect(f"{n_hosts} hosts with {levels} interfaces on switches of {base} ports are no BCube")
    if any(len(ports) != levels for ports in on) or any(len(switch) != base for switch in members):
        raise Defect("hosts have different numbers of interfaces, or switches of ports")
    digits = _digits(n_hosts, members, [[switch for _, switch in sorted(ports)] for ports in on], levels)
    interfaces = np.full((n_hosts, levels), -1, dtype=np.int64)
    for switch in members:
        rows = digits[[host for host, _ in switch]]
        (varying,) = np.nonzero((rows != rows[0]).any(axis=0))
        if len(varying) != 1 or sorted(rows[:, varying[0]].tolist()) != list(range(base)):
            raise Defect("switches do not connect hosts that differ in one digit")
        for host, interface in switch:
            interfaces[host, varying[0]] = interface
    if len(np.unique(digits, axis=0)) != n_hosts or (interfaces < 0).any():
        raise Defect("two hosts have the same digits")
    return BCube(base, levels, digits, interfaces)


def _digits(n_hosts: int, members: list[list[Port]], on: list[list[int]], levels: int) -> npt.NDArray[np.int64]:
    """Return digits of all hosts, those of host 0 all zero, right if the hosts are a BCube.

    A host at distance d from host 0 has d neighbours at distance d - 1, each with a zero in place of one of its digits.
    """
    digits = np.zeros((n_hosts, levels), dtype=np.int64)
    distance = np.full(n_hosts, n_hosts)
    distance[0] = 0
    layer = []
    for level, number in enumerate(on[0]):
        for digit, host in enumerate((host for host, _ in members[number] if host != 0), start=1):
            digits[host, level], distance[host] = digit, 1
            layer.append(host)
    while layer:
        farther: list[int] = []
        for host in layer:
            for number in on[host]:
                for other, _ in members[number]:
                    if distance[other] > distance[host] + 1:
                        distance[other] = distance[host] + 1
                        farther.append(other)
                    if distance[other] == distance[host] + 1:
                        np.maximum(digits[other], digits[host], out=digits[other])
        layer = farther
    return digits


def _explain(n_hosts: int, members: list[list[Port]], called: list[str]) -> Defect | None:
    """Return what to mend so that there is a BCube: one cable, or two to exchange; None where neither is enough."""
    return _missing(n_hosts, members, called) or _exchanged(n_hosts, members, called)


def _missing(n_hosts: int, members: list[list[Port]], called: list[str]) -> Defect | None:
    used: list[set[int]] = [set() for _ in range(n_hosts)]
    for switch in members:
        for host, interface in switch:
            used[host].add(interface)
    levels, base = max(map(len, used)), max(map(len, members))
    lacking = [host for host in range(n_hosts) if len(used[host]) < levels]
    ports = [(host, MISSING) for host in lacking]
    short = [switch for switch in members if len(switch) < base]
    if len(ports) == 1 and len(short) == 1:
        peers, repaired = short[0], [*(switch for switch in members if switch is not short[0]), [*short[0], *ports]]
        text = f"{called[lacking[0]]} is on no switch with {', '.join(called[peer] for peer, _ in peers[:4])}"
    elif len(ports) == 2 and not short:  # a cable between two hosts
        repaired = [*members, ports]
        text = f"{called[lacking[0]]} and {called[lacking[1]]} are not connected"
    else:
        return None
    return (
        Defect(f"{text}: a cable is missing, or an interface is down", tuple(ports))
        if _is_bcube(n_hosts, repaired)
        else None
    )


def _exchanged(n_hosts: int, members: list[list[Port]], called: list[str]) -> Defect | None:
    """Return the exchanges of two cables that make a BCube; there may be several that serve equally well."""
    repairs = []
    on: list[list[int]] = [[] for _ in range(n_hosts)]
    for number, ports in enumerate(members):
        for host, _ in ports:
            on[host].append(number)
    for (first, switch), (second, other) in combinations(_suspects(n_hosts, members), 2):
        if switch == other or first[0] == second[0]:
            continue
        exchanged = list(members)
        exchanged[switch] = [second if port == first else port for port in members[switch]]
        exchanged[other] = [first if port == second else port for port in members[other]]
        moved = {first[0]: list(on[first[0]]), second[0]: list(on[second[0]])}
        moved[first[0]][on[first[0]].index(switch)] = other  # a host may be on one switch twice
        moved[second[0]][on[second[0]].index(other)] = switch
        squares = _Squares(exchanged, on, moved)
        if squares.closed(second[0], switch) and squares.closed(first[0], other) and _is_bcube(n_hosts, exchanged):
            repairs.append((first, second))
    if not repairs:
        return None
    pairs = [f"those of {called[first[0]]} and {called[second[0]]}" for first, second in repairs[:4]]
    ports = sorted({port for pair in repairs for port in pair})
    return Defect(f"two cables are in each other's place: exchange {', or '.join(pairs)}", tuple(ports))


@dataclass(frozen=True)
class _Squares:
    """``members`` of each switch; ``on``: the switches of each host, but of those in ``moved``."""

    members: list[list[Port]]
    on: list[list[int]]
    moved: dict[int, list[int]]

    def closed(self, host: int, switch: int) -> bool:
        """Return whether neighbours of a host on this switch and on others have one more neighbour in common.

        So it is in every BCube, and this takes far less than to recognise one.
        """
        mates = [mate for mate, _ in self.members[switch] if mate != host]
        others = [other for number in self._on(host) if number != switch for other, _ in self.members[number]]
        near = {mate: self._near(mate) for mate in {*mates, *others} - {host}}
        return all(len(near[mate] & near[other]) == 2 for mate in mates for other in others if other != host)

    def _on(self, host: int) -> list[int]:
        return self.moved.get(host) or self.on[host]

    def _near(self, host: int) -> set[int]:
        return {other for number in self._on(host) for other, _ in self.members[number]} - {host}


def _is_bcube(n_hosts: int, members: list[list[Port]]) -> bool:
    try:
        _bcube(n_hosts, members)
    except Defect:
        return False
    return True


def _suspects(n_hosts: int, members: list[list[Port]]) -> list[tuple[Port, int]]:
    """Return ports that may have the wrong cable, with the switch that each is on.

    In a BCube two hosts are on one switch at most, and two neighbours of a host on different switches have another
    neighbour in common: they close a square.
    """
    every = [(port, number) for number, switch in enumerate(members) for port in switch]
    if len(every) <= _MAX_TRIED_PORTS:
        return every
    incidence = np.zeros((len(members), n_hosts), dtype=np.float32)  # products of whole numbers, by BLAS
    for number, switch in enumerate(members):
        incidence[number, [host for host, _ in switch]] = 1
    together = incidence.T @ incidence
    np.fill_diagonal(together, 0)
    adjacent = (together > 0).astype(np.float32)
    neighbours_in_common = adjacent @ adjacent
    doubled: list[tuple[Port, int]] = []
    closed: list[tuple[float, Port, int]] = []
    for number, switch in enumerate(members):
        hosts = [host for host, _ in switch]
        for host, interface in switch:
            mates = [mate for mate in hosts if mate != host]
            if (together[host, mates] > 1).any() or hosts.count(host) > 1:
                doubled.append(((host, interface), number))
            others = np.flatnonzero((adjacent[host] > 0) & (incidence[number] == 0))
            pairs = np.ix_(np.array(mates, dtype=np.intp), others)
            squares = (neighbours_in_common[pairs] == 2) & (adjacent[pairs] == 0)
            closed.append((float(squares.mean()) if squares.size else 0.0, (host, interface), number))
    usual = float(np.median([share for share, _, _ in closed]))
    least = [(port, number) for share, port, number in sorted(closed)[:_MAX_SUSPECTS] if share < usual or not usual]
    return list(dict.fromkeys([*doubled[:_MAX_SUSPECTS], *least]))
