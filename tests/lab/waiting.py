"""Wait for something to be so, with a deadline; nothing here sleeps and hopes."""

import time
from collections.abc import Callable
from typing import TypeVar

_STEP_S = 0.05
Found = TypeVar("Found")


def until(look: Callable[[], Found], seconds: float, what: str) -> Found:
    """What ``look`` finds once that is true; fails after ``seconds``, saying what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what} (last seen: {found!r})"
        time.sleep(_STEP_S)
