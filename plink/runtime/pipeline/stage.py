"""One stage's computing: forward passes, backward passes and updates, of minibatches by their numbers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from plink.errors import PlinkError
from plink.model.pipeline.shape import (
    PipelineShape,
    minibatches_of_update,
    minibatches_per_update,
    older_versions_of_stage,
    replica_of,
    update_of,
    version_of,
)
from plink.runtime.pipeline.app import PipelineApp, random_seed
from plink.runtime.pipeline.parts import StageModule
from plink.runtime.pipeline.replicas import Gradients
from plink.runtime.pipeline.versions import Leaves, StashedVersions

_PLAIN = (bool, int, float, str, Tensor, type(None))
Value = Tensor | tuple[Tensor, ...]
"""What one layer hands to the next."""


@dataclass(frozen=True)
class StagePlace:
    """Which stage of which pipeline.

    ``lr_scale``: factor of its learning rate. ``recompute``: keep the input of a minibatch in flight and nothing else,
    and compute its forward pass again before its backward pass. ``begin``: the first minibatch, of a job that goes on.
    """

    shape: PipelineShape
    stage: int
    minibatches: int
    lr_scale: float = 1.0
    recompute: bool = False
    begin: int = 0

    def own(self, replica: int) -> range:
        """Return the minibatches of a replica."""
        return range(self.begin + replica, self.minibatches, self.shape.replicas[self.stage])

    @property
    def is_first(self) -> bool:
        """Whether it reads inputs."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether it computes the loss."""
        return self.stage == self.shape.stages - 1

    @property
    def is_frozen(self) -> bool:
        """Whether nothing is trained in it or before it."""
        return self.stage < self.shape.frozen


@dataclass(frozen=True)
class _Inputs:
    """All that a forward pass depends on, beside parameters. ``buffers``: as they were before it, or None: the own."""

    value: tuple[Any, ...]
    target: Tensor | None
    buffers: dict[str, Tensor] | None = None


@dataclass
class _InFlight:
    """A minibatch between its passes. ``again``: what to compute its forward pass from again; then it has no graph."""

    version: int
    leaves: Leaves
    inputs: list[Tensor]
    outputs: list[Tensor]
    again: _Inputs | None = None


