"""Checks of what a program passes to plink, against the annotations of its functions and requests."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ForwardRef, Literal, Union, get_args, get_origin

from plink.errors import UsageError

_READERS = {
    "Network": "read_network", "Hosts": "read_hosts", "RankOrder": "read_order", "ModelProfile": "read_profile",
    "PipelinePlan": "read_pipeline", "MarketFile": "read_market_file", "NetworkEmbedding": "read_embedding",
    "Mesh": "make_mesh", "Histories": "read_spot_histories",
}  # fmt: skip
_MAX_SHOWN_CHARACTERS = 60
_UNION = re.compile(r"\w+( \| \w+)*")  # other annotations in quotes are not checked


def check_argument(name: str, value: object, kind: Any) -> None:
    """Refuse a value that is not of an annotation's type. A text is no sequence of texts, and may be a path.

    :raises UsageError: naming the type, and for a text what makes one of it.
    """
    if _fits(value, kind):
        return
    shown = repr(value)
    if len(shown) > _MAX_SHOWN_CHARACTERS:
        shown = f"of type {type(value).__name__}"
    type_name = re.sub(r"\w+\.(?=\w)", "", kind.__name__ if get_origin(kind) is None and _is_class(kind) else str(kind))
    reader = next((_READERS[word] for word in re.findall(r"\w+", type_name) if word in _READERS), None)
    hint = f"; plink.{reader}(...) returns one" if reader and isinstance(value, str | PathLike) else ""
    raise UsageError(f"{name} {shown}: {type_name} is needed{hint}")


def check_fields(instance: Any, names: Mapping[str, str]) -> None:
    """Check the fields of a dataclass; ``names``: of those that messages call otherwise.

    :raises UsageError: as :func:`check_argument`.
    """
    for field in fields(instance):
        if (value := getattr(instance, field.name)) is not field.default:
            check_argument(names.get(field.name, field.name), value, field.type)


def with_checked_arguments(function: Callable[..., Any], package: str) -> Callable[..., Any]:
    """Return a package's public function, whose arguments are checked before it is called."""
    declared = signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            values = declared.bind(*args, **kwargs).arguments
        except TypeError:  # which the function raises, too, by its name
            return function(*args, **kwargs)
        for name, value in values.items():
            check_argument(f"{function.__name__}: {name}", value, declared.parameters[name].annotation)
        return function(*args, **kwargs)

    call.__module__, call.__qualname__ = package, function.__name__  # where pickles find it
    return call


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type; True for types that are not checked."""
    origin, of = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fits(value, of[0])
    if isinstance(kind, str | ForwardRef):
        text = kind if isinstance(kind, str) else kind.__forward_arg__
        names = {each.__name__ for each in type(value).__mro__} | ({"None"} if value is None else set())
        return not _UNION.fullmatch(text) or not names.isdisjoint(text.split(" | "))
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in of)
    if origin is Literal:
        return value in of
    if origin in (Mapping, dict):
        return isinstance(value, Mapping) and all(_fits(k, of[0]) and _fits(v, of[1]) for k, v in value.items())
    if origin in (Sequence, tuple, list):
        if isinstance(value, str | bytes | Mapping | PathLike) or not hasattr(value, "__iter__"):
            return False
        of_items = [each for each in of if each is not ...]
        return not isinstance(value, tuple | list) or all(any(_fits(item, each) for each in of_items) for item in value)
    if kind in (float, int):
        return isinstance(value, Real if kind is float else Integral) and not isinstance(value, bool)
    if kind is Path:
        return isinstance(value, str | PathLike)
    return not _is_class(kind) or isinstance(value, kind)


def _is_class(kind: Any) -> bool:
    return isinstance(kind, type) and kind is not Any and not getattr(kind, "_is_protocol", False)
