"""Read JSON documents with errors that name the file; write them atomically."""

import codecs
import contextlib
import errno
import gzip
import json
import math
import os
import re
import stat
import sys
import tempfile
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from plink.errors import InputError, PlinkError, UsageError
from plink.model.codec import short_json

_EMPTY = "the file is empty; what plink writes is in .plink/, or goes where `-o FILE` says"
_PRINTED_TEXTS = (
    (
        re.compile(r"[\w.-]+, [\w-]+, \d+ ranks[^:]*: [\d,]+ rounds?, [\d,]+ transfers? of [\d,]+ chunks?\s*$"),
        "this is the text for people that `plink schedule` prints; `-o FILE` or `--json` writes the schedule",
    ),
    (
        re.compile(r"[\w.-]+, \d+ ranks( in [\d,]+ groups?)?, .+, model [\w-]+(: .*)?$"),
        "this is the text for people that `plink plan` and `plink cost` print; `plink plan -o FILE` or `--json` "
        "writes the plan",
    ),
)
JsonObject = dict[str, Any]
STANDARD = "-"
_MAX_INLINE_ITEMS = 16  # numbers or names that fit on the line of what they belong to
MAX_DOCUMENT_BYTES = 1 << 30  # of a document: one of 10,000 hosts, with all of its matrices, has less
_READ_BYTES = 1 << 20
_MAX_LINE_CHARS = 1 << 28  # of a line of a log
_MAX_LINKS = 40  # one leading to the next, as the kernel has it (path_resolution(7))


def instead_of_json(text: str) -> str | None:
    """Explain a text that should be JSON and is not, None without an explanation."""
    if not text.strip():
        return _EMPTY
    first = text.split("\n", 1)[0]
    return next((explanation for pattern, explanation in _PRINTED_TEXTS if pattern.match(first)), None)


def name_of(path: str | Path) -> str:
    """Return a file's name for messages."""
    return "standard input" if str(path) == STANDARD else str(path)


def file_and_fragment(path: str | Path) -> tuple[str | Path, str | None]:
    """Return file and fragment of ``FILE#FRAGMENT``; no fragment where there is none, or a file is called so."""
    file, hash_sign, fragment = str(path).rpartition("#")
    return (file, fragment) if hash_sign and not os.path.exists(path) else (path, None)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number; write null for what was not measured")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def decode_text(data: bytes) -> str:
    """Return the text of UTF-8, or of UTF-16 as PowerShell's ``>`` writes it; a byte order mark is no part of it.

    :raises UnicodeDecodeError: for what is neither.
    """
    return data.decode("utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")


