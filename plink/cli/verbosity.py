"""``-v``, ``-q`` and ``--debug``, the options of every command for how much it prints, and the library's log (loggers
below ``plink``) as lines on standard error."""

import logging
from collections.abc import Callable
from typing import Annotated, Any

import typer

from plink.terminal import screen
from plink.terminal.screen import say, say_error

PANEL = "Verbosity"  # of the options of all commands

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


class _StderrHandler(logging.Handler):
    """Log handler that prints to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        (say_error if record.levelno >= logging.WARNING else say)(record.getMessage())


def show_log(level: int = logging.INFO) -> None:
    """Print log records of this level and above from now on."""
    logger = logging.getLogger("plink")
    logger.handlers = [handler for handler in logger.handlers if not isinstance(handler, _StderrHandler)] + [
        _StderrHandler()
    ]
    logger.setLevel(level)
    logger.propagate = False


def attach(command: Any, options: list[Any] | None = None) -> None:
    """Add the options to the command and all its subcommands, which share them."""
    options = _options() if options is None else options
    for child in getattr(command, "commands", {}).values():
        attach(child, options)
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


def _option(*names: str, callback: Callable[[bool], None], help_text: str) -> Any:
    return typer.Option(*names, callback=callback, help=help_text, rich_help_panel=PANEL)


def _option_holder(
    verbose: Annotated[bool, _option("-v", "--verbose", callback=_verbose, help_text="Print more details.")] = False,
    quiet: Annotated[
        bool, _option("-q", "--quiet", callback=_quiet, help_text="Print only results and errors.")
    ] = False,
    debug: Annotated[bool, _option("--debug", callback=_debug, help_text="Show the traceback of an error.")] = False,
) -> None:
    """Declare the options; never called."""
