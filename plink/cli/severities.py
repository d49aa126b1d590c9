"""``--fail-on``: which findings make the exit code of a command 1."""

from collections import Counter
from collections.abc import Iterable

SEVERITIES = ("error", "warning", "info")


def failing_count(severities: Iterable[str], fail_on: str) -> str:
    """Return how many findings are as severe as ``fail_on``, like ``2 errors, 1 warning``; empty without any."""
    counts = Counter(map(str, severities))
    failing = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    return ", ".join(_count(counts[severity], severity) for severity in failing if counts[severity])


def _count(number: int, severity: str) -> str:
    plural = "s" if number > 1 and severity != "info" else ""
    return f"{number} {severity}{plural}"
