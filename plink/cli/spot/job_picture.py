"""What the picture of a simulated job shows."""

from plink.model.spot.prices import HOUR_S
from plink.model.units import format_duration
from plink.report.spot_job import HeldCores, MarketPath, SpotJobPath
from solvers.spot.comparing import SimulatedJob


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
