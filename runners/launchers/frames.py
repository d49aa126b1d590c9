"""What ranks write through a launcher's own output: frames that survive it whole.

Launchers cut what ranks print wherever a read of theirs ends, mix the pieces, and mark each with its rank; Open MPI
4.1 drops what is left of 8 KiB after the marks have been put into 4 KiB of short lines. A frame therefore holds no
end of line and no ``[`` (marks begin with one), says itself where it begins and ends, and is never short: put together
from a rank's pieces, it is what was written.

Runs on the hosts too: standard library only.
"""

from __future__ import annotations

import re

_LEAD, _END = "\x1e", "\x1f"
_ESCAPES = {"\\": "\\", "\n": "n", "\r": "r", "\0": "0", "[": "b", _LEAD: "l", _END: "e"}
_MEANT = {letter: sign for sign, letter in _ESCAPES.items()}
_TO_ESCAPE = re.compile(b"[" + re.escape("".join(_ESCAPES).encode()) + b"]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# Marks of Open MPI take up to 20 bytes a line, and may take as much as what they mark.
_SHORTEST = 40
LONGEST = 2048  # bytes of output in a frame

REPORT, OUT, ERR, EXIT = "r", "o", "e", "x"


def framed(kind: str, data: bytes) -> bytes:
    """A frame with the end of line after it for which launchers wait."""
    body = _TO_ESCAPE.sub(lambda found: b"\\" + _ESCAPES[found[0].decode()].encode(), data)
    return (_LEAD.encode() + kind.encode() + body + _END.encode()).ljust(_SHORTEST) + b"\n"


class Frames:
    """Puts one rank's pieces of one stream together again."""

    def __init__(self) -> None:
        self._open = ""

    def add(self, piece: str) -> list[tuple[str, str]]:
        """(kind, data) of every frame that is whole now; kind ``""``: text that stood outside of frames."""
        found: list[tuple[str, str]] = []
        text = self._open + piece
        while text:
            outside, lead, text = text.partition(_LEAD)
            if outside.strip():
                found.append(("", outside))
            body, end, rest = text.partition(_END)
            if not end:
                self._open = lead + text
                return found
            found.append((body[:1], _ESCAPED.sub(lambda match: _MEANT.get(match[1], match[1]), body[1:])))
            text = rest
        self._open = ""
        return found
