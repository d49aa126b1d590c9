"""Compare strategies for transient machines on price histories."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plink.api.spot import anchors_of, application_from, price_offers
from plink.errors import NoAnswer, UsageError
from plink.model.spot.market_file import MarketFile
from plink.model.spot.prices import HOUR_S, Prices
from plink.model.units import format_duration
from plink.report.spot_job import HeldCores, MarketPath, SpotJobPath
from solvers.spot.billing import BILLINGS
from solvers.spot.comparing import (
    FALLBACK_SLACK_S,
    ROOM,
    SimulatedJob,
    StrategyResult,
    compare,
    draw_starts,
    fallback_of,
)
from solvers.spot.footprint import Outlook
from solvers.spot.odds import mean_hours_to_eviction
from solvers.spot.scaling import Application
from solvers.spot.simulating import SimulatedMarkets, Start, trace_job, work_of
from solvers.spot.strategies import NAMES, Comparison, Reference, strategy_for

BASELINE = "on-demand"
DEFAULT_STRATEGIES = (BASELINE, "young-checkpoint", "standard-agile", "bidbrain-replacing")
TRAIN_SHARE = 0.6  # of the histories, where nobody says until when
_log = logging.getLogger("plink.spot")


@dataclass(frozen=True)
class SimulationRequest:
    """``hours`` of a job on the reference machines; ``starts`` of it in each zone, drawn by ``seed``;
    ``train_until``: odds are from before this time and jobs start after it, seconds since 1970; None: three fifths of
    the histories. ``application``: None: as the market file says. ``deadline_s``: until when each job is to be over,
    from its start; the reference machines are requested on demand when they have to be."""

    hours: float = 2.0
    starts: int = 1000
    seed: int = 0
    strategies: Sequence[str] = DEFAULT_STRATEGIES
    train_until: float | None = None
    application: Application | None = None
    deadline_s: float | None = None

    def check(self) -> None:
        """:raises UsageError: for what cannot be simulated."""
        if not 0 < self.hours <= 1000:
            raise UsageError(f"--hours {self.hours:g}: give more than 0 and at most 1000")
        if self.starts < 1:
            raise UsageError(f"--starts {self.starts}: give at least 1")
        for name in self.strategies:
            if name not in NAMES:
                raise UsageError(f"--strategies {name}: choose some of {', '.join(NAMES)}, or all")
        if self.deadline_s is not None and not 0 < self.deadline_s <= ROOM * self.hours * HOUR_S:
            raise UsageError(
                f"--deadline {self.deadline_s / HOUR_S:g}h: give a time above 0, at most {ROOM:g} times --hours"
            )


@dataclass(frozen=True)
class ZoneResult:
    """How jobs went in one zone, by strategy, that on demand first."""

    zone: str
    results: tuple[StrategyResult, ...]

    @property
    def baseline(self) -> StrategyResult:
        """On demand."""
        return self.results[0]


@dataclass(frozen=True)
class SpotSimulation:
    """All zones. ``train_until``: odds are from before that time."""

    train_until: float
    zones: tuple[ZoneResult, ...]


def simulate_spot(
    market_file: MarketFile,
    prices: Prices,
    request: SimulationRequest | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SpotSimulation:
    """Run every strategy from the same random starts, in each zone by itself. Markets and zones whose histories are too
    short are left out, and named in the log.

    :raises UsageError: for a strategy that there is none of, or where no history is left before or after the training.
    :raises NoAnswer: where all histories are too short for such jobs.
    """
    request = request or SimulationRequest()
    histories, split = _split(market_file, prices, request)
    names = [BASELINE, *(name for name in request.strategies if name != BASELINE)]
    zones = _zones(market_file, histories, split, request)
    results = []
    for place, (zone, comparison, starts) in enumerate(zones):

        def advance(done: int, total: int, place: int = place) -> None:
            progress(place * total + done, len(zones) * total)

        _check_deadline(comparison, request)
        strategies = {name: strategy_for(name, comparison, request.deadline_s is not None) for name in names}
        rows = compare(strategies, comparison, request.hours, starts, advance, request.deadline_s)
        results.append(ZoneResult(zone, tuple(rows)))
    return SpotSimulation(split, tuple(results))


def _zones(
    market_file: MarketFile, histories: Prices, split: float, request: SimulationRequest
) -> list[tuple[str, Comparison, list[Start]]]:
    """Return each zone in which jobs can be simulated, with its markets and the starts of jobs.

    :raises NoAnswer: where there is none.
    """
    zones, errors = [], []
    for zone in sorted({market.zone for market in histories}):
        markets = {market: trace for market, trace in histories.items() if market.zone == zone}
        try:
            comparison = comparison_for(market_file, markets, split, request.application)
            starts = draw_starts(comparison.markets.traces, request.hours, request.starts, request.seed)
            zones.append((zone, comparison, starts))
        except NoAnswer as error:
            errors.append(f"{zone}: {error}")
    if not zones:
        raise NoAnswer("; ".join(errors[:3]))
    for line in errors:
        _log.warning("left out: %s", line)
    return zones


def _split(market_file: MarketFile, prices: Prices, request: SimulationRequest) -> tuple[Prices, float]:
    """Return the histories of the file's markets, and until when they are known beforehand."""
    request.check()
    histories = market_file.select(prices)
    begin, end = min(t.start for t in histories.values()), max(t.until for t in histories.values())
    split = begin + TRAIN_SHARE * (end - begin) if request.train_until is None else request.train_until
    if not begin < split < end:
        raise UsageError("--train-until: give a time inside of the histories; `plink spot read` shows it")
    return histories, split


