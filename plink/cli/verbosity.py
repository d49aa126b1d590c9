"""``-v``, ``-q`` and ``--debug``, the options of every command for how much it prints."""

import logging
from typing import Annotated, Any

import typer

from plink.cli.log_handler import PANEL, show_log
from plink.terminal import screen

DEBUG = "--debug"


_debugging = _helping = False


def begin(helping: bool = False) -> None:
    """Reset to the defaults before a command is parsed. ``helping``: help was requested."""
    global _debugging, _helping
    _debugging = screen.quiet = False
    _helping = helping
    show_log()


def helping() -> bool:
    """Return whether help was requested, which is shown whatever files say."""
    return _helping


def debugging() -> bool:
    """Return whether errors are printed with tracebacks."""
    return _debugging


def attach(command: Any) -> None:
    """Add the options to the command and all its subcommands, which share them."""
    _add(command, _options())


def _add(command: Any, options: list[Any]) -> None:
    for child in getattr(command, "commands", {}).values():
        _add(child, options)
    command.params += options


def _options() -> list[Any]:
    """Return the options as this release of Typer makes them."""
    app = typer.Typer(add_completion=False)
    app.command()(_option_holder)
    options: list[Any] = list(typer.main.get_command(app).params)
    for option in options:
        option.expose_value = False
    return options


def _verbose(enabled: bool) -> None:
    if enabled:
        show_log(logging.DEBUG)


def _quiet(enabled: bool) -> None:
    if enabled:
        screen.quiet = True
        show_log(logging.WARNING)


def _debug(enabled: bool) -> None:
    global _debugging
    _debugging = _debugging or enabled


def _option_holder(
    verbose: Annotated[
        bool,
        typer.Option(
            "-v", "--verbose", callback=_verbose, help="Print more details.", rich_help_panel=PANEL
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "-q", "--quiet", callback=_quiet, help="Print only results and errors.", rich_help_panel=PANEL
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            DEBUG, callback=_debug, help="Show the traceback of an error.", rich_help_panel=PANEL
        ),
    ] = False,
) -> None:  # fmt: skip
    """Declare the options; never called."""
