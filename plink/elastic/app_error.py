"""Mistakes of the user's program, in one line that says where to look."""

import traceback
from collections.abc import Callable
from typing import TypeVar

from plink.errors import InputError, PlinkError

Result = TypeVar("Result")
MISTAKES = (Exception, SystemExit)
"""What a method of the program may raise: sys.exit() in a thread would end that alone, and the job would wait."""


class AppError(PlinkError):
    """A mistake in the program; the message names the program, the method, the shard and the clock."""


def app_error(location: str, error: BaseException) -> AppError:
    """Return what a method of the program raised as an :class:`AppError`.

    It names the last line that is neither plink's own nor a library's: the deepest in the file where the traceback
    begins.
    """
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the caller
    own = [frame for frame in frames if frames and frame.filename == frames[0].filename]
    place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    message = " ".join(str(error).split())
    return AppError(f"{location} raised {type(error).__name__}{': ' if message else ''}{message}{place}")


def called(location: str, method: Callable[..., Result], *values: object) -> Result:
    """Call a method of the program; its mistakes are reported with their line of the program."""
    try:
        return method(*values)
    except InputError as error:
        raise AppError(f"{location}: {error}") from error
    except (PlinkError, MemoryError):
        raise
    except MISTAKES as error:
        raise app_error(location, error) from error
