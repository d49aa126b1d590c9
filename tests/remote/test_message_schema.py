"""The form of what agents say: what fits, and what does not."""

import json
from typing import Any

import pytest

from plink.remote.message_schema import (
    Fits,
    MessageSchema,
    ProtocolError,
    amount,
    by_name,
    by_number,
    flag,
    many,
    maybe,
    one_of,
    record,
    row,
    said_on,
    some,
    text,
    whole,
)  # fmt: skip

POINT = record(x=whole, y=whole)


@pytest.mark.parametrize(
    ("fits", "good", "bad"),
    [
        (text, ["", "x"], [None, 1, ["x"]]),
        (flag, [True, False], [0, 1, None, "true"]),
        (whole, [0, -1, 2**63 - 1, -(2**63)], [True, 1.0, 2**63, -(2**63) - 1, "1", None]),
        (amount, [0, 0.0, 2.5, 7], [-1, -0.1, float("nan"), float("inf"), True, 10**400, "1"]),
        (maybe(whole), [None, 1], ["", 0.0]),
        (one_of("out", "err"), ["out", "err"], ["in", "", None, ["out"]]),
        (many(whole), [[], [1, 2]], [[1, "2"], {}, None, "12"]),
        (some(whole), [[1]], [[], None, ["1"]]),
        (row(whole, text), [[1, "x"]], [[1], [1, "x", 2], ["x", 1], {}, None]),
        (POINT, [{"x": 1, "y": 2}], [{"x": 1}, {"x": 1, "y": 2, "z": 3}, {"x": 1, "y": "2"}, [], None]),
        (by_name(whole), [{}, {"a": 1}], [{"a": "1"}, [], None]),
        (by_number(whole), [{}, {"0": 1, "17": 2}], [{"a": 1}, {"-1": 1}, {"": 1}, {"\u00b2": 1}, {"9" * 19: 1}, []]),
    ],
)  # fmt: skip
def test_what_fits(fits: Fits, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not fits(value)] == []
    assert [value for value in bad if fits(value)] == []


WORDS = MessageSchema({"port": {"number": whole, "why": maybe(text)}})


def test_what_is_wrong_is_said() -> None:
    rows: list[tuple[dict[str, Any], str | None]] = [
        ({"is": "port", "number": 80, "why": None, "more": [1]}, None),
        ({"is": "what nobody knows"}, None),
        ({"is": "port", "number": 80}, "'port' without why"),
        ({"is": "port", "number": [80], "why": None}, "'port' with number a list"),
        ({"is": "port", "number": "x" * 99, "why": None}, "'port' with number '" + "x" * 36 + "..."),
        ({"is": ["port"]}, "what is a list"),
    ]
    assert [WORDS.wrong(message) for message, _ in rows] == [wrong for _, wrong in rows]


def test_where_all_kinds_are_known_no_other_passes() -> None:
    assert MessageSchema({"port": {}}, others=False).wrong({"is": "port"}) is None
    assert MessageSchema({"port": {}}, others=False).wrong({"is": "door"}) == "nobody says 'door'"


def test_what_is_no_message_is_passed_over() -> None:
    """Something on the host may write to the same output."""
    for line in (b"", b"hello", b"[" * 100_000, b"5", b"[]", b'{"do": "port"}', b"\xff"):
        assert said_on(line, WORDS) is None


def test_a_message_is_taken_or_makes_no_sense() -> None:
    good = {"is": "port", "number": 80, "why": None}
    assert said_on(json.dumps(good), WORDS) == good
    with pytest.raises(ProtocolError, match=r"^what it said makes no sense: 'port' with number True$"):
        said_on(json.dumps(good | {"number": True}), WORDS)
