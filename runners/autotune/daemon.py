"""Autotune's daemon: receives rank 0's measurements, decides, and answers with the schedule to install.

It runs in the launcher, between messages of the ranks, and never waits.
"""

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TextIO, TypedDict

import numpy as np
from msgspec import Meta

from plink.errors import InputError, PlinkError, UsageError
from plink.model.codec import convert
from plink.model.schedule import Schedule, forward_and_reverse
from plink.model.storage import JsonObject, json_lines
from solvers.autotune.observed import MasterAssignment, ObservedTraffic
from solvers.autotune.trajectory import (
    WAIT,
    WATCH,
    AutotuneSettings,
    ObservedInterval,
    TuningDecision,
    TuningTrajectory,
    decide,
    imbalance,
)
from solvers.schedules.hierarchical import two_level_reduce_scatter

# Log of Autotune, ``plink.autotune/1``: JSON lines, a head and one line for each stretch of the job.
#
# It has all measurements, so that the decisions can be replayed from it.


SCHEMA = "plink.autotune/1"
NAME = "autotune.jsonl"
RankId = Annotated[int, Meta(ge=0, lt=1 << 20)]
Total = Annotated[int, Meta(ge=0, lt=1 << 62)]
Figure = Annotated[float, Meta(ge=0, lt=1 << 62)]


class StretchEntry(TypedDict):
    """One stretch as rank 0 reports it."""

    epoch: Total
    """Number of the assignment that the job aggregated by."""
    jobs: Total
    """All-reduces."""
    bytes: Total
    """What they reduced."""
    seconds: Annotated[float, Meta(gt=0, lt=1e9)]
    """How long it took."""
    seen: list[tuple[RankId, RankId, Figure, Figure, Figure]]
    """Of each pair of ranks that exchanged something: from, to, bytes, busy seconds, round trip in seconds."""


class MastersEntry(TypedDict):
    """Who aggregates, as the head of the log has it."""

    groups: list[list[RankId]]
    """The ranks of each group."""
    local_masters: Annotated[list[list[RankId]], Meta(min_length=1)]
    """For each chunk the rank that aggregates it in each group."""
    global_group: list[RankId]
    """For each chunk the group whose local master aggregates it for all."""


class TuningLog:
    """Log that is written while the job runs, a line at a time."""

    def __init__(self, path: Path, assignment: MasterAssignment, settings: AutotuneSettings, hosts: list[str]) -> None:
        """:param hosts: the host of each rank. :raises PlinkError: when it cannot be written."""
        try:
            self._file: TextIO = path.open("w")
        except OSError as error:
            raise PlinkError(f"cannot write {path}: {error.strerror}") from None
        self._write(schema=SCHEMA, hosts=hosts, settings=asdict(settings), **assignment_to_json(assignment))

    def add(self, at_s: float, entry: dict[str, Any], decision: TuningDecision) -> None:
        """Add one interval and the decision on it."""
        new = {} if decision.assignment is None else assignment_to_json(decision.assignment)
        self._write(at_s=round(at_s, 3), **entry, action=decision.action, reason=decision.reason, **new)

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):  # what could not be written before
            self._file.close()


def assignment_to_json(assignment: MasterAssignment) -> dict[str, Any]:
    """As it stands in the log."""
    return {
        "groups": [[int(rank) for rank in group] for group in assignment.groups],
        "local_masters": assignment.local_masters.tolist(),
        "global_group": assignment.global_group.tolist(),
        "imbalance": round(imbalance(assignment), 4),
    }


def stretch_from(value: object, ranks: int, location: str) -> ObservedInterval:
    """What rank 0 reports of one stretch.

    :raises InputError: when it is no such report. :raises UsageError: when the rates are no measurements.
    """
    report = convert(StretchEntry, value, location)
    sent, busy = np.zeros((ranks, ranks)), np.zeros((ranks, ranks))
    rtt = np.full((ranks, ranks), np.nan)
    for i, j, *figures in report["seen"]:
        if max(i, j) >= ranks:
            raise InputError(f"{location}: seen", f"expected ranks from 0 to {ranks - 1}, got {max(i, j)}")
        sent[i, j], busy[i, j], rtt[i, j] = figures
    # Unknown where the kernel's clock is too coarse to see anything under way.
    rate = np.divide(sent, busy, out=np.full((ranks, ranks), np.nan), where=busy > 0)
    observed = ObservedTraffic(np.where(busy > 0, sent, 0.0), rate, rtt)
    return ObservedInterval(report["epoch"], report["bytes"], report["seconds"], observed)


