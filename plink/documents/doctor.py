"""``plink.doctor/1``: what is wrong with hosts and the network between them."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, HostName, Name, NonNegative


class HostReportEntry(TypedDict):
    """What one host reports of itself."""

    hostname: NotRequired[str]
    """The host name that it has itself."""
    address: NotRequired[str]
    """The address that it is measured at."""
    python: NotRequired[str]
    """Version of the Python that was used there."""
    cores: NotRequired[Count]
    """Cores that plink may use there."""
    stamps: NotRequired[bool]
    """Its kernel stamps packets."""
    interface: NotRequired[str | None]
    """Its interface towards another host; null where it cannot be told."""
    mtu: NotRequired[Count | None]
    """Largest packet of that interface, in bytes; null where it cannot be told."""
    speed_mbps: NotRequired[Count | None]
    """Speed of that interface, in Mbit/s; null where it has none of its own, as virtual ones."""
    clocksource: NotRequired[str | None]
    """The kernel's clock source; null where it does not tell."""
    governor: NotRequired[str | None]
    """What governs the frequency of its first CPU; null where nothing does."""
    kernel: NotRequired[str]
    """Release of its kernel."""
    load: NotRequired[NonNegative]
    """Mean number of processes that wanted to run in the last minute."""
    tools: NotRequired[dict[str, str | None]]
    """Versions of programs that plink may use there; null where one is missing, ? where it does not tell."""
    clock_offset_s: NotRequired[float]
    """How far its clock is ahead of the clock of the machine that ran plink, in seconds."""
    counters: NotRequired[dict[str, Count]]
    """Packets that were dropped or queued because an allowance of the instance was used up, where the driver counts
    them."""
    reached_by: NotRequired[dict[str, bool]]
    """Which methods (stamp, icmp, tcp) get through to it."""


class DoctorFinding(TypedDict):
    """One cause of what is wrong."""

    kind: Literal[
        "slow host",
        "slow link",
        "asymmetric",
        "slow host (bandwidth)",
        "slow shared link",
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
    severity: Literal["error", "warning", "info"]
    """error: a job fails or is slow; warning: it may be slower; info: a fact to know."""
    hosts: Annotated[list[HostName], Meta(min_length=1)]
    """The hosts to look at; two where it is what is between them."""
    evidence: Name
    """What was measured, and what is usual."""
    advice: Name
    """What to do."""
    pairs: Count
    """Pairs of hosts whose measurements it explains; 0 where it does not rest on pairs."""


class DoctorDocument(TypedDict):
    """What is wrong with hosts and the network between them.

    Printed by `plink doctor --json`.
    """

    schema: Literal["plink.doctor/1"]
    """Kind and version of this document."""
    ok: bool
    """No finding is an error or a warning."""
    hosts: dict[str, HostReportEntry]
    """What each host that was examined said of itself, by name; one that was lost meanwhile may lack all of it. Empty
    where a network file was judged."""
    findings: list[DoctorFinding]
    """One entry for each cause, the most severe first."""
