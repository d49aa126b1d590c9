"""The commands by name. The module of a command is imported only where the command is needed: all of them together take
as long as many a command."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from plink import __version__
from plink.cli import config, values, verbosity

# The list of commands by group: where each is, and what the list says of it. First those that everybody needs.
GROUPS = {
    "Measure, order, launch": {
        "doctor": (
            "diagnose.command:doctor",
            "Diagnose hosts and the network between them, with the evidence and what to do (exit code 1 on findings).",
        ),
        "probe": (
            "measure.command:probe",
            "Measure the network between the hosts: round trips, loss, hops, and the capacity of what groups of hosts "
            "share.",
        ),
        "reorder": (
            "order.command:reorder",
            "Find the rank order that is cheapest for a collective on the measured network.",
        ),
        "launch": (
            "launch.command:launch",
            "Run a program as the ranks of a job, in plink's order, and verify the placement of every rank first.",
        ),
        "compare": (
            "compare.command:compare",
            "Run a program in the given order and in plink's, alternately, and report the speed-up (an A/B test).",
        ),
        "report": (
            "report.command:report",
            "Render the network as an HTML page: one file that opens offline.",
        ),
        "lab": (
            "lab.command:app",
            "An emulated cloud on this machine: racks of real hosts (namespaces with an sshd each) behind routers.",
        ),
        "demo": (
            "lab.demo:demo",
            "Emulate a cloud on this machine, probe it, reorder, and time a PyTorch all-reduce in both orders (needs "
            "root).",
        ),
    },
    "Decide": {
        "advise": (
            "advise.command:advise",
            "Recommend the fastest algorithm and rank order for each message size on the measured network.",
        ),
        "cost": (
            "cost.command:cost",
            "Show what a collective costs on the measured network, by round and bottleneck.",
        ),
        "plan": (
            "plan.command:plan",
            "Plan a job: order, groups, who aggregates which chunk, schedule and environment.",
        ),
        "diff": (
            "diagnose.command:diff",
            "Compare two probes: which hosts and links got slower beyond noise (exit code 1 on regressions).",
        ),
        "topology": ("topology.command:app", "Where the hosts are in the network, for other programs."),
    },
    "Jobs": {
        "submit": (
            "launch.command:submit",
            "Submit a job to Slurm (sbatch): `plink launch --runner slurm` with today's hosts and order.",
        ),
        "manifests": (
            "launch.command:manifests",
            "Write Kubernetes objects that run a program as the ranks of a job, in plink's order; start nothing.",
        ),
        "runs": ("runs.command:app", "List the jobs that `plink launch` ran here, the latest first."),
        "elastic": (
            "elastic.command:app",
            "Train on machines that may be taken away (AgileML): run a job, see and steer it, draw and "
            "sum up what it did.",
        ),
        "spot": (
            "spot.command:app",
            "Decide which transient (spot) machines to take and to give up, by cost per work (BidBrain), and "
            "rent them.",
        ),
        "pipeline": (
            "pipeline.command:app",
            "Split a model over hosts as a pipeline: profile it, plan the stages, prove the plan.",
        ),
    },
    "For experts": {
        "embed": (
            "analyse.command:embed",
            "Embed the hosts in a space whose distances are the round trips without their noise.",
        ),
        "cluster": (
            "analyse.command:cluster",
            "Cluster hosts near each other into balanced groups for hierarchical aggregation.",
        ),
        "schedule": (
            "schedule.command:app",
            "Make a collective's schedule: which rank sends what to which rank in which round.",
        ),
        "check": (
            "check.command:check",
            "Validate the cost model against measured times, and measured distances against true locations.",
        ),
        "reflector": (
            "measure.stamp:reflector",
            "Answer STAMP probes (RFC 8762, unauthenticated), never with more bytes than were received.",
        ),
        "stamp": ("measure.stamp:stamp", "Measure the round trip to any STAMP reflector (RFC 8762, unauthenticated)."),
        "info": (
            "info.command:info",
            "Print what a bug report needs: versions of plink, Python, libraries and launchers, capabilities of this "
            "machine.",
        ),
    },
}
COMMANDS = {name: entry for commands in GROUPS.values() for name, entry in commands.items()}
_PANELS = {name: group for group, commands in GROUPS.items() for name in commands}
_GROUP = "app"
_PROGRAM_FIRST = {"launch", "submit", "compare", "manifests"}
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
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Defaults of options; else plink.toml or pyproject.toml (table tool.plink) here, else your own.",
        ),
    ] = None,
) -> None:
    """Measure the network between your machines, order the ranks by it, launch the job that way.

    Example: plink probe hosts.txt && plink reorder --algo ring && plink launch train.py
    """
    if context.resilient_parsing:
        return
    if not verbosity.helping():
        context.default_map = config.defaults_from(config_file, command)


@cache
def command(requested: str | None = None) -> Any:
    """Return the command line, to be called with ``main(args=..., standalone_mode=False)``.

    :param requested: the only command that will be run or asked for help: of the others only names and summaries are
        there, and their modules are not imported. None: all commands are complete.
    """
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, context_settings=_CONTEXT, add_completion=True
    )
    app.callback()(_main)
    for name, (location, summary) in COMMANDS.items():
        if requested in (None, name):
            _add(app, name, location)
        else:
            app.command(name, help=summary, rich_help_panel=_PANELS[name])(_not_requested)
    group: Any = typer.main.get_command(app)
    group.commands = {name: group.commands[name] for name in COMMANDS}  # Typer lists groups after all others
    config.attach(group)
    verbosity.attach(group)
    values.attach(group)
    return group


def _add(app: typer.Typer, name: str, location: str) -> None:
    """Add a command or a group of commands."""
    module, _, attribute = location.partition(":")
    target = getattr(import_module(f"plink.features.{module}"), attribute)
    if attribute == _GROUP:
        app.add_typer(target, name=name, rich_help_panel=_PANELS[name])
    elif name in _PROGRAM_FIRST:
        from plink.features.launch.request import PROGRAM_FIRST

        app.command(name, context_settings=PROGRAM_FIRST, rich_help_panel=_PANELS[name])(target)
    else:
        app.command(name, rich_help_panel=_PANELS[name])(target)


def _not_requested() -> None:
    """Stand for a command that is only listed."""
    raise AssertionError("a command that was not requested is run")
