"""Stochastic gradient descent as ``torch.optim.SGD`` does it, in additions of which every shard can make its part.

With the state before a step, parameters w and velocity v, and g, gradient and decay on the global mini-batch:

    v' = mu v + g          w' = w - lr v'                 heavy ball
    v' = mu v + g          w' = w - lr (g + mu v')        Nesterov

Both are linear in g: v' - v = g + (mu - 1) v, and w' - w = -lr (g + mu v) or -lr ((1 + mu) g + mu^2 v). As g is the sum
of what shards find, every shard adds the terms of its own part, and one of them those of v, all from the state before
the clock. Adam is not linear: it divides by the root of a mean of g^2, which no shard knows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from plink.elastic.tables import Values
from plink.errors import InputError


@dataclass(frozen=True)
class Sgd:
    """Options of stochastic gradient descent, named as in torch. ``lr``: a number, or a function of the clock, of which
    the first is 1."""

    lr: float | Callable[[int], float]
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not callable(self.lr) and not 0 <= self.lr < math.inf:
            raise InputError("Sgd", f"an lr of {self.lr}")
        if not 0 <= self.momentum < math.inf:
            raise InputError("Sgd", f"a momentum of {self.momentum}")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError("Sgd", f"a weight_decay of {self.weight_decay}")
        if self.nesterov and not self.momentum:
            raise InputError("Sgd", "nesterov without a momentum")

    def rate(self, clock: int) -> float:
        """Return the learning rate at a clock. :raises InputError: the function gives none."""
        result = self.lr(clock) if callable(self.lr) else self.lr
        if not isinstance(result, int | float | np.number) or not 0 <= result < math.inf:
            raise InputError(f"lr({clock})", f"{result!r}, which must be a finite number, 0 or above")
        return float(result)

    def additions(self, slope: Values, rate: float, velocity: Values | None) -> tuple[Values, Values | None]:
        """Return what one shard adds to the parameters and to their velocity, shape of ``slope``.

        :param slope: this shard's part of g. :param velocity: before the clock; None: another shard sees to it.
        """
        mu, kind = self.momentum, slope.dtype.type
        if not mu:
            return slope * kind(-rate), None
        towards = slope * kind(-rate * (1 + mu if self.nesterov else 1))
        if velocity is None:
            return towards, slope
        towards -= velocity * kind(rate * (mu * mu if self.nesterov else mu))
        return towards, slope + velocity * kind(mu - 1)
