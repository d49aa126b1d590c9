"""Codec of plink's files: a document is validated by its declaration, and errors name the key."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, overload

import msgspec

from plink.errors import InputError

T = TypeVar("T")
Steps = list[str | int]

MAX_SHOWN_CHARACTERS = 40
_AT = re.compile(r"(?s)(?P<reason>.*) - at `(?P<key>key` in `)?\$(?P<path>.*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_TYPES = re.compile(r"`[^`]+`")
_LENGTH = re.compile(r"of length (>=|<=) (\d+)")
_NUMBER = re.compile(r"(?<=[<>=] )-?\d+\.\d*(e[+-]?\d+)?$")
_NAMES = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip


def decode(kind: type[T], value: object, location: str) -> T:
    """Validate a JSON object as a document; keys that its class does not declare are dropped.

    :param kind: a :class:`plink.model.document.Document`. :param location: names the file in errors.
    :raises InputError: naming the key, like ``cloud.json: hosts[3].slots``, what was expected and what is there.
    """
    expected: str = schema_name(kind)  # type: ignore[arg-type]
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != expected:
        raise InputError(f"{location}: schema", f"expected {expected!r}, got {short_json(schema)}")
    return convert(kind, value, location)


@overload
def convert(kind: type[T], value: object, location: str, key: str = "") -> T: ...


@overload
def convert(kind: Any, value: object, location: str, key: str = "") -> Any: ...


def convert(kind: Any, value: object, location: str, key: str = "") -> Any:
    """Validate a value as any declared type; ``key``: its path in the file.

    :raises InputError: as :func:`decode`.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        path, reason = _explain(kind, value, str(error))
        key_path = (key + path).removeprefix(".")
        raise InputError(f"{location}: {key_path}" if key_path else location, reason) from None
    except InputError as error:  # of a type that checks itself, by its name
        owner, _, key = error.location.rpartition(": ")
        types = {getattr(of, "__name__", None): name for name, of in getattr(kind, "__annotations__", {}).items()}
        raise InputError(": ".join(filter(None, (location, types.get(owner), key))), error.reason) from None
    except UnicodeEncodeError as error:
        raise InputError(location, f"{short_json(error.object)} is no text: it has half of a surrogate pair") from None


@cache
def schema_name(kind: Any) -> str:
    """Return the value of a document's key ``schema``, like ``plink.order/1``."""
    tag: str = kind.__struct_config__.tag
    return tag


def undeclared(kind: type[msgspec.Struct], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a document that its class does not declare, with their values."""
    declared = {"schema", *kind.__struct_encode_fields__}
    return {key: entry for key, entry in value.items() if key not in declared}


def _explain(kind: Any, value: object, message: str) -> tuple[str, str]:
    """Return the path of an invalid value, and the reason."""
    matched = _AT.fullmatch(message)
    reason, path = (matched["reason"], matched["path"]) if matched else (message, "")
    steps = [name or index for name, index in _STEP.findall(path)]
    if of_key := bool(matched and matched["key"]):
        steps.append("...")
    resolved, place = _resolved(kind, value, steps, message)
    location = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in resolved)
    if missing := _MISSING.fullmatch(reason):
        return f"{location}.{missing[1]}", "is missing"
    if of_key:
        return location.removesuffix(f".{resolved[-1]}"), f"{short_json(resolved[-1])} cannot be a key here"
    declared = _declared(kind, resolved, value)
    if unknown := _UNKNOWN.fullmatch(reason):
        choices = ", ".join(sorted(declared["properties"]))
        return f"{location}.{unknown[1]}", f"is no key here; choose one of {choices}"
    if "title" in declared and "properties" not in declared:
        return location, f"expected {declared['title']}, got {short_json(place)}"
    if "enum" in declared:
        choices = ", ".join("null" if choice is None else str(choice) for choice in declared["enum"])
        return location, f"choose one of {choices}; got {short_json(place)}"
    expected = _TYPES.sub(_in_words, reason.partition(", got ")[0].replace(" matching regex ", " that matches "))
    expected = _NUMBER.sub(lambda number: f"{float(number[0]):g}", _LENGTH.sub(_length_in_words, expected))
    return location, f"{expected[:1].lower()}{expected[1:]}, got {short_json(place)}"


def _in_words(names: re.Match[str]) -> str:
    """Name types in words: several in msgspec's messages share one pair of backticks; classes are objects."""
    return " or ".join(_NAMES.get(name, "an object") for name in names[0].strip("`").split(" | "))


def _length_in_words(length: re.Match[str]) -> str:
    return f"of {length[2]} or {'more' if length[1] == '>=' else 'fewer'}"


def _declared(kind: Any, path: Steps, value: Any) -> dict[str, Any]:
    """Return the part of a class's JSON Schema at a path of the value; empty where several are possible. Of classes
    with tags it is the one that the value names, or the tags."""
    (node,), definitions = msgspec.json.schema_components([kind])
    for step in [*path, None]:
        while "$ref" in node or "allOf" in node or "anyOf" in node:
            if "discriminator" in node and isinstance(value, dict):
                tags = node["discriminator"]["mapping"]
                tag = value.get(node["discriminator"]["propertyName"])
                if tag not in [*tags]:
                    return {"enum": list(tags)}
                node = definitions[tags[tag].rpartition("/")[2]]
                continue
            options = [node] if "$ref" in node else node.get("allOf") or node["anyOf"]
            options = [option for option in options if option != {"type": "null"}]
            if len(options) > 1:
                return {}
            node = definitions[options[0]["$ref"].rpartition("/")[2]] if "$ref" in options[0] else options[0]
        if isinstance(step, int):
            node = node["prefixItems"][step] if "prefixItems" in node else node.get("items", {})
        elif step is not None:
            node = node.get("properties", {}).get(step) or node.get("additionalProperties") or {}
        if step is not None:
            value = value[step]
    return node


def _resolved(kind: Any, value: Any, steps: list[str], message: str) -> tuple[Steps, Any]:
    """Return a path with the keys that msgspec writes as ``[...]``, and its value."""
    path: Steps = []
    place = value
    for step in steps:
        key: str | int = int(step) if isinstance(place, list) else step
        if step == "...":
            key = _first_wrong(kind, value, path, list(place.items()), message)
            value = _with(value, path, {key: place[key]})
        path.append(key)
        place = place[key]
    return path, place


def _first_wrong(kind: Any, value: Any, path: Steps, entries: list[tuple[str, Any]], message: str) -> str:
    """Find the first key of the object at a path for which msgspec reports this, by bisection: objects may be large."""
    low, high = 0, len(entries)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            msgspec.convert(_with(value, path, dict(entries[low:middle])), kind)
            fails = False
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            fails = str(error) == message
        low, high = (low, middle) if fails else (middle, high)
    return entries[low][0]


def _with(value: Any, path: Steps, replacement: Any) -> Any:
    """Return a copy of the value with a replacement at the path."""
    if not path:
        return replacement
    step, rest = path[0], path[1:]
    if isinstance(value, list):
        return [_with(entry, rest, replacement) if i == step else entry for i, entry in enumerate(value)]
    return {key: _with(entry, rest, replacement) if key == step else entry for key, entry in value.items()}


def short_json(value: object) -> str:
    """Return a value of JSON as messages show it: a list or an object by its kind alone."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    shown = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return shown if len(shown) <= MAX_SHOWN_CHARACTERS else shown[: MAX_SHOWN_CHARACTERS - 3] + "..."
