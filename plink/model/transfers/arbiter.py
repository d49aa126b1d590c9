"""The arbiter: who sends an update where, and when, so that none is committed too late (M 4, M 5).

Pure: :func:`step` has no clock and no sockets, and the same events at the same times give the same answers again. It
sits beside the server that counts versions. A worker announces its update and waits for the answer: send it, to
the server or to a host that adds up, or drop it. What plans get wrong (rates, deaths) costs time; the bound holds all
the same, because what arrives is checked once more.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np

from plink.model.transfers.free_capacity import FreeCapacity
from plink.model.transfers.ordering import WaitingUpdate, ordered

ASSUMED_BYTES_S = 1.25e9  # where nobody measured a rate; transfers correct it
MIN_TRANSFER_S = 0.005  # to arbitrate shorter ones costs more than it gains
BATCH_S = 0.1  # what waits is planned when the server has so much left to receive (M 7: a batch each 100 ms)
LEAD_S = 0.002  # a transfer is granted so long before its ways are free: longer than the message takes
LAPSE_FACTOR, MIN_LAPSE_S = 3.0, 2.0
_MIN_SHARE = 0.5  # of its ways a transfer finds free when it begins
_MIN_RATE_BYTES_S = 1e6
_MIN_PAUSE_S = LEAD_S / 4  # between ticks: what is overdue is expected to end soon, again and again
_RECOVERY_S = 5.0  # in which a rate that nobody measures doubles, up to the best that was seen
_AS_PLANNED = 1.25  # times its estimate: a transfer that took longer had a slower way


# How many updates of an ordered batch go straight to the server; then hosts that add up others, by their places.
Groups = tuple[int, Sequence[tuple[int, Sequence[int]]]]
# Takes the batch, what is free, its bytes with all that is dropped, and the time.
Grouper = Callable[[Sequence[WaitingUpdate], FreeCapacity, float, float], Groups]


@dataclass(frozen=True)
class HostJoined:
    """Event: workers of one more host will announce updates; hosts are numbered as they join."""

    bytes_s: float


@dataclass(frozen=True)
class Announced:
    """Event: a worker has an update to send, in place of what it announced before. ``version``: that of the
    :class:`ArbiterState` when the worker's read of the parameters was answered. ``clock``: workers of a host travel as
    one if theirs is the same, so that all that a sum has is undone together, or nothing."""

    worker: int
    host: int
    size_bytes: float
    version: int
    clock: int = 0


@dataclass(frozen=True)
class Arrived:
    """Event: the last byte of a transfer is at its target. ``applied``: how many updates the server has applied with
    it, none where they were too old."""

    transfer: int
    applied: int = 0


@dataclass(frozen=True)
class Lost:
    """Event: a worker died or left."""

    worker: int


@dataclass(frozen=True)
class TickDue:
    """Event: it is :attr:`ArbiterState.tick_s`."""


@dataclass(frozen=True)
class Transfer:
    """Answer: a transfer that is granted now. ``source`` sends what ``members`` add up to, as one, to ``target``: a
    host that adds up, or the server (None). ``parts``: the transfers that the source received for it, if it adds up.
    ``end_s``: when it should arrive. ``size_bytes``: 0 within a host. ``at_once``: it is too short to be planned."""

    number: int
    source: int
    target: int | None
    size_bytes: float
    members: tuple[Announced, ...]
    parts: tuple[int, ...] = ()
    granted_s: float = inf
    end_s: float = inf
    at_once: bool = False

    @property
    def lapses_s(self) -> float:
        """When its grant lapses."""
        planned_s = self.end_s - self.granted_s if self.granted_s < inf and not self.at_once else inf
        return self.granted_s + max(MIN_LAPSE_S, LAPSE_FACTOR * planned_s)


@dataclass(frozen=True)
class DropUpdate:
    """Answer: a worker's update is too old, will be, or was lost on the way: the worker goes on without it."""

    worker: int


Event = HostJoined | Announced | Arrived | Lost | TickDue
Answer = Transfer | DropUpdate


@dataclass(frozen=True)
class Rate:
    """What a way carries, when that was measured, and the most that it grows back to."""

    bytes_s: float
    measured_s: float
    most_bytes_s: float

    def at(self, now: float) -> float:
        """Return the estimate at a time."""
        return min(self.most_bytes_s, self.bytes_s * 2 ** min(60.0, (now - self.measured_s) / _RECOVERY_S))


