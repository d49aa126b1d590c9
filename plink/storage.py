"""JSON documents on disk: read with errors that name the file, written whole or not at all."""

import contextlib
import gzip
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

from plink.errors import InputError, PlinkError

STANDARD = "-"
_FEW = 16  # numbers or names that fit on the line of what they belong to


def name_of(path: str | Path) -> str:
    """How a file is called in messages."""
    return "standard input" if str(path) == STANDARD else str(path)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number; write null for what was not measured")


def read_text(path: str | Path) -> str:
    """The text of a file; ``-`` is standard input and a name ending in ``.gz`` is decompressed.

    :raises InputError: when it is missing, unreadable or not UTF-8.
    """
    where = name_of(path)
    try:
        if str(path) == STANDARD:
            if sys.stdin is None:
                raise InputError(where, "it is closed")
            return sys.stdin.buffer.read().decode()
        data = Path(path).read_bytes()
        return (gzip.decompress(data) if _is_gz(path) else data).decode()
    except UnicodeDecodeError as error:
        raise InputError(where, f"not a text file (byte {error.start} is not UTF-8)") from None
    except FileNotFoundError:
        raise InputError(where, "no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(where, getattr(error, "strerror", None) or str(error)) from None


def read_document(path: str | Path) -> dict[str, Any]:
    """One JSON object from a file, as :func:`parse_document`.

    :raises InputError: when the file cannot be read or does not hold a JSON object.
    """
    return parse_document(read_text(path), name_of(path))


def parse_document(text: str, where: str) -> dict[str, Any]:
    """One JSON object from text, strict JSON: NaN and Infinity are refused; ``where`` names the file in errors.

    :raises InputError: when it is not JSON or no object.
    """
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}", f"not JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(where, "not JSON that plink reads: nested too deeply") from None
    except ValueError as error:
        raise InputError(where, str(error)) from None
    if not isinstance(document, dict):
        raise InputError(where, f"a JSON object was expected, this is a {type(document).__name__}")
    return document


def write_text(path: str | Path, text: str) -> None:
    """Write a whole file or none: a temporary file beside it, then a rename. ``-`` is standard output.

    :raises PlinkError: when it cannot be written; an older file of that name is then still as it was.
    """
    try:
        if str(path) == STANDARD:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            data = text.encode()
            _write_bytes(Path(os.path.realpath(path)), gzip.compress(data, mtime=0) if _is_gz(path) else data)
    except IsADirectoryError:
        raise InputError(str(path), "is a folder; name a file in it") from None
    except BrokenPipeError:  # the reader has gone, which is not ours to report
        raise
    except OSError as error:
        where = "to standard output" if str(path) == STANDARD else str(path)
        raise PlinkError(f"cannot write {where}: {error.strerror}") from None


def _is_gz(path: str | Path) -> bool:
    """Whether a file of that name is compressed."""
    return str(path).endswith(".gz")


def _write_bytes(target: Path, data: bytes) -> None:
    if target.exists() and not target.is_file():  # /dev/stdout, a named pipe: nothing to rename onto
        target.write_bytes(data)
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_document(path: str | Path, document: dict[str, Any]) -> None:
    """Write one JSON object, rows of matrices one a line so that people and ``diff`` can read it."""
    write_text(path, render_document(document))


def render_document(document: dict[str, Any]) -> str:
    """The text of a JSON document: two-space indent for objects, lists of plain values on one line."""
    return _render(document, "") + "\n"


def _render(value: Any, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, dict) and value:
        items = (f"{inner}{json.dumps(str(key))}: {_render(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(item, dict | list | tuple) for item in value):
        return "[\n" + ",\n".join(f"{inner}{_flat_or_nested(item, inner)}" for item in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)


def _flat_or_nested(value: Any, indent: str) -> str:
    if isinstance(value, dict) and not any(_is_nested(item) for item in value.values()):
        return json.dumps(value, allow_nan=False)
    return _render(value, indent)


def _is_nested(value: Any) -> bool:
    """Whether a value is more than a plain one, or a few of them."""
    if isinstance(value, list):
        return len(value) > _FEW or any(isinstance(item, dict | list) for item in value)
    return isinstance(value, dict)
