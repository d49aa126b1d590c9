"""A partition taken apart into messages, for another server or a file, and put together again.

In this order: its numbers with its vectors, the steps back, the sums of the next clock, and the updates that wait. A
server that has the vectors already (a replica) is sent the rest without them.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from plink.elastic.tables import Values
from plink.errors import InputError
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock, put
from plink.runtime.elastic.partition.changes import Ahead, Participant, Undo
from plink.runtime.elastic.partition.partition import Partition, RejectedRequest
from plink.runtime.elastic.transport.messages import PartitionPart, PartKind, Update
from plink.runtime.elastic.transport.records import ConnectionLost, Forged
from plink.runtime.elastic.transport.wire import receive, send
from plink.runtime.whole_file import whole_file

_Decoded = TypeVar("_Decoded")


class _Numbers(Struct, frozen=True):
    """Numbers of a partition."""

    clock: int
    delta_sequence: int
    history: bool
    version: int
    members: dict[int, Participant]


def parts_of(partition: Partition, *, values: bool = True, ahead: bool = True) -> list[PartitionPart]:
    """Return the parts of a partition as copies, so that the partition may go on.

    :param values: with the vectors and the way back.
    :param ahead: with what is ahead of the consistent state, and who takes part.
    """
    members = partition.members if ahead else {}
    state = [vectors.copy() for vectors in partition.values] if values else None
    parts = [_first_part(partition, partition.clock, state, members)]
    parts += [
        PartitionPart(partition.number, PartKind.UNDO, clock=step.after, before=step.before, blocks=tuple(step.blocks))
        for step in (partition.steps_back() if values else ())
    ]
    return parts + _ahead(partition) if ahead else parts


def saved_part(partition: Partition, clock: int | None = None) -> PartitionPart:
    """Return a copy of the state of a clock, the present one if None: all that a checkpoint has.

    :raises RejectedRequest: the state of that clock is not kept.
    """
    clock = partition.clock if clock is None else clock
    return _first_part(partition, clock, partition.state_of(clock), {})


def _first_part(
    partition: Partition, clock: int, state: Sequence[Values] | None, members: dict[int, Participant]
) -> PartitionPart:
    history = partition.history is not None
    numbers = _Numbers(clock, partition.delta_sequence, history, partition.version, members)
    kind = PartKind.NUMBERS if state is None else PartKind.STATE
    blocks = tuple(RowBlock(table, range(len(vectors)), vectors) for table, vectors in enumerate(state or ()))
    return PartitionPart(partition.number, kind, blocks=blocks, text=json.dumps(msgspec.to_builtins(numbers)))


def _ahead(partition: Partition) -> list[PartitionPart]:
    parts: list[PartitionPart] = []
    number = partition.number
    for clock, ahead in sorted(partition.ahead.items()):
        summed = json.dumps(ahead.summed)
        parts += [
            PartitionPart(number, PartKind.SUMS, clock=clock, blocks=blocks, text=summed)
            for blocks in _once_a_table(ahead.sums)
        ]
        parts += [
            PartitionPart(number, PartKind.WAITING, clock=clock, worker=worker, blocks=blocks)
            for worker, waiting in ahead.waiting.items()
            for blocks in _once_a_table(waiting)
        ]
    return parts


def update_part(update: Update) -> PartitionPart:
    """Return an update as a part for the new primary: a copy, for the partition takes the original's arrays."""
    kind, clock, worker = PartKind.UPDATE if update.last else PartKind.STEP, update.clock, update.worker
    step, members, blocks = update.step, 1 + update.others, _copies(update.blocks)
    return PartitionPart(update.partition, kind, clock=clock, worker=worker, step=step, members=members, blocks=blocks)


def workers_part(number: int, workers: Collection[int], first: int) -> PartitionPart:
    """Return a change of participants as a part for the new primary."""
    return PartitionPart(number, PartKind.WORKERS, clock=first, text=json.dumps(sorted(workers)))


def begun(layout: Layout, part: PartitionPart, *, sees_ahead: bool) -> Partition:
    """Return a new partition from the first of its parts. :raises RejectedRequest: the part is another."""
    numbers = _decoded(part, _Numbers)
    if part.kind is not PartKind.STATE or len(part.blocks) != len(layout.tables):
        raise RejectedRequest(f"partition {part.partition} begins with its state, not with {part.kind.name}")
    partition = Partition(layout, part.partition, clock=numbers.clock, history=numbers.history, sees_ahead=sees_ahead)
    put(partition.values, part.blocks)
    if partition.newest is not None:
        put(partition.newest, part.blocks)
    _take_numbers(partition, numbers)
    return partition


