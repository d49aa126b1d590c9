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
from plink.model.pipeline.results import TimedAction
from plink.model.pipeline.shape import FLUSHING, backward_peer, own_of_update, update_of, version_of
from plink.runtime.pipeline.app import PipelineApp, checked_batch
from plink.runtime.pipeline.replicas import Gradients
from plink.runtime.pipeline.stage import StagePlace, StageTrainer
from plink.runtime.pipeline.transport import StageTransport
from plink.runtime.users_file import line_of

_COMPUTING = ("forward_s", "backward_s", "update_s")
_WAITING = ("wait_forward_s", "wait_backward_s", "wait_reduce_s")
MAX_TIMED_ACTIONS = 800
"""Actions of each rank, from the first on, whose times are kept."""
_PHASES = {"F": "forward", "B": "backward", "REDUCE": "all-reduce", "UPDATE": "update"}


def _nothing(action: PipelineAction) -> None:
    """Do nothing."""


class StageError(PlinkError):
    """A rank cannot go on; the message names its stage, what it was doing and why."""


@dataclass
class StageTimes:
    """Seconds of each action of a rank: computing, and waiting for messages of other ranks.

    ``drained_ends``: ends of minibatches after which the pipeline is empty, of kinds that flush.
    """

    drained_ends: int = 0
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
    evaluation_total_s: float = 0.0
    """Of evaluations, with draining before each and filling after it; waits of these are in none of the others."""
    _spans: list[slice] = field(default_factory=lambda: [slice(0, 0)])
    """Between two evaluations: the ends of minibatches before the pipeline drained."""
    _paused: float | None = None
    """When training was left for an evaluation, or time was last counted as one's."""
    _waits: dict[str, int] = field(default_factory=dict)
    """How many waits there were when the pipeline was last full."""
    _full_until: float | None = None

    def seconds(self) -> dict[str, Any]:
        """Return the medians of what is computed, and the sums of waits, as a rank's report names them."""
        document = {
            name: round(statistics.median(values) if name in _COMPUTING else sum(values), 6)
            for name, values in vars(self).items()
            if name in (*_COMPUTING, *_WAITING) and values
        }
        return document | ({"evaluation_s": round(self.evaluation_total_s, 6)} if self.evaluation_total_s else {})

    def interval_s(self) -> float | None:
        """Return the mean seconds between the ends of two minibatches, once the pipeline is full; None before.

        Of kinds that flush between the ends of two batches; of the others without the time in which it drains.
        """
        begin, step = len(self.ends) // 4, max(1, self.drained_ends)
        if begin < 1:
            return None
        seconds, count = 0.0, 0
        for span in self._spans:
            numbers = range(span.start + step - 1, min(span.stop, len(self.ends)), step)
            if counted := [number for number in numbers if number >= begin]:
                seconds += self.ends[counted[-1]] - self.ends[counted[0]]
                count += counted[-1] - counted[0]
        return seconds / count if count else None

    def after_forward(self, now: float) -> None:
        """Note that the pipeline does not drain yet."""
        if not self.drained_ends:
            self._extend_span(now)

    def after_end(self, now: float) -> None:
        """Note the end of a minibatch."""
        self.ends.append(now)
        if self._paused is not None:  # the first after an evaluation
            self.evaluation_total_s += now - self._paused
            self._paused = None
            self._forget_waits()
            self._extend_span(now)
        elif self.drained_ends:
            self._extend_span(now)

    def begin_evaluation(self) -> None:
        """Note that the pipeline has drained: what it took since it was last full is the evaluation's."""
        if self._paused is None:
            self._paused = self._full_until
        self._forget_waits()

    def end_evaluation(self, now: float) -> None:
        """Note that training goes on; until a minibatch is finished the pipeline fills."""
        if self._paused is not None:
            self.evaluation_total_s += now - self._paused
            self._paused = now
        done = len(self.ends)
        self._spans[-1] = slice(self._spans[-1].start, min(self._spans[-1].stop, done))
        self._spans.append(slice(done, done))

    def _extend_span(self, now: float) -> None:
        """Take in the ends so far, and the next one where the pipeline is full."""
        self._spans[-1] = slice(self._spans[-1].start, len(self.ends) + (not self.drained_ends))
        if self._paused is None:
            self._full_until = now
            self._waits = {name: len(getattr(self, name)) for name in _WAITING}

    def _forget_waits(self) -> None:
        for name in _WAITING:
            del getattr(self, name)[self._waits.get(name, 0) :]


class StageExecutor:
    """One replica of a stage. ``transport`` is None where there is one stage."""

    def __init__(
        self,
        app: PipelineApp,
        trainer: StageTrainer,
        gradients: Gradients,
        transport: StageTransport | None,
        replica: int,
        device: torch.device,
    ) -> None:
        shape, stage = trainer.place.shape, trainer.place.stage
        self.times = StageTimes(shape.accumulate // shape.replicas[stage] if shape.kind in FLUSHING else 0)
        self.versions = 1
        self._app, self._trainer, self._gradients, self._transport = app, trainer, gradients, transport
        self._place: StagePlace = trainer.place
        self._replica, self._device = replica, device
        self._own = self._place.own(replica)
        self._forwards = 0
        self._began = time.perf_counter()
        self._timed_s = (0.0, 0.0)  # the latest
        self._gradient_goes_back = backward_peer(shape, stage, 0) is not None

    @property
    def first_minibatch(self) -> int:
        """That which the job begins with."""
        return self._place.begin

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
            "F": self._forward,
            "B": self._backward,
            "REDUCE": self._reduce,
            "UPDATE": self._update,
        }
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

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Leave training for an evaluation, once the actions before it were run; its time is not that of training."""
        self.times.begin_evaluation()
        yield
        self.times.end_evaluation(time.perf_counter())

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
        value, target = self._batch(minibatch)
        if not self._place.is_first:
            assert self._transport is not None
            with self._clock(self.times.wait_forward_s):
                value = (self._transport.receive_forward(minibatch),)
        with self._clock(self.times.forward_s):
            output = self._trainer.forward(minibatch, value, target)
        if not self._place.is_last:
            assert self._transport is not None
            self._transport.send_forward(minibatch, output)
        self.times.after_forward(time.perf_counter())
        if self._place.is_frozen:
            self.times.after_end(time.perf_counter())

    def _batch(self, minibatch: int) -> tuple[tuple[Any, ...], Tensor | None]:
        """Return the inputs, of the first stage, and the target, of the last; what is not needed is gone at once."""
        if not (self._place.is_first or self._place.is_last):
            return (), None
        inputs, target = checked_batch(self._app.batch(minibatch))
        value = tuple(tensor.to(self._device) for tensor in inputs) if self._place.is_first else ()
        return value, target.to(self._device) if self._place.is_last else None

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
        self.times.after_end(time.perf_counter())

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
