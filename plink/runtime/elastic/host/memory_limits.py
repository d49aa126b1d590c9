"""Memory limits of this host, from the kernel."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


@dataclass(frozen=True)
class Memory:
    """Memory that is available on a host. ``available``: bytes that new programs can take without swapping. ``pool``:
    what they would take them from, which those share that name the same; empty where that is not known."""

    available: int
    pool: str


@dataclass(frozen=True)
class _Limit:
    """Files of a control group that limit memory. Files of a control group, and the entries of its ``memory.stat`` that
    have bytes which the kernel gives up for others, as it counts them as available on the whole machine: pages of
    files, what it caches itself. Of version 2 (Linux, admin-guide/cgroup-v2) and 1 (cgroup-v1/memory)."""

    limit: str
    used: str
    idle: tuple[str, ...]


_LIMITS = (
    _Limit("memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable")),
    _Limit("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
)


def memory(root: Path = _ROOT) -> Memory | None:
    """Return the least of what the machine has (proc(5), MemAvailable) and what the control groups of this process may
    still take: a container's limit, that of a Slurm job.

    :param root: of the file system. :returns: None where it is not known.
    """
    machine = _text(root / "proc/sys/kernel/random/boot_id").strip()
    result = [Memory(room, machine and f"{machine}/{group}") for room, group in _of_its_groups(root)]
    available = _entry(root / "proc/meminfo", "MemAvailable:")
    if available is not None:
        result.append(Memory(available * 1024, machine))
    return min(result, key=lambda item: item.available, default=None)


def _of_its_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Yield what each group that has a limit may still take, with the number that the kernel knows it by: its path may
    be another within a container."""
    for folder in _folders(root):
        for names in _LIMITS:
            limit, used = _number(_text(folder / names.limit)), _number(_text(folder / names.used))
            if limit is not None and used is not None:
                idle = sum(_entry(folder / "memory.stat", name) or 0 for name in names.idle)
                yield max(0, limit - used + idle), folder.stat().st_ino


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders of the groups that limit this process's memory, the innermost first."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):  # version 2, which has all, or 1
            top, parts = root / "sys/fs/cgroup" / ("memory" if controllers else ""), Path(path.lstrip("/")).parts
            yield from (top.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _entry(path: Path, name: str) -> int | None:
    """Return the number beside a name, in a file of names and numbers."""
    words = (line.split() for line in _text(path).splitlines())
    return next((_number(result[1]) for result in words if len(result) > 1 and result[0] == name), None)


def _number(text: str) -> int | None:
    """Return a number; None where there is none, or it is a word: "max" is no limit."""
    return int(text) if text.strip().isdecimal() else None
