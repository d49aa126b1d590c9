"""Bring a journal in line with what the provider lists: after each listing, and so after a crash.

A driver that ended between a request and its answer left an open request. It is never sent again: what the provider
lists under its token was granted, and when not all of it is listed for long enough it is abandoned. Whatever appears
under the token of a closed request is released. A listing may lack an instance that exists: it has ended when listings
lack it for long enough, and what is listed again after that is held again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from plink.model.spot import journal
from plink.model.spot.prices import Market
from solvers.spot.ledger import Ledger, RentedInstance


class Listed(Protocol):
    """An instance as its provider lists it."""

    @property
    def id(self) -> str: ...
    @property
    def token(self) -> str: ...
    @property
    def run(self) -> str | None: ...
    @property
    def since_s(self) -> float: ...
    @property
    def until_s(self) -> float | None: ...
    @property
    def end(self) -> journal.InstanceEnd | None: ...


@dataclass(frozen=True)
class DriverTiming:
    """Times of a driver, seconds on the provider's clock.

    ``poll_s``: between two steps; ``price_s``: between two requests for prices; ``decision_s``: between two decisions
    to acquire; ``request_timeout_s``: in which a request is answered, if ever; ``listing_delay_s``: after which an
    instance that exists is certainly listed; ``start_s``: for an instance to work in the job; ``drain_s``: for the job
    to move away from an instance; ``notice_s``: the longest from a provider's notice to the end of an instance;
    ``renewal_lead_s``: before an hour ends it is decided whether another begins;
    ``lease_s``: after which an instance ends by itself without a driver; ``penalty_s``: for which a market is left out
    after a failure; ``clock_tolerance_s``: by which the wall clock may be wrong; ``doubt_s``: for which listings go on
    after the job's end while a request may have been granted unseen, where no lease would end that.
    """

    poll_s: float = 15.0
    price_s: float = 60.0
    decision_s: float = 120.0
    request_timeout_s: float = 120.0
    listing_delay_s: float = 120.0
    start_s: float = 600.0
    drain_s: float = 60.0
    notice_s: float = 150.0
    renewal_lead_s: float = 120.0
    lease_s: float = 1800.0
    penalty_s: float = 900.0
    clock_tolerance_s: float = 60.0
    doubt_s: float = 0.0

    @property
    def commitment_s(self) -> float:
        """For how long the budget is to suffice for what is held: its lease, and before it the time in which a release
        is seen to have ended an instance."""
        return self.lease_s + self.drain_s + self.listing_delay_s

    def penalty_after_part_s(self, market: Market) -> float:
        """Return for how long a market is left out that granted a part only, or gave no answer: of on-demand machines
        the rest may be there soon, and a deadline cannot wait long for it."""
        return self.decision_s if market.is_on_demand else self.penalty_s


@dataclass
class Sightings:
    """What a driver saw since it began; without it only more time passes.

    ``absent_since``: the first of the listings in a row that lack an instance; ``answered_at``: when the call of a
    request returned, by token; ``released``: instances whose release the provider accepted.
    """

    absent_since: dict[str, float] = field(default_factory=dict)
    answered_at: dict[str, float] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)


def reconcile(
    ledger: Ledger, listing: Sequence[Listed], now: float, timing: DriverTiming, sightings: Sightings
) -> Iterator[journal.JournalEntry]:
    """Yield the entries that the ledger lacks, by a listing that was asked for at ``now``. Apply each before the next
    is read. An instance that had ended and is listed as held is granted again."""
    listed = {each.id: each for each in listing}
    for each in listing:
        instance = ledger.instances.get(each.id)
        is_lacking = instance is None or (each.end is None and not instance.is_held)
        if is_lacking and each.token in ledger.requests:
            yield journal.InstanceGranted(now, each.token, each.id, each.since_s)
    for request in ledger.open_requests:
        granted = sum(each.token == request.entry.token for each in ledger.instances.values())
        answered = request.entry.at + timing.request_timeout_s  # if the driver that sent it is gone
        answered = max(answered, sightings.answered_at.get(request.entry.token, 0.0))
        overdue = now - answered > timing.listing_delay_s
        if granted >= request.entry.count:
            yield journal.RequestClosed(now, request.entry.token, "granted")
        elif overdue:
            error = f"no answer, and {granted or 'no'} instances of it"
            penalised_until = now + timing.penalty_after_part_s(request.entry.market)
            yield journal.RequestClosed(now, request.entry.token, "abandoned", error, penalised_until)
    for held in ledger.held:
        entry = listed.get(held.id)
        if entry is None:
            absent_s = now - sightings.absent_since.setdefault(held.id, now)
            is_gone = held.id in sightings.released or absent_s > timing.listing_delay_s
            if is_gone and now - held.granted_at_s > timing.listing_delay_s:
                end: journal.InstanceEnd = "released" if held.released_at_s is not None else "interrupted"
                has_failed = _failed(held, sightings.absent_since[held.id], timing)
                penalised_until = now + timing.penalty_s if has_failed else 0.0
                yield _ended(held.id, end, held.released_at_s, now, penalised_until)
            continue
        sightings.absent_since.pop(held.id, None)
        if entry.end is not None:
            has_failed = _failed(held, now if entry.until_s is None else entry.until_s, timing)
            is_eviction = entry.end == "interrupted" and held.host is not None
            penalised_until = now + timing.penalty_s if has_failed and not is_eviction else 0.0
            yield _ended(held.id, entry.end, entry.until_s, now, penalised_until)


def _failed(held: RentedInstance, until_s: float, timing: DriverTiming) -> bool:
    """Return whether an instance ended unasked before it worked or soon after: another one would end like it."""
    return not held.is_leaving and (held.host is None or until_s - held.since_s < timing.start_s)


def _ended(
    name: str, end: journal.InstanceEnd, until_s: float | None, now: float, penalised_until_s: float
) -> journal.InstanceEnded:
    return journal.InstanceEnded(now, name, end, now if until_s is None else min(until_s, now), penalised_until_s)


def unrequested(ledger: Ledger, listing: Sequence[Listed]) -> list[str]:
    """Return the instances of this run that are to be released: no request of its journal explains them, or they are
    more than were granted when it was closed."""
    excess: set[str] = set()
    for token, request in ledger.requests.items():
        granted = [each.id for each in ledger.instances.values() if each.token == token]
        excess.update(granted[request.granted :])
    return [
        each.id
        for each in listing
        if each.end is None and (each.id in excess or (each.token not in ledger.requests and _is_of_run(ledger, each)))
    ]


def foreign(ledger: Ledger, listing: Sequence[Listed]) -> list[str]:
    """Return the instances that are listed but of another run: they are left alone."""
    return [
        each.id
        for each in listing
        if each.end is None and each.token not in ledger.requests and not _is_of_run(ledger, each)
    ]


def _is_of_run(ledger: Ledger, each: Listed) -> bool:
    return ledger.opened is not None and run_of(each) == ledger.opened.run


def run_of(each: Listed) -> str:
    """Return the run of an instance: by its tag, or by its token, which begins with the run."""
    return each.token.rpartition("-")[0] if each.run is None else each.run
