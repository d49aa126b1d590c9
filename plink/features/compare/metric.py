"""Metric by which ``plink compare`` judges orders: found in what a program prints."""

import json
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from plink.errors import UsageError
from plink.model.units import significant
from plink.runtime.step_report import METRIC_KEY

_Parser = Callable[[Sequence[str]], float | None]
# What programs call the time of a step; their other figures (loss, accuracy) do not depend on the order.
_STEP_NAME = r"(?:(?:avg|average|mean|median)[ _]?)?(?:step|iter|iteration|batch|epoch)s?"
_TIME_NAME = re.compile(rf"(?i:{_STEP_NAME}[ _]?(?:time|duration)?(?:[ _](s|sec|secs|seconds|ms|us))?)")
_TEXT = re.compile(
    rf"(?i:\b{_STEP_NAME}[ _](?:time|duration)(?:[ _](?:s|ms|us))?\s*[:=]\s*([0-9.e+-]+)\s*(s|sec|ms|us)?\b)"
)
_REGULAR = re.compile(r"\\|[.\]][*+?]|\[\^?\w-\w")  # in no key of JSON
_NUMBER_NAME = re.compile(rf"(?i:{_STEP_NAME})")
_UNITS = {"s": "s", "sec": "s", "secs": "s", "seconds": "s", "ms": "ms", "us": "us"}


@dataclass(frozen=True)
class Metric:
    """Where a program's metric is: its name, its unit if known, and a function that parses it from lines."""

    name: str
    unit: str | None
    parse: _Parser

    def shown(self, value: float) -> str:
        """Return a value with the unit."""
        return f"{significant(value, 4)} {self.unit}" if self.unit else significant(value, 6)


def metric_from(pattern: str) -> Metric:
    """Return the metric that a user names: the last in the lines counts.

    ``pattern``: a regular expression whose one group is the metric, or the key of a JSON line (``{"step_s": 0.31}``),
    whose value is a number, or a list of numbers of which the median counts.

    :raises UsageError: for a regular expression that is none, or has not one group.
    """
    if "(" not in pattern and _REGULAR.search(pattern):
        raise UsageError(f"--metric {pattern}: it has no group; one must hold the metric, like 'loss: ([0-9.]+)'")
    if "(" not in pattern:
        return Metric(pattern, _unit_of(pattern), lambda lines: _last(lines, lambda line: _from_json(line, pattern)))
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--metric {pattern}: that is no regular expression ({error})") from None
    if expression.groups != 1:
        raise UsageError(f"--metric {pattern}: it has {expression.groups} groups; one must hold the metric")
    return Metric(pattern, None, lambda lines: _last(lines, lambda line: _from_text(line, expression)))


def detected_metric(lines: Sequence[str]) -> Metric | None:
    """Return the metric that one rank's output has: of ``plink.report_metric``, else the time of a step in lines of
    JSON or of text. The median of all lines counts.
    """
    return next((metric for metric in _candidates(lines) if (metric.parse(lines) or 0) > 0), None)


def _candidates(lines: Sequence[str]) -> Iterator[Metric]:
    """Yield metrics that lines may have, the last line first; their numbers need not be valid."""
    documents = [document for line in reversed(lines) if (document := _object(line)) is not None]
    for document in documents:
        if METRIC_KEY in document:
            unit = document.get("unit")
            unit = unit if isinstance(unit, str) else None
            yield Metric("plink.report_metric", unit, lambda lines: _of_key(lines, METRIC_KEY))
            break
    for key in dict.fromkeys(key for document in documents for key in document):
        if _TIME_NAME.fullmatch(key) and not _NUMBER_NAME.fullmatch(key):
            yield Metric(key, _unit_of(key), lambda lines, key=key: _of_key(lines, key))  # type: ignore[misc]
    for line in reversed(lines):
        if match := _TEXT.search(line):
            name = re.split(r"[:=]", match.group(0))[0].strip()
            yield Metric(name, _UNITS.get((match.group(2) or "").lower()) or _unit_of(name), _of_text)
            return


def _of_key(lines: Sequence[str], key: str) -> float | None:
    """Return the median of the values of a key in lines of JSON."""
    return _median(value for line in lines if (value := _from_json(line, key)) is not None)


def _of_text(lines: Sequence[str]) -> float | None:
    """Return the median of the times of a step in lines of text."""
    values = []
    for line in lines:
        if match := _TEXT.search(line):
            try:
                values.append(float(match.group(1)))
            except ValueError:
                continue
    return _median(values)


def _median(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return statistics.median(numbers) if numbers else None


def _unit_of(name: str) -> str | None:
    """Return the unit that the end of a name says."""
    return _UNITS.get(re.split(r"[ _]", name.lower())[-1])


def _object(line: str) -> dict[str, Any] | None:
    """Return the JSON object that a line is, None where it is none."""
    try:
        document = json.loads(line) if line.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _last(lines: Sequence[str], read: Callable[[str], float | None]) -> float | None:
    return next((value for line in reversed(lines) if (value := read(line)) is not None), None)


def _from_text(line: str, expression: re.Pattern[str]) -> float | None:
    matches = expression.findall(line)
    try:
        return float(matches[-1]) if matches else None
    except ValueError:
        raise UsageError(f"--metric {expression.pattern}: {str(matches[-1])[:40]!r} is no number") from None


def _from_json(line: str, key: str) -> float | None:
    value = (_object(line) or {}).get(key)
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(item, bool) or not isinstance(item, int | float) for item in values):
        return None
    try:
        return float(statistics.median(values))
    except OverflowError:  # whole numbers of JSON know no limit
        return None


RUN_SECONDS = Metric("time of whole runs", "s", lambda lines: None)
