"""``plink spot simulate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.spot.inputs import MarketPath, PricePaths
from plink.terminal.screen import print_json, say

if TYPE_CHECKING:
    from plink.api.spot_simulation import SimulationRequest, SpotSimulation
    from plink.api.spot_zones import ZonesSimulation
    from plink.model.spot.market_file import MarketFile
    from plink.model.spot.price_files import Histories

_DIGITS = 4


def simulate(
    market: MarketPath,
    prices: PricePaths,
    hours: Annotated[
        float | None, typer.Option(help="What a job takes on the reference machines; default 2.", show_default=False)
    ] = None,
    starts: Annotated[
        int | None, typer.Option(help="Jobs in each zone, at random times; default 1000.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws those times.")] = 0,
    strategies: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Which to compare, separated by commas, or all; default: four.")
    ] = None,
    train_until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="What is known is from before it; default: three fifths, of availability histories three tenths.",
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

    Of availability histories: where to hold as many instances as the reference
    has, in one zone, in the next after each interruption, or by expected cost
    per work.

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
    from plink.cli.spot.inputs import histories_from, need_prices, parse_time
    from plink.errors import UsageError
    from plink.model.spot.market_file import read_market_file
    from plink.model.units import parse_limit
    from plink.report.colours import PAPER
    from plink.report.spot_job import spot_job
    from plink.terminal.pictures import check_picture, write_picture
    from plink.terminal.screen import progress
    from solvers.spot.strategies import NAMES

    names: tuple[str, ...] = DEFAULT_STRATEGIES if strategies is None else NAMES
    if strategies not in (None, "all"):
        names = tuple(name.strip() for name in (strategies or "").split(",") if name.strip())
    split = None if train_until is None else parse_time(train_until, "--train-until")
    deadline_s = None if deadline is None else parse_limit(deadline)
    job_hours, job_starts = 2.0 if hours is None else hours, 1000 if starts is None else starts
    request = SimulationRequest(job_hours, job_starts, seed, names, split, deadline_s=deadline_s)
    request.check()
    if picture is not None:
        check_picture(picture)
    market_file = read_market_file(market)
    read = histories_from(prices)
    if not read.prices and read.availability:
        options = {
            "--hours": hours, "--starts": starts, "--deadline": deadline, "--strategies": strategies,
            "--picture": picture,
        }  # fmt: skip
        for option, value in options.items():
            if value is not None:
                raise UsageError(f"{option} needs price histories")
        _simulate_zones(market_file, read, split, seed, as_json)
        return
    histories = need_prices(read, prices)
    if read.availability:
        say("availability histories beside prices are not used; give them alone to compare zones by them")
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


def _simulate_zones(
    market_file: "MarketFile", read: "Histories", train_until: float | None, seed: int, as_json: bool
) -> None:
    """Compare strategies for availability histories."""
    from plink.api.spot_zones import compare_zones
    from plink.terminal.screen import progress

    with progress("strategies") as bars:
        simulation = compare_zones(market_file, read.availability, train_until, seed, bars["strategies"])
    document = _zones_document(simulation, seed)
    if as_json:
        print_json(document)
    else:
        _show_zones(document)


def _zones_document(simulation: "ZonesSimulation", seed: int) -> dict[str, Any]:
    from plink.cli.spot.inputs import finite

    return {
        "schema": "plink.spot-zones/1",
        "nodes": simulation.nodes,
        "hours": simulation.hours,
        "train_until_s": simulation.train_until,
        "seed": seed,
        "results": [
            {
                "type": result.type,
                "strategy": result.strategy,
                "zone": result.zone,
                "cost": finite(round(result.outcome.cost, _DIGITS)),
                "half_share": round(result.outcome.half_share, _DIGITS),
                "work_hours": round(result.outcome.work, 2),
                "free_hours": round(result.outcome.free_hours, 2),
                "interrupted": result.outcome.interrupted,
            }
            for result in simulation.results
        ],
    }


def _show_zones(document: dict[str, Any]) -> None:
    from plink.terminal.tables import show_table

    print(
        f"{document['nodes']} instances wanted for {document['hours']:,.1f} h; cost: of an hour of one working "
        "instance, by the price of an instance-hour"
    )
    rows = [
        (row["type"], row["strategy"], row["zone"], "" if row["cost"] is None else f"{row['cost']:.3f}",
         f"{row['half_share']:.1%}", f"{row['work_hours']:,.1f}", f"{row['free_hours']:,.1f}", str(row["interrupted"]))
        for row in document["results"]
    ]  # fmt: skip
    columns = ["type", "strategy", "zone", "cost", "half or more at work", "hours of work", "free", "interrupted"]
    show_table(columns, rows)


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
