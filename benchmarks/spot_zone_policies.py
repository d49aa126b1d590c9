"""Hold so many instances across zones where capacity, and no bid, decides what is taken back.

A zone can give as many instances as its availability history says. When that falls below what is held there, the rest
is interrupted, drawn by a seed. Prices are equal. New instances work ``start_s`` after they are granted; after they
joined nothing progresses for ``add_s``, after an interruption for ``evict_s``, as in :mod:`solvers.spot.simulating`.
"""

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from plink.model.spot.prices import HOUR_S, AvailabilityTrace
from solvers.spot.billing import Billing, Charge, End, Stay
from solvers.spot.footprint import Application
from solvers.spot.odds import ExponentialEvictions, Interruptions


@dataclass(frozen=True)
class ZoneJob:
    """A job that wants ``nodes`` instances, and what changes cost it."""

    nodes: int
    application: Application
    billing: Billing


@dataclass(frozen=True)
class HeldGroup:
    """Instances of one zone that were granted at the same time, ``start``; they work from ``ready_at`` on and are given
    back at ``until``, infinite where nobody has decided so."""

    zone: int
    count: int
    start: float
    ready_at: float
    until: float = math.inf


@dataclass(frozen=True)
class ZoneOutcome:
    """``money`` in prices of an instance-hour, ``work`` in hours of one working instance, ``half_share``: of the time
    with at least half of the nodes at work, pauses excepted; ``interrupted``: instances; ``free_hours``: of instances,
    not paid."""

    money: float
    work: float
    half_share: float
    interrupted: int
    free_hours: float

    @property
    def cost(self) -> float:
        """Per hour of a working instance, by the price of an instance-hour; infinite without work."""
        return self.money / self.work if self.work > 0 else math.inf


class ZonePolicy(Protocol):
    """What decides in which zone instances are held."""

    def request(self, held: Sequence[HeldGroup], missing: int, refused: Collection[int], now: float) -> int | None:
        """Return the zone to request ``missing`` instances of, none of the ``refused``; None: not now."""
        ...

    def replace(self, held: Sequence[HeldGroup], number: int, refused: Collection[int], now: float) -> int | None:
        """Return the zone that group ``number``, whose hour ends soon, is to be replaced in; None: it stays."""
        ...

    def after(self, held: Sequence[HeldGroup], interrupted: Mapping[int, int], seconds: float) -> None:
        """Note what was held for so long, and the instances that were interrupted at its end, by zone."""
        ...


class OneZone:
    """Stay in one zone, whatever it does."""

    def __init__(self, zone: int) -> None:
        self._zone = zone

    def request(self, held: Sequence[HeldGroup], missing: int, refused: Collection[int], now: float) -> int | None:
        """Return the zone."""
        return None if self._zone in refused else self._zone

    def replace(self, held: Sequence[HeldGroup], number: int, refused: Collection[int], now: float) -> int | None:
        """Return None."""
        return None

    def after(self, held: Sequence[HeldGroup], interrupted: Mapping[int, int], seconds: float) -> None:
        """Note nothing."""


class NextZone:
    """Request from one zone until it interrupts or refuses, then from the next one."""

    def __init__(self, zones: int, first: int = 0) -> None:
        self._zones, self._zone = zones, first

    def request(self, held: Sequence[HeldGroup], missing: int, refused: Collection[int], now: float) -> int | None:
        """Return the present zone, or the next that has not refused."""
        for step in range(self._zones):
            zone = (self._zone + step) % self._zones
            if zone not in refused:
                self._zone = zone
                return zone
        return None

    def replace(self, held: Sequence[HeldGroup], number: int, refused: Collection[int], now: float) -> int | None:
        """Return None."""
        return None

    def after(self, held: Sequence[HeldGroup], interrupted: Mapping[int, int], seconds: float) -> None:
        """Go on to the next zone where the present one interrupted."""
        if interrupted.get(self._zone):
            self._zone = (self._zone + 1) % self._zones


@dataclass
class ZoneRecord:
    """What is known of a zone: interruptions per instance-hour, and ``events`` in which there were some per hour."""

    instances: Interruptions
    events: Interruptions

    @staticmethod
    def of(trace: AvailabilityTrace, nodes: int, belief: Interruptions) -> "ZoneRecord":
        """Return that of a history, of who holds as many instances as there are, up to ``nodes``. ``belief``: per
        instance-hour, before."""
        counts = np.minimum(trace.counts, nodes)
        falls = np.maximum(0, -np.diff(counts))
        hours = trace.gap_s / HOUR_S
        seen = Interruptions(float(falls.sum()), float(counts[:-1].sum()) * hours)
        held_hours = float(np.count_nonzero(counts[:-1])) * hours
        return ZoneRecord(belief + seen, belief + Interruptions(float(np.count_nonzero(falls)), held_hours))


