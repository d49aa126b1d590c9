"""``-v``, ``-q`` and ``--debug``, which every command takes: how much is told of what it does."""

import logging
from typing import Annotated, Any

import typer

from plink.cli import screen
from plink.cli.notes import show_notes

DEBUG = "--debug"
PANEL = "How much is told"


_debugging = False


def begin() -> None:
    """As it is unless something is typed."""
    global _debugging
    _debugging = screen.quiet = False
    show_notes()


def debugging() -> bool:
    """Whether errors come with where they came from."""
    return _debugging


def attach(command: Any) -> None:
    """Give the options to the command and all that are below it."""
    for child in getattr(command, "commands", {}).values():
        attach(child)
    command.params += _options()


def _options() -> list[Any]:
    """As Typer makes them, whatever its release wants to know of an option."""
    app = typer.Typer(add_completion=False)
    app.command()(_carrier)
    made: list[Any] = list(typer.main.get_command(app).params)
    for option in made:
        option.expose_value = False
    return made


def _verbose(wanted: bool) -> None:
    if wanted:
        show_notes(logging.DEBUG)


def _quiet(wanted: bool) -> None:
    if wanted:
        screen.quiet = True
        show_notes(logging.WARNING)


def _debug(wanted: bool) -> None:
    global _debugging
    _debugging = _debugging or wanted


def _carrier(
    verbose: Annotated[
        bool,
        typer.Option(
            "-v", "--verbose", callback=_verbose, help="Tell more of what is done.", rich_help_panel=PANEL
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "-q", "--quiet", callback=_quiet, help="Tell only results and errors.", rich_help_panel=PANEL
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            DEBUG, callback=_debug, help="Show where in plink an error came from.", rich_help_panel=PANEL
        ),
    ] = False,
) -> None:  # fmt: skip
    """Never called."""
