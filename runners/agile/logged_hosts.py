"""Which hosts the run's log has as there, so that the end of each gets into it once, whoever lived to tell."""

from collections.abc import Iterable, Mapping
from typing import Any

_GONE = ("left", "failed")


class LoggedHosts:
    """By what controllers have logged."""

    def __init__(self) -> None:
        self._there: dict[int, Mapping[str, Any]] = {}  # by number, as they joined or were let go

    def logged(self, line: Mapping[str, Any]) -> None:
        """A line of the run's log."""
        if line["what"] != "host":
            return
        if line["event"] in _GONE:
            self._there.pop(line["number"], None)
        elif line["event"] == "joined" or (line["event"] == "let go" and line["number"] in self._there):
            self._there[line["number"]] = line

    def missing(self, members: Iterable[int]) -> list[int]:
        """Those that are there by the log alone."""
        return sorted(self._there.keys() - set(members))

    def end_of(self, number: int, reason: str) -> dict[str, Any] | None:
        """The line that tells the end of a host; None where it has been told, or the host never joined."""
        last = self._there.get(number)
        if last is None:
            return None
        event = "left" if last["event"] == "let go" else "failed"
        return {**last, "event": event, "seconds": None, "why": reason}
