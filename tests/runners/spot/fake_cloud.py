"""A provider, a job, a journal and a brain in memory, on a clock that a test moves; a fuse that kills the driver."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import to_builtins

from plink.model.codec import convert
from plink.model.hosts import Host
from plink.model.spot import journal
from plink.model.spot.market_file import Limits
from plink.model.spot.prices import HOUR_S, Market
from runners.spot.brain import OnDemandFallback, RentalChoice
from runners.spot.driver import Driver
from runners.spot.driver_parts import DriverParts
from runners.spot.elastic_job import JobView
from runners.spot.provider import ListedInstance, PricePoint, ProviderError, RentalOrder
from solvers.spot.billing import BILLINGS, Stay
from solvers.spot.deadline import JobProgress
from solvers.spot.deciding import Quote
from solvers.spot.ledger import Ledger, RentedInstance
from solvers.spot.reconciling import DriverTiming

START = 1_000_000.0
ON_DEMAND_PRICE = 0.5
A, B = Market("zone-a", "small"), Market("zone-b", "large")


class Killed(BaseException):
    """The driver's process is gone."""


@dataclass
class Fuse:
    """Kills at the ``blows_at``-th point that is passed; -1: never. ``passed``: how many there were."""

    blows_at: int = -1
    passed: int = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed - 1 == self.blows_at:
            raise Killed


@dataclass
class Clock:
    """``now``: the true time; ``error_s``: by how much the driver's wall clock is ahead; ``paused_s``: how much of it
    the driver's steady clock does not count."""

    now: float = START
    error_s: float = 0.0
    paused_s: float = 0.0

    def steady(self) -> float:
        return self.now - self.paused_s

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.error_s


@dataclass
class FakeJournal:
    """Lines as they are on disk."""

    fuse: Fuse = field(default_factory=Fuse)
    lines: list[str] = field(default_factory=list)

    def add(self, entry: journal.JournalEntry) -> None:
        self.fuse.point()
        self.lines.append(json.dumps(to_builtins(entry)))
        self.fuse.point()

    def entries(self) -> list[journal.JournalEntry]:
        lines = [json.loads(line) for line in self.lines]
        return [convert(journal.KINDS[line["what"]], line, "journal") for line in lines]


@dataclass(frozen=True)
class Rental:
    """What the cloud has granted."""

    market: Market
    bid: float
    listed: ListedInstance
    lease_until: float


