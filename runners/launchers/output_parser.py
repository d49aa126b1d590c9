"""Parser of a launcher's output, which carries what ranks write."""

import json
from collections.abc import Iterator
from typing import Any

from runners.launchers.frames import ERR, EXIT, OUT, REPORT, FrameDecoder
from runners.launchers.launcher import Launcher

# Required fields; a message with less was cut short, or is not of plink.
_REPORT_FIELDS: dict[str, type] = {
    "rank": int, "pid": int, "hostname": str, "addresses": list, "moved": bool, "problems": list, "port": int,
}  # fmt: skip
_EXIT_FIELDS: dict[str, type] = {"code": int, "signalled": bool, "timed_out": bool}


class OutputParser:
    """Parser of one job's output; keeps the ranks' reports and exits, by rank."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._decoders: dict[tuple[int, str], FrameDecoder] = {}
        self.reports: dict[int, dict[str, Any]] = {}
        self.exits: dict[int, dict[str, Any]] = {}

    def parse_line(self, stream: str, line: str) -> Iterator[tuple[int | None, str, str]]:
        """Yield (rank, kind, text) of all frames that a line completes; rank None: the launcher itself."""
        for rank, origin, part in self._launcher.parse_output_line(stream, line):
            default = ERR if origin == "err" else OUT
            if rank is None:
                yield None, default, part
                continue
            for kind, text in self._decoders.setdefault((rank, origin), FrameDecoder()).add(part):
                message = _json_object(text) if kind in (REPORT, EXIT) else {}
                if kind == REPORT and _has_fields(message, _REPORT_FIELDS):
                    self.reports[message["rank"]] = message
                    yield message["rank"], kind, text
                elif kind == EXIT and _has_fields(message, _EXIT_FIELDS):
                    self.exits[rank] = message
                    yield rank, kind, text
                elif kind not in (REPORT, EXIT):
                    yield rank, kind or default, text if kind else text + "\n"


def _has_fields(message: dict[str, Any], fields: dict[str, type]) -> bool:
    return all(type(message.get(key)) is kind for key, kind in fields.items())


def _json_object(text: str) -> dict[str, Any]:
    """Return a JSON object; an empty one where the launcher lost a part of it."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
