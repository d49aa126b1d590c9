"""Mistakes of the user's program, in one line that says where to look."""

import traceback

from plink.runtime.agileml.app import AppError


def raised(where: str, error: BaseException) -> AppError:
    """What a method of the program raised, with the last line of it that is not plink's own or a library's called from
    there: the deepest in the file where the trouble began."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the caller
    own = [frame for frame in frames if frames and frame.filename == frames[0].filename]
    place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    said = " ".join(str(error).split())
    return AppError(f"{where} raised {type(error).__name__}{': ' if said else ''}{said}{place}")
