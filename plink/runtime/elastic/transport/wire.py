"""Messages of the parameter server: a header of fixed size, what blocks follow, then arrays as they are in memory.

::

    header   80 bytes  magic, version, kind, status, flags, who and when, how much follows
    blocks   16 bytes each: table, form, first row, number of rows
    text     UTF-8, at most 64 KB: an address, a reason, JSON of a part's numbers
    arrays   per block: row numbers (4 bytes each) unless the rows are neighbours, then the vectors if the form says so

All little-endian. Nothing is allocated before the numbers have been held against the layout: the vectors of a message
never take more than its partition. Nothing is pickled.
"""

import struct
import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from plink.elastic.tables import Values
from plink.runtime.elastic.arrays.array_pool import empty
from plink.runtime.elastic.arrays.layout import Indices, Layout, Rows, rising
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.transport.records import Channel, Forged

assert sys.byteorder == "little"  # arrays travel as they are

VERSION = 9  # one more wherever a server or a worker sends or understands something else
_MAGIC = b"plPS"
_HEADER = struct.Struct("<4sBBBBIIiIIIIIQqqQQ")
_BLOCK = struct.Struct("<IIII")
_MAX_TEXT_BYTES = 1 << 16
_NUMBERED, _WITH_VALUES = 1, 2
LAST = 1  # flag of a push: none follows; of an update: the worker has finished its clock
INCLUDED = 2  # flag of an answer with rows: the worker's update of the clock that they are for is in it already
DROPPED = 4  # flag of the answer to an update: it was too old, and counts as an empty one; of the answer to an
# announcement: the update is not to be sent; of an update: that is why it is empty
GROUPED = 16  # flag of the answer to an announcement: the update is added to that of another worker of the host
UNPLANNED = 8  # flag of the answer to an announcement: such transfers are too short to be planned


class Kind(IntEnum):
    """Kind of a message."""

    ANSWER = 0
    READ = 1
    UPDATE = 2
    REPLICATE = 3
    PART = 4
    ACTIVATE = 5
    HELP = 6  # between workers: ``worker`` is its receiver, the text one of plink.runtime.elastic.helping.messages
    HELP_RESULT = 7  # what helper ``term`` adds for worker ``worker``, to its request ``sequence`` of ``clock``
    ANNOUNCE = 8  # of an update, to partition 0, which answers when it may be sent


class Status(IntEnum):
    """Result of a request."""

    OK = 0
    WAITING = 1  # the state that a read needs is not there yet: ask again
    ELSEWHERE = 2  # the text has the address, the term says since when
    ABSENT = 3  # not here, and nobody knows where
    ROLLED_BACK = 4  # the partition is in a later generation: clock is that of its state
    BEHIND = 5  # the partition is in an earlier generation and will follow: ask again
    REFUSED = 6  # the text says why; asking again is of no use


class Wanted(NamedTuple):
    """Rows of one table that a read requests, or an update for the clock after it."""

    table: int
    rows: Rows


