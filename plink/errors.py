"""Errors of plink and their exit codes.

::

    PlinkError            1  something failed, or a check has findings
    ├── UsageError        2  the command line asks for something that cannot be
    ├── InputError        2  a file says something that cannot be (names the file and the line or key)
    ├── HostError         1  one host could not be reached or used (names the host)
    │   └── UnknownHost   2  its name does not resolve: a typing error, not a fault
    ├── PartlyDone        3  some hosts or pairs are missing, the rest is there
    └── NoAnswer          4  the question has no answer

The message is one line: what, why, and what to type next where there is something to type.
"""

import copyreg
from collections.abc import Iterable
from typing import Any

_MAX_QUOTED_CHARS = 400  # characters of what a file's author, or a host, can make as long as they like


class ProtocolError(Exception):
    """A peer sent a message that is not of the form agreed on; one line. Callers turn it into a :class:`HostError`."""


class PlinkError(Exception):
    """Base of all errors that plink raises on purpose; ``str(error)`` is one line without control characters, whoever
    wrote the file or answered from afar."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))

    def __reduce__(self) -> tuple[Any, ...]:
        """As pools of processes pass it on: with its message, which is made of what the constructor takes."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UsageError(PlinkError):
    """The command line is invalid."""

    exit_code = 2


def no_choice(subject: str, value: str, choices: Iterable[str], other: str = "") -> UsageError:
    """Error of a value that is none of the choices; the one that is spelt nearly the same comes first.

    :param subject: what has the value: ``--algo``.
    :param other: what is accepted besides, to end the line with.
    """
    from difflib import get_close_matches

    names = list(choices)
    meant = get_close_matches(value, names, n=1)
    hint = f"did you mean {meant[0]}? Else " if meant else ""
    return UsageError(f"{subject} {value}: {hint}choose one of {', '.join(names)}{other}")


class InputError(PlinkError):
    """An input file or value is invalid; ``location`` names the file and the line or key."""

    exit_code = 2

    def __init__(self, location: str, reason: str) -> None:
        self.location, self.reason = _short(printable(str(location))), _short(printable(reason))
        super().__init__(f"{self.location}: {self.reason}")


class HostError(PlinkError):
    """A host could not be reached or used."""

    def __init__(self, host: str, reason: str) -> None:
        self.host, self.reason = host, _short(printable(reason))
        super().__init__(f"{host}: {self.reason}")


class UnknownHost(HostError):
    """A host's name does not resolve. A typing error is likely, so nothing is started."""

    exit_code = 2


class PartlyDone(PlinkError):
    """Some hosts or pairs are missing; all other results were written."""

    exit_code = 3


class NoAnswer(PlinkError):
    """The question has no answer."""

    exit_code = 4


def printable(text: str) -> str:
    """Text as a part of one line: line feeds and other control characters, and surrogates, as Python writes them."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _short(text: str) -> str:
    """Shorten a long text in its middle."""
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[: _MAX_QUOTED_CHARS - 100]} ... {text[-80:]}"
