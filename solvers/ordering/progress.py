"""What a search says of itself while it runs, and when it stops."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """The cost of the best order so far, what no order costs less than (None: not known), how many moves were tried."""

    cost: float
    lower_bound: float | None
    moves: int


Watch = Callable[[Progress], bool]
"""Asked now and then; False ends the search with the best order so far."""


@dataclass(frozen=True)
class SearchBudget:
    """When a search ends: after ``max_moves``, when ``watch`` says so, or, unless it is ``patient``, when nothing has
    come of it for long."""

    max_moves: int
    watch: Watch = lambda _: True
    patient: bool = True
