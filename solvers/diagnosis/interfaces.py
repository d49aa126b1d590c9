"""Interfaces that carry far less than others, by flows over each of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solvers.costs.host_flows import MIN_OTHERS, SLOW_SHARE

Port = tuple[int, int]
Rates = Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class SlowInterfaces:
    """``ports``: one (host, interface), or both ends of a cable; ``ways``: ``sends`` or ``receives`` at most so many
    Gbit/s; ``usual_gbps``: the median of all others."""

    ports: tuple[Port, ...]
    ways: dict[str, float]
    usual_gbps: float


def slow_interfaces(out_gbps: Rates, in_gbps: Rates, cables: Sequence[tuple[Port, Port]]) -> list[SlowInterfaces]:
    """Return interfaces whose best flow, out or in, has less than half the median of the others', slowest first.

    What one end of a cable does not send the other does not receive: nobody knows which of them is slow.

    :param out_gbps: by host and interface, None where unknown; so ``in_gbps``. :param cables: switches of two ports.
    """
    slow: dict[Port, dict[str, float]] = {}
    usual = 0.0
    for way, table in (("sends", out_gbps), ("receives", in_gbps)):
        rates = {
            (host, interface): rate
            for host, row in enumerate(table)
            for interface, rate in enumerate(row)
            if rate is not None
        }
        for port, rate in rates.items():
            others = [other for which, other in rates.items() if which != port]
            median = float(np.median(others)) if len(others) >= MIN_OTHERS else 0.0
            if rate < SLOW_SHARE * median:
                slow.setdefault(port, {})[way] = rate
                usual = median
    results = []
    for cable in cables:
        if all(port in slow for port in cable):
            results.append(SlowInterfaces(cable, slow.pop(cable[0]) | slow.pop(cable[1]), usual))
    results += [SlowInterfaces((port,), ways, usual) for port, ways in slow.items()]
    return sorted(results, key=lambda item: min(item.ways.values()))
