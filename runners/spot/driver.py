"""The driver of a run's instances: it observes, decides and acts, one step after the other.

Each act is announced in the journal before it is done (:mod:`plink.model.spot.journal`), so that a driver that is
killed anywhere can be replaced by another. Money is checked last, right before a request, with the highest price that
there can be. Nothing is requested while an earlier request is open.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from plink.model.hosts import Host
from plink.model.spot import journal
from plink.model.spot.limits import Limits
from plink.model.spot.prices import HOUR_S, Market
from runners.spot.brain import Brain, RentalChoice
from runners.spot.elastic_job import DrivenJob, JobView
from runners.spot.fallback import OnDemandFallback
from runners.spot.provider import ListedInstance, Provider, ProviderError, RentalOrder
from runners.spot.steady_clock import SteadyClock
from solvers.spot.deciding import Quote
from solvers.spot.ledger import Ledger, MoneyLimits, RentedInstance, refusal_of_money, worst_cost
from solvers.spot.reconciling import DriverTiming, Sightings, foreign, reconcile, unrequested

REPEAT_S = 60.0  # a warning that still holds is repeated


class JournalWriter(Protocol):
    """Where entries go."""

    def add(self, entry: journal.JournalEntry) -> None:
        """Return when the entry is on disk."""
        ...


@dataclass(frozen=True)
class DriverParts:
    """What a driver works with. ``host_of``: the host that an instance is in the job; ``clock``: the provider's time;
    ``steady``: a clock as fast as that, which nobody sets; ``new_token``: makes tokens of the run that were never
    used; ``fallback``: None without a deadline."""

    provider: Provider
    job: DrivenJob
    brain: Brain
    journal: JournalWriter
    host_of: Callable[[RentedInstance, ListedInstance], Host]
    clock: Callable[[], float]
    steady: Callable[[], float]
    new_token: Callable[[], str]
    note: Callable[[str], None] = lambda text: None
    fallback: OnDemandFallback | None = None


class Driver:
    """Driver of one run; :meth:`step` is for one thread.

    :param opened: begins a journal that has no entries. :param entries: of the journal so far.
    """

    def __init__(
        self, parts: DriverParts, limits: Limits, timing: DriverTiming, opened: journal.JournalOpened,
        entries: Iterable[journal.JournalEntry],
    ) -> None:  # fmt: skip
        self._parts, self._limits, self._timing = parts, limits, timing
        self.ledger = Ledger.of(entries)
        self._quotes: dict[Market, tuple[float, float]] = {}  # since when, and the price
        self._clock = SteadyClock(parts.clock, parts.steady, self.ledger.at_s)
        self._sightings = Sightings()
        self._fetched_at = -math.inf
        self._job_answered_at: float | None = None
        self._next_decision = self._next_fallback = -math.inf
        self._absent_since: dict[str, float] = {}
        self._added_at: dict[str, float] = {}
        self._host_names: dict[str, str] = {}
        self._renewed_at: dict[str, float] = {}
        self._warned: dict[str, tuple[str, float]] = {}
        if self.ledger.opened is None:
            self._add(opened)

    def _add(self, entry: journal.JournalEntry) -> None:
        self._parts.journal.add(entry)
        self.ledger.apply(entry)

    def _clock_is_right(self, now: float) -> bool:
        """Return whether the wall clock goes as the steady one does; otherwise prices may be of another time."""
        error = self._clock.error_s()
        if abs(error) <= self._timing.clock_tolerance_s:
            return True
        self._warn(
            "clock",
            f"the clock went {'ahead' if error > 0 else 'back'} by {abs(error):.0f} s; nothing is requested until it "
            "is right, or until `plink spot drive` is started again",
            now,
        )
        return False

    def _warn(self, about: str, text: str, now: float, repeat_s: float = REPEAT_S) -> None:
        """Note a problem at once, and again every minute while it lasts."""
        before, at = self._warned.get(about, ("", -math.inf))
        if text != before or now - at >= repeat_s:
            self._warned[about] = (text, now)
            self._parts.note(text)

    def step(self) -> bool:
        """Observe, decide and act once; return whether the job is over and nothing is held.

        :raises PlinkError: when the journal cannot be written; nothing was done after that.
        """
        self._observe_prices(self._clock.now())
        listing = self._list()
        view = self._parts.job.view()
        now = self._clock.now()
        if view is not None or self._job_answered_at is None:
            self._job_answered_at = now
        for error in self._parts.job.errors():
            self._warn("job", error, now)
        if view is not None and view.has_ended and not self.ledger.job_ended:
            self._add(journal.JobEnded(now))
        if self.ledger.job_ended:
            self._release(self.ledger.held, "the job has ended", now)
            return listing is not None and not self.ledger.held and not self.ledger.open_requests
        self._protect_budget(now)
        self._end_hours(now)
        self._track_hosts(view, now)
        self._finish_draining(view, now)
        self._renew_leases(now)
        if view is not None and listing is not None:
            self._join(view, listing, now)
            if view.is_ready and self._clock_is_right(now):
                self._fall_back(view, now)
                if now >= self._next_decision:
                    self._acquire(now)
        return False

    def release_all(self, reason: str) -> bool:
        """Release everything once; return whether nothing is held any more."""
        listing = self._list()
        self._release(self.ledger.held, reason, self._clock.now())
        return listing is not None and not self.ledger.held and not self.ledger.open_requests

    def _observe_prices(self, now: float) -> None:
        if now - self._fetched_at < self._timing.price_s:
            return
        markets = {each.market for each in self.ledger.held} | {each.entry.market for each in self.ledger.open_requests}
        markets = {market for market in markets if not market.is_on_demand}
        latest = [step[0] for market in markets if (step := self.ledger.latest_price(market))]
        since = min([now if self._fetched_at == -math.inf else self._fetched_at, *latest])
        try:
            points = self._parts.provider.prices(since)
        except ProviderError as error:
            self._warn("prices", f"no prices: {error}; nothing is requested by prices older than 15 min", now)
            return
        self._fetched_at = now
        for point in points:
            if point.market.is_on_demand:
                continue
            if point.since_s <= now and point.since_s > self._quotes.get(point.market, (-math.inf, 0.0))[0]:
                self._quotes[point.market] = (point.since_s, point.price)
                self._parts.brain.observe(point.market, point.since_s, point.price)
            if point.market in markets:
                self._record_price(point.market, point.since_s, point.price, now)

    def _record_price(self, market: Market, since_s: float, price: float, now: float) -> None:
        """Keep a price that the cost of an instance depends on, unless the journal has it."""
        latest = self.ledger.latest_price(market)
        if since_s <= now and (latest is None or (since_s > latest[0] and price != latest[1])):
            self._add(journal.PriceChanged(now, market.zone, market.type, market.product, since_s, price))

    def _list(self) -> Sequence[ListedInstance] | None:
        """Return what is listed, after the journal has been brought in line with it."""
        now = self._clock.now()
        try:
            listing = self._parts.provider.listing()
        except ProviderError as error:
            self._warn("listing", f"instances cannot be listed: {error}; nothing is requested", now)
            return None
        held_before = len(self.ledger.held)
        returned = set()
        for entry in reconcile(self.ledger, listing, now, self._timing, self._sightings):
            if isinstance(entry, journal.InstanceGranted) and entry.instance in self.ledger.instances:
                returned.add(entry.instance)
            if isinstance(entry, journal.InstanceEnded):
                name = self.ledger.instances[entry.instance].host or entry.instance
                self._parts.note(f"{name}: {'taken by the provider' if entry.end == 'interrupted' else 'released'}")
            self._add(entry)
        if len(self.ledger.held) < held_before:
            self._next_decision = -math.inf  # an eviction is a decision point
        self._drain(
            [each for each in self.ledger.held if each.id in returned and not each.is_leaving],
            "it was not listed for a while, and others may be in its place", now,
        )  # fmt: skip
        if names := foreign(self.ledger, listing):
            self._warn("foreign", f"listed, but not of this run, and left alone: {', '.join(names)}", now)
        if names := unrequested(self.ledger, listing):
            self._release([each for each in self.ledger.held if each.id in names], "nobody waits for it", now)
            if unknown := [name for name in names if name not in self.ledger.instances]:
                self._parts.note(f"{', '.join(unknown)}: of this run, but not in its journal; released")
                self._call_release(unknown, now)
        return listing

    def _protect_budget(self, now: float) -> None:
        """Release everything while all of it can still be paid: by the end of its leases, at the highest price."""
        worst = worst_cost(self.ledger, now, now + self._timing.lease_s, self._fetched_at)
        if worst > self._limits.budget:
            reason = f"the budget, {self._limits.budget:g}, could be exceeded ({worst:.4g})"
            self._drain([each for each in self.ledger.held if not each.is_leaving], reason, now)

    def _end_hours(self, now: float) -> None:
        """Decide on what is in the last moments of its billing hour. After it the hour is paid and used."""
        tokens = dict.fromkeys(each.token for each in self.ledger.held if not each.is_leaving)
        for token in tokens:
            members = [each for each in self.ledger.held if each.token == token and not each.is_leaving]
            remaining = HOUR_S - (now - members[0].since_s) % HOUR_S
            if now <= members[0].since_s or remaining > self._timing.renewal_lead_s:
                continue
            if reason := self._parts.brain.reason_to_end(self.ledger, token, self._current_quotes(now), now):
                self._drain(members, reason, now)

    def _drain(self, members: Sequence[RentedInstance], reason: str, now: float, penalty_until: float = 0.0) -> None:
        for each in members:
            self._add(journal.InstanceDraining(now, each.id, reason, penalty_until))
            self._parts.note(f"{each.host or each.id}: to be released: {reason}")
        if names := [each.host for each in members if each.host is not None]:
            self._parts.job.evict(names, self._timing.drain_s)

    def _finish_draining(self, view: JobView | None, now: float) -> None:
        """Release what the job has moved away from, or what it has had its time for."""
        due = []
        for each in self.ledger.held:
            if each.released_at_s is not None or each.draining_since_s is None:
                continue
            in_job = each.host is not None and (view is None or each.host in view.hosts)
            if not in_job or now >= each.draining_since_s + self._timing.drain_s:
                due.append(each)
        self._release(due, "", now)
        self._call_release([each.id for each in self.ledger.held if each.released_at_s not in (None, now)], now)

    def _release(self, members: Sequence[RentedInstance], reason: str, now: float) -> None:
        for each in members:
            if each.released_at_s is None:
                self._add(journal.InstanceReleased(now, each.id, reason or each.reason))
        self._call_release([each.id for each in members], now)

    def _call_release(self, ids: Sequence[str], now: float) -> None:
        if ids:
            try:
                self._parts.provider.release(ids)
                self._sightings.released.update(ids)
            except ProviderError as error:
                self._warn("release", f"{', '.join(ids)}: not released yet, tried again: {error}", now)

    def _track_hosts(self, view: JobView | None, now: float) -> None:
        """Note which instances work in the job; give up those that do not within their time."""
        if view is None or not view.is_ready:
            return
        for each in self.ledger.held:
            host = each.host or self._host_names.get(each.id)
            if host in view.hosts:
                self._absent_since.pop(each.id, None)
                if each.host is None and host is not None:
                    self._add(journal.InstanceJoined(now, each.id, host))
                    self._parts.note(f"{host}: works")
            elif not each.is_leaving:
                since = self._absent_since.setdefault(each.id, now if each.host else each.granted_at_s)
                if now - since > self._timing.start_s:
                    reason = f"it does not work in the job after {self._timing.start_s:.0f} s"
                    self._drain([each], reason, now, now + self._timing.penalty_s)

    def _renew_leases(self, now: float) -> None:
        """Renew leases that a tenth has run out of. What is leaving keeps the lease that it has, and so does everything
        while the job has not answered for as long as a lease."""
        if self._job_answered_at is not None and now - self._job_answered_at > self._timing.lease_s:
            self._warn("lease", "the job does not answer: leases are not renewed, and instances end with them", now)
            return
        due_before = now - self._timing.lease_s / 10
        ids = [
            each.id
            for each in self.ledger.held
            if not each.is_leaving and self._renewed_at.get(each.id, -math.inf) <= due_before
        ]
        if ids:
            try:
                self._parts.provider.renew(ids, self._clock.lease_time() + self._timing.lease_s)
                self._renewed_at |= dict.fromkeys(ids, now)
            except ProviderError as error:
                self._warn("lease", f"leases are not renewed: {error}", now)

    def _join(self, view: JobView, listing: Sequence[ListedInstance], now: float) -> None:
        """Add instances that have an address, and are not in the job, every poll until they are."""
        listed = {each.id: each for each in listing}
        hosts = []
        for each in self.ledger.held:
            entry = listed.get(each.id)
            if each.is_leaving or entry is None or entry.end is not None or not (entry.address or entry.host):
                continue
            host = self._parts.host_of(each, entry)
            self._host_names[each.id] = host.name
            if host.name not in view.hosts and now - self._added_at.get(each.id, -math.inf) >= self._timing.drain_s:
                self._added_at[each.id] = now
                hosts.append(host)
        if hosts and view.is_ready:
            self._parts.job.add(hosts)

    def _current_quotes(self, now: float) -> dict[Market, Quote]:
        age = now - self._fetched_at
        return {market: Quote(price, age) for market, (_, price) in self._quotes.items()}

    def _acquire(self, now: float) -> None:
        """Request what lowers the cost per work, if the limits of money allow it."""
        if self.ledger.open_requests:
            return
        self._next_decision = now + self._timing.decision_s
        choice = self._parts.brain.choose(self.ledger, self._current_quotes(now), now)
        if choice.market is None or choice.count < 1:
            self._warn("wait", f"wait: {choice.reason}", now, math.inf)
        elif self._send(choice, self._quotes[choice.market], "wait", now):
            self._warned.pop("wait", None)

    def _fall_back(self, view: JobView, now: float) -> None:
        """Request on-demand machines where the deadline asks for them, if the limits of money allow it."""
        fallback = self._parts.fallback
        if fallback is None:
            return
        if view.progress is not None:
            fallback.observe(view.progress)
        if self.ledger.open_requests or now < self._next_fallback:
            return
        choice = fallback.choose(self.ledger, {market.zone for market in self._quotes}, now)
        if choice.market is not None and choice.count >= 1:
            self._next_fallback = now + self._timing.decision_s
            self._send(choice, (now, choice.bid), "deadline", now)
        elif choice.is_urgent:
            self._warn("deadline", choice.reason, now)

    def _send(self, choice: RentalChoice, price: tuple[float, float], topic: str, now: float) -> bool:
        """Request what was chosen; return whether it was within the limits of money.

        :param price: of its market, and since when. :param topic: of a warning.
        """
        assert choice.market is not None
        limits, until = self._limits, now + self._timing.lease_s
        money = MoneyLimits(limits.max_hourly, limits.budget, now, until, self._fetched_at)
        if refusal := refusal_of_money(self.ledger, choice.count, choice.bid, money):
            self._warn(topic, f"{topic}: {refusal}", now, math.inf)
            return False
        market, now = choice.market, self._clock.now()
        self._record_price(market, *price, now)
        token = self._parts.new_token()
        self._add(
            journal.InstancesRequested(
                now, token, market.zone, market.type, market.product, choice.count, choice.bid, choice.reason
            )
        )
        self._parts.note(f"request {choice.count} x {market} for at most {choice.bid:.4g} an hour: {choice.reason}")
        lease_until = self._clock.lease_time() + self._timing.lease_s
        self._request(RentalOrder(token, market, choice.count, choice.bid, lease_until))
        return True

    def _request(self, order: RentalOrder) -> None:
        try:
            granted = self._parts.provider.acquire(order)
            now = self._clock.now()
        except ProviderError as error:
            now = self._sightings.answered_at[order.token] = self._clock.now()
            self._parts.note(f"{order.count} x {order.market}: not granted: {error}")
            if error.has_no_effect:
                everywhere = error.failure in ("limit", "throttled", "credentials")
                self._add(
                    journal.RequestClosed(
                        now, order.token, "refused", str(error), now + self._timing.penalty_s, everywhere
                    )
                )
            return
        for each in granted:
            self._add(journal.InstanceGranted(now, order.token, each.id, each.since_s))
        penalty_until = 0.0
        if len(granted) < order.count:
            self._parts.note(f"{len(granted)} of {order.count} x {order.market} granted")
            penalty_until = now + self._timing.penalty_s
        outcome: journal.ClosedRequest = "granted" if granted else "refused"
        self._add(journal.RequestClosed(now, order.token, outcome, penalised_until_s=penalty_until))


def run_driver(driver: Driver, pause: Callable[[], None], after_step: Callable[[], None] = lambda: None) -> None:
    """Step until the job is over and nothing is held.

    :raises PlinkError: when the journal cannot be written.
    """
    while not driver.step():
        after_step()
        pause()