def read_log(
    path: Path,
) -> tuple[MasterAssignment, AutotuneSettings, Iterator[tuple[dict[str, Any], ObservedInterval]]]:
    """The masters at first, the settings, and each line with its stretch.

    :raises InputError: naming the invalid line.
    """
    lines, location = json_lines(path), f"{path}:1"
    _, head = next(lines, (1, None))
    if head is None or head.get("schema") != SCHEMA:
        raise InputError(location, f"not the first line of an Autotune log ({SCHEMA})")
    settings = convert(AutotuneSettings, head.get("settings"), location, "settings")
    masters = convert(MastersEntry, head, location)
    try:
        local, of_chunk = (np.array(masters[key], dtype=np.int32) for key in ("local_masters", "global_group"))
        assignment = MasterAssignment(masters["groups"], local, of_chunk)
    except (ValueError, UsageError) as error:
        raise InputError(location, str(error)) from None
    return assignment, settings, _stretches(path, lines, assignment.ranks)


def _stretches(
    path: Path, lines: Iterator[tuple[int, JsonObject]], ranks: int
) -> Iterator[tuple[dict[str, Any], ObservedInterval]]:
    for number, line in lines:
        location = f"{path}:{number}"
        convert(float, line.get("at_s", 0.0), location, "at_s")
        try:
            yield line, stretch_from(line, ranks, location)
        except UsageError as error:
            raise InputError(location, str(error)) from None


class Daemon:
    """Tuner of one job.

    :param log: gets every stretch and its decision. :param say: gets a line for each change.
    """

    def __init__(
        self,
        assignment: MasterAssignment,
        log: TuningLog | None,
        say: Callable[[str], None],
        settings: AutotuneSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trajectory, self._settings = TuningTrajectory(assignment), settings or AutotuneSettings()
        self._log, self._say, self._clock, self._began = log, say, clock, clock()
        self._has_warned = False

    def answer_line(self, text: str) -> list[str]:
        """Return the answers to a line of rank 0. Warns once of an invalid line, which changes nothing."""
        try:
            report = json.loads(text)
            stretch = stretch_from(report, self._trajectory.assignment.ranks, "stretch")
            self._trajectory, decision = decide(self._trajectory, stretch, self._settings)
        except (ValueError, RecursionError, PlinkError) as error:
            if not self._has_warned:
                self._say(f"autotune: {PlinkError(str(error))}")
            self._has_warned = True
            return []
        entry = {key: report[key] for key in ("epoch", "jobs", "bytes", "seconds", "seen")}
        self._add_to_log(entry, decision)
        if decision.action not in (WATCH, WAIT):
            self._say(f"autotune: {decision.reason}")
        return [] if decision.assignment is None else [self._answer(decision.assignment)]

    def _answer(self, assignment: MasterAssignment) -> str:
        from plink.runtime.allreduce.aggregation import Aggregation, SizeClass  # needs torch

        schedule = schedule_for(assignment)
        data = Aggregation((SizeClass(None, schedule.algo, schedule),)).to_bytes()
        return json.dumps({"epoch": self._trajectory.epoch, "plan": base64.b64encode(data).decode()})

    def _add_to_log(self, entry: dict[str, Any], decision: TuningDecision) -> None:
        """Add to the log while it can be written: the job matters more."""
        if self._log is None:
            return
        try:
            self._log.add(self._clock() - self._began, entry, decision)
        except OSError as error:
            self._say(f"autotune: the log ends here: {error.strerror}")
            self.close()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
        self._log = None


def schedule_for(assignment: MasterAssignment) -> Schedule:
    """The all-reduce with these masters."""
    return forward_and_reverse(
        two_level_reduce_scatter(assignment.groups, assignment.local_masters, assignment.global_group)
    )
