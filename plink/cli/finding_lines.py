"""Findings on the command line: their lines, which of them fail a command (``--fail-on``), and from where on a round
trip counts (``--floor``)."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from plink.errors import UsageError

if TYPE_CHECKING:
    from plink.model.network import Network
    from solvers.diagnosis.finding import Finding

SEVERITIES = ("error", "warning", "info")
_MAX_FLOOR_S = 1.0


def finding_line(finding: "Finding") -> str:
    """Return a finding as one line, without its severity. What hosts report of themselves may be in it: escape it."""
    from plink.model.hostlist import fold_hostlist

    number = f"{len(finding.hosts)} hosts: " if len(finding.hosts) > 2 else ""
    hosts = number + fold_hostlist(finding.hosts, ", ")
    return f"{finding.kind}: {hosts}: {finding.evidence}; {finding.advice}"


def interface_warnings(network: "Network") -> list[str]:
    """Return a warning for each dead, slow or wrongly cabled interface and each host that does not relay.

    :raises InputError: when the file's interfaces are invalid.
    """
    from plink.api.interfaces import interface_findings
    from solvers.diagnosis.finding import Severity, merged

    findings = merged([*interface_findings(network)])
    return [f"warning: {finding_line(finding)}" for finding in findings if finding.severity != Severity.INFO]


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
