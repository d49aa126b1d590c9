"""A user's program, from its file: one that defines ``make(arguments)``, which gives the app (Harlap thesis, 4.2.1)."""

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plink.elastic.app import App, check_app
from plink.errors import InputError

_EXAMPLE = "def make(arguments): return MyApp(...)"


def load_app(path: str, arguments: Sequence[str]) -> App[Any]:
    """Load the app of a file with these arguments; ``make`` may also return a tuple with the app in front.

    :raises InputError: there is no such file, it cannot be run, or it gives no app.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(path, "there is no such file on this host")
    spec = importlib.util.spec_from_file_location("plink_app", file)
    if spec is None or spec.loader is None:
        raise InputError(path, "a .py file was expected")
    module = importlib.util.module_from_spec(spec)
    sys.modules["plink_app"] = module  # or its dataclasses would not know where they are from
    sys.path.insert(0, str(file.resolve().parent))
    sys.argv = [path, *arguments]  # whose name an argument parser tells
    try:
        spec.loader.exec_module(module)
        make = getattr(module, "make", None)
        if not callable(make):
            raise InputError(path, f"it has no function make: {_EXAMPLE}")
        made = make(list(arguments))
    except (InputError, SystemExit):
        raise
    except Exception as error:
        raise InputError(path, f"{_line_of(error, file)}{type(error).__name__}: {error}") from error
    app = made[0] if isinstance(made, tuple) and made else made
    if not isinstance(app, App):
        raise InputError(path, f"make() gave {type(app).__name__}, which is no App: {_EXAMPLE}")
    check_app(app)
    return app


def _line_of(error: Exception, file: Path) -> str:
    """Return the line of the user's file in which an error was raised."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if Path(frame.f_code.co_filename) == file]
    return f"line {lines[-1]}: " if lines else ""
