"""Schemas of the messages that agents send: which types there are, and which fields each must have.

An agent runs on a host that may be anybody's by now. The controller therefore checks the form of each message here,
before it uses it. Whoever uses a message has to allow for values that are well formed and untrue.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from plink.errors import ProtocolError

Validator = Callable[[object], bool]

_INT64_LIMIT = 1 << 63


def text(value: object) -> bool:
    """Accept any string."""
    return isinstance(value, str)


def integer(value: object) -> bool:
    """Accept an integer of 64 bits."""
    return type(value) is int and -_INT64_LIMIT <= value < _INT64_LIMIT


def number(value: object) -> bool:
    """Accept a finite number that is not negative."""
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]


def optional(is_valid: Validator) -> Validator:
    """Accept null, and what ``is_valid`` accepts."""
    return lambda value: value is None or is_valid(value)


def one_of(*choices: str) -> Validator:
    """Accept one of these strings."""
    return lambda value: isinstance(value, str) and value in choices


def list_of(is_valid: Validator) -> Validator:
    """Accept a list of valid items."""
    return lambda value: isinstance(value, list) and all(map(is_valid, value))


def non_empty_list_of(is_valid: Validator) -> Validator:
    """Accept a list of at least one valid item."""
    is_valid_list = list_of(is_valid)
    return lambda value: bool(value) and is_valid_list(value)


def record(**fields: Validator) -> Validator:
    """Accept an object with these fields and no others."""
    return lambda value: (
        isinstance(value, dict)
        and value.keys() == fields.keys()
        and all(is_valid(value[name]) for name, is_valid in fields.items())
    )


class MessageSchema:
    """Form of the messages of one sender.

    :param types: by the ``type`` of a message, its required fields.
    :param allow_other_types: accept messages of other types, which receivers then ignore.
    """

    def __init__(self, types: Mapping[str, Mapping[str, Validator]], *, allow_other_types: bool = True) -> None:
        self._types, self._allow_other_types = types, allow_other_types

    def problem(self, message: Mapping[str, Any]) -> str | None:
        """Return what is invalid in a message, None if it is valid.

        >>> MessageSchema({"port": {"number": integer}}).problem({"type": "port", "number": "80"})
        "'port' with number '80'"
        """
        kind = message.get("type")
        if not isinstance(kind, str):
            return f"type {_short(kind)}"
        if not self._allow_other_types and kind not in self._types:
            return f"unknown type {_short(kind)}"
        return field_problem(kind, self._types.get(kind, {}), message)

    def decode(self, line: bytes | str) -> dict[str, Any] | None:
        """Return the message on a line, None if the line is none: other programs write to the same output.

        :raises ProtocolError: the message is invalid.
        """
        try:
            body = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(body, dict) or "type" not in body:
            return None
        if problem := self.problem(body):
            raise ProtocolError(f"invalid message: {problem}")
        return body


def field_problem(kind: str, fields: Mapping[str, Validator], message: Mapping[str, Any]) -> str | None:
    """Return what is invalid in the fields of one message, None if they are valid.

    >>> field_problem("port", {"number": integer}, {})
    "'port' without number"
    """
    for name, is_valid in fields.items():
        if name not in message:
            return f"{kind!r} without {name}"
        if not is_valid(message[name]):
            return f"{kind!r} with {name} {_short(message[name])}"
    return None


def _short(value: object) -> str:
    shown = repr(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    return shown if len(shown) <= 40 else shown[:37] + "..."


ANY_MESSAGE = MessageSchema({})
