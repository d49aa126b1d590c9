"""``./.plink/``: where each command leaves its result and the next one finds it."""

import time
from pathlib import Path

from plink.errors import PlinkError, UsageError
from plink.units import format_duration

FOLDER = Path(".plink")
NETWORK = FOLDER / "network.json"
ORDER = FOLDER / "order.json"
EMBEDDING = FOLDER / "embedding.json"
GROUPS = FOLDER / "groups.json"
PLAN = FOLDER / "plan.json"
RUNS = FOLDER / "runs"
BATCH = FOLDER / "batch"


def prepare() -> None:
    """Make the folder (with a ``.gitignore`` of its own: results are not sources).

    :raises PlinkError: when it cannot be made.
    """
    try:
        FOLDER.mkdir(exist_ok=True)
        ignore = FOLDER / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise PlinkError(f"cannot make {FOLDER}/ here: {error.strerror}; name a file with -o") from None


def latest(path: Path, command: str) -> Path:
    """The last result of that name.

    :raises UsageError: when there is none; ``command`` is what would make it.
    """
    if not path.is_file():
        raise UsageError(f"no {path} here yet: run `{command}` first, or name a file")
    return path


def age(path: Path) -> str:
    """How long ago the file was written, for a person."""
    return format_duration(max(0.0, time.time() - path.stat().st_mtime))
