"""``plink spot``: each command's body is in a module of its own."""

import typer

from plink.cli.spot import advise, drive, odds, read, release, simulate, status

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def spot() -> None:
    """Decide which transient (spot) machines to take and to give up, by cost per work (BidBrain), and rent them.

    Example: plink spot read --prices prices.json
    """


app.command("read")(read.read)
app.command("odds")(odds.odds)
app.command("simulate")(simulate.simulate)
app.command("advise")(advise.advise)
app.command("drive")(drive.drive)
app.command("status")(status.status)
app.command("release")(release.release)
