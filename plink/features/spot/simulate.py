"""Compare strategies for transient machines on price histories."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from plink.errors import NoAnswer, UsageError
from plink.features.spot.request import BASELINE, SpotSimulationRequest
from plink.model.spot.market_file import MarketFile
from plink.model.spot.price_files import Histories
from plink.model.spot.prices import HOUR_S, Prices
from plink.model.spot.results import SimulatedStrategy, SpotSimulation
from plink.model.units import typed_hours
from solvers.spot.billing import BILLINGS
from solvers.spot.deciding import Anchors
from solvers.spot.footprint import Application, Outlook
from solvers.spot.odds import mean_hours_to_eviction
from solvers.spot.offers import anchors_of, application_of, price_offers
from solvers.spot.simulating import SimulatedMarkets, SimulationOutcome, Start, trace_job, work_of
from solvers.spot.strategies import (
    FALLBACK_SLACK_S,
    Comparison,
    Reference,
    StrategyResult,
    compare,
    draw_starts,
    fallback_of,
    strategy_for,
)

_TRAIN_SHARE = 0.6  # of the histories, where nobody says until when
_log = logging.getLogger("plink.spot")


@dataclass(frozen=True)
class SimulatedJob:
    """One job: its reliable machines ``anchors``, what else it held, and ``progress``: (seconds since 1970, share of
    its work that is done)."""

    zone: str
    strategy: str
    comparison: Comparison
    start: float
    anchors: Anchors
    outcome: SimulationOutcome
    progress: tuple[tuple[float, float], ...]


def simulate_spot(
    market_file: MarketFile,
    histories: Histories,
    request: SpotSimulationRequest | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SpotSimulation:
    """Run every strategy from the same random starts, in each zone by itself. Markets and zones whose histories are too
    short are left out, and named in the log.

    :raises UsageError: where no history is left before or after the training, or for a deadline that is too early.
    :raises NoAnswer: where all histories are too short for such jobs.
    """
    request = request or SpotSimulationRequest()
    names = [BASELINE, *(name for name in request.strategies if name != BASELINE)]
    zones, split = _zones(market_file, histories, request)
    rows: list[SimulatedStrategy] = []
    for place, (zone, comparison, starts) in enumerate(zones):

        def advance(done: int, total: int, place: int = place) -> None:
            progress(place * total + done, len(zones) * total)

        strategies = {name: strategy_for(name, comparison, request.deadline_s is not None) for name in names}
        results = compare(strategies, comparison, request.hours, starts, advance, request.deadline_s)
        rows += [_row(zone, result, results[0], request.deadline_s) for result in results]
    return SpotSimulation(
        hours=request.hours,
        starts=request.starts,
        deadline_s=request.deadline_s,
        seed=request.seed,
        train_until_s=split,
        results=tuple(rows),
    )


def _row(zone: str, result: StrategyResult, baseline: StrategyResult, deadline_s: float | None) -> SimulatedStrategy:
    return SimulatedStrategy(
        zone=zone,
        strategy=result.name,
        cost=round(result.money, 4),
        seconds=round(result.seconds, 1),
        cost_ratio=round(result.money / baseline.money, 4),
        time_ratio=round(result.seconds / baseline.seconds, 4),
        evictions=round(result.evictions, 4),
        share_on_demand=round(result.share("anchor"), 4),
        share_paid=round(result.share("paid"), 4),
        share_free=round(result.share("free"), 4),
        missed=None if deadline_s is None else result.missed(deadline_s),
        fell_back=None if deadline_s is None else round(result.fell_back, 4),
        unfinished=result.unfinished,
    )


def _zones(
    market_file: MarketFile, histories: Histories, request: SpotSimulationRequest
) -> tuple[list[tuple[str, Comparison, list[Start]]], float]:
    """Return each zone in which jobs can be simulated with its markets and the starts of jobs, and until when histories
    are known beforehand.

    :raises UsageError: and :raises NoAnswer: as :func:`simulate_spot`.
    """
    prices = market_file.select(histories.prices)
    begin, end = min(t.start for t in prices.values()), max(t.until for t in prices.values())
    split = begin + _TRAIN_SHARE * (end - begin) if request.train_until_s is None else request.train_until_s
    if not begin < split < end:
        raise UsageError("--train-until: give a time inside of the histories; `plink spot read` shows it")
    zones, errors = [], []
    for zone in sorted({market.zone for market in prices}):
        markets = {market: trace for market, trace in prices.items() if market.zone == zone}
        try:
            comparison = comparison_for(market_file, markets, split)
            starts = draw_starts(comparison.markets.traces, request.hours, request.starts, request.seed)
        except NoAnswer as error:
            errors.append(f"{zone}: {error}")
            continue
        _check_deadline(comparison, request)
        zones.append((zone, comparison, starts))
    if not zones:
        raise NoAnswer("; ".join(errors[:3]))
    for line in errors:
        _log.warning("left out: %s", line)
    return zones, split


def simulate_one_job(market_file: MarketFile, histories: Histories, request: SpotSimulationRequest) -> SimulatedJob:
    """Return the first job of the first zone by the last of the strategies.

    :raises UsageError: and :raises NoAnswer: as :func:`simulate_spot`.
    """
    (zone, comparison, starts), name = _zones(market_file, histories, request)[0][0], request.strategies[-1]
    start = starts[0]
    work = work_of(request.hours, comparison.reference.total_cores, comparison.application)
    fallback = None if name == BASELINE else fallback_of(comparison, request.deadline_s)
    strategy = strategy_for(name, comparison, fallback is not None)
    outcome, progress = trace_job(comparison.markets, strategy, comparison.application, start, work, fallback)
    shares = tuple((time, done / work) for time, done in progress)
    return SimulatedJob(zone, name, comparison, start.time, strategy.anchors, outcome, shares)


def _check_deadline(comparison: Comparison, request: SpotSimulationRequest) -> None:
    """:raises UsageError: for a deadline that the reference machines cannot meet from the start on."""
    needed_s = request.hours * HOUR_S + comparison.application.start_s + comparison.application.add_s + FALLBACK_SLACK_S
    if request.deadline_s is not None and request.deadline_s < needed_s:
        raise UsageError(
            f"--deadline {typed_hours(request.deadline_s)}: the reference machines need {needed_s / HOUR_S:.2f} h with "
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
        application or application_of(market_file),
        Reference(reference.count, reference.type.on_demand, reference.type.cores),
        anchors_of(market_file),
        market_file.limits,
        mean_hours_to_eviction([training[offer.market] for offer in offers], on_demand),
    )
