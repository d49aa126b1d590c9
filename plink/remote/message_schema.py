"""What an agent may say to its controller: kinds of messages, and what must stand in the fields of each.

An agent runs on a host that may be anybody's by now. A controller checks the form of what it hears in one place, before
anything is made of it; what is well formed and untrue is for whoever uses it to see through.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

Fits = Callable[[object], bool]

_LARGEST = 1 << 63


def text(value: object) -> bool:
    """Any string."""
    return isinstance(value, str)


def flag(value: object) -> bool:
    """True or false."""
    return isinstance(value, bool)


def whole(value: object) -> bool:
    """A whole number of 64 bits."""
    return type(value) is int and -_LARGEST <= value < _LARGEST


def amount(value: object) -> bool:
    """A finite number, not negative."""
    return type(value) in (int, float) and 0 <= value < _LARGEST  # type: ignore[operator]


def maybe(fits: Fits) -> Fits:
    """That, or nothing."""
    return lambda value: value is None or fits(value)


def one_of(*words: str) -> Fits:
    """One of these strings."""
    return lambda value: isinstance(value, str) and value in words


def many(fits: Fits) -> Fits:
    """A list of such."""
    return lambda value: isinstance(value, list) and all(map(fits, value))


def some(fits: Fits) -> Fits:
    """A list of such, with one at least."""
    every = many(fits)
    return lambda value: bool(value) and every(value)


def row(*fits: Fits) -> Fits:
    """A list of that length, with one of each."""
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(fits)
        and all(one(part) for one, part in zip(fits, value, strict=True))
    )


def record(**fields: Fits) -> Fits:
    """An object with these fields and no others."""
    return lambda value: (
        isinstance(value, dict) and value.keys() == fields.keys() and all(fits(value[k]) for k, fits in fields.items())
    )


def by_name(fits: Fits) -> Fits:
    """An object with such values."""
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def by_number(fits: Fits) -> Fits:
    """An object with such values, whose names are numbers from 0."""
    return lambda value: isinstance(value, dict) and all(map(_is_number, value)) and all(map(fits, value.values()))


def _is_number(name: str) -> bool:
    return len(name) < 19 and name.isascii() and name.isdigit()


class MessageSchema:
    """``kinds``: by what a message ``is``, the fields that it has at least. ``others``: whether messages of other kinds
    pass, because whoever does not know them takes no notice."""

    def __init__(self, kinds: Mapping[str, Mapping[str, Fits]], *, others: bool = True) -> None:
        self._kinds, self._others = kinds, others

    def wrong(self, message: Mapping[str, Any]) -> str | None:
        """What is wrong with a message, for a person; None: nothing.

        >>> MessageSchema({"port": {"number": whole}}).wrong({"is": "port", "number": "80"})
        "'port' with number '80'"
        """
        kind = message.get("is")
        if not isinstance(kind, str):
            return f"what is {_short(kind)}"
        if not self._others and kind not in self._kinds:
            return f"nobody says {_short(kind)}"
        return ill(kind, self._kinds.get(kind, {}), message)


def ill(kind: str, fields: Mapping[str, Fits], message: Mapping[str, Any]) -> str | None:
    """The same for the fields of one message.

    >>> ill("port", {"number": whole}, {})
    "'port' without number"
    """
    for name, fits in fields.items():
        if name not in message:
            return f"{kind!r} without {name}"
        if not fits(message[name]):
            return f"{kind!r} with {name} {_short(message[name])}"
    return None


def _short(value: object) -> str:
    shown = repr(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    return shown if len(shown) <= 40 else shown[:37] + "..."


class ProtocolError(Exception):
    """What nobody says who is what it should be; one line."""


def said_on(text: bytes | str, says: MessageSchema) -> dict[str, Any] | None:
    """The message on a line; None where that is not ours: something on the host writes to the same output.

    :raises ProtocolError: it is one, of a form that messages from there never have.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or "is" not in body:
        return None
    if why := says.wrong(body):
        raise ProtocolError(f"what it said makes no sense: {why}")
    return body


ANYTHING = MessageSchema({})
