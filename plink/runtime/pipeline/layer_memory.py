"""Memory of a layer that is profiled: what autograd keeps for its backward pass, and what that pass holds besides."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from plink.runtime.pipeline.tensor_counter import AllocatorCounter, TensorCounter, counter_of, storages_of


@dataclass
class LayerMemory:
    """Bytes of one layer, as in :class:`plink.model.pipeline.profile.LayerProfile`."""

    saved: int = 0
    saved_before: int = 0
    saved_input: int = 0
    saved_output: int = 0
    aliases_input: bool = False
    backward: int = 0

    @contextmanager
    def counting(self, module: nn.Module, device: torch.device) -> Iterator["LayerPasses"]:
        """Count during both passes."""
        parameters = set().union(*(_places(parameter) for parameter in module.parameters()))
        counter = counter_of(device)
        passes = LayerPasses(self, counter)

        def keep(tensor: Tensor) -> Tensor:
            for storage in storages_of(tensor):
                # Autograd keeps views of parameters, too.
                if storage.data_ptr() not in parameters and not isinstance(tensor, nn.Parameter):
                    passes.storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            yield passes
            self.backward = 0 if passes.before is None else max(0, counter.most - passes.before)


@dataclass
class LayerPasses:
    """A forward and a backward pass. ``storages``: bytes of what autograd keeps, by address. ``before``: bytes that
    were there before the backward pass; None where there is none."""

    _memory: LayerMemory
    _counter: TensorCounter | AllocatorCounter
    storages: dict[int, int] = field(default_factory=dict)
    before: int | None = None

    def after_forward(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], are_saved: Sequence[bool]
    ) -> list[bool]:
        """Say how much of it is input or output. ``are_saved``: which inputs layers before keep; return the same of
        the outputs, for the next layer."""
        memory, saved = self._memory, self.storages
        places = {place: before for tensor, before in zip(inputs, are_saved, strict=True) for place in _places(tensor)}
        memory.saved = sum(saved.values())
        memory.saved_input = sum(saved.get(place, 0) for place in places)
        memory.saved_before = sum(saved.get(place, 0) for place, before in places.items() if before)
        memory.aliases_input = any(_places(tensor) & places.keys() for tensor in outputs)
        outputs_saved = [
            any(place in saved or places.get(place, False) for place in _places(tensor)) for tensor in outputs
        ]
        memory.saved_output = sum(
            tensor.nbytes for tensor, is_saved in zip(outputs, outputs_saved, strict=True) if is_saved
        )
        return outputs_saved

    def before_backward(self) -> None:
        """Begin to count the backward pass."""
        self._counter.restart()
        self.before = self._counter.current


def _places(tensor: Tensor) -> set[int]:
    """Return the addresses of a tensor's memory."""
    return {storage.data_ptr() for storage in storages_of(tensor)}
