"""Messages of the parameter server as bytes: a header of fixed size, a list of blocks, then their arrays.

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
from operator import attrgetter, itemgetter
from typing import Any, cast

import numpy as np

from plink.elastic.tables import Values
from plink.runtime.elastic.arrays.array_pool import empty
from plink.runtime.elastic.arrays.layout import Indices, Layout, Rows, rising
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.transport import messages as m
from plink.runtime.elastic.transport.messages import Message, PartKind, RowRequest, Status
from plink.runtime.elastic.transport.records import Channel, Forged

assert sys.byteorder == "little"  # arrays travel as they are

VERSION = 9  # one more wherever a server or a worker sends or understands something else
_MAGIC = b"plPS"
_HEADER = struct.Struct("<4sBBBBIIiIIIIIQqqQQ")
_BLOCK = struct.Struct("<IIII")
_MAX_TEXT_BYTES = 1 << 16
_NUMBERED, _WITH_VALUES = 1, 2
LAST, INCLUDED, DROPPED, UNPLANNED, GROUPED = 1, 2, 4, 8, 16  # flags; a part has its kind in their place


class Kind(IntEnum):
    """Kind of a message."""

    ANSWER = 0
    READ = 1
    UPDATE = 2
    REPLICATE = 3
    PART = 4
    ACTIVATE = 5
    HELP = 6
    HELP_RESULT = 7
    ANNOUNCE = 8


_SLOTS = (
    *("partition", "status", "flags", "worker", "generation", "term", "sequence", "clock", "before", "version"),
    *("last", "included", "dropped", "unplanned", "grouped"),  # bits of the flags
    *("blocks", "wanted", "text"),
)
_BITS = {name: 1 << bit for bit, name in enumerate(_SLOTS[10:15])}
_FLAGS = [tuple(bool(flags & bit) for bit in _BITS.values()) for flags in range(32)]
_MISSING = (0, -1, (), "")
_STATUSES = {int(status): status for status in Status}


class _Form:
    """Place of a message's fields among the numbers of a header and what follows it.

    :param names: of fields, by slot, that are not named as their slots are.
    """

    def __init__(self, kind: Kind, view: type[Any], **names: str) -> None:
        fields = view.__struct_fields__
        slots = {names.get(slot, slot): slot for slot in _SLOTS if names.get(slot, slot) in fields}
        self.view, self.fields = view, attrgetter(*fields)
        # To receive: fields from slots, and 0. To send: slots from fields, and what they are where there is no field.
        self.received = itemgetter(*(_SLOTS.index(slots[name]) if name in slots else len(_SLOTS) for name in fields))
        places = {slot: fields.index(name) for name, slot in slots.items()}
        missing = dict.fromkeys(_SLOTS, 0) | {"worker": 1, "blocks": 2, "wanted": 2, "text": 3}
        sent = (places.get(slot, len(fields) + missing[slot]) for slot in (*_SLOTS[:10], *_SLOTS[15:]))
        self.sent = itemgetter(*sent)
        self.bits = [(places[slot], bit) for slot, bit in _BITS.items() if slot in places]
        self.kind = kind


_FORMS = {
    form.view: form
    for form in (
        _Form(Kind.ANSWER, m.ServerAnswer),
        _Form(Kind.ANSWER, m.UpdateAnswer, sequence="steps", before="latest_finished", last="finished"),
        _Form(Kind.ANSWER, m.Grant, sequence="others", before="transfer"),
        _Form(Kind.READ, m.Read, before="state"),
        _Form(Kind.UPDATE, m.Update, sequence="step", term="others", before="state", dropped="unsent"),
        _Form(Kind.REPLICATE, m.ReplicationDelta, clock="after"),
        _Form(Kind.ACTIVATE, m.Activate, sequence="attempt"),
        _Form(Kind.HELP, m.Help),
        _Form(Kind.HELP_RESULT, m.HelpResult, term="helper", sequence="id"),
        _Form(Kind.ANNOUNCE, m.Announce, sequence="step", before="size"),
    )
}
_BEFORE_OF_PARTS = {PartKind.STATE: "generation_clock", PartKind.UPDATE: "step", PartKind.STEP: "step"}
_PARTS = {
    int(kind): _Form(
        Kind.PART,
        m.PartitionPart,
        flags="kind",
        sequence="attempt",
        version="members",
        before=_BEFORE_OF_PARTS.get(kind, "before"),
    )
    for kind in PartKind
}
_REQUESTS = {int(form.kind): form for form in _FORMS.values() if form.kind is not Kind.ANSWER}


def answer_to(request: m.ServerRequest[m.AnswerKind]) -> type[m.AnswerKind]:
    """Return the form of a request's answer."""
    kind = {m.Update: m.UpdateAnswer, m.Announce: m.Grant}.get(type(request), m.ServerAnswer)
    return cast(type[m.AnswerKind], kind)


def requests_by_partition(layout: Layout, rows: Mapping[int, Indices]) -> dict[int, tuple[RowRequest, ...]]:
    """Return what to request of each partition, for rows by table, which rise."""
    result: dict[int, tuple[RowRequest, ...]] = {}
    for table, requested in rows.items():
        for partition, _, local in layout.cut(requested):
            result[partition] = (*result.get(partition, ()), RowRequest(table, local))
    return result


