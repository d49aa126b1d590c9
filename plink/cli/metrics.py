"""Parse a program's metric from its output."""

import json
import re
import statistics
from collections.abc import Callable, Sequence

from plink.errors import UsageError


def metric_from(pattern: str) -> Callable[[Sequence[str]], float | None]:
    """Return a function that parses the last metric in the lines, None where there is none.

    ``pattern``: a regular expression whose one group is the metric, or the key of a JSON line (``{"step_s": 0.31}``),
    whose value is a number, or a list of numbers of which the median counts.

    :raises UsageError: for a regular expression that is none, or has not one group.
    """
    if "(" not in pattern:
        return lambda lines: _last(lines, lambda line: _from_json(line, pattern))
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--metric {pattern}: that is no regular expression ({error})") from None
    if expression.groups != 1:
        raise UsageError(f"--metric {pattern}: it has {expression.groups} groups; one must hold the metric")
    return lambda lines: _last(lines, lambda line: _from_text(line, expression))


def _last(lines: Sequence[str], read: Callable[[str], float | None]) -> float | None:
    return next((value for line in reversed(lines) if (value := read(line)) is not None), None)


def _from_text(line: str, expression: re.Pattern[str]) -> float | None:
    matches = expression.findall(line)
    try:
        return float(matches[-1]) if matches else None
    except ValueError:
        raise UsageError(f"--metric {expression.pattern}: {str(matches[-1])[:40]!r} is no number") from None


def _from_json(line: str, key: str) -> float | None:
    try:
        value = json.loads(line).get(key) if line.lstrip().startswith("{") else None
    except (ValueError, AttributeError, RecursionError):
        return None
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(item, bool) or not isinstance(item, int | float) for item in values):
        return None
    try:
        return float(statistics.median(values))
    except OverflowError:  # whole numbers of JSON know no limit
        return None
