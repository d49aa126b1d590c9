"""The progress that a search reports, and the budget that ends it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix


@dataclass(frozen=True)
class SearchProgress:
    """State of a running search: cost of the best order so far, lower bound (None: unknown), number of moves tried."""

    cost: float
    lower_bound: float | None
    moves: int


ProgressCallback = Callable[[SearchProgress], bool]
"""Called several times a second with the progress; returns False to end the search with the best order so far."""


class RingEngine(Protocol):
    """A search for a ring that runs beside plink's own until a deadline."""

    def tour(self, keep_going: Callable[[], bool]) -> npt.NDArray[np.int64] | None:
        """Wait for the tour, shape (N,); None where there is none, or ``keep_going`` ends the wait."""

    def end(self) -> None:
        """End the search, if it still runs."""


StartRingEngine = Callable[[Matrix, float], RingEngine]
"""Starts an engine for costs, shape (N, N), symmetric, complete, with a deadline by ``time.monotonic()``."""


@dataclass(frozen=True)
class SearchBudget:
    """Stopping criteria of a search.

    It ends after ``max_moves``, or when ``keep_going`` returns False. Unless it is ``exhaustive`` it also ends when it
    has not improved for long. ``deadline``, by ``time.monotonic()``: when ``keep_going`` does so, where the limit is a
    time and not a number of moves. Then ``ring_engine``, if any, takes part, which ends by the clock.
    """

    max_moves: int
    keep_going: ProgressCallback = lambda _: True
    exhaustive: bool = True
    deadline: float | None = None
    ring_engine: StartRingEngine | None = None
