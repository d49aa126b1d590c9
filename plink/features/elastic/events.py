"""What happens in an elastic job: kept in its log, told to an observer and to the logger ``plink.elastic``."""

import logging
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from plink.model.elastic.fields import UpdateCounts
from plink.model.units import format_bytes, format_time
from plink.records.elastic_log import (
    KINDS,
    CheckpointLogEntry,
    ControllerEvent,
    ElasticLog,
    Entry,
    HostEvent,
    Iteration,
    RollBackLogEntry,
    StageChange,
)
from plink.records.iteration_values import IterationValues

_ITERATION_NOTES_S = 1.0  # between two lines about iterations
log = logging.getLogger("plink.elastic")


class ElasticEvents:
    """The entries of one job's log. A line of the logger has its entry as ``entry``.

    :param on_entry: is given each entry.
    """

    def __init__(self, elastic_log: ElasticLog, on_entry: Callable[[Entry], None]) -> None:
        self._log, self._on_entry = elastic_log, on_entry
        self._seconds = IterationValues()
        self._noted_at = -math.inf
        self.objective: float | None = None

    @property
    def iterations(self) -> int:
        """How many are done."""
        return len(self._seconds)

    @property
    def iteration_s(self) -> float | None:
        """The median; None before the first."""
        return statistics.median(self._seconds.values) if self._seconds else None

    def add(self, line: dict[str, Any]) -> None:
        """Take a line of the controller's log."""
        fields = {key: value for key, value in line.items() if key != "what"}
        if fields.get("updates") is not None:
            fields["updates"] = msgspec.convert(fields["updates"], UpdateCounts)
        entry: Entry = KINDS[line["what"]](**fields)
        self._log.add(entry)
        if isinstance(entry, Iteration):
            self._seconds.add(entry.iteration, entry.seconds)
            if entry.objective is not None:
                self.objective = entry.objective
        self._note(entry)
        self._on_entry(entry)

    def _note(self, entry: Entry) -> None:
        if isinstance(entry, Iteration):
            if time.monotonic() - self._noted_at < _ITERATION_NOTES_S:
                return
            self._noted_at = time.monotonic()
        if (text := describe(entry)) is not None:
            log.info("%s", text, extra={"entry": entry})


def describe(entry: Entry) -> str | None:
    """A line for a person; None for what only a program asks for."""
    match entry:
        case Iteration():
            objective = "" if entry.objective is None else f", objective {entry.objective:.6g}"
            return (
                f"iteration {entry.iteration}: {format_time(entry.seconds)}{objective}, stage {entry.stage}, "
                f"{entry.workers} workers"
            )
        case HostEvent():
            seconds = "" if entry.seconds is None else f" ({entry.seconds:g} s)"
            return f"{entry.host} {entry.event}{seconds}: {entry.why}"
        case StageChange():
            return f"stage {entry.stage}: {entry.why}"
        case RollBackLogEntry():
            return f"rolled back to clock {entry.clock}: {entry.redone} clocks are done again"
        case ControllerEvent():
            reason = f": {entry.why}" if entry.why else ""
            return f"the controller {entry.event}{reason}" if entry.event != "started" or reason else None
        case CheckpointLogEntry():
            return f"checkpoint of clock {entry.clock}: {format_bytes(entry.bytes)}"
        case _:
            return None
