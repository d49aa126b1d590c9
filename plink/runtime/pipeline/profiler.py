"""Profiler of a chain of layers: each is timed alone, with inputs cut off from what made them.

Hooks charge one layer's backward pass to its neighbour, and asynchronous devices make everything look fast. So each
layer runs by itself: forward on a detached input, backward from a gradient of ones, the device synchronised before
every reading of the clock. Their sum is compared with the whole model, which is measured without any of that.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from plink.errors import InputError, PlinkError
from plink.model.document import UNSET
from plink.model.pipeline.profile import (
    ITEM_BYTES,
    CrossingActivation,
    DType,
    InputTensor,
    LayerProfile,
    ModelProfile,
    WholeModel,
)
from plink.model.units import format_time
from plink.runtime.pipeline.app import checked_batch
from plink.runtime.pipeline.layer_memory import LayerMemory, LayerPasses, counter_of
from plink.runtime.pipeline.parts import Unit

WARM_UP_MINIBATCHES = 5
_MAX_RATIO, _MIN_DIFFERENCE_S = 1.5, 0.01  # of all layers to the whole model: beyond both, one of them is wrong
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ProfiledProgram:
    """What is profiled: layers that are called one after the other, minibatches, and how they are trained.

    ``batch`` gives the inputs and the target of minibatch number k; ``tied``: names of parameters that are one.
    """

    units: Sequence[Unit]
    batch: Callable[[int], tuple[tuple[Tensor, ...], Tensor]]
    loss: Callable[[Any, Tensor], Tensor]
    optimiser: Callable[[list[nn.Parameter], float], torch.optim.Optimizer]
    tied: Sequence[Sequence[str]] = ()
    device: str = "cpu"
    seed: int = 0


@dataclass
class _Samples:
    """Seconds of one layer, minibatch by minibatch, and what its last one had."""

    forward_s: list[float]
    backward_s: list[float]
    memory: LayerMemory = field(default_factory=LayerMemory)
    outputs: tuple[Tensor, ...] = ()


def consistent_profile(program: ProfiledProgram, minibatches: int, progress: Progress | None = None) -> ModelProfile:
    """Return a profile of which the layers do not contradict the whole model; it is taken again, once, where they do.

    :raises PlinkError: they contradict it again. :raises InputError: as :func:`profile_program`.
    """
    for _ in range(2):
        profile = profile_program(program, minibatches, progress)
        whole_s = profile.whole.forward_s + profile.whole.backward_s if profile.whole else profile.compute_s
        less_s, more_s = sorted((profile.compute_s, whole_s))
        if more_s <= less_s * _MAX_RATIO or more_s - less_s <= _MIN_DIFFERENCE_S:
            return profile
    raise PlinkError(
        f"the layers alone take {format_time(profile.compute_s)} a minibatch, the whole model {format_time(whole_s)}, "
        "in the second of two profiles too: something else runs on this machine; profile it when it is quiet"
    )


def profile_program(program: ProfiledProgram, minibatches: int, progress: Progress | None = None) -> ModelProfile:
    """Return the profile of a program's layers: medians over ``minibatches``, after a warm-up.

    :raises InputError: naming the layer that fails, returns no tensor, or a loss that is no finite scalar.
    """
    if not program.units:
        raise InputError("model()", "it has no layer")
    device = torch.device(program.device)
    samples = [_Samples([], []) for _ in program.units]
    for unit in program.units:
        unit.module.to(device).train()
    whole_model = _WholeModel(program)
    items = 0
    total = minibatches + WARM_UP_MINIBATCHES
    for number in range(total):
        inputs, target = _batch(program, number, device)
        items = items or int(inputs[0].shape[0])
        if int(inputs[0].shape[0]) != items:
            raise InputError("batch()", f"minibatch {number} has {inputs[0].shape[0]} items, the first one {items}")
        counts = number >= WARM_UP_MINIBATCHES
        _one_minibatch(program, samples, (inputs, target, number), "seconds" if counts else "nothing")
        whole_model.run(inputs, target, counts)
        if progress is not None:
            progress(number + 1, total)
    # Last: compilers look at what they are called with first, and libraries have their own memory by now.
    _one_minibatch(program, samples, (*_batch(program, 0, device), 0), "memory")
    steps = [_step(program, unit, device) for unit in program.units]
    layers = tuple(
        _layer(unit, sample, step, last=k + 1 == len(samples))
        for k, (unit, sample, step) in enumerate(zip(program.units, samples, steps, strict=True))
    )
    whole = whole_model.medians()
    alone_s = sum(layer.compute_s for layer in layers)
    first, _ = _batch(program, 0, device)
    return ModelProfile(
        minibatch=items,
        layers=layers,
        tied=tuple(tuple(names) for names in program.tied) or UNSET,
        device=program.device,
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        method="sequential",
        minibatches=minibatches,
        seed=program.seed,
        input=tuple(InputTensor(tuple(tensor.shape), _dtype(tensor)) for tensor in first),
        whole=WholeModel(**whole, layers_over_whole=alone_s / max(1e-12, whole["forward_s"] + whole["backward_s"])),
    )


def _batch(program: ProfiledProgram, number: int, device: torch.device) -> tuple[tuple[Tensor, ...], Tensor]:
    inputs, target = checked_batch(program.batch(number))
    if not inputs[0].dim():
        raise InputError("batch()", "inputs have the minibatch's items in their first dimension; got a scalar")
    return tuple(tensor.to(device) for tensor in inputs), target.to(device)


def _one_minibatch(
    program: ProfiledProgram,
    samples: list[_Samples],
    data: tuple[tuple[Tensor, ...], Tensor, int],
    counted: Literal["nothing", "seconds", "memory"],
) -> None:
    """Run each layer alone, forward and at once backward; the next one gets its output as a plain tensor.

    Counting memory slows everything down, so it is not done where seconds count.
    """
    values, target, number = data
    torch.manual_seed(program.seed + number)
    last = len(program.units) - 1
    are_saved = [False] * len(_flat(values))
    for k, (unit, sample) in enumerate(zip(program.units, samples, strict=True)):
        values = tuple(_mapped(value, _leaf) for value in values)
        # A layer that changes its input in place may not change a leaf.
        copies = tuple(_mapped(value, lambda tensor: tensor.clone()) for value in values)
        is_memory, device = counted == "memory", torch.device(program.device)
        with sample.memory.counting(unit.module, device) if is_memory else nullcontext() as passes:
            begin = _now(program.device)
            output = _called(unit, copies)
            results = [program.loss(output, target)] if k == last else _tensors(output)
            forward_s = _now(program.device) - begin
            if passes is not None:
                are_saved = passes.after_forward(_flat(copies), _tensors(output), are_saved)
            if k == last:
                _check_loss(results[0], number)
            results = [result for result in results if result.requires_grad]
            backward_s = _pass_back(results, program.device, passes) if results else 0.0
        unit.module.zero_grad(set_to_none=True)
        if counted == "seconds":
            sample.forward_s.append(forward_s)
            sample.backward_s.append(backward_s)
        sample.outputs = tuple(_leaf(tensor) for tensor in _tensors(output))
        values = (output,)
    if not results:
        raise InputError("model()", "the loss depends on no parameter that is trained")


def _pass_back(results: list[Tensor], device: str, passes: LayerPasses | None) -> float:
    """Return the seconds of a backward pass from gradients of ones."""
    ones = [torch.ones_like(result) for result in results]
    if passes is not None:
        passes.before_backward()
    begin = _now(device)
    torch.autograd.backward(results, ones)
    return _now(device) - begin


def _check_loss(loss: Tensor, minibatch: int) -> None:
    if loss.numel() != 1 or not bool(torch.isfinite(loss.detach()).all()):
        raise InputError("loss()", f"a finite scalar was expected for minibatch {minibatch}, got {_short(loss)}")


def _called(unit: Unit, values: tuple[Any, ...]) -> Any:
    try:
        output = unit.module(*values)
    except Exception as error:
        raise InputError(f"layer {unit.name}", f"{type(error).__name__}: {error}") from error
    for value in output if isinstance(output, tuple | list) else [output]:
        if not isinstance(value, Tensor):
            raise InputError(
                f"layer {unit.name}",
                f"it returned {type(value).__name__}; a tensor, or a tuple of tensors, was expected",
            )
    return output


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def _flat(values: tuple[Any, ...]) -> list[Tensor]:
    return [tensor for value in values for tensor in _tensors(value)]


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return the function's values of a tensor, or of a tuple's."""
    return function(value) if isinstance(value, Tensor) else tuple(map(function, value))


