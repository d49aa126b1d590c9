"""Wait for something to be so, with a deadline; nothing here sleeps and hopes."""

import time
from collections.abc import Callable
from typing import TypeVar

_STEP_S = 0.05
Value = TypeVar("Value")


def until(look: Callable[[], Value], seconds: float, what: str) -> Value:
    """What ``look`` finds once that is true; fails after ``seconds``, saying what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        value = look()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what} (last seen: {value!r})"
        time.sleep(_STEP_S)
