"""Output of ranks, cut into lines; the last lines of each rank are kept for the report of a failure."""

from collections import deque
from collections.abc import Callable

_TAIL_LINES = 30
# A rank that never ends its line is shown in pieces of this size.
_MAX_LINE_CHARS = 1 << 16

# (rank, stream, line); rank None: the launcher itself.
Sink = Callable[[int | None, str, str], None]


class RankOutput:
    """Splitter of many ranks' output into lines; calls ``sink(rank, stream, line)``, stream ``out`` or ``err``."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._incomplete: dict[tuple[int, str], str] = {}
        self._last: dict[int, deque[str]] = {}

    def add(self, rank: int, stream: str, text: str) -> None:
        """Add text as it came, cut anywhere."""
        *lines, rest = (self._incomplete.pop((rank, stream), "") + text).split("\n")
        while len(rest) > _MAX_LINE_CHARS:
            lines.append(rest[:_MAX_LINE_CHARS])
            rest = rest[_MAX_LINE_CHARS:]
        if rest:
            self._incomplete[rank, stream] = rest
        for line in lines:
            self._show(rank, stream, line)

    def finish(self, rank: int) -> None:
        """Show the incomplete lines of a rank that has ended."""
        for stream in ("out", "err"):
            if rest := self._incomplete.pop((rank, stream), ""):
                self._show(rank, stream, rest)

    def last_lines(self, rank: int) -> list[str]:
        """Return the last lines that a rank printed, on either stream."""
        return list(self._last.get(rank, ()))

    def _show(self, rank: int, stream: str, line: str) -> None:
        self._last.setdefault(rank, deque(maxlen=_TAIL_LINES)).append(line)
        self._sink(rank, stream, line)
