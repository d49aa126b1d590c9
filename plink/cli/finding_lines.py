"""Findings on the command line: which of them fail a command (``--fail-on``), and from where on a round
trip counts (``--floor``)."""

from collections import Counter
from collections.abc import Iterable

from plink.errors import UsageError

SEVERITIES = ("error", "warning", "info")
_MAX_FLOOR_S = 1.0


def failing_count(severities: Iterable[str], fail_on: str) -> str:
    """Return how many findings are as severe as ``fail_on``, like ``2 errors, 1 warning``; empty without any."""
    counts = Counter(map(str, severities))
    failing = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    return ", ".join(_count(counts[severity], severity) for severity in failing if counts[severity])


def _count(number: int, severity: str) -> str:
    plural = "s" if number > 1 and severity != "info" else ""
    return f"{number} {severity}{plural}"


def floor_us(text: str) -> float:
    """Return the floor in microseconds.

    :raises UsageError: for one of which nothing could be reported: a bare number (seconds elsewhere), or above 1 s.
    """
    from plink.model.units import parse_duration

    seconds = parse_duration(text)
    if text.strip()[-1:].isdigit():
        raise UsageError(f"--floor {text}: of which unit? Write {text.strip()}us, or ms")
    if seconds > _MAX_FLOOR_S:
        raise UsageError(f"--floor {text}: no round trip changes by more than {_MAX_FLOOR_S:g} s; write it like 10us")
    return seconds * 1e6
