"""Frames in which ranks write through a launcher's own output, so that it arrives complete.

Launchers cut what ranks print wherever a read of theirs ends, mix the parts, and mark each with its rank. Open MPI 4.1
drops the rest of 8 KiB after the marks have been put into 4 KiB of short lines. A frame therefore holds no end of line
and no ``[`` (marks begin with one), marks its own start and end, and is never short.

Runs on the hosts too: standard library only.
"""

from __future__ import annotations

import re

_START, _END = "\x1e", "\x1f"
_ESCAPES = {"\\": "\\", "\n": "n", "\r": "r", "\0": "0", "[": "b", _START: "l", _END: "e"}
_UNESCAPED = {letter: sign for sign, letter in _ESCAPES.items()}
_TO_ESCAPE = re.compile(b"[" + re.escape("".join(_ESCAPES).encode()) + b"]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# Marks of Open MPI take up to 20 bytes a line, and may take as much as what they mark.
_MIN_FRAME_BYTES = 40
MAX_OUTPUT_BYTES = 2048  # bytes of output in a frame
_MAX_INCOMPLETE_CHARS = 1 << 20  # a frame without its end; reports are larger than output

REPORT, OUT, ERR, EXIT = "r", "o", "e", "x"


def encode_frame(kind: str, data: bytes) -> bytes:
    """Return a frame, with the end of line that launchers wait for."""
    body = _TO_ESCAPE.sub(lambda match: b"\\" + _ESCAPES[match[0].decode()].encode(), data)
    return (_START.encode() + kind.encode() + body + _END.encode()).ljust(_MIN_FRAME_BYTES) + b"\n"


class FrameDecoder:
    """Decoder of one stream of one rank."""

    def __init__(self) -> None:
        self._incomplete = ""

    def add(self, part: str) -> list[tuple[str, str]]:
        """Return (kind, data) of every frame that this part completes; kind ``""``: text outside of frames."""
        frames: list[tuple[str, str]] = []
        text = self._incomplete + part
        while text:
            outside, start, text = text.partition(_START)
            if outside.strip():
                frames.append(("", outside))
            body, end, rest = text.partition(_END)
            if not end:
                self._incomplete = start + text
                if len(self._incomplete) > _MAX_INCOMPLETE_CHARS:  # no frame of a rank
                    frames.append(("", self._incomplete))
                    self._incomplete = ""
                return frames
            frames.append((body[:1], _ESCAPED.sub(lambda match: _UNESCAPED.get(match[1], match[1]), body[1:])))
            text = rest
        self._incomplete = ""
        return frames