def take(partition: Partition, part: PartitionPart) -> None:
    """Apply any other part to a partition. :raises RejectedRequest: it does not belong there."""
    match part.kind:
        case PartKind.NUMBERS:
            numbers = _decoded(part, _Numbers)
            if numbers.clock != partition.clock:
                raise RejectedRequest(f"the state of clock {numbers.clock} is not here, but that of {partition.clock}")
            partition.forget_ahead()  # of an attempt before, which would count twice
            _take_numbers(partition, numbers)
        case PartKind.UNDO:
            partition.last_step = Undo(part.before, part.clock, part.blocks)
            if partition.history is not None:
                partition.history.append(partition.last_step)
        case PartKind.SUMS:
            ahead = partition.ahead.setdefault(part.clock, Ahead())
            ahead.summed = _decoded(part, list[int])
            ahead.sums += part.blocks
            partition.show(part.clock, part.blocks)
        case PartKind.WAITING:
            partition.wait(part.worker, part.clock, part.blocks)
        case PartKind.UPDATE | PartKind.STEP:
            last = part.kind is PartKind.UPDATE
            partition.update(part.worker, part.clock, part.step, last, part.blocks, part.members)
        case PartKind.WORKERS:
            partition.workers_from(_decoded(part, list[int]), part.clock)
        case PartKind.STATE:
            raise RejectedRequest("a state in the midst of another")


def _decoded(part: PartitionPart, kind: type[_Decoded]) -> _Decoded:
    try:
        return msgspec.json.decode(part.text, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise RejectedRequest("a part whose numbers cannot be read") from None


def _take_numbers(partition: Partition, numbers: _Numbers) -> None:
    partition.delta_sequence, partition.version = numbers.delta_sequence, numbers.version
    partition.members = numbers.members


def _copies(blocks: Sequence[RowBlock]) -> tuple[RowBlock, ...]:
    return tuple(RowBlock(block.table, block.rows, np.array(block.values)) for block in blocks)


def _once_a_table(blocks: Sequence[RowBlock]) -> Iterator[tuple[RowBlock, ...]]:
    """Yield copies in their order, as many at a time as a message can have; at least one, for the names that go
    along."""
    group: list[RowBlock] = []
    for block in blocks:
        if any(other.table == block.table for other in group):
            yield _copies(group)
            group = []
        group.append(block)
    yield _copies(group)


class _File:
    """A file as a channel; ``digest`` covers all that went through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def send(self, buffers: Sequence[memoryview]) -> None:
        for buffer in buffers:
            self._file.write(buffer)
            self.digest.update(buffer)

    def receive_into(self, view: memoryview) -> None:
        if self._file.readinto(view) != view.nbytes:  # type: ignore[attr-defined]
            raise ConnectionLost("the file ends too early")
        self.digest.update(view)

    def close(self) -> None:
        self._file.close()


def write_partition(path: Path, parts: Sequence[PartitionPart], layout: Layout) -> None:
    """Write a partition, whole or not at all; it is on the disk when this returns. It is not encrypted; only its owner
    can read it.

    :param parts: from :func:`saved_part` or :func:`parts_of`.
    """
    with whole_file(path) as file:
        channel = _File(file)
        for part in parts:
            send(channel, part, layout)
        file.write(channel.digest.digest())


def read_partition(path: Path, layout: Layout, *, sees_ahead: bool) -> Partition:
    """Read a partition from a file.

    :raises InputError: the file is none of these, is damaged, or for other tables; or there is none.
    """
    if not path.is_file():
        raise InputError(str(path), "there is no such file")
    try:
        with path.open("rb") as file:
            channel, size = _File(file), os.fstat(file.fileno()).st_size - hashlib.sha256().digest_size
            partition = begun(layout, _part(channel, layout), sees_ahead=sees_ahead)
            while file.tell() < size:
                take(partition, _part(channel, layout))
            if file.read() != channel.digest.digest():
                raise Forged("it is damaged: what is in it is not what was written")
    except (Forged, ConnectionLost, RejectedRequest, ValueError, OSError) as error:
        raise InputError(str(path), str(error)) from error
    return partition


def _part(channel: _File, layout: Layout) -> PartitionPart:
    part, _ = receive(channel, layout)
    if not isinstance(part, PartitionPart):
        raise Forged(f"{type(part).__name__} is no part of a partition")
    return part