def send(channel: Channel, message: Message | m.ServerRequest[Any], layout: Layout, ticket: int = 0) -> None:
    """Send a message.

    :param ticket: tells the requests of a connection apart; an answer has that of its request.
    :raises ConnectionLost: the connection is no more.
    """
    form = _PARTS[message.kind] if isinstance(message, m.PartitionPart) else _FORMS[type(message)]
    values = (*form.fields(message), *_MISSING)
    *numbers, blocks, wanted, words = form.sent(values)
    partition, status, flags, worker, generation, term, sequence, clock, before, version = numbers
    for place, bit in form.bits:
        flags |= bit * values[place]
    parts: Sequence[RowBlock | RowRequest] = (*blocks, *wanted)
    text = words.encode()
    assert len(text) <= _MAX_TEXT_BYTES, f"{len(text)} bytes of text"
    heads, arrays = bytearray(), []
    for part in parts:
        start = part.rows.start if isinstance(part.rows, range) else 0
        numbered = not isinstance(part.rows, range)
        block_form = numbered * _NUMBERED | isinstance(part, RowBlock) * _WITH_VALUES
        heads += _BLOCK.pack(part.table, block_form, start, len(part.rows))
        if not isinstance(part.rows, range):
            arrays.append(_bytes(np.ascontiguousarray(part.rows, dtype="<u4")))
        if isinstance(part, RowBlock):
            arrays.append(_bytes(np.ascontiguousarray(part.values)))
    body_bytes = sum(array.nbytes for array in arrays) if arrays else 0
    who = (_MAGIC, VERSION, form.kind, status, flags, layout.fingerprint, partition, worker, generation, term)
    follows = (len(parts), len(text), ticket, sequence, clock, before, version, body_bytes)
    header = _HEADER.pack(*who, *follows)
    channel.send([memoryview(header + heads + text), *arrays])


def receive(channel: Channel, layout: Layout, answer: type[m.ServerAnswer] = m.ServerAnswer) -> tuple[Message, int]:
    """Receive a message, and its ticket.

    :param answer: form of an answer.
    :raises Forged: what arrives is no message for this layout.
    :raises ConnectionLost: the connection is no more.
    """
    received = _HEADER.unpack(_filled(channel, _HEADER.size))
    magic, protocol, kind, status, flags, fingerprint, partition, worker, generation, term = received[:10]
    parts, text_bytes, ticket, sequence, clock, before, version, body_bytes = received[10:]
    if magic != _MAGIC:
        raise Forged(f"no message of a parameter server: it begins with {magic!r}")
    if protocol != VERSION:
        raise Forged(f"a message of version {protocol}, this is {VERSION}: install the same plink on all hosts")
    if fingerprint != layout.fingerprint:
        raise Forged("it is for other tables (names, rows, widths, types) or another number of partitions")
    if partition >= layout.partitions or parts > 2 * len(layout.tables) or text_bytes > _MAX_TEXT_BYTES:
        raise Forged(f"partition {partition}, {parts} blocks, {text_bytes} bytes of text")
    if kind == Kind.PART:
        form, state = _PARTS.get(flags), PartKind(flags) if flags in _PARTS else flags
    else:
        form, state = _FORMS[answer] if kind == Kind.ANSWER else _REQUESTS.get(kind), flags
    if form is None or status not in _STATUSES:
        raise Forged(f"a message of kind {kind}, status {status} and flags {flags}")
    heads = list(_BLOCK.iter_unpack(_filled(channel, parts * _BLOCK.size))) if parts else []
    _check(heads, partition, body_bytes, layout)
    message = bytes(_filled(channel, text_bytes)).decode(errors="replace") if text_bytes else ""
    blocks: list[RowBlock] = []
    wanted: list[RowRequest] = []
    for head in heads:
        part = _receive_part(channel, head, layout, partition)
        if isinstance(part, RowBlock):
            blocks.append(part)
        else:
            wanted.append(part)
    numbers = (partition, _STATUSES[status], state, worker, generation, term, sequence, clock, before, version)
    content = (tuple(blocks), tuple(wanted), message, 0)
    slots = numbers + _FLAGS[flags & 31] + content
    view: Message = form.view(*form.received(slots))
    return view, ticket


def _check(heads: Sequence[tuple[int, int, int, int]], partition: int, body: int, layout: Layout) -> None:
    """Check that blocks claim nothing beyond the partition."""
    claimed, before = 0, set()  # type: int, set[tuple[int, int]]
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
) -> RowBlock | RowRequest:
    table, form, start, count = head
    rows: Rows = range(start, start + count)
    if form & _NUMBERED:
        numbers = np.empty(count, dtype="<u4")
        _fill(channel, numbers)
        if not rising(numbers) or (count and int(numbers[-1]) >= layout.rows_in(table, partition)):
            raise Forged(f"row numbers of table {table} that do not rise or are not there")
        rows = numbers
    if not form & _WITH_VALUES:
        return RowRequest(table, rows)
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
