"""When training ends."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from plink.errors import InputError

MAX_PATIENCE = 16


@dataclass(frozen=True)
class StoppingCriterion:
    """End training at the first of these: a number of clocks, seconds since the start, early stopping.

    :ivar patience: early stopping: end after so many iterations of which none improved the best mean objective by more
        than ``tolerance`` of it.
    """

    clocks: int | None = None
    seconds: float | None = None
    patience: int | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.clocks is None and self.seconds is None and self.patience is None:
            raise InputError("stop", "give clocks, seconds or patience: without any the job would never end")
        if self.clocks is not None and self.clocks < 1:
            raise InputError("stop", f"{self.clocks} clocks")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise InputError("stop", f"{self.seconds} seconds")
        if self.patience is not None and not 1 <= self.patience <= MAX_PATIENCE:
            raise InputError("stop", f"a patience of {self.patience} iterations, which must be 1 to {MAX_PATIENCE}")
        if not 0 <= self.tolerance < math.inf:
            raise InputError("stop", f"a tolerance of {self.tolerance}")

    def converged(self, objectives: Sequence[float]) -> bool:
        """Return whether the last ``patience`` iterations improved nothing.

        :param objectives: of the latest iterations, in order.
        """
        if self.patience is None or len(objectives) <= self.patience:
            return False
        before = min(objectives[: -self.patience])
        return before - min(objectives[-self.patience :]) <= self.tolerance * abs(before)
