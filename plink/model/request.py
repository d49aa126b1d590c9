"""Requests: the options of a command, which are the arguments of its library function, each declared once.

A request is a frozen dataclass below :class:`FeatureRequest`. Its fields are annotated with an :class:`Option`, which
has the help text and says which values are refused; :mod:`plink.terminal.options` makes the command line of them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from functools import cache
from inspect import Signature, signature
from numbers import Real
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from plink.argument_checks import check_fields
from plink.errors import UsageError, no_choice
from plink.model.types import own_number
from plink.model.units import parse_bytes, parse_limit, typed_seconds

Value = TypeVar("Value")


@dataclass(frozen=True)
class Text:
    """Way in which values of a kind are typed. ``metavar``: their name in the help; ``parse``: from what was typed, a
    list of words where the option is ``repeated``; ``show``: a default as one would type it."""

    metavar: str
    parse: Callable[[Any], Any]
    show: Callable[[Any], str] = str
    repeated: bool = False


class Choices(str):
    """Metavar of an option with a closed list of ``values``, which completion offers."""

    values: tuple[str, ...]

    def __new__(cls, values: tuple[str, ...]) -> "Choices":
        made = super().__new__(cls, f"[{'|'.join(values)}]")
        made.values = values
        return made


@dataclass(frozen=True)
class Option:
    """Option of a command. ``names``: as it is typed, by default ``--`` and the field's name; ``least`` and ``most``:
    the range of a number; ``choices``: all values of a text; ``panel``: the part of the help that it stands in."""

    help: str
    names: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    panel: str | None = None

    def check(self, name: str, value: Any, show: Callable[[float], str]) -> None:
        """Refuse a value; ``show``: numbers as one would type them.

        :raises UsageError: for a number out of range or a text that is none of the choices.
        """
        if self.choices and value not in self.choices:
            raise no_choice(name, value, self.choices)
        if (self.most, self.least) != (None, None) and not isinstance(value, Real):
            raise UsageError(f"{name} {value!r}: a number is needed")
        if self.most is not None and not (self.least or 0) <= value <= self.most:
            raise UsageError(f"{name} {show(value)}: it takes {show(self.least or 0)} to {show(self.most)}")
        if self.least is not None and not value >= self.least:
            raise UsageError(f"{name} {show(value)}: at least {show(self.least)} is needed")


@dataclass(frozen=True)
class Field:
    """Field of a request: its type without annotations, its option, and how it is typed where it is no plain value."""

    name: str
    type: Any
    option: Option
    text: Text | None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the option as they are typed."""
        return self.option.names or (f"--{self.name.replace('_', '-')}",)

    def checked(self, value: Any) -> Any:
        """Return a value that the option takes, numbers as Python's own (numpy has others), mappings copied.

        :raises UsageError: for one that is out of range, no choice or of another kind.
        """
        name, kinds = self.names[0], set(_kinds(self.type))
        if {get_origin(kind) for kind in kinds} == {Mapping}:
            if not isinstance(value, Mapping):
                raise UsageError(f"{name} {value!r}: give a dict")
            of = {get_args(kind)[1] for kind in kinds}
            return {key: self._checked(own_number(item), of, f"{name} {key}".rstrip()) for key, item in value.items()}
        of = {kind for each in kinds if get_origin(each) is Sequence for kind in get_args(each)}
        if of and of <= _NUMBERS.keys():
            if isinstance(value, str) or not hasattr(value, "__iter__"):
                raise UsageError(f"{name} {value!r}: give a tuple of numbers")
            return tuple(self._checked(own_number(item), of, name) for item in value)
        return self._checked(own_number(value), kinds, name)

    def _checked(self, value: Any, kinds: set[Any], name: str) -> Any:
        """:param kinds: the types that it can have. :param name: of the value, for errors."""
        for kind, what in ((bool, "True or False"), (str, "a text")):
            if kinds == {kind} and not isinstance(value, kind):
                raise UsageError(f"{name} {value!r}: {what} is needed")
        if kinds and kinds <= _NUMBERS.keys():
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            is_unlimited_nan = value != value and (self.option.least, self.option.most) == (None, None)
            is_fraction = is_number and float not in kinds and value % 1 != 0
            if not is_number or is_unlimited_nan or is_fraction:
                raise UsageError(f"{name} {value!r}: {_NUMBERS[float if float in kinds else int]} is needed")
            if float not in kinds:
                value = int(value)
        self.option.check(name, value, self._show)
        return value

    def _show(self, number: float) -> str:
        return _plain(number) if self.text is None or self.text.show is str else self.text.show(number)

    @property
    def metavar(self) -> str | None:
        """Name of its value in the help: its choices, else its kind and range; None for a text without either."""
        if self.option.choices:
            return Choices(self.option.choices)
        numbers = {int: "N", float: "X"}
        kinds = set(_kinds(self.type))
        named = self.option.metavar or (self.text and self.text.metavar)
        name = named or next((word for kind, word in numbers.items() if kind in kinds), None)
        least, most = self.option.least, self.option.most
        if least is None or (most is not None and most > _MAX_SHOWN) or (most is None and self.text):
            return name
        return f"{name} [x>={_plain(least)}]" if most is None else f"{name} [{self._show(least)}-{self._show(most)}]"


