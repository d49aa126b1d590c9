"""Request of `plink probe`; imports little, so that its help is quick."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plink.errors import UsageError, no_choice

if TYPE_CHECKING:
    from plink.model.topology import Topology

METHODS = ("stamp", "icmp", "tcp", "iperf3", "auto")
PAIRS = ("all", "adaptive")
COUNT, SOURCE_PORTS, STREAMS = (20, 1_000_000), (1, 64), (1, 128)
MAX_COUNT = 10_000  # probes a pair, as in the thesis (5.2.2), where nothing less is precise
_ADAPTIVE_ABOVE = 256


@dataclass(frozen=True)
class ProbeRequest:
    """A request for measurements.

    ``method``: of round trips, one of ``METHODS``. ``count``: probes a pair, half in each direction; None: as many as
    it takes to be precise, up to ``MAX_COUNT``. They are sent from ``source_ports`` UDP ports a host and lost after
    ``timeout_s``. ``pairs``: ``all`` or ``adaptive``; None: all up to 256 hosts. ``budget_s``: no round begins later.
    ``bandwidth``: of every pair, too, by a TCP flow of ``bandwidth_s`` or ``bandwidth_bytes``; with
    more than one of ``streams``, or by the method iperf3, by iperf3 tests of at least a second.
    ``host_rates``: what every host sends and receives. ``shared_links``: what groups of hosts share. ``topology``: who
    is in a group; None: by the round trips.
    """

    method: str = "stamp"
    count: int | None = None
    source_ports: int = 4
    pairs: str | None = None
    budget_s: float | None = None
    bandwidth: bool = False
    streams: int = 1
    bandwidth_s: float = 0.5
    bandwidth_bytes: int | None = None
    host_rates: bool = True
    shared_links: bool = True
    timeout_s: float = 0.25
    seed: int = 0
    accept_new_host_keys: bool = False
    topology: "Topology | None" = None

    def check(self) -> None:
        """Refuse unknown methods and values out of range.

        :raises UsageError: for a method or a choice of pairs that there is none of.
        """
        if self.method not in METHODS:
            raise no_choice("--method", self.method, METHODS)
        if self.pairs not in (None, *PAIRS):
            raise no_choice("--pairs", self.pairs, PAIRS)
        for option, value, (low, high) in (
            ("count", COUNT[0] if self.count is None else self.count, COUNT),
            ("source-ports", self.source_ports, SOURCE_PORTS), ("streams", self.streams, STREAMS),
        ):  # fmt: skip
            if not low <= value <= high:
                raise UsageError(f"--{option} {value}: {low} to {high} are possible")
        for option, seconds in (("timeout", self.timeout_s), ("bandwidth-time", self.bandwidth_s)):
            if not seconds > 0:
                raise UsageError(f"--{option} {seconds:g}s: must be more than 0")
        if self.budget_s is not None and not self.budget_s >= 0:
            raise UsageError(f"--budget {self.budget_s:g}s: cannot be negative")
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
