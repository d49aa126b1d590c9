"""``plink spot simulate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.spot.inputs import MarketPath, PricePaths
from plink.terminal.screen import print_json, say

if TYPE_CHECKING:
    from plink.api.spot_simulation import SimulationRequest, SpotSimulation

_DIGITS = 4


def simulate(
    market: MarketPath,
    prices: PricePaths,
    hours: Annotated[float, typer.Option(help="What a job takes on the reference machines.")] = 2.0,
    starts: Annotated[int, typer.Option(help="Jobs in each zone, at random times.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Draws those times.")] = 0,
    strategies: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Which to compare, separated by commas, or all; default: four.")
    ] = None,
    train_until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Odds are from before it, and jobs start after it; default: three fifths of the histories.",
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Jobs are to be over so long after their start, like 6h."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw one job by the last strategy, .svg or .png.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Compare strategies on price histories: what jobs cost and take, from the same random starts.

    Each zone is simulated by itself. Costs and times are shown by those of the reference machines on demand.

    With --deadline the reference machines are rented on demand when they have to be.

    Example: plink spot simulate market.toml --prices prices.json --starts 20
    """
    from plink.api.spot_simulation import (
        DEFAULT_STRATEGIES,
        SimulationRequest,
        markets_without_prices,
        path_of,
        simulate_one_job,
        simulate_spot,
    )
    from plink.cli.pictures import check_picture, write_picture
    from plink.cli.spot.inputs import histories_from, need_prices, parse_time
    from plink.model.spot.market_file import read_market_file
    from plink.model.units import parse_limit
    from plink.report.colours import PAPER
    from plink.report.spot_job import spot_job
    from plink.terminal.screen import progress
    from solvers.spot.strategies import NAMES

    names: tuple[str, ...] = DEFAULT_STRATEGIES if strategies is None else NAMES
    if strategies not in (None, "all"):
        names = tuple(name.strip() for name in (strategies or "").split(",") if name.strip())
    split = None if train_until is None else parse_time(train_until, "--train-until")
    deadline_s = None if deadline is None else parse_limit(deadline)
    request = SimulationRequest(hours, starts, seed, names, split, deadline_s=deadline_s)
    request.check()
    if picture is not None:
        check_picture(picture)
    market_file = read_market_file(market)
    read = histories_from(prices)
    histories = need_prices(read, prices)
    if read.availability:
        say("availability histories beside prices are not used")
    for name in markets_without_prices(market_file, histories):
        say(f"{name}: no prices of it; left out")
    with progress("jobs") as bars:
        simulation = simulate_spot(market_file, histories, request, bars["jobs"])
    if picture is not None:
        write_picture(spot_job(path_of(simulate_one_job(market_file, histories, request)), PAPER), picture)
        say(f"picture -> {picture}")
    document = _document(simulation, request)
    if as_json:
        print_json(document)
    else:
        _show(document)


def _document(simulation: "SpotSimulation", request: "SimulationRequest") -> dict[str, Any]:
    deadline_s = request.deadline_s
    return {
        "schema": "plink.spot-simulation/1",
        "hours": request.hours,
        "starts": request.starts,
        "deadline_s": deadline_s,
        "seed": request.seed,
        "train_until_s": simulation.train_until,
        "results": [
            {
                "zone": zone.zone,
                "strategy": result.name,
                "cost": round(result.money, _DIGITS),
                "seconds": round(result.seconds, 1),
                "cost_ratio": round(result.money / zone.baseline.money, _DIGITS),
                "time_ratio": round(result.seconds / zone.baseline.seconds, _DIGITS),
                "evictions": round(result.evictions, _DIGITS),
                "share_on_demand": round(result.share("anchor"), _DIGITS),
                "share_paid": round(result.share("paid"), _DIGITS),
                "share_free": round(result.share("free"), _DIGITS),
                "missed": None if deadline_s is None else result.missed(deadline_s),
                "fell_back": None if deadline_s is None else round(result.fell_back, _DIGITS),
                "unfinished": result.unfinished,
            }
            for zone in simulation.zones
            for result in zone.results
        ],
    }


def _show(document: dict[str, Any]) -> None:
    from plink.cli.spot.inputs import utc
    from plink.model.units import format_duration
    from plink.terminal.tables import show_table

    train = utc(document["train_until_s"])
    print(f"{document['starts']} jobs of {document['hours']:g} h in each zone; odds from before {train} UTC")
    rows = [
        (row["zone"], row["strategy"], f"{row['cost']:.2f}", format_duration(row["seconds"]),
         f"{row['cost_ratio']:.3f}", f"{row['time_ratio']:.3f}", f"{row['evictions']:.2f}",
         f"{row['share_free']:.1%}", row["unfinished"] or "", *_deadline_cells(row))
        for row in document["results"]
    ]  # fmt: skip
    columns = [
        "zone", "strategy", "cost", "time", "cost/on-demand", "time/on-demand", "evictions", "free", "unfinished",
    ]  # fmt: skip
    if (deadline_s := document["deadline_s"]) is not None:
        print(f"deadline: {format_duration(deadline_s)} after each start")
        columns += ["missed", "fell back"]
    show_table(columns, rows)


def _deadline_cells(row: dict[str, Any]) -> tuple[str, ...]:
    if row["missed"] is None:
        return ()
    return str(row["missed"]), f"{row['fell_back']:.0%}"