def read_text(path: str | Path) -> str:
    """Read the text of a file; ``-`` is standard input and a name ending in ``.gz`` is decompressed.

    :raises InputError: when it is missing, unreadable or no text.
    """
    location = name_of(path)
    try:
        if str(path) == STANDARD:
            if sys.stdin is None:
                raise InputError(location, "it is closed")
            return decode_text(_read_limited(sys.stdin.buffer, location))
        with gzip.open(path) if _is_gz(path) else Path(path).open("rb") as file:
            return decode_text(_read_limited(file, location))
    except UnicodeDecodeError as error:
        raise InputError(location, f"not a text file (byte {error.start} is not {error.encoding.upper()})") from None
    except FileNotFoundError:
        raise InputError(location, "no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(location, getattr(error, "strerror", None) or str(error)) from None


def _read_limited(file: BinaryIO | gzip.GzipFile, location: str) -> bytes:
    """Read a file up to a limit: a device never ends, and a few kilobytes may be gigabytes compressed.

    :raises InputError: when there is more.
    """
    parts, size = [], 0
    while part := file.read(_READ_BYTES):
        parts.append(part)
        size += len(part)
        if size > MAX_DOCUMENT_BYTES:
            raise InputError(location, f"more than {MAX_DOCUMENT_BYTES >> 20} MiB, which no file of plink's has")
    return b"".join(parts)


def read_document(path: str | Path) -> JsonObject:
    """Return one JSON object from a file, as :func:`parse_document`.

    :raises InputError: when the file cannot be read or does not hold a JSON object.
    """
    return parse_document(read_text(path), name_of(path))


def parse_document(text: str, location: str) -> JsonObject:
    """Return one JSON object from text, strict JSON: NaN and Infinity are refused; ``location`` names the file in
    errors.

    :raises InputError: when it is not JSON or no object.
    """
    try:
        document = msgspec.json.decode(text)  # three times as fast, but its errors name no line, and it takes no NaN
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        document = _parse_slowly(text, location)
    if not isinstance(document, dict):
        raise InputError(location, f"a JSON object was expected, this is {short_json(document)}")
    return document


def parse_toml(text: str, location: str, what: str) -> JsonObject:
    """Return the table of a TOML file; ``what`` says in errors of which kind such a file is.

    :raises InputError: when it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise InputError(location, f"not TOML, as {what}: {error}") from None


def _parse_slowly(text: str, location: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        reason = instead_of_json(text) or error.msg
        raise InputError(f"{location}:{error.lineno}", f"not JSON: {reason}") from None
    except RecursionError:
        raise InputError(location, "not JSON that plink reads: nested too deeply") from None
    except ValueError as error:
        raise InputError(location, str(error)) from None


def json_values(text: str, location: str) -> list[Any]:
    """Return the JSON documents of a text, one after the other: pages of a listing, or one a line.

    :raises InputError: when something in it is not JSON.
    """
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    values, place = [], 0
    try:
        while place < len(text):
            if text[place].isspace():
                place += 1
            else:
                value, place = decoder.raw_decode(text, place)
                values.append(value)
    except json.JSONDecodeError as error:
        raise InputError(f"{location}:{error.lineno}", f"not JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(location, "not JSON that plink reads: nested too deeply") from None
    except ValueError as error:
        raise InputError(location, f"not JSON: {error}") from None
    return values


def json_lines(path: Path, max_chars: int = _MAX_LINE_CHARS) -> Iterator[tuple[int, JsonObject]]:
    """Yield the number and the object of each line of a log, without a last line that was cut off.

    :param max_chars: of a line. :raises InputError: when it cannot be read, or naming the line that is no JSON object.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(iter(lambda: file.readline(max_chars), ""), 1):
                try:
                    line = json.loads(text, parse_constant=_refuse_constant)
                except (ValueError, RecursionError):
                    if not text.endswith("\n") and len(text) < max_chars:
                        return  # the job ended in the middle of it
                    line = None
                if not isinstance(line, dict):
                    raise InputError(f"{path}:{number}", "no JSON object")
                yield number, line
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), getattr(error, "strerror", None) or "not a text file") from None


