"""``plink spot odds``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.spot.inputs import OptionalMarketPath, PricePaths
from plink.errors import NoAnswer, UsageError
from plink.terminal.screen import print_json, print_lines

if TYPE_CHECKING:
    from plink.api.spot import MarketOdds

_SHOWN_DELTAS = (0.0001, 0.0012, 0.0042, 0.014, 0.048, 0.16, 0.4)


def odds(
    prices: PricePaths,
    market: OptionalMarketPath = None,
    type_: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only this instance type.")] = None,
    zone: Annotated[str | None, typer.Option(metavar="ZONE", help="Only this zone.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only prices before this (2016-06-11): what was known then.")
    ] = None,
    bucket: Annotated[
        int | None,
        typer.Option(min=0, max=4, help="Spot Instance Advisor: 0 (< 5 % a month) to 4 (> 20 %); prior of rates."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say how likely an eviction is within the hour, by how much is bid above the price.

    beta is exact: the share of all starts, with the median time to eviction of
    those evicted within the hour. Of availability histories: evictions per
    instance-hour, with a prior worth 24 hours. With MARKET: of its markets
    only, and without starts above the on-demand price.

    Example: plink spot odds --prices prices.json --zone zone-a
    """
    from plink.api.spot import market_odds, market_rates
    from plink.cli.spot.inputs import histories_from, parse_time
    from plink.model.spot.market_file import read_market_file
    from plink.model.spot.prices import Market

    def is_chosen(entry: Market) -> bool:
        return type_ in (None, entry.type) and zone in (None, entry.zone)

    limit = None if until is None else parse_time(until, "--until")
    histories = histories_from(prices)
    market_file = None if market is None else read_market_file(market)
    traces = histories.prices if market_file is None else market_file.select(histories.prices)
    traces = {entry: trace for entry, trace in traces.items() if is_chosen(entry)}
    availability = {entry: trace for entry, trace in histories.availability.items() if is_chosen(entry)}
    if not traces and not availability:
        markets = sorted({str(entry) for entry in (*histories.prices, *histories.availability)})
        raise UsageError(f"no such market; choose one of {', '.join(markets[:8])}{'...' if len(markets) > 8 else ''}")
    if limit is not None:
        traces = {
            entry: part for entry, trace in traces.items() if (part := trace.between(trace.start, limit)) is not None
        }
        if not traces:
            raise UsageError(f"--until {until}: no prices before that time")
    rows_of_odds = market_odds(traces, _SHOWN_DELTAS, market_file)
    rates = market_rates(availability, bucket)
    if not rates and not any(row.curves for row in rows_of_odds):
        raise NoAnswer("no market has two hours of prices without a hole, which odds need; give longer histories")
    document = {
        "schema": "plink.spot-odds/1",
        "markets": [_market(row) for row in rows_of_odds],
        "rates": [
            {"zone": entry.zone, "type": entry.type, "per_hour": round(rate, 6),
             "interruptions": interruptions.count, "instance_hours": round(interruptions.hours, 3)}
            for entry, interruptions, rate in rates
        ],
    }  # fmt: skip
    if as_json:
        print_json(document)
    else:
        _show(document)


def _market(row: "MarketOdds") -> dict[str, Any]:
    from plink.cli.spot.inputs import finite

    return {
        "zone": row.market.zone,
        "type": row.market.type,
        "hours": round(row.hours, 3),
        "bids": [
            {
                "delta": float(delta),
                **{f"beta_{minutes}min": round(min(1.0, curve.within(60 * minutes)), 6) for minutes in (15, 30, 60)},
                "median_s": finite(round(curve.median(3600), 1)),
            }
            for delta, curve in zip(row.deltas, row.curves, strict=False)
        ],
    }


def _show(document: dict[str, Any]) -> None:
    from plink.model.units import format_duration
    from plink.terminal.tables import show_table

    rows = [
        (row["type"], row["zone"], f"{bid['delta']:.4f}", f"{bid['beta_15min']:.3f}", f"{bid['beta_30min']:.3f}",
         f"{bid['beta_60min']:.3f}", "" if bid["median_s"] is None else format_duration(bid["median_s"]))
        for row in document["markets"] for bid in row["bids"]
    ]  # fmt: skip
    if rows:
        show_table(("type", "zone", "above price", "15 min", "30 min", "60 min", "median"), rows)
    for row in document["markets"]:
        if not row["bids"]:
            print_lines(f"{row['type']} in {row['zone']}: {row['hours']:.1f} h of prices are too few for odds")
    if document["rates"]:
        rates = [
            (row["type"], row["zone"], f"{row['per_hour']:.4f}", f"{row['interruptions']:.0f}",
             f"{row['instance_hours']:,.0f}")
            for row in document["rates"]
        ]  # fmt: skip
        show_table(("type", "zone", "evictions/h", "seen", "in instance-hours"), rates)