def simulate_one_job(market_file: MarketFile, prices: Prices, request: SimulationRequest) -> SimulatedJob:
    """Return the first job of the first zone by the last of the strategies.

    :raises UsageError: and :raises NoAnswer: as :func:`simulate_spot`.
    """
    histories, split = _split(market_file, prices, request)
    (zone, comparison, starts), name = _zones(market_file, histories, split, request)[0], request.strategies[-1]
    start = starts[0]
    _check_deadline(comparison, request)
    work = work_of(request.hours, comparison.reference.total_cores, comparison.application)
    fallback = None if name == BASELINE else fallback_of(comparison, request.deadline_s)
    strategy = strategy_for(name, comparison, fallback is not None)
    outcome, progress = trace_job(comparison.markets, strategy, comparison.application, start, work, fallback)
    shares = tuple((time, done / work) for time, done in progress)
    return SimulatedJob(zone, name, comparison, start.time, strategy.anchors, outcome, shares)


def _check_deadline(comparison: Comparison, request: SimulationRequest) -> None:
    """:raises UsageError: for a deadline that the reference machines cannot meet from the start on."""
    needed_s = request.hours * HOUR_S + comparison.application.start_s + comparison.application.add_s + FALLBACK_SLACK_S
    if request.deadline_s is not None and request.deadline_s < needed_s:
        raise UsageError(
            f"--deadline {request.deadline_s / HOUR_S:g}h: the reference machines need {needed_s / HOUR_S:.2f} h with "
            "their start"
        )


def comparison_for(
    market_file: MarketFile, markets: Prices, split: float, application: Application | None = None
) -> Comparison:
    """Return what the strategies of a comparison have in common: odds from before ``split``, markets after it.

    Markets without prices on both sides are left out, and named in the log.

    :raises NoAnswer: when all are.
    """
    left_out = []
    training: Prices = {}
    testing: Prices = {}
    for market, trace in markets.items():
        before, after = trace.between(trace.start, split), trace.between(split, trace.until)
        if before is None or after is None:
            side = "before" if before is None else "after"
            left_out.append(f"{market}: no prices {side} --train-until")
            continue
        training[market], testing[market] = before, after
    if not training:
        raise NoAnswer("; ".join(left_out[:3]) + "; give another time")
    for line in left_out:
        _log.warning("left out: %s", line)
    offers = price_offers(market_file, training)
    billing = BILLINGS[market_file.billing]
    cores, on_demand = tuple(o.cores for o in offers), tuple(o.on_demand for o in offers)
    reference = market_file.reference
    return Comparison(
        SimulatedMarkets(tuple(testing[offer.market] for offer in offers), cores, on_demand, billing),
        offers,
        Outlook(billing),
        application or application_from(market_file.changes),
        Reference(reference.count, reference.type.on_demand, reference.type.cores),
        anchors_of(market_file, 0.0),
        market_file.limits,
        mean_hours_to_eviction([training[offer.market] for offer in offers], on_demand),
    )


def markets_without_prices(market_file: MarketFile, prices: Prices) -> list[str]:
    """Return the types of a market file of which no prices are there."""
    present = {market.type for market in prices}
    return [kind.name for kind in market_file.types if kind.name not in present]


def path_of(job: SimulatedJob) -> SpotJobPath:
    """Return a job's prices, allocations and work, in hours since its start."""
    markets, outcome = job.comparison.markets, job.outcome

    def hours(time: float) -> float:
        return (time - job.start) / HOUR_S

    paths = []
    for number, (trace, offer) in enumerate(zip(markets.traces, job.comparison.offers, strict=True)):
        inside = (trace.times > job.start) & (trace.times < job.start + outcome.seconds)
        changes = zip(trace.times[inside].tolist(), trace.prices[inside].tolist(), strict=True)
        steps = [(0.0, trace.price_at(job.start)), *((hours(time), price) for time, price in changes)]
        held = tuple(
            HeldCores(
                hours(each.stay.start), hours(each.stay.until), each.bid, each.stay.count * markets.cores[number],
                each.stay.end == "interrupted",
            )
            for each in outcome.stays if each.market == number
        )  # fmt: skip
        paths.append(MarketPath(offer.market.type, offer.on_demand, tuple(steps), held))
    heading = (
        f"{job.strategy} in {job.zone}: {format_duration(outcome.seconds)}, cost {outcome.money:.2f}, "
        f"allocations evicted: {outcome.evictions}"
    )
    if not outcome.finished:
        heading += ", not finished when prices ended"
    hours_of_job = outcome.seconds / HOUR_S
    reliable = [HeldCores(0.0, hours_of_job, job.anchors.price, job.anchors.count * job.anchors.cores, False)]
    if outcome.fell_back_at is not None:
        reference = job.comparison.reference
        begin = hours(outcome.fell_back_at)
        reliable.append(HeldCores(begin, hours_of_job, reference.price, reference.total_cores, False))
    progress = tuple((hours(time), share) for time, share in job.progress)
    return SpotJobPath(heading, hours_of_job, tuple(paths), tuple(reliable), progress)