class StageTrainer:
    """The module, versions and optimiser of one stage, for some of its replicas.

    Batch norm's running statistics and other buffers are each replica's own, and have no versions: they change in the
    sequence of forward passes.
    """

    def __init__(
        self, app: PipelineApp, place: StagePlace, module: StageModule, gradients: Gradients, replicas: Sequence[int]
    ) -> None:
        """:param replicas: those whose minibatches are processed here: one of them, or all in a reference run."""
        self.place = place
        self._app, self._module, self._gradients = app, module, gradients
        self.losses: dict[int, float] = {}
        self.parameters = {
            name: parameter
            for name, parameter in module.named_parameters()
            if parameter.requires_grad and not place.is_frozen
        }
        # One replica's are the module's own; those of several take turns in it.
        self._buffers = {replica: clone_buffers(module) for replica in replicas} if len(replicas) > 1 else {}
        self.versions = StashedVersions(self.parameters, gradients.attach)
        self.optimiser: torch.optim.Optimizer | None = None
        self._rates: list[float] = []
        if self.parameters:
            self.optimiser = app.optimiser(list(self.parameters.values()), place.lr_scale)
            self._rates = [group["lr"] for group in self.optimiser.param_groups]
        self._in_flight: dict[int, _InFlight] = {}

    def forward(self, minibatch: int, value: tuple[Any, ...], target: Tensor | None) -> Any:
        """Compute a forward pass, and return its output; of the last stage it is the loss.

        :param value: arguments of the first layer: the inputs of the minibatch, or what the stage before handed on.
        """
        shape, stage = self.place.shape, self.place.stage
        _seed(random_seed(self._app.seed, minibatch, stage))
        if self.place.is_frozen:
            with torch.no_grad(), self._own_buffers(minibatch):
                return self._module(*value)
        number = version_of(shape, stage, minibatch)
        leaves = self.versions.acquire(number)
        again = self._copied(minibatch, value, target) if self.place.recompute else None
        with self._own_buffers(minibatch):
            output, inputs = self._compute(leaves, _Inputs(value, target))
        if self.place.is_last:
            self.losses[minibatch] = float(output.detach())
            if self.losses[minibatch] != self.losses[minibatch]:
                raise PlinkError("the loss is NaN")
        if again is not None:
            output = without_graph(output)
            self._in_flight[minibatch] = _InFlight(number, leaves, [], [], again)
        else:
            self._in_flight[minibatch] = _InFlight(number, leaves, inputs, tensors_of(output))
        return output

    def infer(self, minibatch: int, value: tuple[Any, ...]) -> Any:
        """Compute a forward pass with the current parameters that nothing is learned from, and return its output."""
        modes = {module: module.training for module in self._module.modules()}
        self._module.eval()
        try:
            with torch.no_grad(), self._own_buffers(minibatch):
                return self._module(*value)
        finally:
            for module, is_training in modes.items():
                module.training = is_training

    def _compute(self, leaves: Leaves, source: _Inputs) -> tuple[Any, list[Tensor]]:
        """Return the output, or the loss, and the leaves that stand for what the stage before handed on."""
        inputs: list[Tensor] = []
        value = source.value if self.place.is_first else (_with_leaves(source.value[0], inputs),)
        output = torch.func.functional_call(self._module, {**leaves, **(source.buffers or {})}, value)
        if self.place.is_last:
            assert source.target is not None
            output = self._app.loss(output, source.target)
            if not isinstance(output, Tensor) or output.numel() != 1:
                raise PlinkError("loss() must return a tensor with one element")
        return output, inputs

    def _copied(self, minibatch: int, value: tuple[Any, ...], target: Tensor | None) -> _Inputs:
        """Return copies of what a forward pass may change in place."""
        copies = tuple(_copy(part) for part in value)
        buffers = self.buffers(replica_of(self.place.shape, self.place.stage, minibatch))
        return _Inputs(copies, target, {name: buffer.clone() for name, buffer in buffers.items()})

    def backward(self, minibatch: int, gradients: Sequence[Tensor] | None, is_last: bool) -> list[Tensor]:
        """Compute a backward pass, and return the gradients of what the stage before handed on.

        :param gradients: of the outputs that have one; None from the loss. :param is_last: of its update in this
            process.
        """
        shape, stage = self.place.shape, self.place.stage
        flying = self._in_flight.pop(minibatch)
        if flying.again is not None:
            _seed(random_seed(self._app.seed, minibatch, stage))
            output, flying.inputs = self._compute(flying.leaves, flying.again)
            flying.outputs = tensors_of(output)
        outputs = [output for output in flying.outputs if output.requires_grad]
        if not outputs:
            raise PlinkError("nothing that the stage returns depends on a parameter that is trained")
        self._gradients.begin(update_of(shape, stage, minibatch), replica_of(shape, stage, minibatch), is_last)
        torch.autograd.backward(outputs, gradients)
        self._gradients.take(flying.leaves)
        self.versions.release(flying.version)
        return [torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in flying.inputs]

    def update(self, number: int, oldest_needed: int) -> None:
        """Step the optimiser. ``oldest_needed``: the oldest version that a later forward pass uses."""
        shape, stage = self.place.shape, self.place.stage
        self.versions.advance(oldest_needed)
        if self.optimiser is None:  # the stage has nothing to train, though stages before it have
            return
        size = len(minibatches_of_update(shape, stage, number, self.place.minibatches))
        self._gradients.apply(number, size, self.parameters)
        rate = self._app.rate(number * minibatches_per_update(shape, stage))
        for group, base in zip(self.optimiser.param_groups, self._rates, strict=True):
            group["lr"] = base * rate
        self.optimiser.step()
        for parameter in self.parameters.values():
            parameter.grad = None
        self._gradients.discard(number)

    def state(self, replica: int) -> dict[str, Tensor]:
        """Return all parameters and the buffers of one replica, by all their names in the model."""
        own = dict(self._module.named_parameters())
        parameters = {name: own[alias].detach() for name, alias in self._module.aliases.items()}
        state = parameters | self.buffers(replica)
        return {name: tensor for name, tensor in state.items() if name not in self._module.constants}

    def buffers(self, replica: int) -> dict[str, Tensor]:
        """Return the buffers of one replica, by their names in the model."""
        return self._buffers[replica] if replica in self._buffers else dict(self._module.named_buffers())

    def restore(self, state: Mapping[str, Any], replica: int) -> None:
        """Go on from a checkpoint, as :class:`plink.runtime.pipeline.checkpoints.StageCheckpoints` wrote it.

        With the versions of other replicas too, until the first update: a checkpoint may need them. A version that it
        lacks is replaced by the current parameters.
        """
        shape, stage, begin = self.place.shape, self.place.stage, self.place.begin
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(state["parameters"][name])
            for name, buffer in self.buffers(replica).items():
                buffer.copy_(state["buffers"][name])
        older = {}
        for version in older_versions_of_stage(shape, stage, begin, self.place.minibatches):
            values = state["versions"].get(version, state["parameters"])
            older[version] = {
                name: values[name].to(parameter.device, copy=True) for name, parameter in self.parameters.items()
            }
        self.versions.restore(begin // minibatches_per_update(shape, stage), older)
        if self.optimiser is not None:
            restore_optimiser(self.optimiser, self.parameters, state)

    @contextmanager
    def _own_buffers(self, minibatch: int) -> Iterator[None]:
        """Give the module the buffers of the replica that processes a minibatch."""
        if not self._buffers:
            yield
            return
        own = self._buffers[replica_of(self.place.shape, self.place.stage, minibatch)]
        set_buffers(self._module, own)
        yield
        own.update(self._module.named_buffers())

    def optimiser_state(self) -> dict[str, dict[str, Any]]:
        """Return what the optimiser keeps for each parameter, by its name in the model."""
        if self.optimiser is None:
            return {}
        return {name: dict(self.optimiser.state[parameter]) for name, parameter in self.parameters.items()}

    def optimiser_groups(self) -> list[dict[str, Any]]:
        """Return the options of the optimiser's groups, which some optimisers change."""
        groups = [] if self.optimiser is None else self.optimiser.param_groups
        return [{key: value for key, value in group.items() if isinstance(value, _PLAIN)} for group in groups]


def restore_optimiser(
    optimiser: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], state: Mapping[str, Any]
) -> None:
    """Give an optimiser the state of its parameters by their names, and the options of its groups where there are."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    document = optimiser.state_dict()
    entries = {}
    for group, saved in zip(optimiser.param_groups, document["param_groups"], strict=True):
        for parameter, index in zip(group["params"], saved["params"], strict=True):
            if entry := state["optimiser"].get(names.get(id(parameter), "")):
                entries[index] = entry
    for saved, options in zip(document["param_groups"], state["groups"], strict=False):
        saved.update(options)
    optimiser.load_state_dict({"state": entries, "param_groups": document["param_groups"]})


def _seed(seed: int) -> None:
    """Seed the random numbers of the CPU, and of the GPU where one is in use.

    ``torch.manual_seed`` notes every call, with its stack, for a GPU that may be used later: that costs half a
    millisecond and some memory for each minibatch.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(seed)