@dataclass
class ZoneBidBrain:
    """Hold what is expected to cost least per hour of work (Harlap thesis, eq. 4.1 to 4.4, for rates).

    With k_z instances in zone z, each interrupted at the rate r_z, of which e_z events an hour interrupt any:

        E = sum_i C_i / sum_i k_i (omega_i - sum_z e_z lambda - sigma)

    with the expected cost C_i of group i until its hour ends, by the billing, and its expected hours omega_i. The
    thesis counts one eviction an hour at most; here instances go one by one, so all expected ones are counted. Missing
    instances are requested at the zone of least E. A group whose hour ends is replaced where that lowers E: where the
    first hour is free if interrupted, new instances are cheaper than old ones. ``records``: of each zone, updated.
    """

    job: ZoneJob
    records: list[ZoneRecord]

    def request(self, held: Sequence[HeldGroup], missing: int, refused: Collection[int], now: float) -> int | None:
        """Return the zone of least cost per work with the missing instances."""
        ready_at = now + self.job.application.start_s
        costs = {
            zone: self._rank([*held, HeldGroup(zone, missing, now, ready_at)], now, True)
            for zone in range(len(self.records)) if zone not in refused
        }  # fmt: skip
        return min(costs, key=lambda zone: costs[zone]) if costs else None

    def replace(self, held: Sequence[HeldGroup], number: int, refused: Collection[int], now: float) -> int | None:
        """Return the zone of least cost per work with new instances, if it is less than with the old ones. Nothing is
        replaced where an old hour costs no more than a new one."""
        group = held[number]
        others = [each for place, each in enumerate(held) if place != number]
        hour_ends = group.start + math.ceil((now - group.start) / HOUR_S + 1e-9) * HOUR_S
        old = self._rank(held, hour_ends, False)
        zone = self.request(others, group.count, refused, hour_ends)
        if zone is None:
            return None
        expected, evictions = self.job.billing.expected, ExponentialEvictions(self.records[zone].instances.rate)
        if expected(1.0, 0.0, 1.0, evictions) >= expected(1.0, 1.0, 1.0, evictions):
            return None
        new = HeldGroup(zone, group.count, hour_ends, hour_ends + self.job.application.start_s)
        overlap = group.count * self.job.application.start_s / HOUR_S  # both are paid until the new ones work
        return zone if self._rank([*others, new], hour_ends, True, overlap) < old else None

    def after(self, held: Sequence[HeldGroup], interrupted: Mapping[int, int], seconds: float) -> None:
        """Add what was seen to the records."""
        hours = seconds / HOUR_S
        for zone in {group.zone for group in held}:
            count, own = interrupted.get(zone, 0), sum(group.count for group in held if group.zone == zone)
            record = self.records[zone]
            record.instances += Interruptions(count, own * hours)
            record.events += Interruptions(float(count > 0), hours)

    def _rank(self, held: Sequence[HeldGroup], now: float, changed: bool, more: float = 0.0) -> tuple[bool, float]:
        """Return E, less first; what does no work comes last, by what is lost. (Late in a free hour the expected cost
        can be negative: then more of that is better, whatever the work.)"""
        application, money, hours, nodes = self.job.application, more, 0.0, 0
        for group in held:
            evictions = ExponentialEvictions(self.records[group.zone].instances.rate)
            age = (now - group.start) / HOUR_S
            remaining = 1 - age % 1
            beta, evicted = evictions.within(remaining)
            useful = evicted + remaining * (1 - beta) - max(0.0, group.ready_at - now) / HOUR_S
            money += group.count * self.job.billing.expected(1.0, age, remaining, evictions)
            hours += group.count * max(0.0, useful)
            nodes += group.count
        zones = {group.zone for group in held}
        events = sum(self.records[zone].events.rate for zone in zones)
        lost = (events * application.evict_s + changed * application.add_s) / HOUR_S
        work = hours - nodes * lost
        if work <= 0:
            return True, lost
        return False, money / work if money > 0 else money


