"""The program's PyTorch model, one for each thread that works with it, all the same; and who draws torch's numbers."""

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from plink.elastic.app_error import AppError, app_error
from plink.elastic.tables import Values
from plink.elastic.torch_tables import Slots, checksum, trained
from plink.errors import InputError

# torch's random numbers come from one generator of the process, whatever the thread: who seeds it must have it alone.
_generator = threading.RLock()


@contextmanager
def seeded(seed: int, devices: Sequence[int] = ()) -> Iterator[None]:
    """Seed torch's generators in a context, and restore them afterwards: the CPU's and those of some CUDA devices."""
    with _generator, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


@dataclass
class Replica:
    """Copy of the model that one thread works with; nothing of it counts between clocks. ``slopes``: room for
    gradients, as tables."""

    module: nn.Module
    slopes: dict[str, Values]
    initial: dict[str, Values] | None  # until training begins
    parameters: list[nn.Parameter] = field(init=False)
    devices: list[int] = field(init=False)
    _buffers: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.parameters = [parameter for _, parameter in trained(self.module)]
        self.devices = sorted({each.get_device() for each in self.module.parameters() if each.is_cuda})

        self._buffers = {name: _bytes(each).clone() for name, each in self.module.named_buffers()}

    def changed(self) -> str | None:
        """Return the name of a buffer that differs from when the model was made; by value, as BatchNorm's kernels count
        no version."""
        for name, buffer in self.module.named_buffers():
            if name not in self._buffers or not torch.equal(_bytes(buffer), self._buffers[name]):
                return name
        return None


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return bytes that are equal also where a tensor is NaN."""
    return tensor.detach().reshape(-1).view(torch.uint8)


class Models:
    """Models of all threads of a process; for any thread.

    :param location: the program's method, for messages.
    :param make: it.

    :raises AppError: it raised something, or gave what cannot be. :raises InputError: what tables cannot hold.
    """

    def __init__(self, location: str, make: Callable[[], object], seed: int) -> None:
        self._location, self._make, self._seed = location, make, seed
        self._parameters_in_use: list[weakref.ref[nn.Parameter]] = []
        self._mine = threading.local()
        first = self._made()
        try:
            self.slots = Slots.of(first)
        except InputError as error:
            raise InputError(location, str(error)) from error
        self._checksum = checksum(self.slots.flat(first))

    def new(self) -> nn.Module:
        """Return a new model, as the program begins with it."""
        made = self._made()
        unlike = self.slots.differ(Slots.of(made))
        if unlike:
            raise AppError(f"{self._location} gave another model than before, with {unlike}")
        if checksum(self.slots.flat(made)) != self._checksum:
            reason = "they must come from a file, or from torch's generator, which load() must not use"
            raise AppError(f"{self._location} gave parameters of other values than before: {reason}")
        return made

    def replica(self) -> Replica:
        """Return the replica of the calling thread."""
        result: Replica | None = getattr(self._mine, "replica", None)
        if result is None:
            made = self.new()
            result = self._mine.replica = Replica(made, self.slots.empty(), self.slots.flat(made))
        return result

    def initial(self) -> dict[str, Values]:
        """Return the parameters before training, as tables."""
        replica = self.replica()
        if replica.initial is None:  # training is back where it began
            replica.initial = self.slots.flat(self.new())
        return replica.initial

    def _made(self) -> nn.Module:
        with seeded(self._seed):
            try:
                made = self._make()
            except Exception as error:
                raise app_error(self._location, error) from error
            if not isinstance(made, nn.Module):
                raise AppError(f"{self._location} gave {type(made).__name__}, which must be a torch.nn.Module")
            self._parameters_in_use = [reference for reference in self._parameters_in_use if reference() is not None]
            others = {id(reference()) for reference in self._parameters_in_use}
            if any(id(parameter) in others for _, parameter in trained(made)):
                raise AppError(f"{self._location} gave the same parameters again: it must make new ones at every call")
            self._parameters_in_use += [weakref.ref(parameter) for _, parameter in trained(made)]
            return made
