"""Checkpoints of a pipeline without a barrier: each rank writes its own part when its own work on it is done.

Checkpoint K, a multiple of all rounds, has what training needs to go on with minibatch K: parameters and optimiser
after the updates of all minibatches below K, the older versions that minibatches from K on still use in any replica of
the stage, so that each can go on with another's part, and buffers as they were after the forward pass of the rank's
last minibatch below K. Versions follow from minibatches, so ranks write at different times and no rank waits for
another. A checkpoint counts once all ranks have written theirs. One that a rank cannot write has failed: all ranks
remove their parts. Where a disk has no room, one checkpoint that counts is kept instead of two.
"""

import contextlib
import json
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plink.errors import InputError
from plink.model.pipeline.actions import PipelineAction
from plink.model.pipeline.rank_report import CheckpointHeader
from plink.model.pipeline.shape import minibatches_per_update, older_versions_of_stage, version_of
from plink.runtime.pipeline.checkpoint_file import peek_header, write_checkpoint
from plink.runtime.pipeline.stage import StageTrainer
from plink.runtime.whole_file import NO_ROOM

_LATEST, _BEFORE = "checkpoint", "checkpoint-before"  # that all ranks have
_FAILED, _SHORT, _ERROR = "checkpoint-failed", "checkpoint-short", "checkpoint-error"
_MAX_WAITING = 2  # checkpoints in memory that the disk has not taken; then training waits for it


@dataclass(frozen=True)
class CheckpointSettings:
    """Where and how often. ``every``: minibatches, rounded up to whole rounds; ``restore``: where to go on from."""

    folder: Path | None = None
    every: int = 1000
    restore: Path | None = None

    def check(self, store: Any, rank: int, ranks: int) -> None:
        """Refuse to mix checkpoints of two jobs, once all ranks have shown which parts their folders have.

        Parts that make no checkpoint are no obstacle: a start ended before its first was whole, and nobody can go on
        from them.

        What cannot be read, as of another version of plink, may be a whole checkpoint: nobody knows.

        :raises InputError: the folder has a checkpoint that this job does not go on from; on every rank.
        """
        if self.folder is None:
            return
        goes_on = self.restore is not None and self.folder.resolve() == self.restore.resolve()
        store.set(f"parts-{rank}", json.dumps(([], []) if goes_on else _parts_in(self.folder)))
        stages: dict[tuple[int, str, int], set[int]] = {}
        problems: list[str] = []
        for other in range(ranks):
            parts, unreadable = json.loads(store.get(f"parts-{other}"))
            for minibatch, start, number, stage in parts:
                stages.setdefault((minibatch, start, number), set()).add(stage)
            problems += unreadable
        if any(len(present) == number for (_, _, number), present in stages.items()):
            raise InputError(str(self.folder), "it has checkpoints of another job: restore from it, or name another")
        if problems:
            raise InputError(str(self.folder), f"it has a checkpoint that cannot be read: {problems[0]}; name another")


@dataclass(frozen=True)
class Provenance:
    """What a checkpoint belongs to, as its header says: digests of what the plan says of training, of the program and
    its arguments, and of the model. ``start``: identifies one start of a job, the same on all its ranks."""

    replicas: tuple[int, ...]
    training: str
    program: str
    model: str
    arguments: str = ""
    start: str = ""


def part_file(folder: Path, minibatch: int, place: tuple[int, int]) -> Path:
    """Return the file of one (stage, replica)."""
    return folder / f"minibatch-{minibatch}" / f"stage-{place[0]}-replica-{place[1]}.pt"


def checkpoints_in(folder: Path) -> list[int]:
    """Return the minibatches of all checkpoints that a folder has something of, the latest first."""
    try:
        names = [path.name.removeprefix("minibatch-") for path in folder.glob("minibatch-*")]
    except OSError:
        return []
    return sorted((int(name) for name in names if name.isdecimal() and name.isascii()), reverse=True)


def _parts_in(folder: Path) -> tuple[list[tuple[int, str, int, int]], list[str]]:
    """Return (minibatch, start, number of stages, stage) of the parts that a folder has, and the others' errors."""
    parts, problems = [], []
    for minibatch in checkpoints_in(folder):
        for path in sorted(part_file(folder, minibatch, (0, 0)).parent.glob("stage-*-replica-*.pt")):
            try:
                header = peek_header(path)
                parts.append((minibatch, header.start, len(header.replicas), header.stage))
            except InputError as error:
                problems.append(str(error))
    return parts, problems


@dataclass
class _Part:
    """What is there so far of a checkpoint."""

    versions: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    buffers: dict[str, Tensor] | None = None


