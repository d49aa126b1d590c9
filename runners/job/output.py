"""What the ranks print: cut into whole lines; the last of each rank's are kept for the report of a failure."""

from collections import deque
from collections.abc import Callable

_KEPT = 30
# A rank that never ends its line is shown in pieces of this size.
_LONGEST = 1 << 16

# (rank, stream, line); rank None: the launcher that plink uses, not a rank.
Sink = Callable[[int | None, str, str], None]


class Output:
    """Cuts text from many ranks into lines. ``sink(rank, stream, line)``: stream is ``out`` or ``err``."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._open: dict[tuple[int, str], str] = {}
        self._last: dict[int, deque[str]] = {}

    def add(self, rank: int, stream: str, text: str) -> None:
        """Text as it came, cut anywhere."""
        *lines, rest = (self._open.pop((rank, stream), "") + text).split("\n")
        while len(rest) > _LONGEST:
            lines.append(rest[:_LONGEST])
            rest = rest[_LONGEST:]
        if rest:
            self._open[rank, stream] = rest
        for line in lines:
            self._show(rank, stream, line)

    def finish(self, rank: int) -> None:
        """The rank has ended: its unfinished lines are shown too."""
        for stream in ("out", "err"):
            if rest := self._open.pop((rank, stream), ""):
                self._show(rank, stream, rest)

    def last_lines(self, rank: int) -> list[str]:
        """The last lines the rank printed, on either stream."""
        return list(self._last.get(rank, ()))

    def _show(self, rank: int, stream: str, line: str) -> None:
        self._last.setdefault(rank, deque(maxlen=_KEPT)).append(line)
        self._sink(rank, stream, line)
