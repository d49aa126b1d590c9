"""The actions of each rank of a pipeline: one generator for the verifier, the simulator and the executor.
No numpy: every rank imports it.

An action names no peers and no versions: both follow from the minibatch (:mod:`plink.model.pipeline.shape`).

- ``F b``: wait for the activations of b, compute forward with the version of b, send the result on.
- ``B b``: wait for the gradients of b, compute backward with the same version, send the gradient back. The last one of
  an update begins the stage's all-reduce of that update.
- ``REDUCE k``: wait for the all-reduce of update k. A replica that has no minibatch of it takes part with nothing.
- ``UPDATE k``: step the optimiser; there are k + 1 updates after it.

Sends are never waited for before computing. Replicated stages REDUCE, all but frozen ones go backward and UPDATE.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from plink.errors import UsageError
from plink.model.pipeline.shape import (
    FLUSHING,
    PipelineShape,
    minibatches_per_update,
    update_of,
    updates_of,
    version_of,
)

ActionKind = Literal["F", "B", "REDUCE", "UPDATE"]
_NOTATION = re.compile(r"(\d{1,9})(F|B|REDUCE_GRAD|UPDATE)(\d{1,18})", re.ASCII)


class PipelineAction(NamedTuple):
    """One action of a rank: of a minibatch (``F``, ``B``), or of an update (``REDUCE``, ``UPDATE``)."""

    kind: ActionKind
    stage: int
    number: int

    def __str__(self) -> str:
        """Return torch's notation, like ``0F0``; a reduce is its ``REDUCE_GRAD``."""
        return f"{self.stage}{'REDUCE_GRAD' if self.kind == 'REDUCE' else self.kind}{self.number}"

    def describe(self) -> str:
        """Return the action for messages, like ``F 7 of stage 0``."""
        return f"{self.kind} {self.number} of stage {self.stage}"


def parse_action(text: str) -> PipelineAction:
    """Return the action of torch's notation.

    :raises UsageError: when it is none.
    """
    matched = _NOTATION.fullmatch(text)
    if matched is None:
        raise UsageError(f"expected an action like 0F3, 0B3, 0REDUCE_GRAD1 or 0UPDATE1, got {text[:40]!r}")
    kind: ActionKind = "REDUCE" if matched[2] == "REDUCE_GRAD" else matched[2]  # type: ignore[assignment]
    return PipelineAction(kind, int(matched[1]), int(matched[3]))


def actions_of(
    shape: PipelineShape, stage: int, replica: int, minibatches: int, begin: int = 0
) -> Iterator[PipelineAction]:
    """Yield the actions of one replica of a stage, in the sequence in which it carries them out.

    ``minibatches``: of the whole job; the replica processes every ``replicas[stage]``-th of them. ``begin``: a multiple
    of ``shape.cycle``; all before it are taken in. Source: the start-up and steady phase of 1F1B-RR (Harlap thesis,
    5.3.2), with short last rounds and the other kinds added.
    """
    own = range(begin + replica, minibatches, shape.replicas[stage])
    if stage < shape.frozen:
        yield from (PipelineAction("F", stage, minibatch) for minibatch in own)
        return
    done = begin // minibatches_per_update(shape, stage)
    updates = _Updates(shape, stage, range(done, updates_of(shape, stage, minibatches)), own)
    forward = backward = 0
    while backward < len(own):
        limit = len(own)
        if shape.kind in FLUSHING:
            batch = own[backward] // shape.accumulate
            limit = len(range(begin + replica, min(minibatches, (batch + 1) * shape.accumulate), shape.replicas[stage]))
        window = limit if shape.kind == "gpipe" else min(limit, backward + shape.depths[stage])
        while forward < window:
            yield PipelineAction("F", stage, own[forward])
            forward += 1
        yield PipelineAction("B", stage, own[backward])
        backward += 1
        yield from updates.after_backward(backward)
    yield from updates.remaining()


def actions_from(
    shape: PipelineShape, stage: int, actions: Iterable[PipelineAction], minibatch: int
) -> Iterator[PipelineAction]:
    """Yield those of a plan's own actions of a replica that are left when all minibatches before one are taken in.

    :param minibatch: a multiple of ``shape.cycle``.
    """
    updates = minibatch // minibatches_per_update(shape, stage)
    for action in actions:
        if action.number >= (minibatch if action.kind in ("F", "B") else updates):
            yield action


class _Updates:
    """The updates of one replica: each follows the replica's last backward pass of it."""

    def __init__(self, shape: PipelineShape, stage: int, numbers: range, own: range) -> None:
        self._shape, self._stage, self._end, self._own = shape, stage, numbers.stop, own
        self._replicated = shape.replicas[stage] > 1
        self._late = self._replicated and shape.reduce == "late"
        self._done = numbers.start

    def after_backward(self, backward: int) -> Iterator[PipelineAction]:
        """Yield what follows backward pass number ``backward - 1`` of the replica."""
        done = self._own[backward - 1]
        current = update_of(self._shape, self._stage, done)
        last = backward == len(self._own) or update_of(self._shape, self._stage, self._own[backward]) > current
        if last:
            yield from self._until(current if self._late else current + 1)

    def remaining(self) -> Iterator[PipelineAction]:
        """Yield the updates that are left when the replica has no minibatch left."""
        yield from self._until(self._end)

    def _until(self, number: int) -> Iterator[PipelineAction]:
        while self._done < number:
            if self._replicated:
                yield PipelineAction("REDUCE", self._stage, self._done)
            yield PipelineAction("UPDATE", self._stage, self._done)
            self._done += 1


class StageUse(NamedTuple):
    """The most that a replica has at once: minibatches in flight, and versions of its parameters."""

    in_flight: int
    versions: int


def use_of(shape: PipelineShape, stage: int, actions: Sequence[PipelineAction]) -> StageUse:
    """Replay the actions of one replica, and return the most that it has at once.

    Versions are kept from the oldest that a minibatch in flight or the next forward pass uses to the current one.
    """
    forwards = [action.number for action in actions if action.kind == "F"]
    in_flight: dict[int, int] = {}
    current = done = most_in_flight = 0
    most_versions = 1
    for action in actions:
        if action.kind == "F":
            done += 1
            if stage >= shape.frozen:
                in_flight[action.number] = version_of(shape, stage, action.number)
        elif action.kind == "B":
            in_flight.pop(action.number, None)
        elif action.kind == "UPDATE":
            current += 1
        needed = list(in_flight.values())
        if done < len(forwards):
            needed.append(version_of(shape, stage, forwards[done]))
        most_in_flight = max(most_in_flight, len(in_flight))
        most_versions = max(most_versions, current - min([current, *needed]) + 1)
    return StageUse(max(1, most_in_flight), most_versions)