def _leaf(tensor: Tensor) -> Tensor:
    """Return the same values without a graph, with a gradient where they have one."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _short(value: Tensor) -> str:
    return f"a tensor of {value.numel()} elements" if value.numel() != 1 else str(value.item())


@dataclass(frozen=True)
class _Step:
    """Seconds of an optimiser's step and of a copy of the parameters, bytes of its state, and the most bytes that the
    step holds besides."""

    update_s: float = 0.0
    copy_s: float = 0.0
    state_bytes: int = 0
    held_bytes: int = 0


def _step(program: ProfiledProgram, unit: Unit, device: torch.device) -> _Step:
    """Return what an optimiser's step on a layer costs; its parameters are as before afterwards."""
    parameters = [parameter for parameter in unit.module.parameters() if parameter.requires_grad]
    if not parameters:
        return _Step()
    before = [parameter.detach().clone() for parameter in parameters]
    optimiser = program.optimiser(parameters, 1.0)
    steps, copies = [], []
    for _ in range(7):
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        _synchronise(program.device)
        begin = time.perf_counter()
        optimiser.step()
        _synchronise(program.device)
        steps.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        with torch.no_grad():
            torch._foreach_copy_([torch.empty_like(old) for old in before], [*parameters])
        _synchronise(program.device)
        copies.append(time.perf_counter() - begin)
    size = sum(
        value.numel() * value.element_size()
        for state in optimiser.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    )
    with counter_of(device) as counter:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        optimiser.step()  # once, so that all that it reads was seen
        counter.restart()
        held = counter.current
        optimiser.step()
        held = counter.most - held
    with torch.no_grad():
        for parameter, old in zip(parameters, before, strict=True):
            parameter.copy_(old)
    unit.module.zero_grad(set_to_none=True)
    return _Step(statistics.median(steps), statistics.median(copies), size, held)


