"""The progress that a search reports, and the budget that ends it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class SearchProgress:
    """State of a running search: cost of the best order so far, lower bound (None: unknown), number of moves tried."""

    cost: float
    lower_bound: float | None
    moves: int


ProgressCallback = Callable[[SearchProgress], bool]
"""Called several times a second with the progress; returns False to end the search with the best order so far."""


@dataclass(frozen=True)
class SearchBudget:
    """Stopping criteria of a search.

    It ends after ``max_moves``, or when ``keep_going`` returns False. Unless it is ``exhaustive`` it also ends when it
    has not improved for long. ``deadline``, by ``time.monotonic()``: when ``keep_going`` does so, where the limit is a
    time and not a number of moves; then engines that end by the clock may take part.
    """

    max_moves: int
    keep_going: ProgressCallback = lambda _: True
    exhaustive: bool = True
    deadline: float | None = None
