"""The commands by name. Importing this imports Typer and the commands' signatures, nothing heavy."""

from pathlib import Path
from typing import Annotated, Any

import typer

from plink import __version__
from plink.cli import (
    advise,
    autotune,
    check,
    cluster,
    compare,
    completion,
    cost,
    demo,
    diff,
    doctor,
    embed,
    export,
    file_defaults,
    info,
    lab,
    launch,
    manifests,
    metavars,
    plan,
    probe,
    reflector,
    reorder,
    report,
    runs,
    schedule,
    show,
    submit,
    topology,
    verbosity,
)
from plink.cli.elastic import app as elastic
from plink.cli.job_options import PROGRAM_FIRST
from plink.cli.pipeline import app as pipeline
from plink.cli.spot import app as spot

# As one goes from measuring to running; Typer lists groups of commands after all others.
_COMMAND_ORDER = (
    "probe", "doctor", "diff", "embed", "cluster", "reorder", "cost", "advise", "plan", "pipeline", "schedule",
    "topology", "export", "report", "show", "check", "launch", "submit", "compare", "manifests", "runs", "autotune",
    "elastic", "spot", "reflector", "stamp", "demo", "lab", "info",
)  # fmt: skip
_CONTEXT = {"help_option_names": ["-h", "--help"]}


def _version(requested: bool) -> None:
    if requested:
        print(f"plink {__version__}")
        raise typer.Exit


def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Defaults of options; else plink.toml or pyproject.toml ([tool.plink]) in this folder.",
        ),
    ] = None,
) -> None:
    """Measure the network between your machines, order the ranks by it, launch the job that way.

    Example: plink probe hosts.txt && plink reorder --algo ring && plink launch train.py
    """
    if context.resilient_parsing:
        return
    from plink.cli.config import defaults_from

    if not verbosity.helping():
        context.default_map = defaults_from(config, context.command)


def command() -> Any:
    """Return the whole command line, to be called with ``main(args=..., standalone_mode=False)``."""
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, context_settings=_CONTEXT, add_completion=True
    )
    app.callback()(_main)
    app.command("probe")(probe.probe)
    app.command("doctor")(doctor.doctor)
    app.command("diff")(diff.diff)
    app.command("embed")(embed.embed)
    app.command("cluster")(cluster.cluster)
    app.command("reorder")(reorder.reorder)
    app.command("cost")(cost.cost)
    app.command("advise")(advise.advise)
    app.command("plan")(plan.plan)
    app.add_typer(pipeline.app, name="pipeline")
    app.command("report")(report.report)
    app.command("show")(show.show)
    app.add_typer(schedule.app, name="schedule")
    app.add_typer(topology.app, name="topology")
    app.add_typer(export.app, name="export")
    app.command("check")(check.check)
    app.command("launch", context_settings=PROGRAM_FIRST)(launch.launch)
    app.command("submit", context_settings=PROGRAM_FIRST)(submit.submit)
    app.command("compare", context_settings=PROGRAM_FIRST)(compare.compare)
    app.command("manifests", context_settings=PROGRAM_FIRST)(manifests.manifests)
    app.add_typer(runs.app, name="runs")
    app.add_typer(autotune.app, name="autotune")
    app.add_typer(elastic.app, name="elastic")
    app.add_typer(spot.app, name="spot")
    app.command("reflector")(reflector.reflector)
    app.command("stamp")(reflector.stamp)
    app.command("demo")(demo.demo)
    app.add_typer(lab.app, name="lab")
    app.command("info")(info.info)
    group: Any = typer.main.get_command(app)
    group.commands = dict(sorted(group.commands.items(), key=lambda entry: _COMMAND_ORDER.index(entry[0])))
    file_defaults.attach(group)
    verbosity.attach(group)
    completion.attach(group)
    metavars.attach(group)
    return group
