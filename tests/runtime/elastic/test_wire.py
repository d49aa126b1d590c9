"""Messages: what is sent arrives, and nothing else is taken."""

import contextlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from plink.elastic import Table
from plink.runtime.elastic.arrays.layout import Layout, Rows
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.transport import messages, wire
from plink.runtime.elastic.transport.messages import PartKind, Read, RowRequest, Status, Update
from plink.runtime.elastic.transport.records import ConnectionLost, Forged
from plink.runtime.elastic.transport.wire import receive, send

LAYOUT = Layout((Table("a", 10, 3), Table("b", 6, 1, "int64")), 2)


class Pipe:
    """What was sent, to be received; counts what is asked for."""

    def __init__(self, content: bytes = b"") -> None:
        self.content, self.largest = content, 0

    def send(self, buffers: Sequence[memoryview]) -> None:
        self.content += b"".join(buffers)

    def receive_into(self, view: memoryview) -> None:
        self.largest = max(self.largest, view.nbytes)
        if len(self.content) < view.nbytes:
            raise ConnectionLost("the other end closed the connection")
        view[:], self.content = self.content[: view.nbytes], self.content[view.nbytes :]

    def close(self) -> None: ...


def rows(count: int) -> st.SearchStrategy[Rows]:
    """Of a table with so many in the partition."""
    ranges = st.tuples(st.integers(0, count), st.integers(0, count)).map(lambda ends: range(min(ends), max(ends)))
    return ranges | st.sets(st.integers(0, count - 1)).map(lambda result: np.array(sorted(result), dtype=np.uint32))


NUMBERS = {
    "status": st.sampled_from(list(Status)), "kind": st.sampled_from(list(PartKind)), "text": st.text(max_size=50),
    "generation": st.integers(0, (1 << 32) - 1), "term": st.integers(0, (1 << 32) - 1),
    "others": st.integers(0, (1 << 32) - 1), "helper": st.integers(0, (1 << 32) - 1),
    "worker": st.integers(-1, (1 << 31) - 1), "clock": st.integers(-1, 1 << 60), "after": st.integers(-1, 1 << 60),
    "state": st.integers(-1, 1 << 60), "before": st.integers(-1, 1 << 60),
}  # fmt: skip
KINDS = (messages.ServerAnswer, messages.UpdateAnswer, messages.Grant, *messages.ServerRequest.__subclasses__())
# What a part of another kind does not have.
OF_PARTS = {
    "generation_clock": {PartKind.STATE},
    "before": {PartKind.UNDO},
    "step": {PartKind.UPDATE, PartKind.STEP},
}


@given(st.data(), st.sampled_from(KINDS), rows(5), rows(3), st.booleans())
def test_what_is_sent_arrives(data: st.DataObject, kind: type[Any], first: Rows, second: Rows, full: bool) -> None:
    blocks = (
        RowBlock(1, second, np.arange(len(second))[:, None] - 5),
        RowBlock(0, first, np.random.default_rng(1).standard_normal((len(first), 3)).astype(np.float32)),
    )
    lists = {"blocks": blocks if full else (), "wanted": (RowRequest(0, first),) if full else ()}
    values: dict[str, Any] = {"partition": 1}
    for field in structs.fields(kind)[1:]:
        usual = st.booleans() if field.type is bool else st.integers(0, 1 << 60)
        values[field.name] = lists[field.name] if field.name in lists else data.draw(NUMBERS.get(field.name, usual))
    if kind is messages.PartitionPart:
        values |= {name: 0 for name, parts in OF_PARTS.items() if values["kind"] not in parts}
    sent, pipe = kind(**values), Pipe()
    send(pipe, sent, LAYOUT, ticket=7)
    result, ticket = receive(pipe, LAYOUT, kind if issubclass(kind, messages.ServerAnswer) else messages.ServerAnswer)
    assert (type(result), ticket, pipe.content) == (kind, 7, b"")
    for name in kind.__struct_fields__:
        if name not in lists:
            assert getattr(result, name) == getattr(sent, name)
    for name in lists.keys() & values:
        arrived = getattr(result, name)
        assert [np.asarray(part.rows).tolist() for part in arrived] == [
            np.asarray(part.rows).tolist() for part in lists[name]
        ]
    for item, other in zip(getattr(result, "blocks", ()), getattr(sent, "blocks", ()), strict=True):
        assert np.array_equal(item.values, other.values)
        assert item.values.dtype == other.values.dtype


@given(st.integers(0, 200), st.binary(max_size=300))
def test_garbage_takes_no_memory(place: int, garbage: bytes) -> None:
    """Alone, or after the beginning of a message: never more room than the partition, or a text, has."""
    numbers, pipe = np.array([0, 2], np.uint32), Pipe()
    send(pipe, Update(0, blocks=(RowBlock(0, numbers, np.ones((2, 3), np.float32)),)), LAYOUT)
    cut = pipe.content[: place % len(pipe.content)]
    with pytest.raises(ConnectionLost):
        receive(Pipe(cut), LAYOUT)
    pipe = Pipe(cut + garbage)
    with contextlib.suppress(Forged, ConnectionLost):
        receive(pipe, LAYOUT)
    assert pipe.largest <= 1 << 16


def test_invalid_message_is_named() -> None:
    pipe = Pipe()
    wanted = RowRequest(0, range(0, 5))
    send(pipe, Read(1, wanted=(wanted,)), LAYOUT)
    good = pipe.content
    head = wire._HEADER.size

    def error_of(content: bytes, layout: Layout = LAYOUT) -> str:
        with pytest.raises(Forged) as refused:
            receive(Pipe(content), layout)
        return str(refused.value)

    assert "begins with b'GET " in error_of(b"GET / HTTP/1.1\r\n" + bytes(100))
    assert "version 99" in error_of(good[:4] + b"\x63" + good[5:])
    assert "other tables" in error_of(good, Layout(LAYOUT.tables, 3))
    assert "rows 0 to 4294967295" in error_of(good[:head] + struct.pack("<IIII", 0, 2, 0, 0xFFFFFFFF))
    assert "not, or twice" in error_of(good[:head] + struct.pack("<IIII", 5, 0, 0, 1))
    send(second := Pipe(), Read(1, wanted=(wanted, wanted)), LAYOUT)
    assert "twice" in error_of(second.content)
    falling = RowBlock(0, np.array([2, 1], np.uint32), np.zeros((2, 3), np.float32))
    send(third := Pipe(), Update(0, blocks=(falling,)), LAYOUT)
    assert "do not rise" in error_of(third.content)