class _PlainSignature:
    """Signature of a request's class without the options, as ``help`` and notebooks show it."""

    def __get__(self, request: Any, kind: type[Any]) -> Signature:
        declared = signature(kind.__init__)
        plain = [
            each.replace(annotation=getattr(each.annotation, "__origin__", each.annotation))
            if hasattr(each.annotation, "__metadata__")
            else each
            for each in declared.parameters.values()
        ]
        return declared.replace(parameters=plain[1:], return_annotation=Signature.empty)


@dataclass(frozen=True)
class FeatureRequest:
    """Request to a feature, checked as it is made.

    :raises UsageError: for a value that is out of range, no choice or of another type than the field's annotation.
    """

    __signature__ = _PlainSignature()

    def __post_init__(self) -> None:
        options = _options_of(type(self))  # type: ignore[arg-type]
        for field in options:
            value = getattr(self, field.name)
            if value is not None or _kinds(field.type) == (field.type,):
                object.__setattr__(self, field.name, field.checked(value))
        check_fields(self, {field.name: field.names[0] for field in options})


def fields_of(request: type[FeatureRequest]) -> tuple[Field, ...]:
    """Return the fields of a kind of request that are options."""
    fields = []
    for field in dataclass_fields(request):
        notes = getattr(field.type, "__metadata__", ())
        option = next((note for note in notes if isinstance(note, Option)), None)
        if option is not None:
            text = next((note for note in notes if isinstance(note, Text)), None)
            fields.append(Field(field.name, get_args(field.type)[0], option, text))
    return tuple(fields)


_options_of = cache(fields_of)  # for requests that are made in loops


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """Return the types that a value can have, but for None."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return tuple(kind for kind in kinds if kind is not type(None))


def typed_words(request: FeatureRequest) -> list[str]:
    """Return the options of a request as one would type them, without those that have their default."""
    defaults = {field.name: field.default for field in dataclass_fields(request)}
    words: list[str] = []
    for field in fields_of(type(request)):
        value, show = getattr(request, field.name), field.text.show if field.text else str
        if value == defaults[field.name]:
            continue
        if field.type is bool:
            words.append(field.names[0])
            continue
        for each in value if field.text and field.text.repeated else (value,):
            words += [field.names[0], show(each)]
    return words


def _plain(number: float) -> str:
    """Return a number as one would type it, a whole one without ``.0``."""
    if isinstance(number, int):
        return str(number)
    return f"{number:.0f}" if abs(number) < 1e15 and number == round(number) else f"{number:g}"


def parse_option(option: str, parse: Callable[[Any], Value], text: Any) -> Value:
    """Return what ``parse`` makes of the text of an option.

    :raises UsageError: that of ``parse``, with the option's name.
    """
    try:
        return parse(text)
    except UsageError as error:
        if not str(error).startswith("--"):  # of a parser that many options share
            error.args = (f"{option}: {error}",)
        raise


def parse_settings(words: Sequence[str]) -> dict[str, int | bool]:
    """Return the options of an algorithm by name, yes and no as booleans.

    :raises UsageError: for what is not of the form ``base=4``.
    """
    settings: dict[str, int | bool] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name or not (value in ("yes", "no") or (value.isdecimal() and len(value) <= _MAX_DIGITS)):
            raise UsageError(f"--set {word}: write name=value, a whole number, yes or no: base=4, sharded=yes")
        settings[name.replace("-", "_")] = int(value) if value.isdecimal() else value == "yes"
    return settings


def parse_environment(words: Sequence[str]) -> dict[str, str]:
    """Return NAME=VALUE words as variables of an environment.

    :raises UsageError: for one that is written otherwise, or whose name no shell would take.
    """
    values = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise UsageError(f"--env {word}: write NAME=VALUE")
        values[name] = value
    return values


_NUMBERS = {float: "a number", int: "a whole number"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_DIGITS = 9
_MAX_SHOWN = 10_000_000  # a limit above that is the computer's, and says nothing to a person
# A size in bytes, typed like 100MB.
Bytes = Annotated[
    float, Text("SIZE", parse_bytes, lambda size: f"{size / 1e6:g}MB" if 1e3 <= size < 1e15 else _plain(size))
]
# A time in seconds, typed like 6h.
OptionalDuration = Annotated[float | None, Text("TIME", parse_limit, typed_seconds)]
# Options of an algorithm: {"base": 4} is typed --set base=4.
Settings = Annotated[Mapping[str, int | bool], Text("NAME=VALUE", parse_settings, repeated=True)]
# Variables of an environment: {"OMP_NUM_THREADS": "1"} is typed --env OMP_NUM_THREADS=1.
Environment = Annotated[Mapping[str, str], Text("NAME=VALUE", parse_environment, repeated=True)]
# Options that several commands take.
SIZE = Option("Bytes to reduce (64KB, 100MB).", ("--size",), least=1, most=1e18)
MODEL = Option("Cost model.")
SET = Option("An option of the algorithm: --set base=4, --set fan-out=3.", ("--set",))
SMOOTH = Option("Smooth round trips by an embedding; `plink embed` shows whether it helps.")
ENV = Option("Set a variable in every rank's environment; repeatable.")
