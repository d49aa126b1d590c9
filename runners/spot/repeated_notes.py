"""Problems that a driver notes once, and again while they last."""

import math
from collections.abc import Callable

REPEAT_S = 60.0  # a warning that still holds is repeated


class RepeatedNotes:
    """Warnings by what they are about."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._latest: dict[str, tuple[str, float]] = {}

    def warn(self, about: str, text: str, now: float, repeat_s: float = REPEAT_S) -> None:
        """Note a problem at once, and again every minute while it lasts."""
        before, at = self._latest.get(about, ("", -math.inf))
        if text != before or now - at >= repeat_s:
            self._latest[about] = (text, now)
            self._note(text)

    def forget(self, about: str) -> None:
        """Let the next warning be a new one."""
        self._latest.pop(about, None)
