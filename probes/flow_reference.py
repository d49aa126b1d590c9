"""What flows of a pair can be expected to reach, by earlier flows: so that both ways can be measured at once.

Half duplex, or acknowledgements that wait in a full queue, make flows both ways slower than one way. Then a pair has
less than its hosts, and the links between its groups, had one way, and is measured again, one way after the other.
"""

import math

import numpy as np
import numpy.typing as npt

from probes.measurements import Measurements

_MIN_SHARE = 0.8  # of what is expected: with less the two flows may disturb each other
_MIN_GAIN = 1.15  # of one way at a time over both at once
_MAX_VAIN_REPEATS = 8  # after so many without a gain pairs are as slow as they look


class FlowReference:
    """Rates of hosts and of shared links, one way at a time, and whether pairs that stay below are tried again."""

    def __init__(self, measurements: Measurements) -> None:
        self._measurements = measurements
        names = measurements.hosts.names
        index = {name: host for host, name in enumerate(names)}
        self._sent, self._received = np.full(len(names), np.nan), np.full(len(names), np.nan)
        for row in measurements.details.host_flows or ():
            if not row.both_ways:
                for rates, host in ((self._sent, index[row.source]), (self._received, index[row.target])):
                    rates[host] = np.fmax(rates[host], row.gbps)
        self._links = list[tuple[npt.NDArray[np.bool_], float, float]]()  # members, and one flow out of and into them
        for tier in measurements.details.shared_links or ():
            for link in tier.groups:
                out, into = (link.one_flow_gbps(way) or math.inf for way in ("out", "in"))
                self._links.append((np.isin(names, link.members), out, into))
        self._vain_repeats = 0

    def _expected(self, source: int, sink: int) -> float:
        bandwidth = self._measurements.bandwidth_matrix()
        sent = np.fmax(self._sent[source], np.fmax.reduce(bandwidth[source]))
        received = np.fmax(self._received[sink], np.fmax.reduce(bandwidth[:, sink]))
        links = [
            out if members[source] else into for members, out, into in self._links if members[source] != members[sink]
        ]
        return float(np.minimum.reduce([sent, received, *links]))

    def allows_both(self, a: int, b: int) -> bool:
        """Return whether enough is known of both hosts to measure both ways at once."""
        return math.isfinite(self._expected(a, b)) and math.isfinite(self._expected(b, a))

    def is_doubtful(self, source: int, sink: int, gbps: float) -> bool:
        """Return whether a flow that had another the other way is to be measured without it."""
        return self._vain_repeats < _MAX_VAIN_REPEATS and gbps < _MIN_SHARE * self._expected(source, sink)

    def note_repeat(self, both_gbps: float, alone_gbps: float) -> None:
        """Take note of what a doubtful flow had by itself."""
        self._vain_repeats = 0 if alone_gbps > _MIN_GAIN * both_gbps else self._vain_repeats + 1