@dataclass
class FakeCloud:
    """``steps``: price changes by market; ``fails``: raised by the next calls of a method; ``grants``: at most so many
    of a request; ``hides_for_s``: a new instance is not listed for so long, if it is one of ``hides``;
    ``forgets``: what is gone is not listed; ``lives_for_s``: after which instances shut down by themselves;
    ``loses_answers``: of so many requests."""

    clock: Clock
    steps: Mapping[Market, Sequence[tuple[float, float]]]
    fuse: Fuse = field(default_factory=Fuse)
    billing: str = "hourly-2016"
    fails: dict[str, list[ProviderError]] = field(default_factory=dict)
    grants: int = 1000
    hides_for_s: float = 0.0
    hides: range = range(10**6)
    forgets: bool = False
    lives_for_s: float = math.inf
    loses_answers: int = 0
    rentals: dict[str, Rental] = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)  # tokens that were granted
    calls: list[str] = field(default_factory=list)

    def _called(self, method: str) -> None:
        self.calls.append(method)
        self._advance()
        if self.fails.get(method):
            raise self.fails[method].pop(0)

    def price_at(self, market: Market, time: float) -> float:
        if market.is_on_demand:
            return ON_DEMAND_PRICE
        return [price for since, price in self.steps[market] if since <= time][-1]

    def _advance(self) -> None:
        """Take what the price, or a lease that ran out, has ended by now."""
        for name, rental in self.rentals.items():
            if rental.listed.end is not None:
                continue
            steps = [] if rental.market.is_on_demand else self.steps[rental.market]
            above = [since for since, price in steps if price > rental.bid and since >= rental.listed.since_s]
            shut_down = min(rental.lease_until, rental.listed.since_s + self.lives_for_s)
            time, end = min([(time, "interrupted") for time in above[:1]] + [(shut_down, "released")])
            if time <= self.clock.now:
                self._end(name, time, end)

    def _end(self, name: str, time: float, end: str) -> None:
        rental = self.rentals[name]
        self.rentals[name] = replace(rental, listed=replace(rental.listed, until_s=time, end=end))  # type: ignore[arg-type]

    def account(self) -> str:
        return ""

    def prices(self, since_s: float) -> list[PricePoint]:
        self._called("prices")
        points = []
        for market, steps in self.steps.items():
            past = [step for step in steps if step[0] <= self.clock.now]
            first = max((k for k, step in enumerate(past) if step[0] <= since_s), default=0)
            points += [PricePoint(market, *step) for step in past[first:]]
        return points

    def acquire(self, order: RentalOrder) -> list[ListedInstance]:
        self.fuse.point()
        self._called("acquire")
        if order.bid < self.price_at(order.market, self.clock.now):
            raise ProviderError("capacity", "the price is above the bid")
        self.effects.append(order.token)
        for _ in range(min(order.count, self.grants)):
            name = f"i-{len(self.rentals)}"
            listed = ListedInstance(name, order.token, self.clock.now, f"10.0.0.{len(self.rentals) + 1}")
            self.rentals[name] = Rental(order.market, order.bid, listed, order.lease_until_s)
        self.fuse.point()
        if self.loses_answers:
            self.loses_answers -= 1
            raise ProviderError("unavailable", "timed out", has_no_effect=False)
        return [each.listed for each in self.rentals.values() if each.listed.token == order.token]

    def listing(self) -> list[ListedInstance]:
        self._called("listing")
        listed = [each.listed for each in self.rentals.values()]
        return [
            each
            for place, each in enumerate(listed)
            if (place not in self.hides or self.clock.now - each.since_s >= self.hides_for_s)
            and not (self.forgets and each.end is not None)
        ]

    def release(self, ids: Sequence[str]) -> None:
        self.fuse.point()
        self._called("release")
        for name in ids:
            if self.rentals[name].listed.end is None:
                self._end(name, self.clock.now, "released")
        self.fuse.point()

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        self._called("renew")
        for name in ids:
            self.rentals[name] = replace(self.rentals[name], lease_until=until_s)

    @property
    def held(self) -> list[str]:
        self._advance()
        return [name for name, each in self.rentals.items() if each.listed.end is None]

    def bill(self) -> float:
        """What the cloud charges, by its own account."""
        money = 0.0
        for each in self.rentals.values():
            until = self.clock.now if each.listed.until_s is None else each.listed.until_s
            stay = Stay(each.listed.since_s, until, 1, each.listed.end or "released")
            money += BILLINGS[self.billing].charged(stay, partial(self.price_at, each.market)).money
        return money


@dataclass
class FakeJob:
    """Hosts join at the view after they were added, and are gone with their instances."""

    cloud: FakeCloud
    ends_at: float
    hosts: dict[str, str] = field(default_factory=dict)  # names by instance
    evicted: list[str] = field(default_factory=list)
    added: list[Host] = field(default_factory=list)
    answers: bool = True
    deaf: bool = False  # hosts never join
    outlives: bool = False  # hosts go on when their instances have ended
    work_s: float = 0.0  # core-seconds of an iteration; 0: it tells of none
    done: float = 0.0  # iterations
    _at: float = START

    def view(self) -> JobView | None:
        if not self.answers:
            return None
        alive = set(self.cloud.held)
        self.hosts = {name: host for name, host in self.hosts.items() if name in alive or self.outlives}
        is_over = self.cloud.clock.now >= self.ends_at
        return JobView(frozenset(self.hosts.values()), True, is_over, self._progress())

    def _progress(self) -> JobProgress | None:
        """Work on one core of its own, and on one of each instance."""
        if not self.work_s:
            return None
        cores, seconds = 1 + len(self.hosts), self.cloud.clock.now - self._at
        self._at = self.cloud.clock.now
        self.done += seconds * cores / self.work_s
        return JobProgress(int(self.done), self.work_s / cores, cores)

    def add(self, hosts: Sequence[Host]) -> None:
        self.cloud.fuse.point()
        self.added += hosts
        if not self.deaf:
            self.hosts |= {host.name.removeprefix("spot-"): host.name for host in hosts}

    def evict(self, names: Sequence[str], seconds: float) -> None:
        self.cloud.fuse.point()
        self.evicted += names
        self.hosts = {name: host for name, host in self.hosts.items() if host not in names}

    def errors(self) -> Sequence[str]:
        return ()


