"""``plink agile``: elastic training runs. Each command's body is in a module of its own."""

import typer

from plink.cli import agile_live, agile_plot, agile_summary

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def agile() -> None:
    """Elastic training runs (AgileML): how they stand, what they did, cost, and looked like.

    Example: plink agile status last
    """


app.command("status")(agile_live.status)
app.command("add")(agile_live.add)
app.command("evict")(agile_live.evict)
app.command("checkpoint")(agile_live.checkpoint)
app.command("plot")(agile_plot.plot)
app.command("summary")(agile_summary.summary)