def simulate_zones(
    zones: Sequence[AvailabilityTrace], job: ZoneJob, policy: ZonePolicy, seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ZoneOutcome:  # fmt: skip
    """Return how a job goes over histories of the same length, sampled at the same times.

    :raises ValueError: for histories that are not.
    """
    if len({(len(zone.counts), zone.gap_s) for zone in zones}) != 1:
        raise ValueError("histories of different lengths, or sampled differently")
    simulation = _Simulation(job, policy, zones[0].gap_s, random.Random(seed))
    samples = np.stack([zone.counts for zone in zones]).T.tolist()
    for number, counts in enumerate(samples):
        simulation.sample(counts)
        progress(number + 1, len(samples))
    return simulation.outcome()


@dataclass
class _Simulation:
    job: ZoneJob
    policy: ZonePolicy
    gap_s: float
    rng: random.Random
    now: float = 0.0
    held: list[HeldGroup] = field(default_factory=list)
    paused_until: float = 0.0
    work: float = 0.0
    half_s: float = 0.0
    interrupted: int = 0
    charges: list[Charge] = field(default_factory=list)

    def sample(self, counts: Sequence[int]) -> None:
        """Let one sample's time pass."""
        self._interrupt(counts)
        refused: set[int] = set()
        self._replace_groups(counts, refused)
        while (missing := self.job.nodes - sum(each.count for each in self._staying())) > 0:
            zone = self.policy.request(self._staying(), missing, refused, self.now)
            if zone is None:
                break
            if self._grant(zone, missing, counts) < missing:
                refused.add(zone)
        self._pass_time()

    def _staying(self) -> list[HeldGroup]:
        """Return the groups that are not about to be given back."""
        return [group for group in self.held if group.until == math.inf]

    def _grant(self, zone: int, count: int, counts: Sequence[int]) -> int:
        """Take as many as there are, and return how many that is."""
        granted = min(count, counts[zone] - sum(group.count for group in self.held if group.zone == zone))
        if granted > 0:
            ready_at = self.now + self.job.application.start_s
            if ready_at <= self.now and any(group.ready_at <= self.now for group in self.held):
                self._pause(self.job.application.add_s)
            self.held.append(HeldGroup(zone, granted, self.now, ready_at))
        return max(0, granted)

    def _interrupt(self, counts: Sequence[int]) -> None:
        interrupted: dict[int, int] = {}
        before = list(self.held)
        for zone, available in enumerate(counts):
            own = [place for place, group in enumerate(self.held) if group.zone == zone for _ in range(group.count)]
            for place in self.rng.sample(own, max(0, len(own) - available)):
                group = self.held[place]
                self._charge(group, 1, self.now, "interrupted")
                self.held[place] = replace(group, count=group.count - 1)
                interrupted[zone] = interrupted.get(zone, 0) + 1
        self.held = [group for group in self.held if group.count]
        if self.now > 0:
            self.policy.after(before, interrupted, self.gap_s)
        if interrupted:
            self.interrupted += sum(interrupted.values())
            self._pause(self.job.application.evict_s)

    def _replace_groups(self, counts: Sequence[int], refused: set[int]) -> None:
        """Request what is to replace groups whose hour ends before the next sample; what it replaces goes when the new
        instances work."""
        for group in list(self.held):
            left_s = HOUR_S - (self.now - group.start) % HOUR_S
            if left_s > self.gap_s or self.now == group.start or group.until < math.inf:
                continue
            staying, place = self._staying(), self.held.index(group)
            zone = self.policy.replace(staying, staying.index(group), refused, self.now)
            if zone is None:
                continue
            granted = self._grant(zone, group.count, counts)
            if granted < group.count:
                refused.add(zone)
            if granted:
                stays = replace(group, count=group.count - granted)
                leaves = replace(group, count=granted, until=self.now + self.job.application.start_s)
                self.held[place : place + 1] = [leaves, *([stays] if stays.count else [])]

    def _pass_time(self) -> None:
        end = self.now + self.gap_s
        self._release()
        while self.now < end:
            times = [end, self.paused_until, *(t for group in self.held for t in (group.ready_at, group.until))]
            until = min(time for time in times if time > self.now)
            nodes = sum(group.count for group in self.held if group.ready_at <= self.now)
            nodes = min(nodes, self.job.nodes)  # where old and new ones overlap
            if self.paused_until <= self.now:
                self.work += nodes * (until - self.now) / HOUR_S
                self.half_s += (until - self.now) * (2 * nodes >= self.job.nodes)
            self.now = until
            if nodes and any(group.ready_at == until for group in self.held):  # those who work take the others in
                self._pause(self.job.application.add_s)
            self._release()

    def _pause(self, seconds: float) -> None:
        self.paused_until = max(self.paused_until, self.now + seconds)

    def _release(self) -> None:
        """Give back what is due."""
        for group in [group for group in self.held if group.until <= self.now]:
            self.held.remove(group)
            self._charge(group, group.count, self.now, "released")
            self._pause(self.job.application.add_s)

    def _charge(self, group: HeldGroup, count: int, until: float, end: End) -> None:
        self.charges.append(self.job.billing.charged(Stay(group.start, until, count, end), lambda time: 1.0))

    def outcome(self) -> ZoneOutcome:
        for group in self.held:
            self._charge(group, group.count, self.now, "job ended")
        return ZoneOutcome(
            sum(charge.money for charge in self.charges), self.work, self.half_s / self.now, self.interrupted,
            sum(charge.free_s for charge in self.charges) / HOUR_S,
        )  # fmt: skip
