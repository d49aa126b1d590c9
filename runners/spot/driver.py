"""The driver of a run's instances: it observes, decides and acts, one step after the other.

Each act is announced in the journal before it is done (:mod:`plink.model.spot.journal`), so that a driver that is
killed anywhere can be replaced by another. Requests, and the limits of money, are in :mod:`runners.spot.requests`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from plink.model.spot import journal
from plink.model.spot.market_file import Limits
from plink.model.spot.prices import HOUR_S
from plink.model.units import significant
from runners.spot.driver_parts import DriverParts, RepeatedNotes
from runners.spot.elastic_job import JobView
from runners.spot.provider import ListedInstance, ProviderError, SteadyClock
from runners.spot.requests import DriverRecords, RecordedPrices, Requests
from solvers.spot.ledger import Ledger, RentedInstance, saved_by_release, worst_cost
from solvers.spot.reconciling import DriverTiming, Sightings, foreign, reconcile, unrequested

_RESTART = "end its process; then type `plink spot drive` again, under `plink elastic run --spot` it starts by itself"


class Driver:
    """Driver of one run; :meth:`step` is for one thread.

    :param opened: begins a journal that has no entries. :param entries: of the journal so far.
    """

    def __init__(
        self,
        parts: DriverParts,
        limits: Limits,
        timing: DriverTiming,
        opened: journal.JournalOpened,
        entries: Iterable[journal.JournalEntry],
    ) -> None:
        self._parts, self._limits, self._timing = parts, limits, timing
        self.ledger = Ledger.of(entries)
        self._clock = SteadyClock(parts.clock, parts.steady, self.ledger.at_s)
        self._sightings = Sightings()
        self._job_answered_at: float | None = None
        self._absent_since: dict[str, float] = {}
        self._added_at: dict[str, float] = {}
        self._removed_at: dict[str, float] = {}  # hosts of instances that have ended
        self._host_names: dict[str, str] = {}
        self._job_hosts: frozenset[str] = frozenset()
        self._tracked_at: float | None = None
        self._renewed_at: dict[str, float] = {}
        self._warnings = RepeatedNotes(parts.note)
        self._prices = RecordedPrices(self.ledger, self._add, parts.brain.observe, parts.history_from_s)
        records = DriverRecords(self.ledger, self._clock, self._prices, self._sightings, self._add)
        self._requests = Requests(parts, limits, timing, records, self._warnings)
        if self.ledger.opened is None:
            self._add(opened)

    def record_limits(self) -> None:
        """Write the limits of money into the journal, if they are others than before."""
        budget, max_hourly = (
            limit if math.isfinite(limit) else None for limit in (self._limits.budget, self._limits.max_hourly)
        )
        before = self.ledger.limits
        if before is None or (before.budget, before.max_hourly) != (budget, max_hourly):
            self._add(journal.LimitsSet(self._parts.clock(), budget, max_hourly))

    def _add(self, entry: journal.JournalEntry) -> None:
        self._parts.journal.add(entry)
        self.ledger.apply(entry)
        if isinstance(entry, journal.InstanceGranted):
            self._requests.compare_clocks(entry)

    def _clock_is_right(self, now: float) -> bool:
        """Return whether the wall clock goes as the steady one does, and as the provider's did at the last grant;
        otherwise prices may be of another time, and leases end too early or too late."""
        if ahead_s := self._requests.provider_ahead_s:
            side = "behind" if ahead_s > 0 else "ahead of"
            self._warnings.warn(
                "clock",
                f"the clock is {abs(ahead_s):.0f} s {side} the provider's, by the times of its grants; nothing is "
                f"requested: set the clock, and start the driver again ({_RESTART})",
                now,
            )
            return False
        error = self._clock.error_s()
        if abs(error) <= self._timing.clock_tolerance_s:
            return True
        self._warnings.warn(
            "clock",
            f"the clock went {'ahead' if error > 0 else 'back'} by {abs(error):.0f} s; nothing is requested until it "
            f"is right, or until the driver is started again ({_RESTART})",
            now,
        )
        return False

    def step(self) -> bool:
        """Observe, decide and act once; return whether the job is over and nothing is held.

        :raises PlinkError: when the journal cannot be written; nothing was done after that.
        """
        self._count_pauses()
        self._fetch_prices(self._clock.now())
        listing = self._list()
        view = self._parts.job.view()
        self._job_hosts = view.hosts if view is not None and view.is_ready else self._job_hosts
        now = self._clock.now()
        if view is not None or self._job_answered_at is None:
            self._job_answered_at = now
        for error in self._parts.job.errors():
            self._warnings.warn("job", error, now)
        if view is not None and view.has_ended and not self.ledger.job_ended:
            self._add(journal.JobEnded(now))
        if self.ledger.job_ended:
            self._release(self.ledger.held, "the job has ended", now)
            assert self.ledger.job_ended_at_s is not None
            in_doubt = now < self.ledger.job_ended_at_s + self._timing.doubt_s and self.ledger.doubtful_requests(now)
            return listing is not None and not self.ledger.held and not self.ledger.open_requests and not in_doubt
        if self._parts.release_is_requested():
            self._drain([each for each in self.ledger.held if not each.is_leaving], "plink spot release", now)
            self._finish_draining(view, now)
            return listing is not None and not self.ledger.held and not self.ledger.open_requests
        self._protect_budget(now)
        self._end_hours(now)
        self._track_hosts(view, listing is not None, now)
        self._finish_draining(view, now)
        self._renew_leases(now)
        if view is not None and listing is not None:
            self._remove_ended(view, now)
            self._join(view, listing, now)
            if view.is_ready and self._clock_is_right(now):
                self._requests.step(view, now)
        return False

    def _count_pauses(self) -> None:
        """Go by the wall clock again when it is ahead by less than a lease: this machine was paused, or its clock was
        set right. With the old base leases would be renewed too short. If the clock is wrong now, the next grant shows
        it; if it is ahead by more, instances have ended, or it is wrong."""
        ahead_s = self._clock.take_new_base(self._timing.clock_tolerance_s, self._timing.lease_s)
        if ahead_s:
            self._parts.note(
                f"the clock went ahead by {ahead_s:.0f} s, as after a pause of this machine: it counts now"
            )
            self._requests.forget_clocks()
            self._renewed_at.clear()

    def release_all(self) -> bool:
        """Release everything once; return whether nothing is held any more."""
        listing = self._list()
        self._release(self.ledger.held, "plink spot release", self._clock.now())
        return listing is not None and not self.ledger.held and not self.ledger.open_requests

    def _fetch_prices(self, now: float) -> None:
        if (since := self._prices.due(now, self._timing.price_s)) is None:
            return
        try:
            points = self._parts.provider.prices(since)
        except ProviderError as error:
            self._prices.note_failure(now)
            self._warnings.warn("prices", f"no prices: {error}; nothing is requested by prices older than 15 min", now)
            return
        self._prices.add(points, now)

    def _list(self) -> Sequence[ListedInstance] | None:
        """Return what is listed, after the journal has been brought in line with it."""
        now = self._clock.now()
        try:
            listing = self._parts.provider.listing()
        except ProviderError as error:
            self._warnings.warn("listing", f"instances cannot be listed: {error}; nothing is requested", now)
            return None
        held_before = len(self.ledger.held)
        returned = set()
        for entry in reconcile(self.ledger, listing, now, self._timing, self._sightings):
            if isinstance(entry, journal.InstanceGranted) and entry.instance in self.ledger.instances:
                returned.add(entry.instance)
                self._prices.want_history(self.ledger.instances[entry.instance])
            if isinstance(entry, journal.InstanceEnded):
                self._report_end(entry, now)
            self._add(entry)
        listed = {each.id: each for each in listing}
        for each in self.ledger.held:
            if (sighting := listed.get(each.id)) is not None and (sighting.address or sighting.host):
                self._host_names[each.id] = self._parts.host_of(each, sighting).name
        if len(self.ledger.held) < held_before:
            self._requests.decide_now()  # an eviction is a decision point
        self._drain(
            [each for each in self.ledger.held if each.id in returned and not each.is_leaving],
            "it was not listed for a while, and others may be in its place",
            now,
        )
        if names := foreign(self.ledger, listing):
            self._warnings.warn("foreign", f"listed, but not of this run, and left alone: {', '.join(names)}", now)
        if names := unrequested(self.ledger, listing):
            self._release([each for each in self.ledger.held if each.id in names], "nobody waits for it", now)
            if unknown := [name for name in names if name not in self.ledger.instances]:
                self._parts.note(f"{', '.join(unknown)}: of this run, but not in its journal; released")
                self._call_release(unknown, now)
        return listing

    def _report_end(self, entry: journal.InstanceEnded, now: float) -> None:
        instance = self.ledger.instances[entry.instance]
        cause = "released" if instance.is_leaving else "it ended by itself"
        text = f"{instance.host or entry.instance}: {'taken by the provider' if entry.end == 'interrupted' else cause}"
        if (wait_s := entry.penalised_until_s - now) > 0:
            when = "before it worked in the job" if instance.host is None else "soon after its grant"
            text += f", {when}; nothing is requested in {instance.market} for {wait_s / 60:.0f} min"
        self._parts.note(text)

    def _protect_budget(self, now: float) -> None:
        """Release what the budget may not suffice for, by the end of its lease and at the highest price.

        As few as are enough, so early that they have ended before it can be exceeded; what is nearest to another hour
        goes first. Where it can be exceeded nevertheless, everything goes. What a release saves nothing of stays.
        """
        budget, lease_end, until = self._limits.budget, now + self._timing.lease_s, now + self._timing.commitment_s
        staying = [each for each in self.ledger.held if not each.is_leaving]
        staying.sort(key=lambda each: HOUR_S - (now - each.since_s) % HOUR_S)
        worst = self._worst_cost(now, until)
        worst -= sum(self._saved(each, now, until) for each in self.ledger.held if each.is_leaving)
        excess, members = worst - budget, []
        for each in staying:
            if worst > budget and (saved := self._saved(each, now, until)) > 0:
                worst -= saved
                members.append(each)
        if (at_lease_end := self._worst_cost(now, lease_end)) > budget:
            excess = at_lease_end - budget
            members = [each for each in staying if self._saved(each, now, lease_end) > 0]
        if members:
            self._drain(members, f"the budget, {budget:g}, could be exceeded by {significant(excess, 2)}", now)

    def _worst_cost(self, now: float, until: float) -> float:
        return worst_cost(self.ledger, now, until, self._prices.complete_until())

    def _saved(self, each: RentedInstance, now: float, until: float) -> float:
        return saved_by_release(self.ledger, each, now, until, self._prices.complete_until())

    def _end_hours(self, now: float) -> None:
        """Decide on what is in the last moments of its billing hour. After it the hour is paid and used."""
        tokens = dict.fromkeys(each.token for each in self.ledger.held if not each.is_leaving)
        for token in tokens:
            members = [each for each in self.ledger.held if each.token == token and not each.is_leaving]
            remaining = HOUR_S - (now - members[0].since_s) % HOUR_S
            if now <= members[0].since_s or remaining > self._timing.renewal_lead_s:
                continue
            if reason := self._parts.brain.reason_to_end(self.ledger, token, self._prices.quotes(now), now):
                self._drain(members, reason, now)

    def _drain(self, members: Sequence[RentedInstance], reason: str, now: float, penalty_until: float = 0.0) -> None:
        for each in members:
            self._add(journal.InstanceDraining(now, each.id, reason, penalty_until))
            self._parts.note(f"{each.host or each.id}: to be released: {reason}")
        if names := [host for each in members if (host := self._host_in_job(each)) is not None]:
            self._parts.job.evict(names, self._timing.drain_s)

    def _host_in_job(self, instance: RentedInstance) -> str | None:
        """Return the host that an instance is in the job, also before the journal has that it joined."""
        name = self._host_names.get(instance.id)
        return instance.host or (name if name in self._job_hosts else None)

    def _finish_draining(self, view: JobView | None, now: float) -> None:
        """Release what the job has moved away from, or what it has had its time for."""
        due = []
        for each in self.ledger.held:
            if each.released_at_s is not None or each.draining_since_s is None:
                continue
            host = self._host_in_job(each)
            in_job = host is not None and (view is None or host in view.hosts)
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
                self._warnings.warn("release", f"{', '.join(ids)}: not released yet, tried again: {error}", now)

    def _track_hosts(self, view: JobView | None, is_listed: bool, now: float) -> None:
        """Note which instances work in the job; give up those that do not within their time, which does not pass while
        the job does not answer, nothing is listed, or this driver does not run."""
        elapsed, self._tracked_at = now - (self._tracked_at or now), now
        is_ready = view is not None and view.is_ready
        if not is_ready or not is_listed or elapsed > self._timing.start_s / 2:
            self._absent_since = {name: since + elapsed for name, since in self._absent_since.items()}
        if view is None or not is_ready:
            return
        for each in self.ledger.held:
            host = each.host or self._host_names.get(each.id)
            if host in view.hosts:
                self._absent_since.pop(each.id, None)
                if each.host is None and host is not None:
                    self._add(journal.InstanceJoined(now, each.id, host))
                    self._parts.note(f"{host}: works")
            elif not each.is_leaving:
                since = self._absent_since.setdefault(each.id, now)
                if now - since > self._timing.start_s:
                    reason = f"it does not work in the job after {self._timing.start_s:.0f} s"
                    self._drain([each], reason, now, now + self._timing.penalty_s)

    def _renew_leases(self, now: float) -> None:
        """Renew leases that a tenth has run out of. What is leaving keeps the lease that it has, and so does everything
        while the job has not answered for as long as a lease."""
        if self._job_answered_at is not None and now - self._job_answered_at > self._timing.lease_s:
            self._warnings.warn(
                "lease", "the job does not answer: leases are not renewed, and instances end with them", now
            )
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
                self._warnings.warn("lease", f"leases are not renewed: {error}", now)

    def _remove_ended(self, view: JobView, now: float) -> None:
        """Have the job move away from hosts whose instances have ended: it may not see that, as where
        a machine runs on. They are asked for again while they stay."""
        held = {self._host_in_job(each) for each in self.ledger.held}
        ended = {self._host_in_job(each) for each in self.ledger.instances.values() if not each.is_held}
        names = [
            host
            for host in sorted(view.hosts & ended - held)
            if now - self._removed_at.get(host, -math.inf) >= 2 * self._timing.drain_s
        ]
        if names:
            self._removed_at |= dict.fromkeys(names, now)
            self._parts.note(f"{', '.join(names)}: removed from the job, for the instance has ended")
            self._parts.job.evict(names, self._timing.drain_s)

    def _join(self, view: JobView, listing: Sequence[ListedInstance], now: float) -> None:
        """Add instances that have an address, and are not in the job, every poll until they are. What has worked and is
        gone from the job may have had a notice of its end: it is added again when that has passed."""
        listed = {each.id: each for each in listing}
        hosts = []
        for each in self.ledger.held:
            entry = listed.get(each.id)
            if each.is_leaving or entry is None or entry.end is not None or not (entry.address or entry.host):
                continue
            if each.host is not None and now - self._absent_since.get(each.id, now) < self._timing.notice_s:
                continue
            price = self.ledger.price_at(each.market, each.since_s)
            host = replace(self._parts.host_of(each, entry), price=price)
            if host.name not in view.hosts and now - self._added_at.get(each.id, -math.inf) >= self._timing.drain_s:
                self._added_at[each.id] = now
                hosts.append(host)
        if hosts and view.is_ready:
            self._parts.job.add(hosts)


def run_driver(driver: Driver, pause: Callable[[], None], after_step: Callable[[], None] = lambda: None) -> None:
    """Step until the job is over and nothing is held.

    :raises PlinkError: when the journal cannot be written.
    """
    while not driver.step():
        after_step()
        pause()
