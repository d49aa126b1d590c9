"""Optimisers that servers apply to a table: what the workers add to it at a clock is then a gradient.

When a clock has all updates, the optimiser of a table makes additions of their sum, g: to the table, w, and to its
moments, which are tables of the same shape. So whatever is done with tables (roll-backs, replicas, moves, checkpoints)
is done with moments, and workers send gradients alone. The formulas are those of ``torch.optim``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from plink.elastic.app_error import called
from plink.elastic.tables import Table, Values
from plink.errors import InputError


@runtime_checkable
class Optimiser(Protocol):
    """What a server does with the sum of a clock; the same state, sum and clock give the same additions."""

    def moments(self, table: Table) -> Sequence[Table]:
        """Return the tables that it needs beside this one, each of its shape; they begin with zeros."""

    def additions(self, values: Sequence[Values], gradient: Values, clock: int) -> Sequence[Values]:
        """Return what to add to the table and to each of its moments, shapes of ``gradient``.

        It is called for some rows at a time: what becomes of a row must depend on that row alone.

        :param values: of these rows of the table and its moments before the clock; they must not be changed, nor
            ``gradient``.
        :param clock: from 1.
        """


@dataclass(frozen=True)
class _WithRate:
    """Learning rate ``lr``: a number, or a function of the clock, of which the first is 1, and of nothing else."""

    decays_gradient: ClassVar[bool] = True  # weight decay is added to the gradient
    lr: float | Callable[[int], float]

    def rate(self, clock: int) -> float:
        """Return the learning rate at a clock. :raises InputError: the function gives none. :raises AppError: it raised
        something."""
        result: object = called(f"lr({clock})", self.lr, clock) if callable(self.lr) else self.lr
        if not isinstance(result, int | float | np.number) or not 0 <= result < math.inf:
            raise InputError(f"lr({clock})", f"{result!r}, which must be a finite number, 0 or above")
        return float(result)

    def _check(self, numbers: dict[str, float]) -> None:
        for name, value in ({"an lr": 0.0 if callable(self.lr) else self.lr} | numbers).items():
            try:
                valid = bool(0 <= value < math.inf)
            except (TypeError, ValueError):
                valid = False
            if not valid:
                raise InputError(type(self).__name__, f"{name} of {value!r}, which must be a finite number, 0 or above")


@dataclass(frozen=True)
class Sgd(_WithRate):
    """Stochastic gradient descent; options as of ``torch.optim.SGD``. With momentum mu, velocity v and decay d:
    g += d w, v' = mu v + g, w' = w - lr v', or with Nesterov's w - lr (g + mu v')."""

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        self._check({"a momentum": self.momentum, "a weight_decay": self.weight_decay})
        if self.nesterov and not self.momentum:
            raise InputError("Sgd", "nesterov without a momentum")

    def moments(self, table: Table) -> Sequence[Table]:
        """Return the table of velocities, if there is momentum."""
        return (_moment("velocity", table),) if self.momentum else ()

    def additions(self, values: Sequence[Values], gradient: Values, clock: int) -> Sequence[Values]:
        """Return one step; see :class:`Optimiser`."""
        mu, rate, slope = self.momentum, self.rate(clock), gradient
        if self.weight_decay:
            slope = gradient + self.weight_decay * values[0]
        if not mu:
            return (-rate * slope,)
        faster = slope + (mu - 1) * values[1]
        velocity = values[1] + faster
        return -rate * (slope + mu * velocity if self.nesterov else velocity), faster


@dataclass(frozen=True)
class Adam(_WithRate):
    """Adam (Kingma and Ba 2015); options as of ``torch.optim.Adam``. With decay d and t clocks:
    g += d w, m' = b1 m + (1 - b1) g, v' = b2 v + (1 - b2) g^2,
    w' = w - lr m' / (1 - b1^t) / (sqrt(v' / (1 - b2^t)) + eps)."""

    lr: float | Callable[[int], float] = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        self._check({"a weight_decay": self.weight_decay})
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(type(self).__name__, f"betas of {self.betas}, which must be two numbers from 0 to below 1")
        if not 0 < self.eps < math.inf:
            raise InputError(type(self).__name__, f"an eps of {self.eps}, which must be above 0")

    def moments(self, table: Table) -> Sequence[Table]:
        """Return the tables of both moments, named as in torch."""
        return _moment("exp_avg", table), _moment("exp_avg_sq", table)

    def additions(self, values: Sequence[Values], gradient: Values, clock: int) -> Sequence[Values]:
        """Return one step; see :class:`Optimiser`."""
        weights, mean, square = values
        (beta1, beta2), rate, slope = self.betas, self.rate(clock), gradient
        if self.weight_decay and self.decays_gradient:
            slope = gradient + self.weight_decay * weights
        to_mean = slope - mean
        to_mean *= 1 - beta1
        to_square = slope * slope
        to_square -= square
        to_square *= 1 - beta2
        size = square + to_square
        np.sqrt(size, out=size)
        size /= math.sqrt(1 - beta2**clock)
        size += self.eps
        change = mean + to_mean
        change /= size
        change *= -rate / (1 - beta1**clock)
        if self.weight_decay and not self.decays_gradient:
            change -= rate * self.weight_decay * weights
        return change, to_mean, to_square


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), as ``torch.optim.AdamW``: w decays by lr d w and g
    not at all."""

    decays_gradient: ClassVar[bool] = False
    weight_decay: float = 0.01


def _moment(name: str, table: Table) -> Table:
    """Return a moment of a table, ``name.table``; of TorchApp's ``weights.TYPE`` it is ``name.TYPE``."""
    return replace(table, name=f"{name}.{table.name.removeprefix('weights.')}")