@dataclass(frozen=True)
class ArbiterState:
    """``bound``: the most versions that an update may be behind. ``rates``: of H ways out, H ways in and the server's
    way in. ``group``: hosts that add up on the way; None: none do. ``local_groups``: workers of a host travel as one.
    ``min_transfer_s``: what is shorter is granted at once. ``version``: updates applied. ``transfers``: planned and
    granted, in the order of their commits. ``tick_s``: when a :class:`TickDue` is due."""

    bound: int
    rates: tuple[Rate, ...]
    group: Grouper | None = None
    local_groups: bool = True
    min_transfer_s: float = MIN_TRANSFER_S
    version: int = 0
    waiting: tuple[Announced, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    next_number: int = 0
    tick_s: float = inf

    def ways(self, transfer: Transfer) -> tuple[int, int]:
        """Return the way out and the way in of a transfer."""
        hosts = len(self.rates) // 2
        return transfer.source, 2 * hosts if transfer.target is None else hosts + transfer.target

    def unit(self, announced: Announced) -> tuple[int, int]:
        """Return what is the same for updates that may travel as one."""
        return (announced.host, announced.clock) if self.local_groups else (-1, announced.worker)

    def seconds(self, transfer: Transfer, now: float) -> float:
        """Return how long a transfer takes alone."""
        return transfer.size_bytes / min(self.rates[way].at(now) for way in self.ways(transfer))


def start(bound: int, rates_bytes_s: Iterable[float], now: float = 0.0) -> ArbiterState:
    """Return the state before the first event.

    :param rates_bytes_s: of H ways out, H ways in and the server's way in, as measured before the job. What is wrong is
        corrected by transfers.
    """
    return ArbiterState(bound, tuple(_assumed(rate, now) for rate in rates_bytes_s))


def _assumed(bytes_s: float, now: float) -> Rate:
    bytes_s = max(_MIN_RATE_BYTES_S, bytes_s) if isfinite(bytes_s) else _MIN_RATE_BYTES_S
    return Rate(bytes_s, now, bytes_s)


def step(state: ArbiterState, event: Event, now: float) -> tuple[ArbiterState, tuple[Answer, ...]]:
    """Return what follows from an event at a time, in seconds, monotonic."""
    answers: list[Answer] = []
    if isinstance(event, Announced | Lost):
        state = replace(state, waiting=tuple(each for each in state.waiting if each.worker != event.worker))
        for transfer in state.transfers:
            if not transfer.parts and any(member.worker == event.worker for member in transfer.members):
                others = tuple(member for member in transfer.members if member.worker != event.worker)
                if transfer.granted_s == inf:  # they wait for another plan
                    state = replace(_cancelled(state, transfer, []), waiting=(*state.waiting, *others))
                else:
                    state = _cancelled(state, transfer, answers)
        answers = [answer for answer in answers if answer != DropUpdate(event.worker)]
    if isinstance(event, Announced):
        alone = Transfer(state.next_number, event.host, None, event.size_bytes, (event,), at_once=True)
        if event.version > state.version:  # of a course that was rolled back
            answers.append(DropUpdate(event.worker))
        elif state.seconds(alone, now) < state.min_transfer_s:
            state = replace(state, transfers=(*state.transfers, alone), next_number=state.next_number + 1)
        else:
            state = replace(state, waiting=(*state.waiting, event))
    elif isinstance(event, Arrived):
        state = _arrived(state, event, now)
    elif isinstance(event, HostJoined):
        hosts, rate = len(state.rates) // 2, (_assumed(event.bytes_s, now),)
        state = replace(state, rates=state.rates[:hosts] + rate + state.rates[hosts:-1] + rate + state.rates[-1:])
    for transfer in state.transfers:
        if transfer.lapses_s <= now:
            state = _cancelled(state, transfer, answers)
    state = _granted(_planned(_without_late(state, answers), now, answers), now, answers)
    return state, tuple(answers)


def _cancelled(state: ArbiterState, transfer: Transfer, answers: list[Answer]) -> ArbiterState:
    """Give a transfer up, with what is to be sent for it; the sum that waits for it goes on without it."""
    answers += [DropUpdate(member.worker) for member in transfer.members]
    rest: list[Transfer] = []
    for other in state.transfers:
        if transfer.number in other.parts:
            members = tuple(member for member in other.members if member not in transfer.members)
            other = replace(other, members=members, parts=tuple(p for p in other.parts if p != transfer.number))
        if other.members and other.number not in (transfer.number, *transfer.parts):
            rest.append(other)
    return replace(state, transfers=tuple(rest))


def _arrived(state: ArbiterState, event: Arrived, now: float) -> ArbiterState:
    """Note that a transfer is over, unless it was given up, and what it has changed."""
    state = replace(state, version=state.version + event.applied)
    transfer = next((each for each in state.transfers if each.number == event.transfer and each.granted_s < inf), None)
    if transfer is None:
        return state
    state = _measured(state, transfer, now) if transfer.size_bytes else state
    return replace(state, transfers=tuple(each for each in state.transfers if each is not transfer))


def _measured(state: ArbiterState, transfer: Transfer, now: float) -> ArbiterState:
    """Correct the rates that a transfer was planned with. Both ways carry what it had. If it took longer, that one of
    them is taken to be slow which was measured longest ago."""
    ways, rates = state.ways(transfer), list(state.rates)
    others = [
        each.size_bytes
        for each in state.transfers
        if each is not transfer and each.end_s < inf and state.ways(each)[1] == ways[1]
    ]
    planned_s, took_s = transfer.end_s - transfer.granted_s, max(now - transfer.granted_s, 1e-9)
    bytes_s = transfer.size_bytes / took_s
    if transfer.at_once and others:  # whoever was granted at once shares the way in, which no plan knows
        planned_s, bytes_s = (each * (1 + sum(others) / transfer.size_bytes) for each in (planned_s, bytes_s))
    if took_s > _AS_PLANNED * planned_s:
        slow = min(ways, key=lambda way: rates[way].measured_s)
        if slow == ways[1] and others and not transfer.at_once:
            bytes_s = max(bytes_s, rates[slow].at(now) * planned_s / took_s)
        rates[slow] = Rate(max(_MIN_RATE_BYTES_S, bytes_s), now, rates[slow].most_bytes_s)
    elif not (transfer.at_once and others):
        for way in ways:
            old = rates[way]
            if bytes_s >= old.at(now) / _AS_PLANNED:
                rates[way] = Rate(max(bytes_s, old.at(now)), now, max(bytes_s, old.most_bytes_s))
    return replace(state, rates=tuple(rates))


def _without_late(state: ArbiterState, answers: list[Answer]) -> ArbiterState:
    """Drop what can no longer be in time after all that is ahead of it, before its bytes travel."""
    version = state.version
    for transfer in sorted(state.transfers, key=lambda each: each.granted_s):  # what overtook others is ahead of them
        if transfer.target is None:
            late = any(version + k - member.version > state.bound for k, member in enumerate(transfer.members))
            if late and transfer.granted_s == inf and not transfer.at_once:
                state = _cancelled(state, transfer, answers)
            else:
                version += len(transfer.members)
    return state


def _free_capacity(state: ArbiterState, now: float, planned: bool) -> FreeCapacity:
    """What is free beside transfers that were granted, and with ``planned`` beside those that will be."""
    free, ends = FreeCapacity.idle((rate.at(now) for rate in state.rates), now), dict[int, float]()
    for transfer in state.transfers:
        left = float(planned and not transfer.at_once)
        if transfer.granted_s < inf and not transfer.at_once:
            took_s = max(transfer.end_s - transfer.granted_s, 1e-9)
            overdue_s = now - transfer.end_s  # about to end, or lost if by as much as it should have taken
            left = -overdue_s / took_s if overdue_s < 0 else 0.1 if overdue_s < took_s else 0.0
        ready_s = max((ends[part] for part in transfer.parts if part in ends), default=now)
        free, ends[transfer.number] = free.reserve(*state.ways(transfer), left * transfer.size_bytes, ready_s)
    return free


def _units(
    state: ArbiterState, in_time: Sequence[Announced], places: Mapping[Announced, int]
) -> list[tuple[Announced, ...]]:
    """Return what travels as one, as far as all stay in time: the server judges a sum by its oldest, so those that join
    an older one have to be there as early.

    :param places: the last place, from 1, at which each may be committed; ``in_time`` rises by it.
    """
    due = [min(len(in_time), places[each]) for each in in_time]
    slack = np.arange(len(in_time) + 1) - np.cumsum(np.bincount(due, minlength=len(in_time) + 1))
    units, by_host = list[list[Announced]](), dict[tuple[int, int], list[Announced]]()
    for each, place in zip(reversed(in_time), reversed(due), strict=True):
        unit = by_host.get(state.unit(each), [])
        moved = slack[place : min(len(in_time), places[unit[0]])] if unit else slack[:0]
        if unit and (moved >= len(unit)).all():
            moved -= len(unit)
        else:
            unit = by_host[state.unit(each)] = []
            units.append(unit)
        unit.insert(0, each)
    return sorted(map(tuple, reversed(units)), key=lambda unit: places[unit[0]])


def _planned(state: ArbiterState, now: float, answers: list[Answer]) -> ArbiterState:
    """Order and group what waits, when the server will soon have received what it was to receive."""
    server, hosts = len(state.rates) - 1, len(state.rates) // 2
    ahead = state.version + sum(len(each.members) for each in state.transfers if each.target is None)
    late = [each for each in state.waiting if ahead - each.version > state.bound]
    answers += [DropUpdate(each.worker) for each in late]
    waiting = tuple(each for each in state.waiting if each not in late)
    free = _free_capacity(state, now, planned=True)
    due_s = free.first_free_s(server, now) - BATCH_S
    if not waiting or due_s > now:
        return replace(state, waiting=waiting, tick_s=due_s if waiting else inf)
    places = {each: state.bound + each.version - ahead + 1 for each in waiting}
    outs, sizes = np.array([each.host for each in waiting]), np.array([each.size_bytes for each in waiting])
    last = dict[tuple[int, int], tuple[float, int, int]]()  # of a unit: when it arrives, its age, and whose turn it is
    for each, arrival_s in zip(waiting, free.arrivals(outs, server, sizes, now).tolist(), strict=True):
        key = state.unit(each)
        rank = (arrival_s, -each.version, (key[0] + ahead) % hosts)
        last[key] = max(last.get(key, rank), rank)
    in_time: list[Announced] = []
    for each in sorted(waiting, key=lambda each: places[each]):
        in_time.append(each)
        if len(in_time) > places[each]:  # one too many: of what would arrive last, so that others stay whole
            in_time.remove(left_out := max(in_time, key=lambda each: last[state.unit(each)]))
            answers.append(DropUpdate(left_out.worker))
    units = _units(state, in_time, places)
    updates = [
        WaitingUpdate(unit[0].host, max(each.size_bytes for each in unit), places[unit[0]], len(unit)) for unit in units
    ]
    order = ordered(updates, free, server, now)
    answers += [DropUpdate(member.worker) for k in order.dropped for member in units[k]]
    straight, groups = len(order.sent), []  # type: int, Sequence[tuple[int, Sequence[int]]]
    if state.group is not None:
        total_bytes = sum(update.size_bytes for update in updates)
        straight, groups = state.group([updates[k] for k in order.sent], free, total_bytes, now)
    transfers = list(state.transfers)

    def plan(target: int | None, source: int, size_bytes: float, members: tuple[Announced, ...], *parts: int) -> int:
        number = state.next_number + len(transfers)
        transfers.append(Transfer(number, source, target, size_bytes * (source != target), members, parts))
        return number

    for k in order.sent[:straight]:
        plan(None, updates[k].way_out, updates[k].size_bytes, units[k])
    for host, places_sent in groups:
        numbers = [order.sent[k] for k in places_sent]
        parts = [plan(host, updates[k].way_out, updates[k].size_bytes, units[k]) for k in numbers]
        members = tuple(member for k in numbers for member in units[k])
        plan(None, host, max(updates[k].size_bytes for k in numbers), members, *parts)
    number = state.next_number + len(transfers)
    return replace(state, waiting=(), transfers=tuple(transfers), next_number=number, tick_s=inf)


def _granted(state: ArbiterState, now: float, answers: list[Answer]) -> ArbiterState:
    """Grant in the order of the plan what finds its ways free, or will before it could begin."""
    free, transfers, ticks = _free_capacity(state, now, planned=False), list(state.transfers), [state.tick_s]
    numbers = {transfer.number for transfer in transfers}
    for k, transfer in enumerate(transfers):
        if transfer.granted_s == inf and numbers.isdisjoint(transfer.parts):
            ways = state.ways(transfer)
            enough = all(
                free.free_bytes_s(way, now + LEAD_S) >= _MIN_SHARE * min(free.rates_bytes_s[[*ways]]) for way in ways
            )
            reserved, end_s = free.reserve(*ways, transfer.size_bytes, now)
            if enough or transfer.at_once or not transfer.size_bytes:
                end_s = now + state.seconds(transfer, now) if transfer.at_once else end_s
                transfers[k] = replace(transfer, granted_s=now, end_s=end_s)
                answers.append(transfers[k])
            else:
                changes = [time - LEAD_S for way in ways for time, _ in free.ways[way]]
                ticks.append(min((time for time in changes if time > now), default=inf))
            free = free if transfer.at_once else reserved
        ticks.append(transfers[k].lapses_s)
    return replace(state, transfers=tuple(transfers), tick_s=max(now + _MIN_PAUSE_S, min(ticks)))