def write_text(path: str | Path, text: str) -> None:
    """Write a whole file or none (temporary file, then rename). ``-`` is standard output.

    :raises PlinkError: when it cannot be written; an older file of that name is then still as it was.
    """
    try:
        if str(path) == STANDARD:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            data = text.encode()
            write_bytes(path, gzip.compress(data, mtime=0) if _is_gz(path) else data)
    except BrokenPipeError:  # the reader has gone, which is not ours to report
        raise
    except OSError as error:
        raise PlinkError(f"cannot write to standard output: {error.strerror}") from None


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes to a file atomically; ``-`` is a file of that name.

    :raises PlinkError: as :func:`write_text`.
    """
    try:
        _write_bytes(_resolve(Path(path)), data)
    except IsADirectoryError:
        raise InputError(str(path), "is a folder; name a file in it") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PlinkError(f"cannot write {path}: {error.strerror}") from None


def check_writable(path: str | Path) -> None:
    """Refuse, before the work, a file that :func:`write_text` could not write; nothing is left there.

    :raises InputError: when it is a folder, or its folder is missing.
    :raises PlinkError: when nothing can be written there.
    """
    if str(path) == STANDARD:
        return
    try:
        target = _resolve(Path(path))
        if target.is_dir():
            raise InputError(str(path), "is a folder; name a file in it")
        if not target.parent.is_dir():
            raise InputError(str(path), f"there is no folder {Path(path).parent}")
        if target.is_file() or not target.exists():
            temporary = _temporary_path(target)
            temporary.open("xb").close()
            temporary.unlink()
    except OSError as error:
        raise PlinkError(f"cannot write {path}: {error.strerror}") from None


def check_folder(path: Path) -> None:
    """Refuse, before the work, a folder that could not be created or written; nothing is left there.

    :raises InputError: when a file is in its way. :raises PlinkError: when nothing can be written there.
    """
    try:
        existing = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
        if not existing.is_dir():
            raise InputError(str(path), f"{existing} is no folder")
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise PlinkError(f"cannot write into {path}: {error.strerror}") from None


def check_apart(
    target: str | Path | None, read: Iterable[str | Path | None], written: str | Path | None = None
) -> None:
    """Refuse, before the work, a result that would overwrite an input or another result.

    :param target: where it is to go; ``-`` and None are no file. :param read: what the command reads. :param written:
        what it writes besides.
    :raises UsageError: when they are the same file, whatever it is called.
    """
    if any(_are_same_file(target, source) for source in read):
        raise UsageError(f"{target}: that is what is read; name another file")
    if _are_same_file(target, written):
        raise UsageError(f"{target}: two results cannot go to one file; name another file")


def _are_same_file(first_name: str | Path | None, second_name: str | Path | None) -> bool:
    if first_name is None or second_name is None or STANDARD in (str(first_name), str(second_name)):
        return False
    first, second = os.path.realpath(first_name), os.path.realpath(file_and_fragment(second_name)[0])
    if os.path.exists(first) and not os.path.isfile(first):  # a device takes what comes
        return False
    return first == second or (os.path.exists(first) and os.path.exists(second) and os.path.samefile(first, second))


def _is_gz(path: str | Path) -> bool:
    """Return whether a file of that name is compressed."""
    return str(path).endswith(".gz")


def _resolve(path: Path) -> Path:
    """Return the file behind a name and its links.

    :raises OSError: for a link that the kernel would not follow either.
    """
    _check_links(path.absolute(), _MAX_LINKS)
    if path.exists() and not path.is_file() and not path.is_dir():
        return path  # a pipe behind /dev/stdout has no name that could be resolved
    return Path(os.path.realpath(path))


def _check_links(path: Path, budget: int) -> None:
    """Refuse other users' links in a sticky folder that everybody may write, such as ``/tmp``.

    As ``protected_symlinks`` does (Linux, Documentation/admin-guide/sysctl/fs.rst), which a resolved name escapes.
    """
    for place in (*reversed(path.parents), path):
        if place.is_symlink():
            owner, folder = place.lstat().st_uid, place.parent.stat()
            shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
            if shared and owner not in (os.geteuid(), folder.st_uid):
                raise PermissionError(errno.EACCES, f"{place} is a link of another user in a folder for everybody")
            if not budget:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            _check_links(place.parent / os.readlink(place) / path.relative_to(place), budget - 1)
            return


def _write_bytes(target: Path, data: bytes) -> None:
    if target.exists() and not target.is_file():  # /dev/stdout, a named pipe: nothing to rename onto
        target.write_bytes(data)
        return
    temporary = _temporary_path(target)
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if target.exists():  # a file that only its owner may read stays so
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _temporary_path(target: Path) -> Path:
    """Return the path to which a file is written before it is renamed."""
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def write_document(path: str | Path, document: JsonObject) -> None:
    """Write one JSON object, rows of matrices one a line so that people and ``diff`` can read it."""
    write_text(path, render_document(document))


def render_document(document: JsonObject) -> str:
    """Return the text of a JSON document: two-space indent for objects, lists of plain values on one line."""
    return _render(document, "") + "\n"


def _render(value: Any, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, dict) and value:
        items = (f"{inner}{json.dumps(str(key))}: {_render(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(issubclass(kind, dict | list | tuple) for kind in {*map(type, value)}):
        return "[\n" + ",\n".join(f"{inner}{_flat_or_nested(item, inner)}" for item in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)


def _flat_or_nested(value: Any, indent: str) -> str:
    if isinstance(value, dict) and not any(_is_nested(item) for item in value.values()):
        return json.dumps(value, allow_nan=False)
    return _render(value, indent)


def _is_nested(value: Any) -> bool:
    """Return whether a value needs lines of its own."""
    if isinstance(value, list):
        return len(value) > _MAX_INLINE_ITEMS or any(isinstance(item, dict | list) for item in value)
    return isinstance(value, dict)
