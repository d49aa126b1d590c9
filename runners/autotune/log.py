"""The log of Autotune, ``plink.autotune/1``: JSON lines, a head and one line for each stretch of the job.

It holds what was seen, so the decisions can be made again from it.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from plink.errors import InputError, PlinkError, UsageError
from solvers.autotune.course import Decision, Settings, Stretch, imbalance
from solvers.autotune.finetune import Settings as FinetuneSettings
from solvers.autotune.observed import Assignment, Observed

SCHEMA = "plink.autotune/1"
NAME = "autotune.jsonl"
_LONGEST = 1 << 28
_MOST, _MOST_S = 1 << 62, 1e9


class Log:
    """Written while the job runs, a line at a time."""

    def __init__(self, path: Path, assignment: Assignment, settings: Settings, hosts: list[str]) -> None:
        """:param hosts: the host of each rank. :raises PlinkError: when it cannot be written."""
        try:
            self._file: TextIO = path.open("w")
        except OSError as error:
            raise PlinkError(f"cannot write {path}: {error.strerror}") from None
        self._write(schema=SCHEMA, hosts=hosts, settings=asdict(settings), **assignment_to_json(assignment))

    def add(self, at_s: float, told: dict[str, Any], decision: Decision) -> None:
        """One stretch as it was told, and what was decided."""
        new = {} if decision.assignment is None else assignment_to_json(decision.assignment)
        self._write(at_s=round(at_s, 3), **told, action=decision.action, reason=decision.reason, **new)

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """No more."""
        with contextlib.suppress(OSError):  # what could not be written before
            self._file.close()


def assignment_to_json(assignment: Assignment) -> dict[str, Any]:
    """As it stands in the log."""
    return {
        "groups": [[int(rank) for rank in group] for group in assignment.groups],
        "local_masters": assignment.local_masters.tolist(),
        "global_group": assignment.global_group.tolist(),
        "imbalance": round(imbalance(assignment), 4),
    }


def stretch_from(told: Any, ranks: int) -> Stretch:
    """What rank 0 told of one stretch.

    :raises UsageError: when it is no such thing.
    """
    try:
        sent, busy = np.zeros((ranks, ranks)), np.zeros((ranks, ranks))
        rtt = np.full((ranks, ranks), np.nan)
        if told["seen"]:
            rows = np.array(told["seen"], dtype=np.float64).reshape(-1, 5)
            if not (np.abs(rows[:, :4]) < _MOST).all():
                raise ValueError("a number that is none, or more than can be")
            i, j = rows[:, 0].astype(int), rows[:, 1].astype(int)
            if min(i.min(), j.min()) < 0:
                raise ValueError("a rank below 0")
            sent[i, j], busy[i, j], rtt[i, j] = rows[:, 2], rows[:, 3], rows[:, 4]
        # Where the clock of the kernel is too coarse to see anything under way, nothing is known.
        rate = np.divide(sent, busy, out=np.full((ranks, ranks), np.nan), where=busy > 0)
        observed = Observed(np.where(busy > 0, sent, 0.0), rate, rtt)
        seconds = float(told["seconds"])
        if not 0 < seconds < _MOST_S:
            raise ValueError(f"{seconds} seconds")
        epoch, jobs, size = (int(told[key]) for key in ("epoch", "jobs", "bytes"))
        if not all(0 <= number < _MOST for number in (epoch, jobs, size)):
            raise ValueError("epoch, jobs or bytes below 0, or more than can be")
        return Stretch(epoch, jobs, size, seconds, observed)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise UsageError(f"not what a rank tells of a stretch: {error}") from None


def read_log(path: Path) -> tuple[Assignment, Settings, Iterator[tuple[dict[str, Any], Stretch]]]:
    """The masters at first, the settings, and each line with its stretch.

    :raises InputError: naming the line that is none.
    """
    lines = _lines(path)
    where = f"{path}: line 1"
    head = next(lines, None)
    if head is None or head.get("schema") != SCHEMA:
        raise InputError(where, f"no log of Autotune ({SCHEMA}) begins so")
    try:
        given = dict(head["settings"])
        settings = Settings(**{**given, "finetune": FinetuneSettings(**given["finetune"])})
        assignment = assignment_from(head)
    except (KeyError, TypeError, ValueError, OverflowError, UsageError) as error:
        raise InputError(where, f"it does not tell masters and settings: {error}") from None
    return assignment, settings, _stretches(path, lines, assignment.ranks)


def assignment_from(line: dict[str, Any]) -> Assignment:
    """:raises KeyError, TypeError, ValueError, UsageError: when the line holds none."""
    local = np.array(line["local_masters"], dtype=np.int32)
    if local.ndim != 2:
        raise ValueError("local_masters: a row a chunk was expected")
    return Assignment(line["groups"], local, np.array(line["global_group"], dtype=np.int32))


def _stretches(path: Path, lines: Iterator[dict[str, Any]], ranks: int) -> Iterator[tuple[dict[str, Any], Stretch]]:
    for number, line in enumerate(lines, 2):
        try:
            if not isinstance(line.get("at_s", 0.0), int | float):
                raise UsageError(f"at_s: {line['at_s']!r} is no number")
            yield line, stretch_from(line, ranks)
        except UsageError as error:
            raise InputError(f"{path}: line {number}", str(error)) from None


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open() as file:
            for number, text in enumerate(iter(lambda: file.readline(_LONGEST), ""), 1):
                if not text.endswith("\n"):
                    return  # the job ended in the middle of it
                try:
                    line = json.loads(text)
                except (ValueError, RecursionError):
                    line = None
                if not isinstance(line, dict):
                    raise InputError(f"{path}: line {number}", "no JSON object")
                yield line
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), getattr(error, "strerror", None) or "not a text file") from None
