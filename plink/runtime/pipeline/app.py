"""What a user's program gives to a pipeline: a model, its minibatches, its loss and its optimiser."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from plink.errors import InputError
from plink.runtime.users_file import EXAMPLE, make_from_file

MAX_SEED = 1 << 32


class PipelineApp(ABC):
    """A training job that a pipeline can run.

    ``minibatches``: of the whole job, all replicas of the first stage together. ``seed``: of parameters and of random
    numbers, such as dropout's. ``device``: ``cpu``, or ``cuda`` for a GPU in each process. ``evaluate_every``:
    minibatches between two evaluations, rounded up to whole rounds; None: there are none. ``evaluation_minibatches``:
    of each.
    """

    minibatches: int
    seed: int = 0
    device: str = "cpu"
    evaluate_every: int | None = None
    evaluation_minibatches: int = 0

    @abstractmethod
    def model(self) -> nn.Module:
        """Return the model; it must be the same on every host with the same random numbers.

        An ``nn.Sequential``, or a list of modules, is cut between any two layers; see :meth:`layers` for others.
        """

    @abstractmethod
    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the inputs and the target of a minibatch, as a function of its number and of nothing else.

        The first stage reads the inputs and the last one the target, each on its own host.
        """

    @abstractmethod
    def loss(self, output: Any, target: Tensor) -> Tensor:
        """Return the loss of a minibatch, a scalar: the mean over its items."""

    @abstractmethod
    def optimiser(self, parameters: list[nn.Parameter], scale: float) -> torch.optim.Optimizer:
        """Return the optimiser of one stage's parameters. ``scale``: factor of the learning rate that the plan gives
        to the stage, whose updates average more minibatches, or fewer, than those of the first stage."""

    def evaluation_batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the inputs and the target of an evaluation minibatch, as :meth:`batch` does of one to train with."""
        raise NotImplementedError("a program with evaluate_every needs evaluation_batch(number)")

    def metric(self, output: Any, target: Tensor) -> float:
        """Return what an evaluation says of a minibatch; the loss, unless a program has another metric."""
        return float(self.loss(output, target))

    def layers(self, model: nn.Module) -> list[str] | None:
        """Return the names of modules with which a stage may begin, of a model that is no ``nn.Sequential``.

        Such a model is traced by ``torch.export``; where that fails, these must be a chain. None: all direct children,
        and those of lists.
        """
        return None

    def rate(self, number: int) -> float:
        """Return a factor of the learning rate for the update whose first minibatch has this number."""
        return 1.0

    def save(self, stage: int, state: dict[str, Tensor]) -> None:  # noqa: B027 (optional)
        """Keep a stage's parameters and buffers at the end, by their names in the model. Replica 0 calls it."""


def checked_batch(data: Any, location: str = "batch()") -> tuple[tuple[Tensor, ...], Tensor]:
    """Return a minibatch as a program's ``batch`` returned it.

    :raises InputError: it is no inputs and target.
    """
    if isinstance(data, tuple | list) and len(data) == 2:
        inputs, target = data
        if isinstance(inputs, tuple | list) and inputs and all(isinstance(part, Tensor) for part in (*inputs, target)):
            return tuple(inputs), target
    kinds = ", ".join(type(part).__name__ for part in data) if isinstance(data, tuple | list) else type(data).__name__
    raise InputError(
        location, f"return a tuple of input tensors and a target tensor, like (x,), y; it returned {kinds}"
    )


def load_pipeline_app(path: str, arguments: Sequence[str]) -> PipelineApp:
    """Return the app of a user's file, made with these arguments.

    :raises InputError: there is no such file, it cannot be run, or it gives no valid app.
    """
    app = make_from_file(path, arguments)
    if not isinstance(app, PipelineApp):
        raise InputError(path, f"make() gave {type(app).__name__}, which is no PipelineApp: {EXAMPLE}")
    minibatches = getattr(app, "minibatches", None)
    if type(minibatches) is not int or minibatches < 1:
        raise InputError(path, f"minibatches: a number of 1 or more was expected, not {minibatches!r}")
    if type(app.seed) is not int or not 0 <= app.seed < MAX_SEED:
        raise InputError(path, f"seed: a number from 0 to {MAX_SEED - 1} was expected, not {app.seed!r}")
    if app.evaluate_every is not None:
        for name in ("evaluate_every", "evaluation_minibatches"):
            number = getattr(app, name)
            if type(number) is not int or number < 1:
                raise InputError(path, f"{name}: a number of 1 or more was expected, not {number!r}")
    return app


def random_seed(seed: int, minibatch: int, stage: int) -> int:
    """Return the seed of a stage's random numbers in the forward pass of a minibatch, which a rerun repeats."""
    return ((seed * 1_000_003 + minibatch) * 4096 + stage) % (1 << 63)
