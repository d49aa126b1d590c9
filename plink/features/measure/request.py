"""Request for measurements of the network."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from plink.errors import UsageError
from plink.model.request import FeatureRequest, Option, Text
from plink.model.units import parse_bytes, parse_duration, parse_limit

if TYPE_CHECKING:
    from plink.model.topology import Topology

METHODS = ("stamp", "icmp", "tcp", "iperf3", "auto")
MAX_COUNT = 10_000  # probes a pair, as in the thesis (5.2.2), where nothing less is precise
_ADAPTIVE_ABOVE = 256
_METHOD, _BANDWIDTH, _LIMITS = "Round trips", "Bandwidth", "Limits"


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:g}ms"


@dataclass(frozen=True)
class ProbeRequest(FeatureRequest):
    """Request for measurements. ``count`` None: as many as it takes to be precise, up to ``MAX_COUNT``. Bandwidths with
    more than one of ``streams``, or by the method iperf3, are those of iperf3 tests of at least a second.
    ``topology``: who is in a group; None: by the round trips."""

    method: Annotated[str, Option("Probe method; auto: what gets through.", choices=METHODS, panel=_METHOD)] = "stamp"
    count: Annotated[
        int | None,
        Option(
            "Probes per pair, half in each direction; default: 500 to 10000, until the round trip is precise.",
            least=20,
            most=1_000_000,
            panel=_METHOD,
        ),
    ] = None
    source_ports: Annotated[int, Option("UDP source ports (ECMP paths) per host.", least=1, most=64, panel=_METHOD)] = 4
    pairs: Annotated[
        str | None,
        Option(
            "Pairs to measure; default: all up to 256 hosts, adaptive above.",
            choices=("all", "adaptive"),
            panel=_METHOD,
        ),
    ] = None
    budget_s: Annotated[
        float | None,
        Text("TIME", parse_duration),
        Option(
            "Start no round after this time (90s, 5m); the file is complete up to then; default: no limit.",
            ("--budget",),
            least=0,
            panel=_LIMITS,
        ),
    ] = None
    bandwidth: Annotated[bool, Option("Measure every pair's bandwidth too (TCP flows).", panel=_BANDWIDTH)] = False
    streams: Annotated[
        int, Option("TCP streams of a bandwidth test; several: by iperf3.", least=1, most=128, panel=_BANDWIDTH)
    ] = 1
    bandwidth_s: Annotated[
        float,
        Text("TIME", parse_limit, _shown),
        Option("Duration of a bandwidth test (500ms, 5s).", ("--bandwidth-time",), panel=_BANDWIDTH),
    ] = 0.5
    bandwidth_bytes: Annotated[
        int | None,
        Text("SIZE", parse_bytes),
        Option("Bytes of a bandwidth test (50MB), instead of its time.", least=1, panel=_BANDWIDTH),
    ] = None
    host_rates: Annotated[
        bool,
        Option("Measure what every host sends and receives.", ("--host-rates/--no-host-rates",), panel=_BANDWIDTH),
    ] = True
    shared_links: Annotated[
        bool,
        Option(
            "Measure the capacity that groups of hosts share.", ("--shared-links/--no-shared-links",), panel=_BANDWIDTH
        ),
    ] = True
    timeout_s: Annotated[
        float,
        Text("TIME", parse_limit, _shown),
        Option("A probe without an answer by then (100ms, 1s) is lost.", ("--timeout",), panel=_METHOD),
    ] = 0.25
    seed: Annotated[int, Option("Shuffles the rounds.", panel=_METHOD)] = 0
    accept_new_host_keys: Annotated[bool, Option("Note unknown SSH host keys instead of refusing them.")] = False
    topology: "Topology | None" = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, seconds in (("timeout", self.timeout_s), ("bandwidth-time", self.bandwidth_s)):
            if not 0 < seconds < math.inf:
                raise UsageError(f"--{option} {seconds:g}s: give a finite time above 0")
        if self.topology is not None and (not self.shared_links or self.method == "iperf3"):
            raise UsageError("--topology says which hosts share links, and none are measured: leave one of both out")

    @property
    def bandwidth_method(self) -> str:
        """Return the probe method that measures bandwidths."""
        return "iperf3" if self.method == "iperf3" or self.streams > 1 else "flow"

    def adaptive(self, hosts: int) -> bool:
        """Return whether some of the pairs are predicted instead of measured."""
        if self.method == "iperf3":
            return False
        return self.pairs == "adaptive" or (self.pairs is None and hosts > _ADAPTIVE_ABOVE)
