"""``plink spot read``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.spot.inputs import OptionalMarketPath, OptionalPricePaths
from plink.errors import UsageError
from plink.terminal.screen import print_json, say

if TYPE_CHECKING:
    from plink.model.spot.market_file import MarketFile
    from plink.model.spot.price_files import Histories

_MAX_MADE_DAYS = 1000


def read(
    market: OptionalMarketPath = None,
    prices: OptionalPricePaths = None,
    made: Annotated[
        int | None, typer.Option(min=1, max=_MAX_MADE_DAYS, metavar="DAYS", help="Make prices instead of reading any.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the prices of --made.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Keep the prices there, joined and sorted.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say what is in price histories: markets, from when to when, holes, prices against on-demand.

    Reads what `aws ec2 describe-spot-price-history` prints (JSON or text;
    several pages too), CSV, plink's own files, and availability histories.
    Times without prices in any market are holes: no odds go across them. With
    MARKET prices are compared with those on demand.

    Example: plink spot read --prices prices.json
    """
    from plink.cli.spot.inputs import histories_from
    from plink.model.spot.market_file import read_market_file
    from plink.model.spot.price_files import prices_to_json
    from plink.model.storage import STANDARD, check_apart, check_writable, write_document

    if bool(prices) == (made is not None):
        raise UsageError("give --prices FILE, once for each file, or --made DAYS")
    if output is not None:
        check_apart(output, [*(prices or []), market])
        check_writable(output)
    market_file = None if market is None else read_market_file(market)
    description = "" if made is None else f"plink spot read --made {made} --seed {seed}"
    histories = _made(made, seed, market_file) if made is not None else histories_from(prices or [])
    document = _document(histories, market_file)
    if output is not None:
        if not histories.prices:
            raise UsageError("-o keeps prices, and there are none")
        write_document(output, prices_to_json(histories.prices, histories.currency, description))
        if str(output) == STANDARD:
            return
        say(f"prices -> {output}")
    if as_json:
        print_json(document)
    else:
        _show(document)


def _made(days: int, seed: int, market_file: "MarketFile | None") -> "Histories":
    """Make prices for the types and zones of the market file.

    :raises UsageError: without one.
    """
    from plink.model.spot.price_files import Histories
    from plink.model.spot.prices import Market
    from solvers.spot.made import KINDS, MadeMarket, make_prices

    if market_file is None:
        raise UsageError(
            "--made needs a market file, whose types and zones it makes prices for: plink spot read MARKET --made DAYS"
        )
    kinds = list(KINDS.values())
    zones = market_file.zones or ("zone-a",)
    markets = [
        MadeMarket(Market(zone, kind.name), kinds[(row + column) % len(kinds)], kind.on_demand)
        for column, zone in enumerate(zones)
        for row, kind in enumerate(market_file.types)
    ]
    return Histories(make_prices(markets, days, seed))


def _document(histories: "Histories", market_file: "MarketFile | None") -> dict[str, Any]:
    import numpy as np

    from solvers.spot.hazard import spells

    markets = []
    for market, trace in sorted(histories.prices.items()):
        kind = market_file.type_of(market) if market_file else None
        seconds = trace.ends - trace.times
        above = None if kind is None else float(seconds[trace.prices > kind.on_demand].sum() / max(seconds.sum(), 1e-9))
        markets.append(
            {
                "zone": market.zone, "type": market.type, "product": market.product,
                "from_s": trace.start, "until_s": trace.until, "holes_s": [list(hole) for hole in trace.holes],
                "changes": len(trace.times) - 1, "median": round(trace.quantile(0.5), 6),
                "mean": round(trace.mean(), 6), "highest": float(trace.prices.max()),
                "on_demand": None if kind is None else kind.on_demand,
                "share_above_on_demand": None if above is None else round(above, 6),
            }
        )  # fmt: skip
    availability = []
    for market, samples in sorted(histories.availability.items()):
        held = spells(samples)
        median = {"median_spell_hours": round(float(np.median(held.hours)), 4)} if held.hours else {}
        availability.append(
            {"zone": market.zone, "type": market.type, "hours": round((samples.until - samples.start) / 3600, 3),
             "available": round(held.share, 4), "spells": len(held.hours), **median}
        )  # fmt: skip
    return {
        "schema": "plink.spot-markets/1",
        "currency": histories.currency,
        "markets": markets,
        "availability": availability,
        "notes": list(histories.notes),
    }


def _show(document: dict[str, Any]) -> None:
    from plink.cli.spot.inputs import utc
    from plink.terminal.tables import show_table

    if document["markets"]:
        rows = []
        for row in document["markets"]:
            hours = (row["until_s"] - row["from_s"] - sum(b - a for a, b in row["holes_s"])) / 3600
            ratio = "" if row["on_demand"] is None else f"{row['mean'] / row['on_demand']:.3f}"
            above = "" if row["share_above_on_demand"] is None else f"{row['share_above_on_demand']:.2%}"
            rows.append(
                (row["type"], row["zone"], row["product"], utc(row["from_s"]), utc(row["until_s"]), len(row["holes_s"]),
                 f"{row['changes'] / max(hours, 1e-9):.2f}", f"{row['median']:g}", f"{row['mean']:.4g}",
                 f"{row['highest']:g}", ratio, above)
            )  # fmt: skip
        show_table(
            ("type", "zone", "product", "from (UTC)", "until", "holes", "changes/h", "median", "mean", "highest",
             "mean/on-demand", "above it"),
            rows,
        )  # fmt: skip
    if document["availability"]:
        samples = [
            (row["type"], row["zone"], f"{row['hours']:.1f}", f"{row['available']:.1%}", row["spells"],
             "" if "median_spell_hours" not in row else f"{row['median_spell_hours']:.2f}")
            for row in document["availability"]
        ]  # fmt: skip
        show_table(("type", "zone", "hours", "available", "spells", "median spell, h"), samples)
