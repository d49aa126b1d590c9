"""Mistakes of the user's program, in one line that says where to look."""

import traceback

from plink.errors import PlinkError


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