def clone_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of a module's buffers, by name."""
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def set_buffers(module: nn.Module, buffers: Mapping[str, Tensor]) -> None:
    """Make these tensors a module's buffers."""
    for name, buffer in buffers.items():
        owner, _, last = name.rpartition(".")
        module.get_submodule(owner)._buffers[last] = buffer


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors that a stage hands on.

    :raises PlinkError: for what is no tensor and no tuple of tensors.
    """
    tensors = list(value) if isinstance(value, tuple | list) else [value]
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise PlinkError(
                f"the stage hands on {type(tensor).__name__}; a tensor, or a tuple of tensors, was expected"
            )
    return tensors


def without_graph(value: Any) -> Any:
    """Return the same tensors, as leaves that have gradients where these have."""
    leaves = tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors_of(value))
    return leaves[0] if isinstance(value, Tensor) else leaves


def _copy(value: Any) -> Any:
    """Return a copy of what the stage before handed on, with gradients where it has."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return tuple(_copy(tensor) for tensor in value)


class _Identity(torch.autograd.Function):
    """The same values as another tensor of the graph, so that a layer may change its input in place."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


def _with_leaves(value: Value, leaves: list[Tensor]) -> Value:
    """Return a value whose tensors with gradients depend on leaves, which are added to a list."""

    def leaf(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        leaves.append(tensor)
        return _Identity.apply(tensor)  # type: ignore[no-any-return,no-untyped-call]

    return leaf(value) if isinstance(value, Tensor) else tuple(leaf(tensor) for tensor in value)
