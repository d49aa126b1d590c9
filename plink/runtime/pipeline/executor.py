"""Run the actions of one rank, in one thread."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plink.errors import PlinkError
from plink.model.pipeline.actions import PipelineAction
from plink.model.pipeline.timeline import TimedAction
from plink.model.pipeline.versions import backward_peer, own_of_update, update_of, version_of
from plink.runtime.pipeline.app import PipelineApp
from plink.runtime.pipeline.gradients import Gradients
from plink.runtime.pipeline.stage import StagePlace, StageTrainer
from plink.runtime.pipeline.transport import StageTransport
from plink.runtime.users_file import line_of

_COMPUTING = ("forward_s", "backward_s", "update_s")
MAX_TIMED_ACTIONS = 800
"""Actions of each rank, from the first on, whose times are kept."""
_PHASES = {"F": "forward", "B": "backward", "REDUCE": "all-reduce", "UPDATE": "update"}


def _nothing(action: PipelineAction) -> None:
    """Do nothing."""


class StageError(PlinkError):
    """A rank cannot go on; the message names its stage, what it was doing and why."""


@dataclass
class StageTimes:
    """Seconds of each action of a rank: computing, and waiting for messages of other ranks."""

    forward_s: list[float] = field(default_factory=list)
    backward_s: list[float] = field(default_factory=list)
    update_s: list[float] = field(default_factory=list)
    wait_forward_s: list[float] = field(default_factory=list)
    wait_backward_s: list[float] = field(default_factory=list)
    wait_reduce_s: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    """When its minibatches were finished."""
    actions: list[TimedAction] = field(default_factory=list)
    """When it did its first actions, without waiting for messages; of an all-reduce the wait."""

    def to_json(self) -> dict[str, float]:
        """Return the medians of what is computed, and the sums of waits."""
        return {
            name: round(statistics.median(values) if name in _COMPUTING else sum(values), 6)
            for name, values in vars(self).items()
            if name.endswith("_s") and values
        }

    def interval_s(self) -> float | None:
        """Return the mean seconds between the ends of two minibatches, once the pipeline is full; None before."""
        full = len(self.ends) // 4
        if full < 1:
            return None
        return (self.ends[-1] - self.ends[full]) / (len(self.ends) - 1 - full)


class StageExecutor:
    """One replica of a stage. ``transport`` is None where there is one stage."""

    def __init__(
        self, app: PipelineApp, trainer: StageTrainer, gradients: Gradients, transport: StageTransport | None,
        replica: int, device: torch.device,
    ) -> None:  # fmt: skip
        self.times = StageTimes()
        self.versions = 1
        self._app, self._trainer, self._gradients, self._transport = app, trainer, gradients, transport
        self._place: StagePlace = trainer.place
        self._replica, self._device = replica, device
        shape, stage = self._place.shape, self._place.stage
        self._own = self._place.own(replica)
        self._forwards = 0
        self._began = time.perf_counter()
        self._timed_s = (0.0, 0.0)  # the latest
        self._gradient_goes_back = backward_peer(shape, stage, 0) is not None

    def run(
        self,
        actions: Iterable[PipelineAction],
        file: Path | None = None,
        after_action: Callable[[PipelineAction], None] = _nothing,
    ) -> None:
        """Run them in sequence.

        :param file: of the user's program, whose lines errors name. :param after_action: called after each.
        :raises StageError: with the action that cannot be done.
        """
        steps: dict[str, Callable[[int], None]] = {
            "F": self._forward, "B": self._backward, "REDUCE": self._reduce, "UPDATE": self._update,
        }  # fmt: skip
        if not self.times.actions:
            self._began = time.perf_counter()
        for action in actions:
            try:
                steps[action.kind](action.number)
                if len(self.times.actions) < MAX_TIMED_ACTIONS:
                    self.times.actions.append(TimedAction(action, self._replica, *self._timed_s))
                after_action(action)
            except Exception as error:
                raise StageError(self._described(action, error, file)) from error

    def finish(self) -> None:
        """Wait until all messages were sent."""
        if self._transport is not None:
            self._transport.finish()

    def _described(self, action: PipelineAction, error: Exception, file: Path | None) -> str:
        what = "minibatch" if action.kind in ("F", "B") else "update"
        notes = "".join(f"{note}: " for note in getattr(error, "__notes__", []))
        line = "" if file is None or isinstance(error, PlinkError) else line_of(error, file)
        name = "" if isinstance(error, PlinkError) else f"{type(error).__name__}: "
        place = f"stage {self._place.stage}, {what} {action.number}, {_PHASES[action.kind]}"
        return f"{place}: {notes}{line}{name}{error}"

    def _forward(self, minibatch: int) -> None:
        self._forwards += 1
        value: tuple[Any, ...] = ()
        target: Tensor | None = None
        if self._place.is_first or self._place.is_last:
            inputs, read = self._app.batch(minibatch)
            if self._place.is_first:
                value = tuple(tensor.to(self._device) for tensor in inputs)
            if self._place.is_last:
                target = read.to(self._device)
        if not self._place.is_first:
            assert self._transport is not None
            with self._clock(self.times.wait_forward_s):
                value = (self._transport.receive_forward(minibatch),)
        with self._clock(self.times.forward_s):
            output = self._trainer.forward(minibatch, value, target)
        if not self._place.is_last:
            assert self._transport is not None
            self._transport.send_forward(minibatch, output)
        if self._place.is_frozen:
            self.times.ends.append(time.perf_counter())

    def _backward(self, minibatch: int) -> None:
        gradients = None
        if not self._place.is_last:
            assert self._transport is not None
            with self._clock(self.times.wait_backward_s):
                gradients = self._transport.receive_backward(minibatch)
        shape, stage = self._place.shape, self._place.stage
        number = update_of(shape, stage, minibatch)
        own = own_of_update(shape, (stage, self._replica), number, self._place.minibatches)
        with self._clock(self.times.backward_s):
            back = self._trainer.backward(minibatch, gradients, minibatch == own[-1])
        if self._gradient_goes_back:
            assert self._transport is not None
            self._transport.send_backward(minibatch, back)
        self.times.ends.append(time.perf_counter())

    def _reduce(self, update: int) -> None:
        with self._clock(self.times.wait_reduce_s):
            self._gradients.wait(update)

    def _update(self, update: int) -> None:
        oldest = self._place.minibatches + 1  # needed by nobody
        if self._forwards < len(self._own):
            oldest = version_of(self._place.shape, self._place.stage, self._own[self._forwards])
        with self._clock(self.times.update_s):
            self._trainer.update(update, oldest)
        self.versions = max(self.versions, self._trainer.versions.count)

    @contextmanager
    def _clock(self, seconds: list[float]) -> Iterator[None]:
        """Append how long something takes; the last one of an action is the action itself."""
        begin = time.perf_counter()
        yield
        end = time.perf_counter()
        seconds.append(end - begin)
        self._timed_s = begin - self._began, end - self._began
