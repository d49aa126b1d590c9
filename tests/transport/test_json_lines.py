"""Messages from bytes, whatever pieces they arrive in."""

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plink.transport.stdio_channel import LineBuffer, decode_line, encode_line

MESSAGES = st.lists(st.dictionaries(st.text(), st.integers() | st.text() | st.none()), max_size=6)


@given(messages=MESSAGES, cuts=st.lists(st.integers(0, 400)))
def test_messages_survive_any_segmentation(messages: list[dict[str, Any]], cuts: list[int]) -> None:
    data = b"".join(map(encode_line, messages))
    ends = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    buffer = LineBuffer()
    pieces = [data[begin:end] for begin, end in itertools.pairwise(ends)]
    received = [message for piece in pieces for message in buffer.messages(piece)]
    assert received == messages
    assert len(buffer) == 0


@given(st.binary(max_size=200))
def test_what_is_no_message_is_skipped(noise: bytes) -> None:
    buffer = LineBuffer()
    received = [*buffer.messages(noise), *buffer.messages(b"\n" + encode_line({"last": 1}))]
    assert received[-1] == {"last": 1}
    assert all(isinstance(message, dict) for message in received)


def test_an_unfinished_line_is_counted_and_forgotten() -> None:
    buffer = LineBuffer()
    assert buffer.lines(b'{"a": 1}\n{"b"') == [b'{"a": 1}']
    assert len(buffer) == 4
    buffer.clear()
    assert buffer.messages(b'{"c": 2}\n') == [{"c": 2}]


def test_only_objects_are_messages() -> None:
    for text in ("[1]", "1", "null", "{", "[" * 100_000, '"a"'):
        assert decode_line(text.encode()) is None
    assert decode_line(json.dumps({"a": [1]}).encode()) == {"a": [1]}
