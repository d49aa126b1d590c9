"""``plink spot drive``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.cli.spot.inputs import MarketPath, OptionalPricePaths
from plink.errors import PlinkError, UsageError
from plink.terminal.options import RunId
from plink.terminal.screen import say, say_error

if TYPE_CHECKING:
    from plink.api.spot_state import SpotState

_SHOWN_EVERY_S = 60.0


def drive(
    market: MarketPath,
    run: RunId,
    prices: OptionalPricePaths = None,
    max_total: Annotated[
        float | None,
        typer.Option(
            "--budget",
            min=0,
            metavar="MONEY",
            help="The most that the run's machines may cost; default: the market file's.",
        ),
    ] = None,
    max_hourly: Annotated[
        float | None,
        typer.Option(
            "--per-hour", min=0, metavar="MONEY", help="What all bids together may come to; default: the market file's."
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Rent the market file's reference machines on demand when the job would not be over this long after "
            "the first driver's start (6h) otherwise; with --iterations.",
        ),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="How many the job does in all; with --deadline.")
    ] = None,
    fallback: Annotated[
        bool,
        typer.Option(
            "--fallback",
            help="Rent machines of the market file's reference type on demand while they cost less per core-hour than "
            "every market.",
        ),
    ] = False,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
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
    import shlex

    from plink.api.spot_driving import DriveRequest, drive_spot, dry_run_spot
    from plink.api.spot_process import SpotRequest
    from plink.cli.spot.inputs import histories_from
    from plink.model.spot.price_files import Histories
    from plink.model.units import parse_limit
    from plink.records import workspace

    if Path(run).is_file() and not market.exists():
        raise UsageError(f"MARKET comes first: plink spot drive {shlex.join([run, str(market)])}")
    from plink.features.elastic.control import live_job

    chosen, job = live_job(run)
    histories = histories_from(prices) if prices else Histories()
    options = max_total, max_hourly, None if deadline is None else parse_limit(deadline), iterations, fallback
    request = DriveRequest(market, histories, *options, supervised)
    folder = workspace.RUNS / chosen.id
    if dry_run:
        dry_run_spot(folder, job.to_json(), request, say_error)
        return
    command = shlex.join(["plink", *SpotRequest(market, tuple(prices or ()), *options).words(chosen.id)])
    screen = _Screen()
    try:
        drive_spot(folder, job.to_json(), request, say, screen.show)
    except KeyboardInterrupt:
        say_error(_left_behind(chosen.id, command, screen.state))
        raise
    except PlinkError:
        if screen.state is not None and screen.state.ledger.held:
            say_error(_left_behind(chosen.id, command, screen.state))
        raise
    if screen.state is not None:
        cost = screen.state.account
        ending = "the job is over and" if screen.state.ledger.job_ended else "after `plink spot release`"
        say(f"{ending} nothing is held: {cost.total:.4f} in all, on demand {cost.on_demand:.4f}")


class _Screen:
    """Says every minute what is held."""

    def __init__(self) -> None:
        self.state: SpotState | None = None
        self._next_s = 0.0

    def show(self, state: "SpotState") -> None:
        """Take the state after a step."""
        import time

        self.state = state
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _SHOWN_EVERY_S
            working = sum(each.host is not None for each in state.ledger.held)
            say(
                f"{len(state.ledger.held)} instances held, {working} in the job; cost so far {state.account.total:.4f}"
                f", on demand {state.account.on_demand:.4f}"
            )


def _left_behind(run: str, command: str, state: "SpotState | None") -> str:
    count = len(state.ledger.held) if state is not None else 0
    return (
        f"the driver ended; {count} instances are held until their leases run out. Go on: {command}; "
        f"end them: plink spot release {run}"
    )
