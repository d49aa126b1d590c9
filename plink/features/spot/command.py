"""``plink spot``: what transient machines cost, which to take, and the driver that rents them for a job."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import plink
from plink.errors import InputError, PartlyDone, PlinkError, UsageError
from plink.features.spot.rented import show_rented
from plink.features.spot.request import (
    PRICES_HELP,
    MadePricesRequest,
    SpotAdviceRequest,
    SpotDriveRequest,
    SpotOddsRequest,
    SpotSimulationRequest,
)
from plink.features.spot.show import show_advice, show_markets, show_odds, show_simulation
from plink.model.request import typed_words
from plink.model.spot.price_files import Histories
from plink.model.spot.results import SpotStatus
from plink.model.storage import STANDARD, check_apart, check_writable
from plink.pictures import PAPER, check_picture, write_picture
from plink.records import workspace
from plink.records.runs import run_named
from plink.terminal.elastic_runs import RunId, history_from, live_job
from plink.terminal.options import Json, takes
from plink.terminal.screen import print_result, progress, say, say_error
from runners.spot.status import runs_with_instances

# The same in all commands: MARKET comes first, histories are behind --prices. Some work without one of them.
_MARKET = typer.Argument(
    metavar="MARKET",
    help="The market file (market.toml). Its table `application` defaults to start_s = 120, add_s = 30, evict_s = 60 "
    "(seconds).",
)
_PRICES = typer.Option("--prices", metavar="FILE", help=PRICES_HELP)
_SHOWN_EVERY_S = 60.0

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def spot() -> None:
    """Decide which transient (spot) machines to take and to give up, by cost per work (BidBrain), and rent them.

    Example: plink spot read --prices prices.json
    """


def _histories(files: Sequence[Path]) -> Histories:
    """Read price and availability histories; say what was left out."""
    histories = plink.read_spot_histories(files)
    for note in histories.notes:
        say(note)
    return histories


def _priced_histories(files: Sequence[Path]) -> Histories:
    """Read histories. :raises InputError: when there are availability histories only."""
    histories = _histories(files)
    if not histories.prices:
        raise InputError(", ".join(map(str, files)), "no prices in it; availability alone says nothing about costs")
    return histories


@app.command()
@takes(MadePricesRequest)
def read(
    request: MadePricesRequest,
    market: Annotated[Path | None, _MARKET] = None,
    prices: Annotated[list[Path] | None, _PRICES] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Keep the prices there, joined and sorted.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what is in price histories: markets, from when to when, holes, prices against on-demand.

    Reads what `aws ec2 describe-spot-price-history` prints (JSON or text;
    several pages too), CSV, plink's own files, and availability histories.
    Times without prices in any market are holes: no odds go across them. With
    MARKET prices are compared with those on demand.

    Example: plink spot read --prices prices.json
    """
    if bool(prices) == (request.days is not None):
        raise UsageError("give --prices FILE, once for each file, or --made DAYS")
    if output is not None:
        check_apart(output, [*(prices or []), market])
        check_writable(output)
    market_file = None if market is None else plink.read_market_file(market)
    if prices:
        histories = _histories(prices)
    elif market_file is None:
        raise UsageError(
            "--made needs a market file, whose types and zones it makes prices for: plink spot read MARKET --made DAYS"
        )
    else:
        histories = plink.make_spot_prices(market_file, request)
    document = plink.spot_markets(histories, market_file)
    if output is not None:
        if not histories.prices:
            raise UsageError("-o keeps prices, and there are none")
        histories.document().write(output)
        if str(output) == STANDARD:
            return
        say(f"prices -> {output}")
    print_result(document, as_json, lambda: show_markets(document))


@app.command()
@takes(SpotOddsRequest)
def odds(
    request: SpotOddsRequest,
    prices: Annotated[list[Path], _PRICES],
    market: Annotated[Path | None, _MARKET] = None,
    as_json: Json = False,
) -> None:
    """Say how likely an eviction is within the hour, by how much is bid above the price.

    beta is exact: the share of all starts, with the median time to eviction of
    those evicted within the hour. Of availability histories: evictions per
    instance-hour, with a prior worth 24 hours. With MARKET: of its markets
    only, and without starts above the on-demand price.

    Example: plink spot odds --prices prices.json --zone zone-a
    """
    histories = _histories(prices)
    document = plink.spot_odds(histories, None if market is None else plink.read_market_file(market), request)
    print_result(document, as_json, lambda: show_odds(document))


