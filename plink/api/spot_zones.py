"""Compare where to hold instances when histories say how many a zone had, and nothing of prices."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from plink.api.spot import DEFAULT_BUCKET, application_from
from plink.errors import InputError, NoAnswer, UsageError
from plink.model.spot.availability import AvailabilityTrace
from plink.model.spot.market_file import InstanceType, MarketFile
from plink.model.spot.prices import HOUR_S, Market
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
    begin, gap_s, samples = _common([trace for zones in by_type.values() for trace in zones.values()])
    end = begin + samples * gap_s
    split = begin + TRAIN_SHARE * (end - begin) if train_until is None else train_until
    training = round((split - begin) / gap_s)
    if not 0 < training < samples:
        raise UsageError(f"--train-until: the histories are from {_utc(begin)} to {_utc(end)} UTC; give a time between")
    application = application_from(market_file.changes)
    job = ZoneJob(market_file.reference.count, application, BILLINGS[market_file.billing])
    total = sum(len(zones) + 2 for zones in by_type.values())
    results: list[ZonesResult] = []
    for name, zones in by_type.items():
        cut = [_from(trace, begin, samples) for trace in zones.values()]
        before = [replace(trace, counts=trace.counts[:training]) for trace in cut]
        after = [replace(trace, counts=trace.counts[training:]) for trace in cut]
        kind = next(each for each in market_file.types if each.name == name)
        for strategy, zone, policy in _policies(job, list(zones), before, kind):
            results.append(ZonesResult(name, strategy, zone, simulate_zones(after, job, policy, seed)))
            progress(len(results), total)
    hours = (samples - training) * gap_s / HOUR_S
    return ZonesSimulation(job.nodes, hours, begin + training * gap_s, tuple(results))


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


def _common(traces: list[AvailabilityTrace]) -> tuple[float, float, int]:
    """Return from when on all histories say something, the seconds between samples, and how many samples there are."""
    gaps = sorted({trace.gap_s for trace in traces})
    if len(gaps) > 1:
        raise InputError("availability histories", f"sampled every {gaps[0]:g} s and every {gaps[-1]:g} s; give one")
    begin = max(trace.start for trace in traces)
    samples = min(len(trace.counts) - _sample_at(trace, begin) for trace in traces)
    if samples < 2:
        raise NoAnswer("no time that all availability histories cover")
    return begin, gaps[0], samples


def _sample_at(trace: AvailabilityTrace, time: float) -> int:
    """Return the sample that is valid at a time; histories may be sampled at different times of a gap."""
    return math.floor((time - trace.start) / trace.gap_s + 1e-9)


def _from(trace: AvailabilityTrace, begin: float, samples: int) -> AvailabilityTrace:
    first = _sample_at(trace, begin)
    return AvailabilityTrace(trace.gap_s, trace.counts[first : first + samples], begin)


def _utc(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")
