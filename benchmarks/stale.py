"""Compiled loops that are older than what they were compiled from.

Numba looks at the file of the function alone that it has kept: that one it calls has changed, in another file, it does
not see, and goes on with the old one.
"""

from pathlib import Path

import solvers

_CACHE_FILES = ("*.nbi", "*.nbc")


def forget_stale(root: Path = Path(solvers.__file__).parent) -> int:
    """Delete what Numba has kept beside the sources and is older than the newest of them; how many files."""
    sources = [path for path in root.rglob("*.py") if "njit" in path.read_text(encoding="utf-8")]
    newest = max((path.stat().st_mtime for path in sources), default=0.0)
    stale = [path for kind in _CACHE_FILES for path in root.rglob(kind) if path.stat().st_mtime < newest]
    for path in stale:
        path.unlink(missing_ok=True)
    return len(stale)
