"""Inputs made from other inputs: a value of a JSON document put in the place of another, or bytes changed."""

import json
from random import Random
from typing import Any

# What parsers trip over: limits of numbers, texts that end lines or colour terminals, deep and empty things.
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 0.5, -0.0, 1e308, -1e-320, 10**20, -(10**20), 1 << 31, (1 << 63) - 1, 10**400),
    *(65535, 65536, 1 << 20, "", "a", "b", "-x", "\n", "\x1b[31m", "a" * 300, "é\u2028", "\ud800", "node[1-99999]"),
    *([], {}, [[]], [None], [0, 0], {"a": {}}, {"\n": "\x1b"}, [1e999], float("nan")),
)
_PIECES = (
    *(
        b"\n",
        b"\0",
        b"\xff",
        b"[" * 2000,
        b'{"a":' * 2000,
        b"1" * 5000,
        b" " * 3000,
        b"a" * 3000,
        b"\r\n",
        b"\xe2\x80\xa8",
    ),
    *(b"NaN", b"Infinity", b"-1", b"1e999", b'"', b"#", b"=", b"slots=65536", b"\x1e", b"\x1f", b"\\"),
)
_DEEPEST = 40


def mutated(data: bytes, random: Random) -> bytes:
    """Something like it."""
    for _ in range(random.choice((1, 1, 2, 4))):
        data = _in_json(data, random) if random.random() < 0.7 else _in_bytes(data, random)
    return data


def _in_json(data: bytes, random: Random) -> bytes:
    """In the document, or in one of the lines if each is one; bytes where it is neither."""
    whole = [data] if b"\n" not in data.strip() or data.lstrip()[:1] in (b"{", b"[") else data.split(b"\n")
    for lines in (whole, data.split(b"\n")):
        which = random.randrange(len(lines))
        try:
            document = json.loads(lines[which])
        except (ValueError, RecursionError):
            continue
        lines[which] = json.dumps(_edited(document, random, 0)).encode()
        return b"\n".join(lines)
    return _in_bytes(data, random)


def _edited(value: Any, random: Random, depth: int) -> Any:
    """One thing in it is other than it was."""
    if not isinstance(value, dict | list) or not value or depth > _DEEPEST or random.random() < 0.1:
        return random.choice(VALUES)
    if isinstance(value, list):
        return _edited_list(value, random, depth)
    keys = list(value)
    key = random.choice(keys)
    what = random.random()
    if what < 0.1:
        return {name: item for name, item in value.items() if name != key}
    if what < 0.2:
        return value | {random.choice(("\n", "x", "", random.choice(keys))): random.choice(VALUES)}
    if what < 0.3:
        return value | {key: value[random.choice(keys)]}
    return value | {key: _edited(value[key], random, depth + 1)}


def _edited_list(value: list[Any], random: Random, depth: int) -> list[Any]:
    at, what = random.randrange(len(value)), random.random()
    if what < 0.15:
        return value[:at] + value[at + 1 :]
    if what < 0.3:
        return [*value, value[at]]
    return [*value[:at], _edited(value[at], random, depth + 1), *value[at + 1 :]]


def _in_bytes(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice((0, 1, 1, 4, 64)))
    what = random.randrange(4)
    if what == 0:
        return data[:at] + random.choice(_PIECES) + data[end:]
    if what == 1:
        return data[:at] + random.randbytes(end - at) + data[end:]
    if what == 2:
        return data[:at] + data[end:]
    return data[:end] + data[at:]
