"""A user's program from its file: one that defines ``make(arguments)``, which gives what plink runs."""

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from plink.errors import InputError

EXAMPLE = "def make(arguments): return MyApp(...)"


def make_from_file(path: str, arguments: Sequence[str]) -> object:
    """Return what ``make(arguments)`` of a file gives; of a tuple, its first element.

    :raises InputError: there is no such file, it cannot be run, or it has no ``make``.
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
            raise InputError(path, f"it has no function make: {EXAMPLE}")
        made = make(list(arguments))
    except (InputError, SystemExit):
        raise
    except Exception as error:
        raise InputError(path, f"{line_of(error, file)}{type(error).__name__}: {error}") from error
    return made[0] if isinstance(made, tuple) and made else made


def line_of(error: BaseException, file: Path) -> str:
    """Return the line of the user's file in which an error was raised, like ``line 12: ``; nothing if in none."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if Path(frame.f_code.co_filename) == file]
    return f"line {lines[-1]}: " if lines else ""
