"""The workspace ``./.plink/``, in which a command leaves its result for the next one."""

import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from plink.errors import PlinkError, UsageError
from plink.model import storage
from plink.model.units import format_duration, parse_moment

FOLDER = Path(".plink")
NETWORK = FOLDER / "network.json"
ORDER = FOLDER / "order.json"
EMBEDDING = FOLDER / "embedding.json"
GROUPS = FOLDER / "groups.json"
PLAN = FOLDER / "plan.json"
PROFILE = FOLDER / "profile.json"
PIPELINE = FOLDER / "pipeline.json"
RUNS = FOLDER / "runs"
BATCH = FOLDER / "batch"


def check_trusted() -> None:
    """Refuse a ``.plink`` of another user, or one that others may write: what it holds decides what is launched where.

    Under sudo a folder of the user who typed it is accepted too.

    :raises PlinkError: when it is not to be trusted.
    """
    try:
        link, folder = FOLDER.lstat(), FOLDER.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise PlinkError(f"cannot read {FOLDER}/ here: {error.strerror}") from None
    if not {link.st_uid, folder.st_uid} <= trusted_users():
        raise PlinkError(f"{FOLDER}/ here belongs to another user; work in a folder of your own")
    if stat.S_ISDIR(folder.st_mode) and folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PlinkError(f"others may write {FOLDER}/ here; type: chmod go-w {FOLDER}")


def trusted_users() -> set[int]:
    """Return the users whose files plink reads unnamed: this one, and under sudo the one who typed it."""
    trusted, typed_by = {os.geteuid()}, os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and typed_by.isdecimal():
        trusted.add(int(typed_by))
    return trusted


def prepare() -> None:
    """Create the folder, with a ``.gitignore``: results are not sources.

    :raises PlinkError: when it cannot be made.
    """
    try:
        FOLDER.mkdir(exist_ok=True, mode=0o755)
        ignore = FOLDER / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise PlinkError(f"cannot make {FOLDER}/ here: {error.strerror}; name a file with -o") from None


def check_output(
    output: Path | None, default: Path | None, read: Iterable[str | Path | None] = (), written: Path | None = None
) -> None:
    """Refuse, before the work, an output that could not be written or would overwrite an input.

    :param output: the file that was named; ``-`` and None are none. :param default: where the result goes without one,
        in the workspace; None: nowhere. :param read: what the command reads. :param written: what it writes besides.
    :raises UsageError: when two of them are the same file. :raises PlinkError: when one cannot be written.
    """
    storage.check_apart(output or default, read, written)
    if output is not None:
        storage.check_writable(output)
    for result in (written, default if output is None else None):
        if result is not None:
            storage.check_writable(result if FOLDER.exists() else FOLDER)


def latest(path: Path, command: str) -> Path:
    """Return the path of the last result of that name.

    :raises UsageError: when there is none; ``command`` is what would make it.
    """
    if not path.is_file():
        raise UsageError(f"no {path} here yet: run `{command}` first, or name a file")
    return path


def age_s(path: Path, measured_at: str = "") -> float:
    """Return how long ago what a file has was measured, else the file was written: a copy is written anew."""
    now, written = time.time(), path.stat().st_mtime
    try:
        then = parse_moment(measured_at) if measured_at else written
    except UsageError:
        then = written
    return max(0.0, now - (then if then <= now else written))  # else by a clock that is ahead


def age(path: Path, measured_at: str = "") -> str:
    """Return :func:`age_s` as text."""
    return format_duration(age_s(path, measured_at))