@dataclass
class PlannedBrain:
    """Requests ``plan`` one after the other, each while what it asks for is not held; ends tokens in ``ends``."""

    plan: Sequence[RentalChoice]
    ends: Callable[[Ledger, str, float], str] = lambda ledger, token, now: ""

    def observe(self, market: Market, since_s: float, price: float) -> None:
        return

    def choose(self, ledger: Ledger, quotes: Mapping[Market, Quote], now: float) -> RentalChoice:
        for choice in self.plan:
            assert choice.market is not None
            quote = quotes.get(choice.market)
            if choice.market.is_on_demand:
                quote = Quote(choice.bid)
            if quote is None or ledger.penalised(choice.market, now) or quote.price > choice.bid:
                continue
            if not any(each.market == choice.market for each in ledger.held):
                return choice
        return RentalChoice("all of the plan is held")

    def reason_to_end(self, ledger: Ledger, token: str, quotes: Mapping[Market, Quote], now: float) -> str:
        return self.ends(ledger, token, now)


@dataclass
class World:
    """All of it; :meth:`driver` starts a driver, as after a crash."""

    cloud: FakeCloud
    job: FakeJob
    journal: FakeJournal
    brain: PlannedBrain
    limits: Limits = field(default_factory=lambda: Limits(100, 100))
    timing: DriverTiming = field(default_factory=lambda: DriverTiming(poll_s=60.0))
    anchors: tuple[int, float] = (0, 0.0)
    fallback: OnDemandFallback | None = None
    notes: list[str] = field(default_factory=list)
    is_released: bool = False  # by `plink spot release`

    @property
    def clock(self) -> Clock:
        return self.cloud.clock

    def driver(self) -> Driver:
        opened = journal.JournalOpened(self.clock(), "run1", "fake", self.cloud.billing, *self.anchors)  # type: ignore[arg-type]
        parts = DriverParts(
            self.cloud, self.job, self.brain, self.journal, host_of, self.clock.wall, self.clock.steady,
            lambda: f"run1-{len(self.journal.lines)}", self.notes.append,
            self.fallback, lambda: self.is_released,
        )  # fmt: skip
        return Driver(parts, self.limits, self.timing, opened, self.journal.entries())

    def run(self, hours: float, driver: Driver | None = None) -> bool:
        """Step until the end, or for so many hours; return whether it came to an end."""
        driver, end = driver or self.driver(), self.clock.now + hours * HOUR_S
        while self.clock.now < end:
            if driver.step():
                return True
            self.clock.now += self.timing.poll_s
        return False

    @property
    def ledger(self) -> Ledger:
        return Ledger.of(self.journal.entries())


def host_of(instance: RentedInstance, listed: ListedInstance) -> Host:
    return Host(f"spot-{instance.id}", listed.address or "", tier="transient")


def world(
    steps: Mapping[Market, Sequence[tuple[float, float]]] | None = None,
    hours: float = 3.0,
    plan: Sequence[RentalChoice] | None = None,
    fuse: Fuse | None = None,
    billing: str = "hourly-2016",
) -> World:
    """A job of so many hours in two markets at 0.1 and 0.2 an hour, whose plan is two instances in each."""
    fuse, clock = fuse or Fuse(), Clock()
    cloud = FakeCloud(clock, steps or {A: [(START - 50, 0.1)], B: [(START - 70, 0.2)]}, fuse, billing)
    brain = PlannedBrain(plan or [RentalChoice("planned", A, 2, 0.15), RentalChoice("planned", B, 2, 0.3)])
    return World(cloud, FakeJob(cloud, START + hours * HOUR_S), FakeJournal(fuse), brain)
