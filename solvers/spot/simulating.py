"""Run one job on markets whose prices are known, event by event, at exact times.

What a decision assumes is what happens here: instances work ``start_s`` after they are granted; after allocations are
added or removed nothing progresses for ``add_s``, after an eviction for ``evict_s``; both are those of the
:class:`~solvers.spot.offers.Application`. A job that keeps its state in checkpoints instead loses what it did since
the last one, and pays for writing them.

An allocation is evicted when the market price exceeds its bid, all of its instances at once. Warnings two minutes
before are not simulated: what they save is in ``evict_s``. Minutes that are left in an hour when the job ends are not
charged (Harlap thesis, 4.5.2).

With a deadline on-demand machines are requested at the last moment at which they alone would do the rest in time, and
stay (:mod:`solvers.spot.deadline`); and a decision takes all allocations that lower the cost, one after the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from plink.model.spot.prices import HOUR_S, PriceTrace
from solvers.spot.billing import Billing, End, Stay
from solvers.spot.deciding import Allocation, Anchors, Footprint
from solvers.spot.footprint import Application
from solvers.spot.odds import next_above

DECISION_INTERVAL_S = 120.0
RENEWAL_LEAD_S = 60.0  # before an hour ends it is decided whether another begins
_EPSILON_S = 1e-6
_Kind = Literal["done", "evicted", "ready", "hour", "decide", "fallback"]


@dataclass(frozen=True)
class CheckpointPolicy:
    """``overhead``: the share of time that checkpoints take, one every ``interval_s`` seconds of work."""

    overhead: float
    interval_s: float


@dataclass(frozen=True)
class DeadlineFallback:
    """``count`` on-demand machines at ``price`` an hour with ``cores`` each, for a job that is to be over
    ``deadline_s`` after its start; requested ``slack_s`` earlier than they have to."""

    deadline_s: float
    count: int
    price: float
    cores: float
    slack_s: float = 0.0


@dataclass(frozen=True)
class SimulatedMarkets:
    """The markets that may be bought from: their prices, the ``cores`` of an instance and its on-demand price, one
    entry each; ``billing``: of all."""

    traces: tuple[PriceTrace, ...]
    cores: tuple[float, ...]
    on_demand: tuple[float, ...]
    billing: Billing

    def prices(self, time: float) -> list[float]:
        """Return the price of each market."""
        return [trace.price_at(time) for trace in self.traces]


@dataclass(frozen=True)
class Start:
    """When a job begins, and until when prices are known; seconds."""

    time: float
    until: float


@dataclass(frozen=True)
class Acquire:
    """Take ``count`` instances of a market for at most ``bid``."""

    market: int
    count: int
    bid: float


class Strategy(Protocol):
    """What decides in a simulated job."""

    @property
    def anchors(self) -> Anchors:
        """The reliable machines that it holds throughout."""
        ...

    @property
    def checkpointing(self) -> CheckpointPolicy | None:
        """How the state survives: None for reliable parameter servers."""
        ...

    @property
    def is_periodic(self) -> bool:
        """Whether it decides every two minutes; else at the start, after evictions, and while it holds nothing."""
        ...

    def acquire(self, footprint: Footprint, prices: Sequence[float], now: float) -> Acquire | None:
        """Return what to take now."""
        ...

    def renews(self, footprint: Footprint, number: int, prices: Sequence[float], now: float) -> bool:
        """Return whether allocation ``number`` is to be kept when its hour ends."""
        ...


@dataclass(frozen=True)
class HeldStay:
    """One stay of the outcome, with its market and bid."""

    market: int
    bid: float
    stay: Stay


@dataclass(frozen=True)
class SimulationOutcome:
    """How a job went. ``seconds``: it took; ``money``: it cost, ``anchor_money`` of that for reliable machines;
    ``refunded``: money that interruptions gave back; instance-seconds: ``anchor_s`` reliable, ``paid_s`` transient,
    ``free_s`` transient and not paid; ``finished``: before prices ended; ``fell_back_at``: when on-demand machines were
    requested for the deadline, None: they were not needed."""

    seconds: float
    money: float
    anchor_money: float
    refunded: float
    anchor_s: float
    paid_s: float
    free_s: float
    evictions: int
    stays: tuple[HeldStay, ...]
    finished: bool
    fell_back_at: float | None = None

    @property
    def fell_back(self) -> bool:
        """Whether on-demand machines were needed for the deadline."""
        return self.fell_back_at is not None


@dataclass(eq=False)
class _Held:
    """An allocation while it is held. ``evicted_at``: when the price will exceed its bid."""

    market: int
    count: int
    bid: float
    start: float
    ready_at: float
    evicted_at: float
    check_at: float
    cores: float
    ready: bool = False


def simulate_job(
    markets: SimulatedMarkets,
    strategy: Strategy,
    application: Application,
    start: Start,
    work: float,
    fallback: DeadlineFallback | None = None,
) -> SimulationOutcome:
    """Return how one job goes.

    :param work: seconds of one core that scales linearly.
    """
    return _Job(markets, strategy, application, start, work, fallback).run()


def trace_job(
    markets: SimulatedMarkets,
    strategy: Strategy,
    application: Application,
    start: Start,
    work: float,
    fallback: DeadlineFallback | None = None,
) -> tuple[SimulationOutcome, tuple[tuple[float, float], ...]]:
    """Return how one job goes, as :func:`simulate_job`, and the work that was done at each of its events."""
    job = _Job(markets, strategy, application, start, work, fallback)
    job.progress = [(start.time, 0.0)]
    return job.run(), tuple(job.progress)


class _Job:
    """One job in progress: what it holds and how far it is."""

    def __init__(
        self,
        markets: SimulatedMarkets,
        strategy: Strategy,
        application: Application,
        start: Start,
        work: float,
        fallback: DeadlineFallback | None,
    ) -> None:
        self._markets, self._strategy, self._application = markets, strategy, application
        self._fallback, self._fallback_since, self._fallback_ready_at = fallback, math.inf, math.inf
        self._start, self._now, self._until, self._work = start.time, start.time, start.until, work
        self._anchors = strategy.anchors
        self._held: list[_Held] = []
        self._stays: list[HeldStay] = []
        self._evictions = 0
        self._done = 0.0
        self._since_checkpoint = 0.0  # work
        self._since_checkpoint_s = 0.0
        self._paused_until = start.time
        self._anchors_ready_at = start.time + application.start_s
        self._tick = start.time
        self._speed = self._speed_now()
        self.progress: list[tuple[float, float]] | None = None

    @cached_property
    def _overhead(self) -> float:
        checkpointing = self._strategy.checkpointing
        return checkpointing.overhead if checkpointing else 0.0

    def _speed_now(self) -> float:
        """Work per second, of what is ready."""
        cores = sum(held.cores for held in self._held if held.ready)
        if self._now >= self._anchors_ready_at - _EPSILON_S:
            cores += self._anchors.count * self._anchors.cores
        if self._fallback is not None and self._now >= self._fallback_ready_at - _EPSILON_S:
            cores += self._fallback.count * self._fallback.cores
        return self._application.scaling.speed(cores) * (1 - self._overhead) if cores > 0 else 0.0

    def run(self) -> SimulationOutcome:
        """Go from event to event until the work is done, or prices end."""
        while True:
            moment, kind, held = self._next_event()
            if moment >= self._until:
                self._advance(self._until)
                return self._outcome(finished=False)
            self._advance(moment)
            if kind == "done":
                return self._outcome(finished=True)
            if kind == "evicted":
                for each in [each for each in self._held if each.evicted_at <= moment]:
                    self._evict(each)
                self._decide()
            elif kind == "fallback":
                self._fallback_since, self._fallback_ready_at = self._now, self._now + self._application.start_s
            elif kind == "ready":
                self._begin_work(held)
            elif kind == "hour" and held is not None:
                self._renew(held)
            elif kind == "decide":
                self._tick = self._now + DECISION_INTERVAL_S
                if self._strategy.is_periodic or not self._held:
                    self._decide()

    def _next_event(self) -> tuple[float, _Kind, _Held | None]:
        moment = self._tick
        kind: _Kind = "decide"
        what: _Held | None = None
        if self._anchors.cores and self._now < self._anchors_ready_at - _EPSILON_S < moment:
            moment, kind = self._anchors_ready_at, "ready"
        if self._now < self._fallback_ready_at - _EPSILON_S < moment:
            moment, kind = self._fallback_ready_at, "ready"
        if (due_at := self._fallback_due_at()) < moment:
            moment, kind = due_at, "fallback"
        for held in self._held:
            if not held.ready and held.ready_at < moment:
                moment, kind, what = held.ready_at, "ready", held
            if held.check_at < moment:
                moment, kind, what = held.check_at, "hour", held
        if self._speed > 0:
            done_at = max(self._now, self._paused_until) + (self._work - self._done) / self._speed
            if done_at <= moment:
                moment, kind, what = done_at, "done", None
        for held in self._held:  # an eviction comes before whatever else is due
            if held.evicted_at <= moment:
                moment, kind, what = held.evicted_at, "evicted", held
        return moment, kind, what

    def _fallback_due_at(self) -> float:
        """Return when the on-demand machines must be requested, as things go now."""
        if self._fallback is None or self._fallback_since < math.inf:
            return math.inf
        fallback, application = self._fallback, self._application
        alone = application.scaling.speed(fallback.count * fallback.cores) * (1 - self._overhead)
        lead_s = application.start_s + application.add_s + fallback.slack_s
        spare_s = self._start + fallback.deadline_s - lead_s - (self._work - self._done) / alone - self._now
        paused_s = max(0.0, self._paused_until - self._now)
        if spare_s <= paused_s:
            return self._now + max(0.0, spare_s)
        if self._speed >= alone:  # as long as more is done than they would do
            return math.inf
        return self._now + paused_s + (spare_s - paused_s) / (1 - self._speed / alone)

    def _advance(self, moment: float) -> None:
        """Let the work that is done until then be done."""
        began = max(self._now, min(self._paused_until, moment))
        seconds = moment - began
        if self.progress is not None and began > self._now:
            self.progress.append((began, self._done))
        if self._speed > 0 and seconds > 0:
            self._done += seconds * self._speed
            checkpointing = self._strategy.checkpointing
            if checkpointing:
                self._since_checkpoint_s += seconds
                kept_s = self._since_checkpoint_s // checkpointing.interval_s * checkpointing.interval_s
                self._since_checkpoint_s -= kept_s
                self._since_checkpoint = self._since_checkpoint_s * self._speed
        self._now = moment
        if self.progress is not None:
            self.progress.append((moment, self._done))

    def _evict(self, held: _Held) -> None:
        self._evictions += 1
        self._end(held, "interrupted")
        if self._strategy.checkpointing:
            self._done = max(0.0, self._done - self._since_checkpoint)
            self._since_checkpoint = self._since_checkpoint_s = 0.0
            if self.progress is not None:
                self.progress.append((self._now, self._done))
        self._paused_until = max(self._paused_until, self._now + self._application.evict_s)

    def _begin_work(self, held: _Held | None) -> None:
        if held is not None:
            held.ready = True
        is_anchors = held is None and self._now < self._fallback_ready_at - _EPSILON_S
        if self._speed > 0 and not is_anchors:  # those who work have to take others in
            self._paused_until = max(self._paused_until, self._now + self._application.add_s)
        self._speed = self._speed_now()

    def _renew(self, held: _Held) -> None:
        held.check_at += HOUR_S
        number = self._held.index(held)
        if not self._strategy.renews(self._footprint(), number, self._markets.prices(self._now), self._now):
            self._end(held, "released")
            self._paused_until = max(self._paused_until, self._now + self._application.add_s)

    def _decide(self) -> None:
        """Take what the strategy decides; with a deadline all at once."""
        while self._take() and self._fallback is not None:
            pass

    def _take(self) -> bool:
        """Take one allocation, if the strategy decides so and it is granted; return whether it is."""
        order = self._strategy.acquire(self._footprint(), self._markets.prices(self._now), self._now)
        if order is None:
            return False
        trace, now = self._markets.traces[order.market], self._now
        if order.bid < trace.price_at(now):
            return False
        evicted_at = float(next_above(trace.times, trace.prices, now, order.bid))
        ready_at, cores = now + self._application.start_s, order.count * self._markets.cores[order.market]
        held = _Held(
            order.market, order.count, order.bid, now, ready_at, evicted_at, now + HOUR_S - RENEWAL_LEAD_S, cores
        )
        self._held.append(held)
        return True

    def _footprint(self) -> Footprint:
        now = self._now
        allocations = []
        for held in self._held:
            begin = held.start + (now - held.start) // HOUR_S * HOUR_S
            price = self._markets.traces[held.market].price_at(begin)
            allocations.append(Allocation(held.market, held.count, held.bid, held.start, price))
        return Footprint(self._anchors, tuple(allocations))

    def _end(self, held: _Held, how: End) -> None:
        self._held.remove(held)
        self._stays.append(HeldStay(held.market, held.bid, Stay(held.start, self._now, held.count, how)))
        self._speed = self._speed_now()

    def _outcome(self, finished: bool) -> SimulationOutcome:
        for held in list(self._held):
            self._end(held, "job ended")
        seconds = self._now - self._start
        anchor_s = self._anchors.count * seconds
        anchor_money = self._anchors.price * anchor_s / HOUR_S
        fell_back = self._fallback is not None and self._fallback_since < math.inf
        if self._fallback is not None and fell_back:
            fallback_s = self._fallback.count * (self._now - self._fallback_since)
            anchor_s, anchor_money = anchor_s + fallback_s, anchor_money + self._fallback.price * fallback_s / HOUR_S
        money = refunded = free = held_s = 0.0
        for each in self._stays:
            charge = self._markets.billing.charged(each.stay, self._markets.traces[each.market].price_at)
            money, refunded, free = money + charge.money, refunded + charge.refunded, free + charge.free_s
            held_s += each.stay.count * each.stay.seconds
        return SimulationOutcome(
            seconds,
            money + anchor_money,
            anchor_money,
            refunded,
            anchor_s,
            held_s - free,
            free,
            self._evictions,
            tuple(self._stays),
            finished,
            self._fallback_since if fell_back else None,
        )


def work_of(hours: float, cores: float, application: Application) -> float:
    """Return the work of a job that takes so many hours on so many cores."""
    return hours * HOUR_S * application.scaling.speed(cores)
