"""Slow hosts and slow shared links, told from bandwidths: what a limited rate does not show in round trips.

A host is slow when none of its pairs comes near what pairs of the others carry. A group's shared link is slow when it
carries far less than those of the other groups, in all and for each host behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.fabric import Row, shared_rows

SHARE = 0.5  # of what is usual; less is far below, and no noise of TCP's
_PAIRS = 3  # measured rates of a host, and of others, below which nothing is told
_GROUPS = 3  # of two groups neither is the usual one


@dataclass(frozen=True)
class SlowHost:
    """``rates``: way (``out``, ``in``) to the best rate that the host has with anybody, and to what is usual, Gbit/s;
    of ways that are slow only."""

    host: int
    rates: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class SlowLink:
    """The hosts behind the link, the way (``out`` or ``in``), its capacity and the other groups' median, Gbit/s."""

    members: tuple[int, ...]
    way: str
    gbps: float
    usual_gbps: float


def slow_rates(gbps: Matrix, groups: npt.NDArray[np.intp]) -> list[SlowHost]:
    """Hosts with a rate far below that of others to everybody, in either way, slowest first.

    What is usual is the median of the pairs that the host has no part in; for a host alone in its group, which may be
    far from everybody, of those between groups if there are enough.

    :param gbps: ``gbps[i, j]`` is what j received from i, shape (N, N), NaN where unmeasured.
    :param groups: the group of every host, shape (N,).
    """
    rates = np.where(np.eye(len(gbps), dtype=bool), np.nan, gbps)
    between = groups[:, None] != groups[None, :]
    alone = np.bincount(groups, minlength=1)[groups] == 1
    found = []
    for host in range(len(rates)):
        others = np.delete(np.delete(rates, host, 0), host, 1)
        far = others[np.delete(np.delete(between, host, 0), host, 1)]
        usual = _median(far) if alone[host] else np.nan
        usual = _median(others) if np.isnan(usual) else usual
        slow = {}
        for way, own in (("out", rates[host]), ("in", rates[:, host])):
            own = own[np.isfinite(own)]
            if len(own) >= _PAIRS and own.max() < SHARE * usual:
                slow[way] = (float(own.max()), usual)
        if slow:
            found.append(SlowHost(host, slow))
    return sorted(found, key=lambda slow: min(rate for rate, _ in slow.rates.values()))


def _median(rates: npt.NDArray[np.float64]) -> float:
    """NaN where too few were measured."""
    known = rates[np.isfinite(rates)]
    return float(np.median(known)) if len(known) >= _PAIRS else float("nan")


def slow_shared_links(rows: Sequence[Row], names: list[str]) -> list[SlowLink]:
    """Groups whose shared link is far slower than those of the others, slowest first.

    Only a link that was full can be slow: where the hosts ended the growth (``limited_by``), it carries at least what
    was measured.

    :param rows: ``shared_links`` of a network.
    """
    groups = shared_rows(rows, names)
    found = []
    for way in ("out", "in"):
        measured = [(members, row, rate) for members, row in groups if (rate := row.get(f"{way}_gbps"))]
        if len(measured) < _GROUPS:
            continue
        for at, (members, row, rate) in enumerate(measured):
            others = measured[:at] + measured[at + 1 :]
            usual = float(np.median([other for _, _, other in others]))
            each = float(np.median([other / len(group) for group, _, other in others]))
            _, highest = row.get("interval", {}).get(f"{way}_gbps") or (0.0, 0.0)
            most = max(rate, highest)
            full = row.get(f"{way}_limited_by") == "link"
            if full and most < SHARE * usual and most / len(members) < SHARE * each:
                found.append(SlowLink(tuple(members), way, rate, usual))
    return sorted(found, key=lambda link: link.gbps)
