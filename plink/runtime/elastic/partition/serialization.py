"""A partition taken apart into messages, for another server or a file, and put together again.

In this order: its numbers with its vectors, the steps back, the sums of the next clock, and the updates that wait. A
server that has the vectors already (a replica) is sent the rest without them.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock, put
from plink.runtime.elastic.partition.changes import Undo
from plink.runtime.elastic.partition.participants import Ahead, Participant
from plink.runtime.elastic.partition.partition import Partition, RejectedRequest
from plink.runtime.elastic.transport.wire import LAST, Kind, Message


class What(IntEnum):
    """Kind of a part; it travels in the flags."""

    STATE = 0
    NUMBERS = 1  # the same without vectors
    UNDO = 2
    SUMS = 3
    WAITING = 4
    UPDATE = 5  # a worker's last step of a clock that came while the parts were sent
    WORKERS = 6  # who takes part from a clock on, changed while the parts were sent
    PROBE = 7  # whether there is somebody to take it
    STEP = 8  # as UPDATE, but not the last


def parts_of(partition: Partition, *, values: bool = True, ahead: bool = True) -> list[Message]:
    """Return the parts of a partition as copies, so that the partition may go on.

    :param values: with the vectors and the way back.
    :param ahead: with what is ahead of the consistent state, and who takes part.
    """
    numbers = {
        "clock": partition.clock, "delta_sequence": partition.delta_sequence, "history": partition.history is not None,
        "version": partition.version,
        "members": {
            worker: [member.first, member.finished, member.until, member.steps, member.finished_steps]
            for worker, member in partition.members.items()
        } if ahead else {},
    }  # fmt: skip
    state = [
        RowBlock(table, range(len(vectors)), vectors.copy()) for table, vectors in enumerate(partition.values) if values
    ]
    what, number = What.STATE if values else What.NUMBERS, partition.number
    parts = [Message(Kind.PART, number, flags=what, blocks=tuple(state), text=json.dumps(numbers))]
    parts += [
        Message(Kind.PART, number, flags=What.UNDO, clock=step.after, before=step.before, blocks=tuple(step.blocks))
        for step in (partition.steps_back() if values else ())
    ]
    return parts + _ahead(partition) if ahead else parts


def _ahead(partition: Partition) -> list[Message]:
    parts: list[Message] = []
    number = partition.number
    for clock, ahead in sorted(partition.ahead.items()):
        summed = json.dumps(ahead.summed)
        parts += [
            Message(Kind.PART, number, flags=What.SUMS, clock=clock, blocks=blocks, text=summed)
            for blocks in _once_a_table(ahead.sums)
        ]
        parts += [
            Message(Kind.PART, number, flags=What.WAITING, clock=clock, worker=worker, blocks=blocks)
            for worker, waiting in ahead.waiting.items()
            for blocks in _once_a_table(waiting)
        ]
    return parts


def update_part(update: Message) -> Message:
    """Return an update as a part for the new primary: a copy, for the partition takes the original's arrays."""
    what = What.UPDATE if update.flags & LAST else What.STEP
    return Message(
        Kind.PART, update.partition, flags=what, worker=update.worker, clock=update.clock, before=update.sequence,
        blocks=_copies(update.blocks), version=1 + update.term,
    )  # fmt: skip


def workers_part(number: int, workers: Collection[int], first: int) -> Message:
    """Return a change of participants as a part for the new primary."""
    return Message(Kind.PART, number, flags=What.WORKERS, clock=first, text=json.dumps(sorted(workers)))


def begun(layout: Layout, part: Message, *, sees_ahead: bool) -> Partition:
    """Return a new partition from the first of its parts. :raises RejectedRequest: the part is another."""
    numbers = _numbers(part)
    if part.flags != What.STATE or len(part.blocks) != len(layout.tables):
        raise RejectedRequest(f"partition {part.partition} begins with its state, not with {What(part.flags).name}")
    partition = Partition(
        layout, part.partition, clock=numbers["clock"], history=numbers["history"], sees_ahead=sees_ahead
    )
    put(partition.values, part.blocks)
    if partition.newest is not None:
        put(partition.newest, part.blocks)
    _take_numbers(partition, numbers)
    return partition


def take(partition: Partition, part: Message) -> None:
    """Apply any other part to a partition. :raises RejectedRequest: it does not belong there."""
    what = What(part.flags)
    if what is What.NUMBERS:
        numbers = _numbers(part)
        if numbers["clock"] != partition.clock:
            raise RejectedRequest(f"the state of clock {numbers['clock']} is not here, but that of {partition.clock}")
        partition.forget_ahead()  # of an attempt before, which would count twice
        _take_numbers(partition, numbers)
    elif what is What.UNDO:
        partition.last_step = Undo(part.before, part.clock, part.blocks)
        if partition.history is not None:
            partition.history.append(partition.last_step)
    elif what is What.SUMS:
        ahead = partition.ahead.setdefault(part.clock, Ahead())
        ahead.summed = _workers(part)
        ahead.sums += part.blocks
        partition.show(part.clock, part.blocks)
    elif what is What.WAITING:
        partition.wait(part.worker, part.clock, part.blocks)
    elif what in (What.UPDATE, What.STEP):
        last = what is What.UPDATE
        partition.update(part.worker, part.clock, part.before, last, part.blocks, members=part.version)
    elif what is What.WORKERS:
        partition.workers_from(_workers(part), part.clock)
    elif what is not What.PROBE:
        raise RejectedRequest("a state in the midst of another")


def _workers(part: Message) -> list[int]:
    try:
        return [int(worker) for worker in json.loads(part.text)]
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise RejectedRequest("numbers of workers that cannot be read") from None


def _numbers(part: Message) -> dict[str, Any]:
    try:
        numbers: dict[str, Any] = json.loads(part.text)
        result = [numbers[name] for name in ("clock", "delta_sequence", "history", "version")]
        for worker, (first, finished, until, steps, finished_steps) in numbers["members"].items():
            result += [first, finished, 0 if until is None else until, steps, finished_steps, int(worker)]
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        result = [None]
    if not all(isinstance(item, int) for item in result):
        raise RejectedRequest("a part whose numbers cannot be read")
    return numbers


def _take_numbers(partition: Partition, numbers: dict[str, Any]) -> None:
    partition.delta_sequence, partition.version = numbers["delta_sequence"], numbers["version"]
    partition.members = {int(worker): Participant(*numbers) for worker, numbers in numbers["members"].items()}


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
