"""A partition taken apart into messages, for another server or a file, and put together again.

In this order: its numbers with its vectors, the steps back, the sums of the next clock, and the updates that wait. A
server that has the vectors already (a backup) is sent the rest without them.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from plink.runtime.agileml.arrays.layout import Layout
from plink.runtime.agileml.arrays.row_blocks import Piece, put
from plink.runtime.agileml.partition.partition import Ahead, Member, Partition, Refused, Undo
from plink.runtime.agileml.transport.wire import LAST, Kind, Message


class What(IntEnum):
    """What a part is; it travels in the flags."""

    STATE = 0
    NUMBERS = 1  # the same without vectors
    UNDO = 2
    SUMS = 3
    WAITING = 4
    UPDATE = 5  # a worker's last step of a clock that came while the parts were sent
    WORKERS = 6  # who takes part from a clock on, changed while the parts were sent
    NOTHING = 7  # whether there is somebody to take it
    STEP = 8  # as UPDATE, but not the last


def parts_of(partition: Partition, *, values: bool = True, ahead: bool = True) -> list[Message]:
    """Copies, so that the partition may go on.

    :param values: with the vectors and the way back.
    :param ahead: with what is ahead of the consistent state, and who takes part.
    """
    numbers = {
        "clock": partition.clock, "push_sequence": partition.push_sequence, "history": partition.history is not None,
        "members": {
            worker: [member.first, member.finished, member.until, member.steps]
            for worker, member in partition.members.items()
        } if ahead else {},
    }  # fmt: skip
    state = [
        Piece(table, range(len(vectors)), vectors.copy()) for table, vectors in enumerate(partition.values) if values
    ]
    what, number = What.STATE if values else What.NUMBERS, partition.number
    parts = [Message(Kind.PART, number, flags=what, pieces=tuple(state), text=json.dumps(numbers))]
    parts += [
        Message(Kind.PART, number, flags=What.UNDO, clock=step.after, before=step.before, pieces=tuple(step.pieces))
        for step in (partition.steps_back() if values else ())
    ]
    return parts + _ahead(partition) if ahead else parts


def _ahead(partition: Partition) -> list[Message]:
    parts: list[Message] = []
    number = partition.number
    for clock, ahead in sorted(partition.ahead.items()):
        summed = json.dumps(ahead.summed)
        parts += [
            Message(Kind.PART, number, flags=What.SUMS, clock=clock, pieces=pieces, text=summed)
            for pieces in _once_a_table(ahead.sums)
        ]
        parts += [
            Message(Kind.PART, number, flags=What.WAITING, clock=clock, worker=worker, pieces=pieces)
            for worker, waiting in ahead.waiting.items()
            for pieces in _once_a_table(waiting)
        ]
    return parts


def update_part(update: Message) -> Message:
    """An update on its way to the new owner: a copy, for the partition takes the original's arrays."""
    what = What.UPDATE if update.flags & LAST else What.STEP
    return Message(
        Kind.PART, update.partition, flags=what, worker=update.worker, clock=update.clock, before=update.sequence,
        pieces=_copies(update.pieces),
    )  # fmt: skip


def workers_part(number: int, workers: Collection[int], first: int) -> Message:
    """Who takes part from a clock on, on its way to the new owner."""
    return Message(Kind.PART, number, flags=What.WORKERS, clock=first, text=json.dumps(sorted(workers)))


def begun(layout: Layout, part: Message, *, sees_ahead: bool) -> Partition:
    """A partition from the first of its parts. :raises Refused: the part is another."""
    numbers = _numbers(part)
    if part.flags != What.STATE or len(part.pieces) != len(layout.tables):
        raise Refused(f"partition {part.partition} begins with its state, not with {What(part.flags).name}")
    partition = Partition(
        layout, part.partition, clock=numbers["clock"], history=numbers["history"], sees_ahead=sees_ahead
    )
    put(partition.values, part.pieces)
    if partition.newest is not None:
        put(partition.newest, part.pieces)
    _take_numbers(partition, numbers)
    return partition


def take(partition: Partition, part: Message) -> None:
    """Any other part. :raises Refused: it does not belong there."""
    what = What(part.flags)
    if what is What.NUMBERS:
        numbers = _numbers(part)
        if numbers["clock"] != partition.clock:
            raise Refused(f"the state of clock {numbers['clock']} is not here, but that of {partition.clock}")
        partition.forget_ahead()  # of an attempt before, which would count twice
        _take_numbers(partition, numbers)
    elif what is What.UNDO:
        partition.last_step = Undo(part.before, part.clock, part.pieces)
        if partition.history is not None:
            partition.history.append(partition.last_step)
    elif what is What.SUMS:
        ahead = partition.ahead.setdefault(part.clock, Ahead())
        ahead.summed = _workers(part)
        ahead.sums += part.pieces
        partition.show(part.clock, part.pieces)
    elif what is What.WAITING:
        partition.wait(part.worker, part.clock, part.pieces)
    elif what in (What.UPDATE, What.STEP):
        partition.update(part.worker, part.clock, part.before, what is What.UPDATE, part.pieces)
    elif what is What.WORKERS:
        partition.workers_from(_workers(part), part.clock)
    elif what is not What.NOTHING:
        raise Refused("a state in the midst of another")


def _workers(part: Message) -> list[int]:
    try:
        return [int(worker) for worker in json.loads(part.text)]
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise Refused("numbers of workers that cannot be read") from None


def _numbers(part: Message) -> dict[str, Any]:
    try:
        numbers: dict[str, Any] = json.loads(part.text)
        result = [numbers[name] for name in ("clock", "push_sequence", "history")]
        for worker, (first, finished, until, steps) in numbers["members"].items():
            result += [first, finished, 0 if until is None else until, steps, int(worker)]
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        result = [None]
    if not all(isinstance(item, int) for item in result):
        raise Refused("a part whose numbers cannot be read")
    return numbers


def _take_numbers(partition: Partition, numbers: dict[str, Any]) -> None:
    partition.push_sequence = numbers["push_sequence"]
    partition.members = {int(worker): Member(*numbers) for worker, numbers in numbers["members"].items()}


def _copies(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    return tuple(Piece(piece.table, piece.rows, np.array(piece.values)) for piece in pieces)


def _once_a_table(pieces: Sequence[Piece]) -> Iterator[tuple[Piece, ...]]:
    """Copies, in their order, as many at a time as a message can have; at least one, for the names that go along."""
    group: list[Piece] = []
    for piece in pieces:
        if any(other.table == piece.table for other in group):
            yield _copies(group)
            group = []
        group.append(piece)
    yield _copies(group)
