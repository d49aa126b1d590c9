"""Checks of what a program passes to plink: clear slips, by the annotations of its functions and requests."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from inspect import signature
from numbers import Real
from pathlib import Path, PurePath
from types import GeneratorType, NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from plink.errors import UsageError

_READERS = {
    "Network": "read_network", "Hosts": "read_hosts", "RankOrder": "read_order", "ModelProfile": "read_profile",
    "PipelinePlan": "read_pipeline", "MarketFile": "read_market_file", "NetworkEmbedding": "read_embedding",
    "Mesh": "make_mesh", "Histories": "read_spot_histories",
}  # fmt: skip
_MAX_SHOWN_CHARACTERS = 60
_SINGLE = (str, bytes, PurePath, Real, NoneType)
_PLAIN = (list, tuple, dict, set, frozenset, GeneratorType)  # never what an own class is needed for
_PACKAGES = {"plink", "runners", "solvers"}  # whose classes are checked: others may be anything


def check_argument(name: str, value: object, kind: Any) -> None:
    """Refuse a text, path, number, None, list, tuple, dict or another of plink's own classes where an annotation says
    otherwise.

    All other objects pass, and so do paths for texts, texts for paths, and one kind of number for another.

    :raises UsageError: naming the type, and for a text what makes one of it.
    """
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if _fits(value, kind):
        return
    shown = text if len(text := repr(value)) <= _MAX_SHOWN_CHARACTERS else f"of type {type(value).__name__}"
    type_name = re.sub(r"\w+\.(?=\w)", "", str(kind)) if get_args(kind) else getattr(kind, "__name__", str(kind))
    reader = next((_READERS[word] for word in re.findall(r"\w+", type_name) if word in _READERS), None)
    hint = f"; plink.{reader}(...) returns one" if reader and isinstance(value, str | PurePath) else ""
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
    """Return False for a clear slip; True, too, for types that are not checked."""
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in of)
    if origin in (Mapping, dict) and isinstance(value, Mapping):
        return all(_fits(key, of[0]) and _fits(item, of[1]) for key, item in value.items())
    if origin in (Sequence, tuple, list) and isinstance(value, tuple | list):
        return all(any(_fits(item, each) for each in of if each is not ...) for item in value)
    if origin in (Mapping, dict, Sequence, tuple, list):
        return not isinstance(value, _SINGLE)
    classes = {"None" if value is None else each.__name__ for each in type(value).__mro__}
    if not isinstance(value, _SINGLE) and type(value) not in _PLAIN and not _is_own(value, classes):
        return True
    if isinstance(kind, str):  # in quotes, so that its module is not imported for it
        names = {*kind.split(" | ")}
        return not names.isdisjoint(classes) or not names <= {*sys.modules["plink"].__all__, "Topology", "None"}
    if kind in (int, float, str, Path):
        return isinstance(value, Real if kind in (int, float) else str | PurePath)
    is_own = isinstance(kind, type) and kind.__module__.partition(".")[0] in _PACKAGES
    return not (is_own or kind is NoneType) or getattr(kind, "_is_protocol", False) or isinstance(value, kind)


def _is_own(value: Any, classes: set[str]) -> bool:
    """Return whether a value is a request, or of another public class of plink.

    :param classes: names of its classes.
    """
    is_public = type(value).__name__ in sys.modules["plink"].__all__
    return "FeatureRequest" in classes or (is_public and type(value).__module__.partition(".")[0] in _PACKAGES)
