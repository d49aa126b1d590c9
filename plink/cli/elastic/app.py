"""``plink elastic``: each command's body is in a module of its own."""

import typer

from plink.cli.elastic import control, plot, run, status, summary
from plink.cli.job_options import PROGRAM_FIRST

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def elastic() -> None:
    """Train on machines that may be taken away (AgileML): run a job, see and steer it, draw and sum up what it did.

    Example: plink elastic status last
    """


app.command("run", context_settings=PROGRAM_FIRST)(run.run)
app.command("status")(status.status)
app.command("add")(control.add)
app.command("evict")(control.evict)
app.command("checkpoint")(control.checkpoint)
app.command("plot")(plot.plot)
app.command("summary")(summary.summary)