def _layer(unit: Unit, sample: _Samples, step: _Step, last: bool) -> LayerProfile:
    memory = sample.memory
    crossing: tuple[CrossingActivation, ...] = ()
    if not last:
        crossing = tuple(
            CrossingActivation(tuple(tensor.shape), _dtype(tensor), tensor.requires_grad, unit.name)
            for tensor in sample.outputs
        )
    parameters = list(dict.fromkeys(unit.module.parameters()))
    return LayerProfile(
        name=unit.name,
        kind=type(unit.module).__name__,
        forward_s=statistics.median(sample.forward_s),
        backward_s=statistics.median(sample.backward_s),
        parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        crossing_bytes=sum(tensor.size_bytes for tensor in crossing),
        crossing_back_bytes=sum(tensor.size_bytes for tensor in crossing if tensor.gradient),
        crossing=crossing or UNSET,
        update_s=step.update_s,
        copy_s=step.copy_s,
        optimiser_bytes=step.state_bytes,
        saved_bytes=memory.saved,
        saved_before_bytes=memory.saved_before or UNSET,
        saved_input_bytes=memory.saved_input or UNSET,
        saved_output_bytes=UNSET if last else memory.saved_output or UNSET,
        aliases_input=memory.aliases_input or UNSET,
        backward_bytes=memory.backward,
        step_bytes=step.held_bytes or UNSET,
        buffers=next(unit.module.buffers(), None) is not None,
        forward_iqr_s=_interquartile_range(sample.forward_s),
        backward_iqr_s=_interquartile_range(sample.backward_s),
    )


class _WholeModel:
    """The whole model with nothing between its layers, in turns with the layers: both meet the same other load."""

    def __init__(self, program: ProfiledProgram) -> None:
        self._program = program
        modules = [unit.module for unit in program.units]
        self._parameters = list(dict.fromkeys(p for module in modules for p in module.parameters() if p.requires_grad))
        self._before = [parameter.detach().clone() for parameter in self._parameters]
        self._optimiser = program.optimiser(self._parameters, 1.0) if self._parameters else None
        self._seconds: list[tuple[float, float, float]] = []

    def run(self, inputs: tuple[Tensor, ...], target: Tensor, counts: bool) -> None:
        """Train on one minibatch."""
        device, values = self._program.device, inputs
        gc.collect(0)
        _synchronise(device)
        begin = time.perf_counter()
        for unit in self._program.units:
            values = (unit.module(*values),)
        result = self._program.loss(values[0], target)
        _synchronise(device)
        forward = time.perf_counter()
        torch.autograd.backward(result)
        _synchronise(device)
        backward = time.perf_counter()
        if self._optimiser is not None:
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=True)
        _synchronise(device)
        if counts:
            self._seconds.append((forward - begin, backward - forward, time.perf_counter() - begin))

    def medians(self) -> dict[str, float]:
        """Return the medians, and give the parameters their first values back."""
        with torch.no_grad():
            for parameter, old in zip(self._parameters, self._before, strict=True):
                parameter.copy_(old)
        columns = zip(*self._seconds, strict=True)
        return dict(zip(("forward_s", "backward_s", "step_s"), map(statistics.median, columns), strict=True))


def _interquartile_range(values: list[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def _dtype(tensor: Tensor) -> DType:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in ITEM_BYTES:
        raise InputError("model()", f"tensors of {name} cannot cross from one stage to the next")
    return name  # type: ignore[return-value]


def _now(device: str) -> float:
    """Return the time once the device has done everything."""
    _synchronise(device)
    return time.perf_counter()


def _synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
