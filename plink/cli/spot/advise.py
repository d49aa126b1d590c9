"""``plink spot advise``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.spot.inputs import MarketPath, PricePaths
from plink.terminal.screen import print_json, print_lines

if TYPE_CHECKING:
    from plink.api.spot import SpotAdvice

_DIGITS = 6


def advise(
    market: MarketPath,
    prices: PricePaths,
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="An elastic run (id, `last` or its log) that shows how the job scales."),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Decide as at this time; default: the end of the histories.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Explain one decision: what a core-hour costs now, the ten best candidates, and what each adds.

    What is held stands in the market file. Nothing is bought or ended.

    Example: plink spot advise market.toml --prices prices.json
    """
    from plink.api.spot import advise_spot
    from plink.cli.spot.inputs import histories_from, need_prices, parse_time
    from plink.features.elastic.summary import history_from
    from plink.model.spot.market_file import read_market_file

    time = None if at is None else parse_time(at, "--at")
    market_file = read_market_file(market)
    histories = histories_from(prices)
    need_prices(histories, prices)
    advice = advise_spot(market_file, histories, time, None if run is None else history_from(run))
    document = _document(advice)
    if as_json:
        print_json(document)
    else:
        _show(document)


def _document(advice: "SpotAdvice") -> dict[str, Any]:
    from plink.cli.spot.inputs import finite

    decision = advice.decision
    return {
        "schema": "plink.spot-advice/1",
        "at_s": advice.at,
        "action": decision.action,
        "reason": decision.reason,
        "cost_per_work": finite(decision.cost_per_work),
        "candidates": [
            {
                "zone": each.market.zone, "type": each.market.type, "count": each.count,
                "bid": round(each.bid, _DIGITS), "price": round(each.price, _DIGITS),
                "eviction": round(each.eviction, _DIGITS),
                "evicted_after_s": None if each.evicted_after_s is None else round(each.evicted_after_s, 1),
                "added_cost": round(each.added_cost, _DIGITS), "added_work": round(each.added_work, _DIGITS),
                "cost_per_work": each.cost_per_work,
            }
            for each in decision.candidates
        ],
        "held": [
            {
                "zone": each.market.zone, "type": each.market.type, "count": each.count, "renew": each.renew,
                "cost_if_kept": finite(each.kept_cost), "cost_if_ended": finite(each.ended_cost),
            }
            for each in advice.held
        ],
        "refused": list(decision.refused),
    }  # fmt: skip


def _show(document: dict[str, Any]) -> None:
    from plink.cli.spot.inputs import utc
    from plink.model.units import format_duration
    from plink.terminal.tables import show_table

    now = "nothing works yet" if document["cost_per_work"] is None else f"{document['cost_per_work']:.4g} a core-hour"
    print(f"{utc(document['at_s'])} UTC: {now}")
    print_lines(f"{document['action']}: {document['reason']}")
    for row in document["held"]:
        kept_cost, ended_cost = (
            "no work" if row[key] is None else f"{row[key]:.4g} a core-hour"
            for key in ("cost_if_kept", "cost_if_ended")
        )
        verb = "renew" if row["renew"] else "end"
        print_lines(
            f"{verb} {row['count']} x {row['type']} in {row['zone']}: {kept_cost} if kept, {ended_cost} if ended"
        )
    print_lines(*(f"left out: {line}" for line in document["refused"]))
    rows = [
        (row["type"], row["zone"], row["count"], f"{row['bid']:.4f}", f"{row['price']:.4f}", f"{row['eviction']:.3f}",
         "" if row["evicted_after_s"] is None else format_duration(row["evicted_after_s"]),
         f"{row['added_cost']:.3f}", f"{row['added_work']:.1f}", f"{row['cost_per_work']:.5f}")
        for row in document["candidates"]
    ]  # fmt: skip
    if rows:
        show_table(
            ("type", "zone", "count", "bid", "price", "eviction", "after", "adds cost", "adds core-hours",
             "cost/core-hour"),
            rows,
        )  # fmt: skip
