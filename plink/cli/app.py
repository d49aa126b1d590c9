"""The commands by name. Importing this imports Typer and the commands' signatures, nothing heavy."""

from typing import Annotated, Any

import typer

from plink import __version__
from plink.cli import advise, cost, demo, doctor, lab, launch, probe, reflector, reorder, schedule

_CONTEXT = {"help_option_names": ["-h", "--help"]}


def _version(wanted: bool) -> None:
    if wanted:
        print(f"plink {__version__}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Measure the network between your machines, order the ranks by it, launch the job that way.

    Example: plink probe hosts.txt && plink reorder --algo ring && plink launch train.py
    """


def command() -> Any:
    """The whole command line, to be called with ``main(args=..., standalone_mode=False)``."""
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, context_settings=_CONTEXT, add_completion=True
    )
    app.callback()(_main)
    app.command("probe")(probe.probe)
    app.command("doctor")(doctor.doctor)
    app.command("reorder")(reorder.reorder)
    app.command("cost")(cost.cost)
    app.command("advise")(advise.advise)
    app.add_typer(schedule.app, name="schedule")
    launching = {**_CONTEXT, "allow_interspersed_args": False}
    app.command("launch", context_settings=launching)(launch.launch)
    app.command("reflector")(reflector.reflector)
    app.command("stamp")(reflector.stamp)
    app.command("demo")(demo.demo)
    app.add_typer(lab.app, name="lab")
    return typer.main.get_command(app)
