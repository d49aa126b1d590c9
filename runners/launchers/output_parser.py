"""What ranks say through a launcher's output."""

import json
from collections.abc import Iterator
from typing import Any

from runners.launchers.frames import ERR, EXIT, OUT, REPORT, Frames
from runners.launchers.launcher import Launcher

# What is relied on later; who says less has been cut short, or is none of ours.
_REPORT: dict[str, type] = {
    "rank": int, "pid": int, "hostname": str, "addresses": list, "moved": bool, "problems": list, "port": int,
}  # fmt: skip
_EXIT: dict[str, type] = {"code": int, "told": bool, "out_of_time": bool}


class OutputParser:
    """What the ranks said so far: their reports and their ends, by rank."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._frames: dict[tuple[int, str], Frames] = {}
        self.reports: dict[int, dict[str, Any]] = {}
        self.exits: dict[int, dict[str, Any]] = {}

    def line(self, stream: str, line: str) -> Iterator[tuple[int | None, str, str]]:
        """(rank, kind, text) of all that is whole now; rank None: the launcher itself. Output comes with its end."""
        for rank, origin, piece in self._launcher.told_apart(stream, line):
            usual = ERR if origin == "err" else OUT
            if rank is None:
                yield None, usual, piece
                continue
            for kind, text in self._frames.setdefault((rank, origin), Frames()).add(piece):
                told = _object(text) if kind in (REPORT, EXIT) else {}
                if kind == REPORT and _fits(told, _REPORT):
                    self.reports[told["rank"]] = told
                    yield told["rank"], kind, text
                elif kind == EXIT and _fits(told, _EXIT):
                    self.exits[rank] = told
                    yield rank, kind, text
                elif kind not in (REPORT, EXIT):
                    yield rank, kind or usual, text if kind else text + "\n"


def _fits(told: dict[str, Any], kinds: dict[str, type]) -> bool:
    return all(type(told.get(key)) is kind for key, kind in kinds.items())


def _object(text: str) -> dict[str, Any]:
    """What is said in it; nothing where the launcher lost a part of it."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
