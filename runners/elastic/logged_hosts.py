"""Which hosts the run's log has as there, so that the end of each gets into it once, whoever lived to tell."""

from collections.abc import Iterable, Mapping
from typing import Any

_GONE = ("left", "failed")


class LoggedHosts:
    """Hosts that are there according to the log."""

    def __init__(self) -> None:
        self._there: dict[int, Mapping[str, Any]] = {}  # by number, as they joined or were let go

    def logged(self, line: Mapping[str, Any]) -> None:
        """Take a line of the run's log."""
        if line["what"] != "host":
            return
        if line["event"] in _GONE:
            self._there.pop(line["number"], None)
        elif line["event"] == "joined" or (line["event"] == "released" and line["number"] in self._there):
            self._there[line["number"]] = line

    def missing(self, members: Iterable[int]) -> list[int]:
        """Return the hosts that are there by the log alone."""
        return sorted(self._there.keys() - set(members))

    def end_of(self, number: int, reason: str) -> dict[str, Any] | None:
        """Return the log line of a host's end; None where it is logged, or the host never joined."""
        last = self._there.get(number)
        if last is None:
            return None
        event = "left" if last["event"] == "released" else "failed"
        return {**last, "event": event, "seconds": None, "why": reason}
