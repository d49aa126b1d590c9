"""What a driver asks: what to request now, and whether to renew what is held; and who answers by a market file."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

import numpy as np

from plink.errors import NoAnswer
from plink.model.spot.market_file import Limits, Machines, MarketFile
from plink.model.spot.price_files import MIN_HOLE_S, Histories
from plink.model.spot.prices import HOUR_S, Market, Prices, PriceTrace, on_demand_market
from solvers.spot.deadline import UNMEASURED_SHARE, Deadline, IterationTime, JobProgress, latest_start
from solvers.spot.deciding import (
    MAX_PRICE_AGE_S,
    Allocation,
    Footprint,
    OfferBook,
    Quote,
    cheaper_on_demand,
    decide,
    on_demand_offers,
    on_demand_rows,
    should_renew,
)
from solvers.spot.ledger import Ledger, first_cost, hourly_bids, worst_cost
from solvers.spot.offers import anchors_of, application_of, market_book

REFRESH_S = HOUR_S  # odds are from everything that is known, once an hour


@dataclass(frozen=True)
class RentalChoice:
    """What to request, and why; ``count`` is 0 where nothing is to be requested. ``is_urgent``: something should be,
    and cannot."""

    reason: str
    market: Market | None = None
    count: int = 0
    bid: float = 0.0
    is_urgent: bool = False


class Brain(Protocol):
    """The decisions of :mod:`solvers.spot.deciding`, by a ledger."""

    def observe(self, market: Market, since_s: float, price: float) -> None:
        """Take a change of a price."""

    def choose(self, ledger: Ledger, quotes: Mapping[Market, Quote], now: float) -> RentalChoice:
        """Return what to request now."""

    def reason_to_end(self, ledger: Ledger, token: str, quotes: Mapping[Market, Quote], now: float) -> str:
        """Return why the instances of a request are not to be renewed for another hour; empty where they are."""


class MarketBrain:
    """BidBrain for a driver. Odds are from ``histories`` and from what it observes.

    :param commitment_s: for which the budget is to suffice after the first hour of what is requested.
    :param falls_back: on-demand machines are requested while all markets are dear (:mod:`solvers.spot.deciding`).
    """

    def __init__(
        self, market_file: MarketFile, histories: Histories, commitment_s: float, falls_back: bool = False
    ) -> None:
        self._file, self._histories, self._commitment_s = market_file, histories, commitment_s
        self._falls_back = falls_back
        self._prices: Prices = market_file.select(histories.prices) if histories.prices else {}
        self._changes: dict[Market, list[tuple[float, float]]] = {}
        self._observed: set[Market] = set()  # those whose prices the provider says
        self._application = application_of(market_file)
        self._book: OfferBook | None = None
        self._book_at = 0.0
        self._reserved: Machines | None = None

    def reserve(self, machines: Machines) -> None:
        """Leave money for machines that a deadline may need on demand, in both limits."""
        self._reserved = machines

    def observe(self, market: Market, since_s: float, price: float) -> None:
        """Take a change of a price, in order."""
        if not self._file.has(market):
            return
        self._observed.add(market)
        changes = self._changes.setdefault(market, [])
        latest = changes[-1][0] if changes else self._prices[market].times[-1] if market in self._prices else -1.0
        if since_s > latest:
            changes.append((since_s, price))

    def _book_of(self, quotes: Mapping[Market, Quote], now: float) -> OfferBook:
        """Return the candidates. :raises NoAnswer: where odds cannot be had."""
        if self._book is None or now - self._book_at >= REFRESH_S:
            for market, changes in self._changes.items():
                if not changes:
                    continue
                self._prices[market] = _extended(self._prices.get(market), changes)
            self._changes = {}
            known_until = now - max((quote.age_s for quote in quotes.values()), default=np.inf)
            for market in self._observed & self._prices.keys():
                trace = self._prices[market]
                self._prices[market] = replace(trace, until=max(trace.until, known_until))
            prices = self._prices
            if not prices:
                raise NoAnswer("no prices of the types and zones of the market file yet")
            others = on_demand_offers(self._file.reference, (each.zone for each in prices)) if self._falls_back else ()
            self._book = market_book(self._file, prices, self._histories.availability, self._application, others)
            self._book_at = now
        return self._book

    def choose(self, ledger: Ledger, quotes: Mapping[Market, Quote], now: float) -> RentalChoice:
        """Return the best candidate, if it lowers the cost per work."""
        try:
            book = self._book_of(quotes, now)
        except NoAnswer as error:
            return RentalChoice(str(error))
        footprint, _ = self._footprint(ledger, book, now)
        file = self._file
        priced_until_s = now - max((quote.age_s for quote in quotes.values()), default=np.inf)
        bids = footprint.anchors.count * footprint.anchors.price
        bids += sum(each.count * each.bid for each in footprint.allocations)  # which `decide` counts by itself
        reserve = self._reserve(ledger)
        held_s = HOUR_S + self._commitment_s
        left = file.limits.budget - worst_cost(ledger, now, now + held_s, priced_until_s)
        hourly_left = left / first_cost(ledger, 1.0, held_s)  # a new instance costs its bid more than once by then
        others = hourly_bids(ledger, now) - bids + reserve
        limits = replace(
            file.limits,
            budget=hourly_left - reserve + bids,
            max_hourly=file.limits.max_hourly - others,
            max_cores=file.limits.max_cores - self._cores_outside(ledger, book),
        )
        excluded, rows = _unquoted(book, quotes), _rows(book, quotes)
        for number, offer in enumerate(book.offers):
            if ledger.penalised(offer.market, now):
                excluded.setdefault(number, "a request failed within the last minutes")
        return self._choice(footprint, book, rows, limits, now, excluded)

    def _cores_outside(self, ledger: Ledger, book: OfferBook) -> float:
        """Return the cores that are held in markets without odds, as after a restart with shorter histories."""
        offered = {offer.market for offer in book.offers}
        outside = (each.market for each in ledger.held if not (each.is_leaving or each.market.is_on_demand))
        kinds = (self._file.type_of(market) for market in outside if market not in offered)
        return sum(kind.cores for kind in kinds if kind is not None)

    def _choice(
        self,
        footprint: Footprint,
        book: OfferBook,
        rows: Sequence[Quote],
        limits: Limits,
        now: float,
        excluded: Mapping[int, str],
    ) -> RentalChoice:
        """Return what to add to a footprint."""
        if self._falls_back:
            machines = self._file.reference
            most = min(limits.max_cores, machines.count * machines.type.cores)
            certain = cheaper_on_demand(footprint, book, rows, replace(limits, max_cores=most), now, excluded)
            if certain is not None:
                reason = f"on demand, for every market costs more than {certain.cost_per_work:.4g} a core-hour"
                return RentalChoice(reason, certain.market, certain.count, certain.bid)
            excluded = {**excluded, **dict.fromkeys(on_demand_rows(book), "a market costs less, or enough is held")}
        limits = replace(limits, two_markets=self._reserved is not None)
        decision = decide(footprint, book, rows, limits, now, excluded)
        if decision.action == "wait":
            return RentalChoice(decision.reason)
        best = decision.candidates[0]
        return RentalChoice(decision.reason, best.market, best.count, best.bid)

    def _reserve(self, ledger: Ledger) -> float:
        """Return the money for an hour of what a deadline may need on demand, and that is not held yet."""
        if self._reserved is None:
            return 0.0
        held = sum(each.market.is_on_demand and not each.is_leaving for each in ledger.held)
        return max(0, self._reserved.count - held) * self._reserved.type.on_demand

    def reason_to_end(self, ledger: Ledger, token: str, quotes: Mapping[Market, Quote], now: float) -> str:
        """Return why the instances of a request are not to be renewed; empty where they are, or where their market has
        no price.

        On-demand machines are renewed while they would be requested again.
        """
        try:
            book = self._book_of(quotes, now)
        except NoAnswer:
            return ""
        footprint, tokens = self._footprint(ledger, book, now)
        if token not in tokens:
            return ""
        rows, place = _rows(book, quotes), tokens.index(token)
        market = book.offers[footprint.allocations[place].offer].market
        if market.is_on_demand:
            if all(quote.age_s > MAX_PRICE_AGE_S for quote in quotes.values()):
                return ""
            others = footprint.allocations[:place] + footprint.allocations[place + 1 :]
            limits = replace(self._file.limits, budget=math.inf, max_hourly=math.inf)
            unquoted = _unquoted(book, quotes)
            choice = self._choice(replace(footprint, allocations=others), book, rows, limits, now, unquoted)
            is_needed = choice.market is not None and choice.market.is_on_demand
            return "" if is_needed else f"on demand, and no longer needed: {choice.reason}"
        if market not in quotes:
            return ""
        prices = [row.price for row in rows]
        for each in footprint.allocations:
            if book.offers[each.offer].market not in quotes:
                prices[each.offer] = each.hour_price
        keep, cost, without = should_renew(footprint, place, book, prices, now)
        return "" if keep else f"another hour would cost {cost:.4g} a core-hour, {without:.4g} without it"

    def _footprint(self, ledger: Ledger, book: OfferBook, now: float) -> tuple[Footprint, list[str]]:
        """Return what is held and not leaving, one allocation for each request, and their tokens."""
        markets = [offer.market for offer in book.offers]
        allocations, tokens = [], []
        for token in dict.fromkeys(each.token for each in ledger.held):
            members = [each for each in ledger.held if each.token == token and not each.is_leaving]
            if not members or members[0].market not in markets:
                continue
            start = members[0].since_s
            hour = start + max(0.0, now - start) // HOUR_S * HOUR_S
            price = ledger.price_at(members[0].market, hour)
            allocations.append(
                Allocation(markets.index(members[0].market), len(members), members[0].bid, min(start, now), price)
            )
            tokens.append(token)
        return Footprint(anchors_of(self._file), tuple(allocations)), tokens


def _unquoted(book: OfferBook, quotes: Mapping[Market, Quote]) -> dict[int, str]:
    """Return the offers without a price now, and why they are left out."""
    return {
        number: "the provider gave no price of it"
        for number, offer in enumerate(book.offers)
        if offer.market not in quotes and not offer.market.is_on_demand
    }


def _rows(book: OfferBook, quotes: Mapping[Market, Quote]) -> list[Quote]:
    """Return the price of each offer: on-demand prices are those of the market file, others that are missing stand in
    as endlessly old."""
    return [
        quotes.get(offer.market) or Quote(offer.on_demand, 0.0 if offer.market.is_on_demand else math.inf)
        for offer in book.offers
    ]


def _extended(trace: PriceTrace | None, changes: list[tuple[float, float]]) -> PriceTrace:
    """Return a history with what was observed after it; a long time between the two is a hole."""
    times, prices = (np.array(column, dtype=float) for column in zip(*changes, strict=True))
    if trace is None:
        return PriceTrace(times, prices, float(times[-1]))
    first = float(times[0])
    gap = ((trace.until, first),) if first - trace.until >= MIN_HOLE_S else ()
    return PriceTrace(
        np.concatenate([trace.times, times]),
        np.concatenate([trace.prices, prices]),
        max(trace.until, float(times[-1])),
        trace.holes + gap,
    )


@dataclass(frozen=True)
class HostCores:
    """The cores of the hosts of a job, which are not its workers: a host may have one worker on all of its cores.

    ``by_type``: of rented machines; ``reliable``: of each host that is not rented, None where nothing says it.
    """

    by_type: Mapping[str, float]
    reliable: float | None

    def total(self, ledger: Ledger, hosts: Collection[str]) -> float | None:
        """Return the cores of these hosts, None where those of one are unknown."""
        types = {each.host: each.market.type for each in ledger.instances.values()}
        cores = [self.by_type.get(types[host]) if host in types else self.reliable for host in hosts]
        return None if None in cores else sum(each for each in cores if each is not None)


@dataclass
class OnDemandFallback:
    """The fallback of one run. ``machines``: which and how many; ``zones``: where, or empty: wherever there are prices;
    ``start_s``: from a request until they work; ``slack_s``: by which it begins earlier than it has to; ``note``: gets
    a line when the deadline cannot be met, or nothing says what is left to do;
    ``host_cores``: None where the job counts cores itself."""

    deadline: Deadline
    machines: Machines
    zones: tuple[str, ...]
    iteration: IterationTime
    start_s: float
    slack_s: float
    note: Callable[[str], None] = lambda text: None
    host_cores: HostCores | None = None
    _done: int = 0
    _is_late: bool = False
    _is_unmeasured: bool = False
    _counts_workers: bool = False

    def observe(self, progress: JobProgress, ledger: Ledger) -> None:
        """Take how the job stands. A controller that has just taken over knows of no iteration; then the last count
        stands."""
        self._done = max(self._done, progress.iterations) if progress.iterations <= 0 else progress.iterations
        if self.host_cores is not None and progress.hosts:
            cores = self.host_cores.total(ledger, progress.hosts)
            if cores is not None:
                progress = replace(progress, cores=cores)
            elif not self._counts_workers:
                self._counts_workers = True
                self.note(
                    "the market file has no [anchors], so the cores of the reliable hosts are unknown: the deadline "
                    "takes each worker (slots) for a core, and may be missed where a worker has several"
                )
        self.iteration.observe(progress)

    def choose(self, ledger: Ledger, zones: Collection[str], now: float) -> RentalChoice:
        """Return what to request now; a count of 0 where the deadline asks for nothing.

        :param zones: those that the provider has prices of.
        """
        machines = self.machines
        held = sum(each.market.is_on_demand and not each.is_leaving for each in ledger.held)
        missing = machines.count - held
        if self._done >= self.deadline.iterations:
            return RentalChoice("all iterations are done")
        if missing <= 0:
            return RentalChoice("all of the fallback is held")
        has_begun = any(
            each.entry.is_for_deadline and each.outcome is not None and each.granted > 0
            for each in ledger.requests.values()
        )
        if not has_begun and not self._is_due(now):
            return RentalChoice("the deadline does not ask for it yet")
        markets = [on_demand_market(zone, machines.type.name) for zone in self.zones or sorted(zones)]
        market = next((each for each in markets if not ledger.penalised(each, now)), None)
        if market is None:
            return RentalChoice("deadline: no zone grants on-demand machines now", is_urgent=True)
        when = datetime.fromtimestamp(self.deadline.at_s, UTC).strftime("%Y-%m-%d %H:%M")
        return RentalChoice(
            f"on demand, for the deadline, {when} UTC ({self._done} of {self.deadline.iterations} iterations)",
            market,
            missing,
            machines.type.on_demand,
        )

    def _is_due(self, now: float) -> bool:
        iteration_s = self.iteration.seconds(self.machines.count * self.machines.type.cores)
        late_s = now - latest_start(self.deadline, self._done, iteration_s, self.start_s + self.slack_s)
        if iteration_s is None:
            if late_s >= 0 and not self._is_unmeasured:
                self._is_unmeasured = True
                self.note(
                    f"no iteration has been measured in {UNMEASURED_SHARE:.0%} of the time to the deadline, so what is "
                    "left is unknown: the reference machines are requested on demand (iteration_s in the market file "
                    "says what iterations take)"
                )
        elif late_s > self.slack_s and not self._is_late:
            self._is_late = True
            self.note(f"the deadline will be missed by {(late_s - self.slack_s) / 60:.0f} min or more, on demand, too")
        return late_s >= 0
