"""Diagnosis of hosts and the network between them (``plink.doctor/1``), and the severity of what is found."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.hostlist import shortened_hostlist
from plink.model.types import Count, HostName, Name, NonNegative

_SEVERE_RATIO = 2.0  # of what is usual
_SEVERE_LOSS = 0.01  # of the probes: TCP's rate falls with the square root of it (Mathis 1997)


class Severity(StrEnum):
    """How severe a finding is: a job fails or is slow (error), may be slower (warning), or a fact to know (info)."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @classmethod
    def of_ratio(cls, ratio: float) -> "Severity":
        """Return the severity of something so many times as slow as usual, or as before."""
        return cls.ERROR if ratio >= _SEVERE_RATIO else cls.WARNING

    @classmethod
    def of_loss(cls, share: float) -> "Severity":
        """Return the severity of a share of lost probes."""
        return cls.ERROR if share >= _SEVERE_LOSS else cls.WARNING


class Finding(Part, frozen=True):
    """One cause of what is wrong."""

    kind: Literal[
        "slow host",
        "slow link",
        "asymmetric",
        "slow host (bandwidth)",
        "slow shared link",
        "dead link",
        "slow interface",
        "loss",
        "tainted",
        "unmeasured",
        "unreachable",
        "MTU mismatch",
        "closed",
        "no kernel timestamps",
        "clock source",
        "governor",
        "half duplex",
        "partition",
        "uncertain group",
        "interface",
        "relay",
        "clock offset",
        "zero",
    ]
    """What is wrong."""
    severity: Severity
    """error: a job fails or is slow; warning: it may be slower; info: a fact to know."""
    hosts: Annotated[list[HostName], Meta(min_length=1)]
    """The hosts to look at; two where it is what is between them."""
    evidence: Name
    """What was measured, and what is usual."""
    advice: Name
    """What to do."""
    pairs: Count = 0
    """Pairs of hosts whose measurements it explains; 0 where it does not rest on pairs."""

    @property
    def is_of_pair(self) -> bool:
        """Return whether it is of what is between two hosts."""
        return self.pairs == 1 and len(self.hosts) == 2

    def concerns(self, names: set[str]) -> bool:
        """Return whether a job of these hosts may meet it: it has one of the hosts to look at, or both of a pair."""
        return names.issuperset(self.hosts) if self.pairs == 1 else not names.isdisjoint(self.hosts)

    @property
    def line(self) -> str:
        """Return it in one line, without its severity. What hosts report of themselves may be in it: escape it."""
        number = f"{len(self.hosts)} hosts: " if len(self.hosts) > 2 else ""
        return f"{self.kind}: {number}{shortened_hostlist(self.hosts, ', ')}: {self.evidence}; {self.advice}"


class HostFacts(Part, frozen=True, kw_only=True):
    """Facts that a host reports of itself."""

    hostname: str | Unset = UNSET
    """The host name that it has itself."""
    address: str | Unset = UNSET
    """The address that it is measured at."""
    python: str | Unset = UNSET
    """Version of the Python that was used there."""
    cores: Count | Unset = UNSET
    """Cores that plink may use there."""
    stamps: bool | Unset = UNSET
    """Its kernel stamps packets."""
    interface: str | Unset | None = UNSET
    """Its interface towards another host; null where it cannot be told."""
    mtu: Count | Unset | None = UNSET
    """Largest packet of that interface, in bytes; null where it cannot be told."""
    speed_mbps: Count | Unset | None = UNSET
    """Speed of that interface, in Mbit/s; null where it has none of its own, as virtual ones."""
    clocksource: str | Unset | None = UNSET
    """The kernel's clock source; null where it does not tell."""
    governor: str | Unset | None = UNSET
    """What governs the frequency of its first CPU; null where nothing does."""
    kernel: str | Unset = UNSET
    """Release of its kernel."""
    load: NonNegative | Unset = UNSET
    """Mean number of processes that wanted to run in the last minute."""
    tools: dict[str, str | None] | Unset = UNSET
    """Versions of programs that plink may use there; null where one is missing, ? where it does not tell."""
    clock_offset_s: float | Unset = UNSET
    """How far its clock is ahead of the clock of the machine that ran plink, in seconds."""
    counters: dict[str, Count] | Unset = UNSET
    """Packets that were dropped or queued because an allowance of the instance was used up, where the driver counts
    them."""
    reached_by: dict[str, bool] | Unset = UNSET
    """Which methods (stamp, icmp, tcp) get through to it."""


class Examination(Document, frozen=True, kw_only=True, tag="plink.doctor/1"):
    """Findings on hosts and the network between them.

    Printed by `plink doctor --json`.
    """

    ok: bool
    """No finding is an error or a warning."""
    hosts: dict[str, HostFacts]
    """What each host that was examined said of itself, by name; one that was lost meanwhile may lack all of it. Empty
    where a network file was judged."""
    findings: tuple[Finding, ...]
    """One entry for each cause, the most severe first."""

    @classmethod
    def of(cls, hosts: dict[str, HostFacts], findings: Iterable[Finding]) -> "Examination":
        """Return the examination with these findings, the most severe first."""
        findings = tuple(findings)
        return cls(ok=all(each.severity == Severity.INFO for each in findings), hosts=hosts, findings=findings)
