"""The commands by name. The module of a command is imported only where the command is needed: all of them together take
as long as many a command."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from plink import __version__
from plink.cli import config, values, verbosity

# The modules of the commands, by group: first those that everybody needs.
GROUPS = {
    "Measure, order, launch": {
        "doctor": "diagnose.command",
        "probe": "measure.command",
        "reorder": "order.command",
        "launch": "launch.command",
        "compare": "compare.command",
        "report": "report.command",
        "lab": "lab.command",
        "demo": "lab.demo",
    },
    "Decide": {
        "advise": "advise.command",
        "cost": "cost.command",
        "plan": "plan.command",
        "diff": "diagnose.command",
        "topology": "topology.command",
    },
    "Jobs": {
        "submit": "launch.command",
        "manifests": "launch.command",
        "runs": "runs.command",
        "elastic": "elastic.command",
        "spot": "spot.command",
        "pipeline": "pipeline.command",
    },
    "For experts": {
        "embed": "analyse.command",
        "cluster": "analyse.command",
        "schedule": "schedule.command",
        "check": "check.command",
        "reflector": "measure.stamp",
        "stamp": "measure.stamp",
        "info": "info.command",
    },
}
COMMANDS = {name: module for commands in GROUPS.values() for name, module in commands.items()}
_PANELS = {name: group for group, commands in GROUPS.items() for name in commands}
_FEATURES = Path(__file__).parents[1] / "features"
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
    for name, module in COMMANDS.items():
        if requested in (None, name):
            _add(app, name, module)
        else:
            app.command(name, help=_summary(name, module), rich_help_panel=_PANELS[name])(_not_requested)
    group: Any = typer.main.get_command(app)
    group.commands = {name: group.commands[name] for name in COMMANDS}  # Typer lists groups after all others
    config.attach(group)
    verbosity.attach(group)
    values.attach(group)
    return group


def _summary(name: str, module: str) -> str:
    """Return the first sentence of a command's help, from its source: importing all modules would take too long. Where
    plink is installed without its source it is empty."""
    path = _FEATURES / f"{module.replace('.', '/')}.py"
    if not path.is_file():
        return ""
    source = path.read_text(encoding="utf-8")
    declared = re.search(rf'^def {name}\(.*?\) -> None:\n    """(.*?)(?:\n\n|""")', source, re.MULTILINE | re.DOTALL)
    assert declared is not None, f"{module} has no function {name} with a docstring"
    return " ".join(declared[1].split())


def _add(app: typer.Typer, name: str, module: str) -> None:
    """Add a command, or the group of commands that its module has as ``app``."""
    imported = import_module(f"plink.features.{module}")
    if (group := getattr(imported, "app", None)) is not None:
        app.add_typer(group, name=name, rich_help_panel=_PANELS[name])
        return
    target = getattr(imported, name)
    if name in _PROGRAM_FIRST:
        from plink.features.launch.request import PROGRAM_FIRST

        app.command(name, context_settings=PROGRAM_FIRST, rich_help_panel=_PANELS[name])(target)
    else:
        app.command(name, rich_help_panel=_PANELS[name])(target)


def _not_requested() -> None:
    """Stand for a command that is only listed."""
    raise AssertionError("a command that was not requested is run")