class StageCheckpoints:
    """Write one rank's checkpoints while it trains; :meth:`after_action` is to be called after each action."""

    def __init__(
        self, settings: CheckpointSettings, trainer: StageTrainer, replica: int, origin: Provenance, store: Any
    ) -> None:
        """:param store: of all ranks, in which they count who has written what, to remove what is not needed."""
        self.on_written: Callable[[], None] = lambda: None  # called in another thread, after each part
        assert settings.folder is not None
        self._trainer, self._place, self._replica = trainer, trainer.place, replica
        cycle = self._place.shape.cycle
        self.every = -(-settings.every // cycle) * cycle
        place = self._place.stage, replica
        self._writer = _Writer(
            settings.folder, place, origin, store, range(self._place.begin, self._place.begin + cycle)
        )
        self._writer.on_written = lambda: self.on_written()
        self._parts: dict[int, _Part] = {}
        for version in () if self._place.is_frozen else trainer.versions.numbers:
            self._after_version(version)

    @property
    def whole(self) -> int:
        """The latest that all ranks had when this one last wrote; at first that which training goes on from, or 0."""
        return self._writer.whole

    def after_action(self, action: PipelineAction) -> None:
        """Copy what a checkpoint needs of the state between two actions."""
        if action.kind == "F":
            self._after_forward(action.number)
        elif action.kind == "UPDATE":
            size = minibatches_per_update(self._place.shape, self._place.stage)
            minibatch = (action.number + 1) * size
            if minibatch % self.every == 0 and minibatch <= self._place.minibatches:
                self._write(minibatch)
            self._after_version(action.number + 1)

    def finish(self, limit_s: float | None = None) -> None:
        """Wait until all are written, at most so long."""
        self._writer.finish(limit_s)

    def tidy(self) -> None:
        """Take in what other ranks have written or not, once all have finished."""
        with contextlib.suppress(Exception):  # the store may be gone
            self._writer.tidy()

    def _after_forward(self, minibatch: int) -> None:
        shape, stage = self._place.shape, self._place.stage
        after = minibatch + shape.replicas[stage]
        after = min(after, self._place.minibatches)
        for number in range(-(-(minibatch + 1) // self.every) * self.every, after + 1, self.every):
            # The last of this replica below the checkpoint.
            part = self._parts.setdefault(number, _Part())
            part.buffers = _copies(self._trainer.buffers(self._replica))
            if self._place.is_frozen:
                self._write(number)

    def _after_version(self, version: int) -> None:
        """Copy a version for the checkpoints to come that need it; when they are written it may be gone."""
        shape, stage, end = self._place.shape, self._place.stage, self._place.minibatches
        first = max(self._place.begin, version * minibatches_per_update(shape, stage))
        values: dict[str, Tensor] | None = None
        number = (first // self.every + 1) * self.every
        while number < end and version_of(shape, stage, number) <= version:
            if version in older_versions_of_stage(shape, stage, number, end):
                values = _copies(self._trainer.versions.values(version)) if values is None else values
                self._parts.setdefault(number, _Part()).versions[version] = values
            number += self.every

    def _write(self, minibatch: int) -> None:
        """Hand a checkpoint that is complete to the writer."""
        part = self._parts.pop(minibatch, _Part())
        for number in [number for number in self._parts if number < minibatch]:
            del self._parts[number]
        trainer = self._trainer
        buffers = part.buffers if part.buffers is not None else _copies(trainer.buffers(self._replica))
        state = {
            "parameters": _copies({name: parameter.detach() for name, parameter in trainer.parameters.items()}),
            "versions": part.versions,
            "buffers": buffers,
            "optimiser": _copied(trainer.optimiser_state()),
            "groups": trainer.optimiser_groups(),
        }
        self._writer.put(minibatch, state)


class _Writer:
    """Writes checkpoints in a thread, and counts those that all ranks have."""

    def __init__(self, folder: Path, place: tuple[int, int], origin: Provenance, store: Any, begin: range) -> None:
        """:param begin: the round that is trained first; another plan's checkpoint may be of any minibatch in it."""
        self.whole = begin.start
        self.on_written: Callable[[], None] = lambda: None
        self._folder, self._place, self._identity, self._store = folder, place, origin, store
        self._previous, self._begin, self._warned = begin.start, begin, frozenset[str]()
        self._queue: queue.Queue[tuple[int, dict[str, Any]] | None] = queue.Queue(_MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name="plink-checkpoint", daemon=True)
        self._thread.start()

    def put(self, minibatch: int, state: dict[str, Any]) -> None:
        self._queue.put((minibatch, state))

    def finish(self, limit_s: float | None) -> None:
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._queue.put(None, timeout=limit_s)
            self._thread.join(limit_s)

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            minibatch, state = entry
            is_written = self._has_turn(minibatch) and self._write(minibatch, state)
            with contextlib.suppress(Exception):  # the store, or whoever reads reports, may be gone
                if is_written:
                    self._count(minibatch)
                else:
                    self._store.set(f"{_FAILED}-{minibatch}", "1")
                self.tidy()
                self.on_written()

    def _has_turn(self, minibatch: int) -> bool:
        """Return whether a part is to be written: not of a checkpoint that has failed, nor, where room is short,
        before all ranks have the one before, whose room it would take."""
        with contextlib.suppress(Exception):
            self.tidy()
            if self._has_failed(minibatch):
                return False
            is_complete = self.whole >= self._previous or self._has_failed(self._previous)
            if not is_complete and self._store.check([_SHORT]):
                return False
        self._previous = minibatch
        return True

    def _write(self, minibatch: int, state: dict[str, Any]) -> bool:
        """Return whether a part is written; where there is no room, it is tried again when older ones are removed."""
        origin, path = self._identity, part_file(self._folder, minibatch, self._place)
        header = CheckpointHeader(
            sha256="",
            minibatch=minibatch,
            stage=self._place[0],
            replica=self._place[1],
            torch=str(torch.__version__),
            **vars(origin),
        )
        for _ in range(2):
            try:
                write_checkpoint(path, header, state)
                return True
            except Exception as error:  # training goes on without it
                is_full = isinstance(error, OSError) and error.errno in NO_ROOM
                has_whole = False
                with contextlib.suppress(Exception):
                    if self._has_failed(minibatch):  # its folder may have been removed meanwhile
                        return False
                    has_whole = self._latest() in checkpoints_in(self._folder)
                self._warn(path, error, "; one checkpoint is kept instead of two" if is_full and has_whole else "")
                if not is_full:
                    return False
                with contextlib.suppress(Exception):
                    self._store.set(_SHORT, "1")
                    self.tidy()
        return False

    def _warn(self, path: Path, error: Exception, what_follows: str) -> None:
        """Say an error once, whichever rank has it first."""
        text = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
        is_first, self._warned = text not in self._warned, self._warned | {text}
        with contextlib.suppress(Exception):  # the store may be gone
            is_first = is_first and self._store.add(f"{_ERROR}-{text}", 1) == 1
        if not is_first:
            return
        print(f"warning: cannot write {path}: {text}{what_follows}; training goes on", file=sys.stderr, flush=True)

    def _count(self, minibatch: int) -> None:
        """Note that this rank has a checkpoint."""
        if self._store.add(f"{_LATEST}-{minibatch}", 1) == sum(self._identity.replicas):
            self._store.set(_BEFORE, str(self._latest()))
            self._store.set(_LATEST, str(minibatch))

    def tidy(self) -> None:
        """Remove checkpoints that have failed, and those older than the latest two that all ranks have; where room is
        short, older than the latest, and what an earlier start left beyond it.

        Other ranks' parts too, where the folder is shared: a rank that is ahead wrote its last part before the latest
        was whole. None of them is being written any more, as each rank writes its parts in sequence. Two are left, for
        when a part of the latest turns out to be damaged.
        """
        self.whole = self._latest()
        before = int(self._store.get(_BEFORE)) if self._store.check([_BEFORE]) else 0
        is_short = self._store.check([_SHORT])
        for number in checkpoints_in(self._folder):
            folder = self._folder / f"minibatch-{number}"
            parts = list(folder.glob("stage-*-replica-*.pt"))
            if number < (self.whole if is_short else before):
                parts += folder.glob(".stage-*-replica-*.pt.*")  # what writers that were killed have left
            elif not self._has_failed(number):
                is_beyond = is_short and number > self.whole and number not in self._begin
                parts = [path for path in parts if is_beyond and self._is_of_other_start(path)]
                if not parts:
                    continue
            for path in parts:
                path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _is_of_other_start(self, path: Path) -> bool:
        try:
            return peek_header(path).start != self._identity.start
        except InputError:  # it has gone, or nobody knows
            return False

    def _has_failed(self, minibatch: int) -> bool:
        return bool(self._store.check([f"{_FAILED}-{minibatch}"]))

    def _latest(self) -> int:
        """Return the latest checkpoint that all ranks have; at first that which training goes on from."""
        return int(self._store.get(_LATEST)) if self._store.check([_LATEST]) else self.whole


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _copied(value: Any) -> Any:
    """Return a copy of nested dicts and lists with tensors."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(entry) for entry in value]
    return value
