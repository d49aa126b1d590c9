"""Lines and tables of what `plink spot` finds out."""

from collections.abc import Iterator

from plink.model.document import UNSET
from plink.model.spot.results import SimulatedStrategy, SpotAdvice, SpotMarkets, SpotOdds, SpotSimulation
from plink.model.units import format_duration, format_moment
from plink.terminal.screen import print_lines, show_table


def show_markets(document: SpotMarkets) -> None:
    """Print what is in histories."""
    rows = []
    for row in document.markets:
        hours = (row.until_s - row.from_s - sum(b - a for a, b in row.holes_s)) / 3600
        ratio = "" if row.on_demand is None else f"{row.mean / row.on_demand:.3f}"
        above = "" if row.share_above_on_demand is None else f"{row.share_above_on_demand:.2%}"
        rows.append(
            (
                *(row.type, row.zone, row.product, format_moment(row.from_s), format_moment(row.until_s)),
                *(len(row.holes_s), f"{row.changes / max(hours, 1e-9):.2f}", f"{row.median:g}", f"{row.mean:.4g}"),
                *(f"{row.highest:g}", ratio, above),
            )
        )
    if rows:
        columns = "type,zone,product,from (UTC),until,holes,changes/h,median,mean,highest,mean/on-demand,above it"
        show_table(columns.split(","), rows)
    samples = [
        (
            *(row.type, row.zone, f"{row.hours:.1f}", f"{row.available:.1%}", row.spells),
            "" if row.median_spell_hours is UNSET else f"{row.median_spell_hours:.2f}",
        )
        for row in document.availability
    ]
    if samples:
        show_table(("type", "zone", "hours", "available", "spells", "median spell, h"), samples)


def show_odds(document: SpotOdds) -> None:
    """Print the odds of evictions."""
    rows = [
        (
            *(row.type, row.zone, f"{bid.delta:.4f}"),
            *(f"{bid.beta_15min:.3f}", f"{bid.beta_30min:.3f}", f"{bid.beta_60min:.3f}"),
            "" if bid.median_s is None else format_duration(bid.median_s),
        )
        for row in document.markets
        for bid in row.bids
    ]
    if rows:
        show_table(("type", "zone", "above price", "15 min", "30 min", "60 min", "median"), rows)
    for row in document.markets:
        if not row.bids:
            print_lines(f"{row.type} in {row.zone}: {row.hours:.1f} h of prices are too few for odds")
    rates = [
        (row.type, row.zone, f"{row.per_hour:.4f}", f"{row.interruptions:.0f}", f"{row.instance_hours:,.0f}")
        for row in document.rates
    ]
    if rates:
        show_table(("type", "zone", "evictions/h", "seen", "in instance-hours"), rates)


def show_advice(document: SpotAdvice) -> None:
    """Print a decision."""
    print_lines(f"{format_moment(document.at_s)} UTC: {_cost(document.cost_per_work, 'nothing works yet')}")
    print_lines(f"{document.action}: {document.reason}")
    for held in document.held:
        verb = "renew" if held.renew else "end"
        costs = f"{_cost(held.cost_if_kept, 'no work')} if kept, {_cost(held.cost_if_ended, 'no work')} if ended"
        print_lines(f"{verb} {held.count} x {held.type} in {held.zone}: {costs}")
    print_lines(*(f"left out: {line}" for line in document.refused))
    rows = [
        (
            *(row.type, row.zone, row.count, f"{row.bid:.4f}", f"{row.price:.4f}", f"{row.eviction:.3f}"),
            "" if row.evicted_after_s is None else format_duration(row.evicted_after_s),
            *(f"{row.added_cost:.3f}", f"{row.added_work:.1f}", f"{row.cost_per_work:.5f}"),
        )
        for row in document.candidates
    ]
    if rows:
        columns = "type,zone,count,bid,price,eviction,after,adds cost,adds core-hours,cost/core-hour"
        show_table(columns.split(","), rows)


def _cost(cost_per_work: float | None, none: str) -> str:
    return none if cost_per_work is None else f"{cost_per_work:.4g} a core-hour"


def show_simulation(document: SpotSimulation) -> None:
    """Print how strategies compare."""
    train = format_moment(document.train_until_s)
    print_lines(f"{document.starts} jobs of {document.hours:g} h in each zone; odds from before {train} UTC")
    columns = ["zone", "strategy", "cost", "time", "cost/on-demand", "time/on-demand", "evictions", "free"]
    columns.append("unfinished")
    if document.deadline_s is not None:
        print_lines(f"deadline: {format_duration(document.deadline_s)} after each start")
        columns += ["missed", "fell back"]
    show_table(columns, [tuple(_cells(row)) for row in document.results])


def _cells(row: SimulatedStrategy) -> Iterator[str]:
    yield from (row.zone, row.strategy, f"{row.cost:.2f}", format_duration(row.seconds))
    yield from (f"{row.cost_ratio:.3f}", f"{row.time_ratio:.3f}", f"{row.evictions:.2f}", f"{row.share_free:.1%}")
    yield str(row.unfinished or "")
    if row.missed is not None:
        yield from (str(row.missed), f"{row.fell_back:.0%}")