@app.command()
@takes(SpotSimulationRequest)
def simulate(
    request: SpotSimulationRequest,
    market: Annotated[Path, _MARKET],
    prices: Annotated[list[Path], _PRICES],
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw one job by the last strategy, .svg or .png.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare strategies on price histories: what jobs cost and take, from the same random starts.

    Each zone is simulated by itself. Costs and times are shown by those of the reference machines on demand.

    With --deadline the reference machines are rented on demand when they have to be.

    Example: plink spot simulate market.toml --prices prices.json --starts 20
    """
    if picture is not None:
        check_picture(picture)
    market_file, histories = plink.read_market_file(market), _priced_histories(prices)
    if histories.availability:
        say("availability histories beside prices are not used")
    priced = {entry.type for entry in histories.prices}
    for kind in market_file.types:
        if kind.name not in priced:
            say(f"{kind.name}: no prices of it; left out")
    with progress("jobs") as bars:
        document = plink.simulate_spot(market_file, histories, request, bars["jobs"])
    if picture is not None:
        from plink.features.spot.picture import picture_of
        from plink.features.spot.simulate import simulate_one_job

        write_picture(picture_of(simulate_one_job(market_file, histories, request), PAPER), picture)
        say(f"picture -> {picture}")
    print_result(document, as_json, lambda: show_simulation(document))


@app.command()
@takes(SpotAdviceRequest)
def advise(
    request: SpotAdviceRequest,
    market: Annotated[Path, _MARKET],
    prices: Annotated[list[Path], _PRICES],
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="An elastic run (id, `last` or its log) that shows how the job scales."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain one decision: what a core-hour costs now, the ten best candidates, and what each adds.

    What is held stands in the market file. Nothing is bought or ended.

    Example: plink spot advise market.toml --prices prices.json
    """
    market_file, histories = plink.read_market_file(market), _priced_histories(prices)
    document = plink.advise_spot(market_file, histories, request, None if run is None else history_from(run))
    print_result(document, as_json, lambda: show_advice(document))


@app.command()
@takes(SpotDriveRequest)
def drive(
    request: SpotDriveRequest,
    market: Annotated[Path, _MARKET],
    run: RunId,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decide once and say what would be done; request and release nothing.")
    ] = False,
) -> None:
    """Rent transient instances for an elastic job that runs, add them to it, and release them at its end.

    Every act is in the run's journal before it is done, so that a driver that
    is killed can be started again. Ctrl-C ends the driver only: instances stay
    until their leases run out, or until `plink spot release`. MARKET needs a
    table `provider`. Without --prices odds are those of 30 days of the
    provider's.

    Example: plink spot drive market.toml last --budget 40 --per-hour 6
    """
    if Path(run).is_file() and not market.exists():
        raise UsageError(f"MARKET comes first: plink spot drive {shlex.join([run, str(market)])}")
    request = replace(request, market=str(market))
    if not dry_run:
        _drive(run, request)
        return
    from plink.features.spot.drive import dry_run_spot

    record, job = live_job(run)
    dry_run_spot(workspace.RUNS / record.id, job, request, say_error)


@app.command("drive-job", hidden=True)
def drive_job(run: RunId) -> None:
    """Rent instances for a job that starts this process, by the request in the run's folder.

    Example: plink spot drive-job last
    """
    from plink.features.spot.drive import request_of

    _drive(run, request_of(workspace.RUNS / run_named(workspace.RUNS, run).id), is_supervised=True)


def _drive(run: str, request: SpotDriveRequest, is_supervised: bool = False) -> None:
    """Rent for a run until its job ends, and say what it cost; where that is interrupted, how to go on."""
    record, job = live_job(run)
    latest: SpotStatus | None = None
    show_at = 0.0

    def show(status: SpotStatus) -> None:
        nonlocal latest, show_at
        latest = status
        if time.monotonic() >= show_at:
            show_at = time.monotonic() + _SHOWN_EVERY_S
            working = sum(each.host is not None for each in status.held)
            cost = f"cost so far {status.cost.total:.4f}, on demand {status.cost.on_demand:.4f}"
            say(f"{len(status.held)} instances held, {working} in the job; {cost}")

    try:
        folder = workspace.RUNS / record.id
        plink.drive_spot(folder, job, request, say, show, is_supervised=is_supervised)
    except (PlinkError, KeyboardInterrupt) as error:
        count = len(latest.held) if latest is not None else 0
        if count or isinstance(error, KeyboardInterrupt):
            command = ["plink", "spot", "drive", str(request.market), record.id, *typed_words(request)]
            say_error(
                f"the driver ended; {count} instances are held until their leases run out. Go on: "
                f"{shlex.join(command)}; end them: plink spot release {record.id}"
            )
        raise
    if latest is not None:
        ending = "the job is over and" if latest.job_ended else "after `plink spot release`"
        say(f"{ending} nothing is held: {latest.cost.total:.4f} in all, on demand {latest.cost.on_demand:.4f}")


@app.command()
def status(run: RunId, as_json: Json = False) -> None:
    """Show the instances of a run, why each is held, and what they cost, from the run's journal.

    Example: plink spot status last
    """
    document = plink.spot_status(workspace.RUNS / run_named(workspace.RUNS, run).id)
    print_result(document, as_json, lambda: show_rented(document))


@app.command()
def release(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The run, the beginning of its id, or `last`.")
    ] = None,
    all_runs: Annotated[bool, typer.Option("--all", help="Every run of this workspace that had instances.")] = False,
) -> None:
    """Release the instances of a run: all that the provider lists with the run's tag.

    Instances without the tag of one of these runs are never touched. A job that runs goes on without them, and its
    driver ends. `plink spot drive` rents again.

    Example: plink spot release last
    """
    if (run is None) != all_runs:
        raise UsageError("give one run, or --all")
    folders = (
        runs_with_instances(workspace.RUNS) if run is None else [workspace.RUNS / run_named(workspace.RUNS, run).id]
    )
    failed = []
    for folder in folders:
        try:
            released = plink.release_spot(folder, say)
        except Exception as error:  # whatever is wrong with one run, the others still cost money
            if run is not None:
                raise
            say_error(f"{folder.name}: {error or type(error).__name__}")
            failed.append(folder.name)
            continue
        say(f"{released.run}: {', '.join(released.names) or 'nothing'} released; nothing is held")
    if failed:
        raise PartlyDone(f"not everything is released: {', '.join(failed)}")
    if not folders:
        say("no run of this workspace had instances")
