"""Message schemas: valid and invalid values, and decoding."""

import json
from typing import Any

import pytest

from plink.errors import ProtocolError
from plink.transport.message_schema import (
    MessageSchema,
    Validator,
    integer,
    list_of,
    non_empty_list_of,
    one_of,
    optional,
    record,
    text,
)  # fmt: skip

POINT = record(x=integer, y=integer)


@pytest.mark.parametrize(
    ("is_valid", "good", "bad"),
    [
        (text, ["", "x"], [None, 1, ["x"]]),
        (integer, [0, -1, 2**63 - 1, -(2**63)], [True, 1.0, 2**63, -(2**63) - 1, "1", None]),
        (optional(integer), [None, 1], ["", 0.0]),
        (one_of("out", "err"), ["out", "err"], ["in", "", None, ["out"]]),
        (list_of(integer), [[], [1, 2]], [[1, "2"], {}, None, "12"]),
        (non_empty_list_of(integer), [[1]], [[], None, ["1"]]),
        (POINT, [{"x": 1, "y": 2}], [{"x": 1}, {"x": 1, "y": 2, "z": 3}, {"x": 1, "y": "2"}, [], None]),
    ],
)  # fmt: skip
def test_validators(is_valid: Validator, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not is_valid(value)] == []
    assert [value for value in bad if is_valid(value)] == []


SCHEMA = MessageSchema({"port": {"number": integer, "error": optional(text)}})


def test_problem_names_the_field() -> None:
    rows: list[tuple[dict[str, Any], str | None]] = [
        ({"type": "port", "number": 80, "error": None, "more": [1]}, None),
        ({"type": "unknown"}, None),
        ({"type": "port", "number": 80}, "'port' without error"),
        ({"type": "port", "number": [80], "error": None}, "'port' with number a list"),
        ({"type": "port", "number": "x" * 99, "error": None}, "'port' with number '" + "x" * 36 + "..."),
        ({"type": ["port"]}, "type a list"),
    ]
    assert [SCHEMA.problem(message) for message, _ in rows] == [problem for _, problem in rows]


def test_other_types_are_refused_where_not_allowed() -> None:
    assert MessageSchema({"port": {}}, allow_other_types=False).problem({"type": "port"}) is None
    assert MessageSchema({"port": {}}, allow_other_types=False).problem({"type": "window"}) == "unknown type 'window'"


def test_other_output_is_ignored() -> None:
    """Something on the host may write to the same output."""
    for line in (b"", b"hello", b"[" * 100_000, b"5", b"[]", b'{"method": "port"}', b"\xff"):
        assert SCHEMA.decode(line) is None


def test_decode_valid_and_invalid() -> None:
    good = {"type": "port", "number": 80, "error": None}
    assert SCHEMA.decode(json.dumps(good)) == good
    with pytest.raises(ProtocolError, match=r"^invalid message: 'port' with number True$"):
        SCHEMA.decode(json.dumps(good | {"number": True}))
