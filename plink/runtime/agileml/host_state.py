"""What the kernel says of this host."""

from pathlib import Path

_MEMORY = Path("/proc/meminfo")


def memory_available() -> int | None:
    """Bytes that new programs can take without swapping (proc(5), MemAvailable); None where nobody says."""
    try:
        for line in _MEMORY.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
