"""Compare where to hold instances when histories say how many a zone had, and nothing of prices."""

from collections.abc import Callable
from dataclasses import dataclass

from plink.api.spot import DEFAULT_BUCKET, application_from
from plink.errors import InputError, NoAnswer, UsageError
from plink.model.spot.availability import AvailabilityTrace
from plink.model.spot.market_file import InstanceType, MarketFile
from plink.model.spot.prices import Market
from solvers.spot.billing import BILLINGS
from solvers.spot.hazard import advisor_rate, prior
from solvers.spot.zones import (
    NextZone,
    OneZone,
    ZoneBidBrain,
    ZoneJob,
    ZoneOutcome,
    ZonePolicy,
    ZoneRecord,
    simulate_zones,
)

TRAIN_SHARE = 0.3  # of the histories, where nobody says until when


@dataclass(frozen=True)
class ZonesResult:
    """How one strategy went. ``zone``: the only one that it uses; empty where it uses all."""

    type: str
    strategy: str
    zone: str
    outcome: ZoneOutcome


@dataclass(frozen=True)
class ZonesSimulation:
    """``nodes``: how many instances were wanted; ``hours``: simulated, after ``train_until``."""

    nodes: int
    hours: float
    train_until: float
    results: tuple[ZonesResult, ...]


def compare_zones(
    market_file: MarketFile,
    availability: dict[Market, AvailabilityTrace],
    train_until: float | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ZonesSimulation:
    """Hold the reference's number of instances: in each zone alone, in the next zone after each interruption, and by
    expected cost per work over all zones.

    :param train_until: BidBrain knows the histories before this time, and all are simulated after it; seconds.
    :raises InputError: for histories of other types than the market file's, or sampled differently.
    :raises NoAnswer: where no time is covered by all of them.
    """
    by_type: dict[str, dict[str, AvailabilityTrace]] = {}
    for market, trace in sorted(availability.items()):
        if market_file.type_of(market) is not None and (not market_file.zones or market.zone in market_file.zones):
            by_type.setdefault(market.type, {})[market.zone] = trace
    if not by_type:
        raise InputError(market_file.path, "the histories have no market of its types and zones")
    begin, end, gap_s = _common([trace for zones in by_type.values() for trace in zones.values()])
    split = begin + TRAIN_SHARE * (end - begin) if train_until is None else train_until
    if not begin < split < end:
        raise UsageError("--train-until: give a time inside of the histories; `plink spot read` shows it")
    application = application_from(market_file.changes)
    job = ZoneJob(market_file.reference.count, application, BILLINGS[market_file.billing])
    total = sum(len(zones) + 2 for zones in by_type.values())
    results: list[ZonesResult] = []
    for name, zones in by_type.items():
        before = [_between(trace, begin, split, gap_s) for trace in zones.values()]
        after = [_between(trace, split, end, gap_s) for trace in zones.values()]
        kind = next(each for each in market_file.types if each.name == name)
        for strategy, zone, policy in _policies(job, list(zones), before, kind):
            results.append(ZonesResult(name, strategy, zone, simulate_zones(after, job, policy, seed)))
            progress(len(results), total)
    return ZonesSimulation(job.nodes, (end - split) / 3600, split, tuple(results))


def _policies(
    job: ZoneJob, zones: list[str], before: list[AvailabilityTrace], kind: InstanceType
) -> list[tuple[str, str, ZonePolicy]]:
    bucket = DEFAULT_BUCKET if kind.advisor_bucket is None else kind.advisor_bucket
    records = [ZoneRecord.of(trace, job.nodes, prior(advisor_rate(bucket))) for trace in before]
    return [
        *(("one zone", zone, OneZone(number)) for number, zone in enumerate(zones)),
        ("next zone", "", NextZone(len(zones))),
        ("bidbrain", "", ZoneBidBrain(job, records)),
    ]


def _common(traces: list[AvailabilityTrace]) -> tuple[float, float, float]:
    """Return from when to when all histories say something, and the seconds between samples."""
    gaps = sorted({trace.gap_s for trace in traces})
    if len(gaps) > 1:
        raise InputError("availability histories", f"sampled every {gaps[0]:g} s and every {gaps[-1]:g} s; give one")
    begin, end = max(trace.start for trace in traces), min(trace.until for trace in traces)
    if end - begin < 4 * gaps[0]:
        raise NoAnswer("no time that all availability histories cover")
    return begin, end, gaps[0]


def _between(trace: AvailabilityTrace, begin: float, end: float, gap_s: float) -> AvailabilityTrace:
    first = round((begin - trace.start) / gap_s)
    return AvailabilityTrace(gap_s, trace.counts[first : first + max(1, round((end - begin) / gap_s))], begin)