class Message(NamedTuple):
    """A request or its answer; the kind decides what a number means.

    ``generation`` counts roll-backs and ``term`` the primaries of the partition; ``sequence`` makes repeats known.
    ``ticket`` tells the questions of one connection apart, and is repeated in the answer. In a read, ``before`` is the
    least clock of the state that the reader may be given, and in an update that of the rows which it wants. In an
    update, ``sequence`` is the step of its clock, from 0; in its answer, how many steps of that clock are there, the
    flag LAST says that the worker has finished it, and ``before`` is the latest clock that any worker has finished. The
    answer has the wanted rows, of the state of ``clock``, if that state is there already.

    An update may be the sum of several workers' of a host: its ``term`` says of how many others, whose own are empty,
    and its version is the least of all.

    An announcement has the clock, the step and the version of its update, in ``before`` the bytes that will leave the
    sender's host, and as text the address of that host's server and the bytes a second that the host carries, 0 where
    that is not known. The answer has in ``before`` the number of the transfer, and in ``sequence`` how many others'
    updates its sender adds to its own.

    ``version`` counts the updates that the partition has applied: in an answer those until now, in an update those
    until the sender read what the update was computed from.
    """

    kind: Kind
    partition: int
    status: Status = Status.OK
    flags: int = 0
    worker: int = -1
    generation: int = 0
    term: int = 0
    clock: int = 0
    before: int = 0
    sequence: int = 0
    blocks: tuple[RowBlock, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    text: str = ""
    ticket: int = 0
    version: int = 0


def requests_by_partition(layout: Layout, rows: Mapping[int, Indices]) -> dict[int, tuple[Wanted, ...]]:
    """Return what to request of each partition, for rows by table, which rise."""
    result: dict[int, tuple[Wanted, ...]] = {}
    for table, requested in rows.items():
        for partition, _, local in layout.cut(requested):
            result[partition] = (*result.get(partition, ()), Wanted(table, local))
    return result


def send(channel: Channel, message: Message, layout: Layout, ticket: int = 0) -> None:
    """Send a message.

    :param ticket: that the receiver shall see.
    :raises ConnectionLost: the connection is no more.
    """
    parts: Sequence[RowBlock | Wanted] = (*message.blocks, *message.wanted)
    text = message.text.encode()
    assert len(text) <= _MAX_TEXT_BYTES, f"{len(text)} bytes of text"
    heads, arrays = bytearray(), []
    for part in parts:
        numbered = not isinstance(part.rows, range)
        form = numbered * _NUMBERED | isinstance(part, RowBlock) * _WITH_VALUES
        heads += _BLOCK.pack(part.table, form, part.rows.start if isinstance(part.rows, range) else 0, len(part.rows))
        if not isinstance(part.rows, range):
            arrays.append(_bytes(np.ascontiguousarray(part.rows, dtype="<u4")))
        if isinstance(part, RowBlock):
            arrays.append(_bytes(np.ascontiguousarray(part.values)))
    header = _HEADER.pack(
        _MAGIC, VERSION, message.kind, message.status, message.flags, layout.fingerprint, message.partition,
        message.worker, message.generation, message.term, len(parts), len(text), ticket, message.sequence,
        message.clock, message.before, message.version, sum(array.nbytes for array in arrays),
    )  # fmt: skip
    channel.send([memoryview(header + heads + text), *arrays])


def receive(channel: Channel, layout: Layout) -> Message:
    """Receive a message.

    :raises Forged: what arrives is no message for this layout.
    :raises ConnectionLost: the connection is no more.
    """
    raw = _filled(channel, _HEADER.size)
    (
        magic, protocol, kind, status, flags, fingerprint, partition, worker, generation, term, parts, text, ticket,
        sequence, clock, before, version, body,
    ) = _HEADER.unpack(raw)  # fmt: skip
    if magic != _MAGIC:
        raise Forged(f"no message of a parameter server: it begins with {magic!r}")
    if protocol != VERSION:
        raise Forged(f"a message of version {protocol}, this is {VERSION}: install the same plink on all hosts")
    if fingerprint != layout.fingerprint:
        raise Forged("a message for other tables or another number of partitions")
    if partition >= layout.partitions or parts > 2 * len(layout.tables) or text > _MAX_TEXT_BYTES:
        raise Forged(f"partition {partition}, {parts} blocks, {text} bytes of text")
    try:
        codes = Kind(kind), Status(status)
    except ValueError as error:
        raise Forged(str(error)) from None
    heads = list(_BLOCK.iter_unpack(_filled(channel, parts * _BLOCK.size))) if parts else []
    _check(heads, partition, body, layout)
    message = bytes(_filled(channel, text)).decode(errors="replace") if text else ""
    blocks: list[RowBlock] = []
    wanted: list[Wanted] = []
    for head in heads:
        part = _receive_part(channel, head, layout, partition)
        if isinstance(part, RowBlock):
            blocks.append(part)
        else:
            wanted.append(part)
    return Message(
        codes[0], partition, codes[1], flags, worker, generation, term, clock, before, sequence, tuple(blocks),
        tuple(wanted), message, ticket, version,
    )  # fmt: skip


def _check(heads: Sequence[tuple[int, int, int, int]], partition: int, body: int, layout: Layout) -> None:
    """Check that blocks claim nothing beyond the partition."""
    claimed, before = 0, set[tuple[int, int]]()
    for table, form, start, count in heads:
        if table >= len(layout.tables) or (table, form & _WITH_VALUES) in before:
            raise Forged("blocks of tables that there are not, or twice of one")
        before.add((table, form & _WITH_VALUES))
        if form & ~(_NUMBERED | _WITH_VALUES) or start + count > layout.rows_in(table, partition):
            raise Forged(f"rows {start} to {start + count} of table {table}, form {form}")
        per_row = 4 * bool(form & _NUMBERED) + layout.tables[table].row_bytes * bool(form & _WITH_VALUES)
        claimed += count * per_row
    if claimed != body:
        raise Forged(f"{body} bytes are said to follow, the blocks have {claimed}")


def _receive_part(
    channel: Channel, head: tuple[int, int, int, int], layout: Layout, partition: int
) -> RowBlock | Wanted:
    table, form, start, count = head
    rows: Rows = range(start, start + count)
    if form & _NUMBERED:
        numbers = np.empty(count, dtype="<u4")
        _fill(channel, numbers)
        if not rising(numbers) or (count and int(numbers[-1]) >= layout.rows_in(table, partition)):
            raise Forged(f"row numbers of table {table} that do not rise or are not there")
        rows = numbers
    if not form & _WITH_VALUES:
        return Wanted(table, rows)
    shape = layout.tables[table]
    values = empty(count, shape.width, shape.dtype)
    _fill(channel, values)
    return RowBlock(table, rows, values)


def _filled(channel: Channel, count: int) -> memoryview:
    view = memoryview(bytearray(count))
    if count:
        channel.receive_into(view)
    return view


def _fill(channel: Channel, array: Values) -> None:
    if array.nbytes:
        channel.receive_into(_bytes(array))


def _bytes(array: Values) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # before Python 3.12
