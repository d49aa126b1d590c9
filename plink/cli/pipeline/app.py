"""``plink pipeline``: the group of commands."""

import typer

from plink.cli.pipeline import assessing, exporting, planning, profiling, showing, simulating, training

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def pipeline() -> None:
    """Split a model over hosts as a pipeline: profile it, plan the stages, prove the plan.

    Example: plink pipeline import graph.txt && plink pipeline plan --hosts 4 --gbps 10
    """


app.command("profile", context_settings={"allow_interspersed_args": False})(profiling.profile)
app.command("import")(profiling.import_graph)
app.command("plan")(planning.plan)
app.command("show")(showing.show)
app.command("verify")(showing.verify)
app.command("simulate")(simulating.simulate)
app.command("export")(exporting.export)
app.command("assess")(assessing.assess)
app.command("train", context_settings={"allow_interspersed_args": False})(training.train)
