"""PyTorch modules on the elastic parameter server: the user gives a model, a loss and data, this the rest of an App.

One clock is one step of the optimiser on the global mini-batch, the same to rounding however many workers and servers
there are: the gradient of every shard's mini-batch counts by the number of its items. All state is in tables: the
parameters, the optimiser's moments, and how many items the mini-batches of every shard have. So it holds under BSP;
plain SGD, of which every worker makes its part, may take steps from older parameters under a rule with staleness.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from plink.elastic.app import App, Items, Objective
from plink.elastic.app_error import AppError, Result, called
from plink.elastic.optimisers import Adam, Optimiser, Sgd
from plink.elastic.params import Params
from plink.elastic.tables import Table, Values
from plink.elastic.torch_models import Models, Replica, Slots, seeded
from plink.errors import InputError, PlinkError

WEIGHTS, SIZES = "weights", "sizes"


class TorchApp(App[Items]):
    """Base class of a program that trains a torch module: give ``shards``, ``stop``, ``optimiser``, and :meth:`model`,
    :meth:`loss` and :meth:`load`.

    Random numbers of torch (dropout, say) are those of shard and clock. They come from the one generator that a process
    has: workers that share a process take turns at their forward and backward passes, and :meth:`load`, which may run
    beside them, must draw from a generator of its own.
    """

    optimiser: Sgd | Adam

    @abstractmethod
    def model(self) -> nn.Module:
        """Return a new module, in the mode and on the device that it is to be trained in. Training begins with what
        this returns after ``torch.manual_seed(self.seed)``. Its buffers must not change: no running statistics.
        """

    @abstractmethod
    def loss(self, model: nn.Module, items: Items) -> torch.Tensor:
        """Return the mean loss over a mini-batch, a scalar. Move items that are to be on another device here."""

    def size(self, items: Items) -> float:
        """Return how many items a mini-batch has (or their weight): as many as its first tensor has rows, unless this
        is overridden. A mini-batch of size 0 is skipped."""
        return rows_of(items)

    def sizes(self, shard: int) -> Sequence[float]:
        """Return :meth:`size` of every mini-batch of a shard. Called once, in clock 0; unless it is overridden, shards
        are loaded for this, once more than for the work."""
        batches = called(f"app {self.name}: load({shard})", self.load, shard)
        return [called(f"app {self.name}: size()", self.size, items) for items in batches]

    def trained(self, tables: Mapping[str, Values]) -> nn.Module:
        """Return a new model with the parameters of ``TrainingResult.tables``."""
        return self.into(self._models.new(), tables)

    def into(self, model: nn.Module, tables: Mapping[str, Values]) -> nn.Module:
        """Copy the parameters of ``TrainingResult.tables`` into a model of the same shapes, which is given back.

        :raises InputError: it has others, or the tables are of another model.
        """
        location = f"app {self.name}: into()"
        try:
            unlike = self._slots.differ(Slots.of(model))
        except InputError as error:
            raise InputError(location, str(error)) from error
        if unlike:
            raise InputError(location, f"the model has {unlike}")
        result = {}
        for dtype in self._slots.dtypes:
            table = self._slots.table(WEIGHTS, dtype)
            values = tables.get(table.name)
            if values is None or values.shape != (table.rows, table.width) or values.dtype != dtype:
                raise InputError(location, f"there is no table {table.name!r} of {table.rows} x {table.width} numbers")
            result[dtype] = np.ascontiguousarray(values)
        self._slots.put(model, result)
        return model

    def part(self, items: Items, grain: int) -> Items:
        """Return a micro-batch, where ``grains`` is above 1: so many of the rows of each tensor that has as many as the
        first."""
        result: Items = micro_batch(items, grain, self.grains)
        return result

    # What follows is what App asks for.

    @property
    def tables(self) -> Sequence[Table]:  # type: ignore[override]
        """Return the tables: ``weights`` by type of number; ``sizes``: row ``batch * shards + shard``."""
        for what in ("shards", "batches"):
            if not isinstance(count := getattr(self, what, None), int) or count < 1:
                raise InputError(f"app {self.name}", f"{what} is {count!r}, which must be a whole number above 0")
        optimiser = getattr(self, "optimiser", None)
        if not isinstance(optimiser, Sgd | Adam):
            raise InputError(f"app {self.name}", f"optimiser is {optimiser!r}, which must be an Sgd, Adam or AdamW")
        tables = [self._slots.table(WEIGHTS, dtype) for dtype in self._slots.dtypes]
        return (*tables, Table(SIZES, self.shards * self.batches, 1, "float64"))

    @property
    def optimisers(self) -> Mapping[str, Optimiser]:  # type: ignore[override]
        """Return what servers do with gradients; nothing with plain SGD, which workers do under any rule. Weight decay
        of gradients is the workers', too: as in torch, an unused parameter does not decay."""
        optimiser = self.optimiser
        if isinstance(optimiser, Sgd) and not optimiser.momentum:
            return {}
        optimiser = replace(optimiser, weight_decay=0.0) if optimiser.decays_gradient else optimiser
        return {f"{WEIGHTS}.{dtype}": optimiser for dtype in self._slots.dtypes}

    def initial(self, table: str, rows: range, random: np.random.Generator) -> Values | None:
        """Return the model's own first values; sizes of mini-batches plus 1, as 0 means unknown."""
        kind, _, dtype = table.partition(".")
        if kind == SIZES:
            message = {shard: self._checked_sizes(shard) for shard in {row % self.shards for row in rows}}
            return np.array([[1 + message[row % self.shards][row // self.shards]] for row in rows])
        return self._models.initial()[dtype][rows.start : rows.stop : rows.step] if kind == WEIGHTS else None

    def process(self, items: Items, params: Params) -> Objective | None:
        """Add this mini-batch's part of one step on the global mini-batch."""
        replica = self._models.replica()
        replica.initial = None
        size, whole = self._shares(items, params)
        if not size:
            return None
        scale = size / whole
        if not self.optimisers:
            scale *= -self._try(params, "the optimiser", self.optimiser.rate, params.clock)
        self._slots.put(replica.module, {dtype: params.read(f"{WEIGHTS}.{dtype}") for dtype in self._slots.dtypes})
        loss = self._slope(replica, items, params)
        if not math.isfinite(loss):
            return Objective(loss, size)  # which the worker refuses
        for dtype, slope in replica.slopes.items():
            slope *= slope.dtype.type(scale)
            params.update(f"{WEIGHTS}.{dtype}", None, slope)
        return Objective(loss * size, size)

    def _slope(self, replica: Replica, items: Items, params: Params) -> float:
        """Return the loss; its gradient goes to ``replica.slopes``."""
        for parameter in replica.parameters:
            parameter.grad = None
        with seeded(int(params.random.integers(1 << 63)), replica.devices):
            loss = self._try(params, "loss()", self.loss, replica.module, items)
            if not isinstance(loss, torch.Tensor) or loss.dim():
                what = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
                reason = f"loss() gave {what}, which must be a scalar tensor: the mean over the mini-batch"
                raise self._mistake(params, reason)
            if not loss.requires_grad:
                raise self._mistake(params, "loss() gave a tensor without gradient: something on its way detached it")
            self._try(params, "the gradient of loss()", loss.backward)
        changed = replica.changed()
        if changed:
            instead = "use GroupNorm or LayerNorm, or track_running_stats=False"
            reason = f"loss() changed buffer {changed!r} of the model, which no table holds: {instead}"
            raise self._mistake(params, reason)
        if all(parameter.grad is None for parameter in replica.parameters):
            raise self._mistake(params, "loss() does not depend on the model that it was given")
        self._slots.take((self._decayed(parameter) for parameter in replica.parameters), replica.slopes)
        return float(loss.detach())

    def _decayed(self, parameter: nn.Parameter) -> torch.Tensor | None:
        """Return a parameter's gradient, with weight decay where that is a part of it."""
        slope, decay = parameter.grad, self.optimiser.weight_decay
        if slope is None or not decay or not self.optimiser.decays_gradient:
            return slope
        return (slope.to_dense() if slope.is_sparse else slope).add(parameter.detach(), alpha=decay)

    def _shares(self, items: Items, params: Params) -> tuple[float, float]:
        """Return the sizes of this mini-batch, or of this part of it, and of the global one."""
        size = self._try(params, "size()", self.size, items)
        batch = (params.clock - 1) % self.batches
        message = self._values_now.get(batch)
        if message is None:
            result = params.read(SIZES, np.arange(batch * self.shards, (batch + 1) * self.shards))[:, 0]
            if not result.all():  # a rule with staleness lets clock 1 begin before clock 0 is over for all
                return 0.0, 0.0
            message = self._values_now[batch] = result - 1  # which they stay
        if size > message[params.shard] or (size < message[params.shard] and self.grains == 1):
            reason = f"size() is {size:g}, and sizes() said {message[params.shard]:g} of mini-batch {batch}"
            raise self._mistake(params, reason)
        return size, float(message.sum())

    def _checked_sizes(self, shard: int) -> Sequence[float]:
        location = f"app {self.name}: sizes({shard})"
        result = called(location, self.sizes, shard)
        if len(result) != self.batches or not all(0 <= each < math.inf for each in result):
            reason = f"{list(result)}, which must be {self.batches} finite numbers, 0 or above, one for each mini-batch"
            raise AppError(f"{location} gave {reason}")
        return result

    def _try(self, params: Params, what: str, method: Callable[..., Result], *values: object) -> Result:
        try:
            return called(f"{self._location(params)}: {what}", method, *values)
        except PlinkError as error:
            params.failed = error  # the worker says it as it is
            raise

    def _mistake(self, params: Params, reason: str) -> AppError:
        error = AppError(f"{self._location(params)}: {reason}")
        params.failed = error
        return error

    def _location(self, params: Params) -> str:
        return f"app {self.name}: process() of {params.location}"

    @cached_property
    def _models(self) -> Models:
        return Models(f"app {self.name}: model()", self.model, self.seed)

    @property
    def _slots(self) -> Slots:
        return self._models.slots

    @cached_property
    def _values_now(self) -> dict[int, Values]:
        """Cache of the sizes of all shards' mini-batches, by the number of the mini-batch."""
        return {}


def rows_of(items: object) -> int:
    """Return the number of rows of a mini-batch's first tensor.

    :raises InputError: it does not begin with one.
    """
    first: object = items
    while isinstance(first, Mapping | list | tuple) and first:
        first = next(iter(first.values() if isinstance(first, Mapping) else first))
    if not isinstance(first, torch.Tensor | np.ndarray) or not first.ndim:
        raise InputError("a mini-batch", f"{type(items).__name__}, which does not begin with a tensor of items")
    return len(first)


def micro_batch(items: Any, number: int, parts: int) -> Any:
    """Return part ``number`` of a mini-batch. Parts differ in size by one row at most. They are views of those tensors
    that have as many rows as the first, and whatever else there is.

    :raises InputError: as :func:`rows_of`.
    """
    rows = rows_of(items)
    return _sliced(items, rows, slice(rows * number // parts, rows * (number + 1) // parts))


def _sliced(items: Any, rows: int, part: slice) -> Any:
    if isinstance(items, torch.Tensor | np.ndarray):
        return items[part] if items.ndim and len(items) == rows else items
    if isinstance(items, Mapping):
        return {key: _sliced(value, rows, part) for key, value in items.items()}
    if isinstance(items, tuple) and hasattr(items, "_fields"):
        return type(items)(*(_sliced(value, rows, part) for value in items))
    if isinstance(items, list | tuple):
        return type(items)(_sliced(value, rows, part) for value in items)
    return items
