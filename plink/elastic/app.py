"""A user's program, as an elastic job has it: its tables, its data by shards, the work on them, and when it is done.

The input data are cut into a fixed number of shards (Harlap thesis, 4.2.1 and Figure 4.4). A worker has some of them at
a time, and others later; all that is to last between clocks is in the tables. So nothing depends on who works on what:
:meth:`App.process` is given the items of one shard, the parameters as they were before the clock, and random numbers
that belong to shard and clock.
"""

import io
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import numpy as np

from plink.elastic.optimisers import Optimiser
from plink.elastic.params import Params
from plink.elastic.tables import Table, Values
from plink.errors import InputError, PlinkError
from plink.model.storage import check_writable, write_bytes


@dataclass(frozen=True)
class Objective:
    """The objective over some items: its sum and their number (or weight).

    The objective of an iteration is the mean over all shards; less is better.
    """

    total: float
    weight: float


RESERVED = "plink."  # how the names of plink's own tables begin

Items = TypeVar("Items")
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


class App(ABC, Generic[Items]):
    """Base class of a program that an elastic job trains; most programs override only some of its methods.

    A clock of work is one mini-batch: the part of every shard with its number. ``batches`` of them are an iteration.
    As the shards are all worked on at every clock, the global batch does not change with the number of workers.
    """

    tables: Sequence[Table]
    shards: int
    stop: StoppingCriterion
    optimisers: Mapping[str, Optimiser] = MappingProxyType({})  # by table: what is added to it is a gradient
    batches: int = 1
    grains: int = 1  # that :meth:`part` cuts a shard's mini-batch into, each processed for itself
    seed: int = 0
    result_file: str | None = None  # that :meth:`result` writes: a job that could not is refused before it begins

    @abstractmethod
    def load(self, shard: int) -> Sequence[Items]:
        """Return the items of a shard, one entry for each mini-batch; it is called again wherever the shard goes."""

    @abstractmethod
    def process(self, items: Items, params: Params) -> Objective | None:
        """Do one clock's work on one mini-batch of one shard: read parameters, add to them, return the objective.

        What it adds is seen from the next clock on, also by itself: only so does it not matter which shards a worker
        has.
        """

    def part(self, items: Items, grain: int) -> Items:
        """Return one of ``grains`` parts of a mini-batch. Together the parts are the whole mini-batch, and what
        :meth:`process` adds for them, and their objectives, add up. Parts are numbered from 0; this is not called where
        there is only one."""
        del grain
        return items

    def cost(self, items: Items, grain: int) -> float:
        """Return how long :meth:`process` takes for one of ``grains`` parts of a mini-batch, in any unit, above 0. Give
        it where parts differ much: workers that help each other measure progress by it, and what they give away."""
        del items, grain
        return 1.0

    def initial(self, table: str, rows: range, random: np.random.Generator) -> Values | None:
        """Return first values of some vectors of a table, shape (len(rows), width); None: zeros. Called in clock 0,
        when nothing else is done."""
        del table, rows, random
        return None

    def result(self, params: Params) -> None:
        """Read the trained parameters and keep them. Called when the job has ended, on one reliable host, and on
        another if that one is lost meanwhile."""
        del params

    @property
    def name(self) -> str:
        """Return the program's name for messages."""
        return type(self).__name__


def check_app(app: App[Items]) -> None:
    """Check a program before anything is started.

    :raises InputError: the program asks for something that cannot be.
    """
    location = f"app {app.name}"
    for attribute in ("tables", "shards", "stop"):
        if not hasattr(app, attribute):
            raise InputError(location, f"it gives no {attribute!r}")
    for count, what in ((app.shards, "shards"), (app.batches, "batches"), (app.grains, "grains")):
        if not isinstance(count, int) or count < 1:
            raise InputError(location, f"{what} is {count!r}, which must be a whole number above 0")
    if app.grains > 1 and type(app).part is App.part:
        raise InputError(
            location, f"grains is {app.grains}: give part(items, grain), or each would be the whole mini-batch"
        )
    if not isinstance(app.seed, int) or app.seed < 0:
        raise InputError(location, f"the seed is {app.seed!r}, which must be a whole number, 0 or above")
    if app.result_file is not None and not isinstance(app.result_file, str):
        raise InputError(location, f"result_file is {app.result_file!r}, which must be a path or None")
    if not isinstance(app.stop, StoppingCriterion):
        raise InputError(location, f"stop is {app.stop!r}, which must be a StoppingCriterion")
    for table in app.tables:
        if not isinstance(table, Table):
            raise InputError(location, f"one of the tables is {table!r}, which must be a Table")
        if table.name.startswith(RESERVED):
            raise InputError(location, f"table {table.name!r}: names that begin with {RESERVED!r} are plink's own")
    names = [table.name for table in app.tables]
    if not names or len(set(names)) < len(names):
        raise InputError(location, f"tables must have names of their own: {', '.join(names) or 'there are none'}")
    floats = [table.name for table in app.tables if table.dtype.startswith("float")]
    if not isinstance(app.optimisers, Mapping):
        raise InputError(location, f"optimisers is {app.optimisers!r}, which must be a mapping from tables' names")
    for name, optimiser in app.optimisers.items():
        if not isinstance(optimiser, Optimiser):
            raise InputError(location, f"optimisers[{name!r}] is {optimiser!r}, which must be an Sgd, Adam or AdamW")
        if name not in floats:
            raise InputError(location, f"optimisers[{name!r}]: tables of floats are {', '.join(floats) or 'none'}")


def unwritable(path: str) -> str | None:
    """Return why the result file cannot be written, for a person; None: it can be."""
    try:
        check_writable(Path(path).absolute())
    except PlinkError as error:
        return str(error)
    return None


def save_arrays(path: str, **arrays: Any) -> Path:
    """Save arrays as NumPy's npz under exactly that name, and return the path.

    :raises PlinkError: when it cannot be written; an older file of that name is then still as it was.
    """
    target, file = Path(path).absolute(), io.BytesIO()
    np.savez(file, **arrays)
    write_bytes(target, file.getvalue())
    return target
