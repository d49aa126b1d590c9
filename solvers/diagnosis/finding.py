"""Findings of a diagnosis, and the judgement that doctor, report and diff share: what is named, how severe it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from plink.model.hostlist import fold_hostlist

MIN_SHARE = 0.25  # of the usual value: a smaller excess is not named
FLOOR_US = 10.0  # nor is one of fewer microseconds: hosts that are busy differ by as much
MIN_LOSS = 0.001  # of the probes: more slows TCP
MIN_LOST_PROBES = 3  # fewer may be one burst
_SEVERE_RATIO = 2.0  # of what is usual
_SEVERE_LOSS = 0.01  # of the probes: TCP's rate falls with the square root of it (Mathis 1997)


class Severity(StrEnum):
    """How severe a finding is: a job fails or is slow (error), may be slower (warning), or a fact to know (info)."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One cause: its kind and severity, its hosts, evidence and advice, and how many ``pairs`` of hosts it explains.

    ``pairs`` is 0 where the finding does not rest on pairs.
    """

    kind: str
    severity: Severity
    hosts: list[str]
    evidence: str
    advice: str
    pairs: int = 0

    @property
    def line(self) -> str:
        """Return it in one line, without its severity. What hosts report of themselves may be in it: escape it."""
        number = f"{len(self.hosts)} hosts: " if len(self.hosts) > 2 else ""
        return f"{self.kind}: {number}{fold_hostlist(self.hosts, ', ')}: {self.evidence}; {self.advice}"


def severity_of_ratio(ratio: float) -> Severity:
    """Return the severity of something so many times as slow as usual, or as before."""
    return Severity.ERROR if ratio >= _SEVERE_RATIO else Severity.WARNING


def severity_of_loss(share: float) -> Severity:
    """Return the severity of a share of lost probes."""
    return Severity.ERROR if share >= _SEVERE_LOSS else Severity.WARNING


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings that differ in nothing but their hosts as one, the most severe first."""
    by_cause: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        key = (finding.kind, finding.severity, finding.evidence, finding.advice)
        first = by_cause.get(key)
        hosts = finding.hosts if first is None else list(dict.fromkeys([*first.hosts, *finding.hosts]))
        by_cause[key] = finding if first is None else replace(first, hosts=hosts, pairs=first.pairs + finding.pairs)
    order = list(Severity)
    return sorted(by_cause.values(), key=lambda finding: order.index(finding.severity))
