"""Bring a journal in line with what the provider lists: after each listing, and so after a crash.

A driver that ended between a request and its answer left an open request. It is never sent again: what the provider
lists under its token was granted, and when nothing is listed for long enough it is abandoned. Whatever appears later
under its token is released.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from plink.model.spot import journal
from solvers.spot.ledger import Ledger


class Listed(Protocol):
    """An instance as its provider lists it."""

    @property
    def id(self) -> str: ...
    @property
    def token(self) -> str: ...
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
    to acquire; ``listing_delay_s``: after which an instance that exists is certainly listed; ``start_s``: for an
    instance to work in the job; ``drain_s``: for the job to move away from an instance; ``renewal_lead_s``: before an
    hour ends it is decided whether another begins; ``lease_s``: after which an instance ends by itself without a
    driver; ``penalty_s``: for which a market is left out after a failure.
    """

    poll_s: float = 15.0
    price_s: float = 60.0
    decision_s: float = 120.0
    listing_delay_s: float = 120.0
    start_s: float = 600.0
    drain_s: float = 60.0
    renewal_lead_s: float = 120.0
    lease_s: float = 1800.0
    penalty_s: float = 900.0


def reconcile(
    ledger: Ledger, listing: Sequence[Listed], now: float, timing: DriverTiming
) -> Iterator[journal.JournalEntry]:
    """Yield the entries that the ledger lacks, by a listing of this moment. Apply each before the next is read."""
    listed = {each.id: each for each in listing}
    for each in listing:
        if each.id not in ledger.instances and each.token in ledger.requests:
            yield journal.InstanceGranted(now, each.token, each.id, each.since_s)
    for request in ledger.open_requests:
        granted = sum(each.token == request.entry.token for each in ledger.instances.values())
        overdue = now - request.entry.at > timing.listing_delay_s
        if granted >= request.entry.count or (granted and overdue):
            yield journal.RequestClosed(now, request.entry.token, "granted")
        elif overdue:
            yield journal.RequestClosed(now, request.entry.token, "abandoned", "no answer, and no instance of it")
    for held in ledger.held:
        entry = listed.get(held.id)
        if entry is None:
            if now - held.granted_at_s > timing.listing_delay_s:
                yield _ended(held.id, "released" if held.released_at_s is not None else "interrupted",
                             held.released_at_s, now)  # fmt: skip
        elif entry.end is not None:
            yield _ended(held.id, entry.end, entry.until_s, now)


def _ended(name: str, end: journal.InstanceEnd, until_s: float | None, now: float) -> journal.InstanceEnded:
    return journal.InstanceEnded(now, name, end, now if until_s is None else min(until_s, now))


def unrequested(ledger: Ledger, listing: Sequence[Listed]) -> list[str]:
    """Return the instances of this run that are to be released: no request of its journal explains them, or one that
    is over without any, or they are more than were requested."""
    excess: set[str] = set()
    for token, request in ledger.requests.items():
        granted = [each.id for each in ledger.instances.values() if each.token == token]
        expected = 0 if request.outcome in ("abandoned", "refused") else request.entry.count
        excess.update(granted[expected:])
    return [
        each.id for each in listing if each.end is None and (each.token not in ledger.requests or each.id in excess)
    ]
