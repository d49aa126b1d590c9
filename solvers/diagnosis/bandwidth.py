"""Slow hosts and slow shared links, from bandwidths: a limited rate that round trips do not show.

A host is slow when all its pairs are far slower than pairs of other hosts. A group's shared link is slow when it
carries far less than those of the other groups, in total and per host behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.fabric import Row, shared_rows
from solvers.costs.host_flows import SLOW_SHARE

_MIN_PAIRS = 3  # measured rates of a host, and of the other hosts, for a result
_MIN_GROUPS = 3  # for a median of the other groups


@dataclass(frozen=True)
class SlowHost:
    """Slow directions of a host (``out``, ``in``), each with its best rate and the median of others, Gbit/s."""

    host: int
    rates: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class SlowLink:
    """Hosts behind a link, its direction (``out`` or ``in``), its capacity and the other groups' median, Gbit/s."""

    members: tuple[int, ...]
    way: str
    gbps: float
    usual_gbps: float


def slow_rates(gbps: Matrix, groups: npt.NDArray[np.intp]) -> list[SlowHost]:
    """Return hosts whose rates to all others are far below usual, in either direction, slowest first.

    The baseline is the median of the pairs without the host. For a host alone in its group, which may be far from all
    others, it is the median of pairs between groups if there are enough.

    :param gbps: ``gbps[i, j]`` is what j received from i, shape (N, N), NaN where unmeasured.
    :param groups: the group of every host, shape (N,).
    """
    rates = np.where(np.eye(len(gbps), dtype=bool), np.nan, gbps)
    between = groups[:, None] != groups[None, :]
    alone = np.bincount(groups, minlength=1)[groups] == 1
    slow_hosts = []
    for host in range(len(rates)):
        other_rates = np.delete(np.delete(rates, host, 0), host, 1)
        far = other_rates[np.delete(np.delete(between, host, 0), host, 1)]
        usual = _median(far) if alone[host] else np.nan
        usual = _median(other_rates) if np.isnan(usual) else usual
        directions = {}
        for way, own in (("out", rates[host]), ("in", rates[:, host])):
            own = own[np.isfinite(own)]
            if len(own) >= _MIN_PAIRS and own.max() < SLOW_SHARE * usual:
                directions[way] = (float(own.max()), usual)
        if directions:
            slow_hosts.append(SlowHost(host, directions))
    return sorted(slow_hosts, key=lambda host: min(rate for rate, _ in host.rates.values()))


def _median(rates: npt.NDArray[np.float64]) -> float:
    """Return the median, NaN where too few were measured."""
    finite = rates[np.isfinite(rates)]
    return float(np.median(finite)) if len(finite) >= _MIN_PAIRS else float("nan")


def slow_shared_links(rows: Sequence[Row], names: list[str]) -> list[SlowLink]:
    """Return groups whose shared link is far slower than those of other groups, slowest first.

    Only a full link can be slow: where the hosts were the limit (``limited_by``), it carries at least the measured
    rate.

    :param rows: the groups of a tier of a network's ``shared_links``.
    """
    groups = shared_rows(rows, names)
    links = []
    for way in ("out", "in"):
        measured = [(members, row, rate) for members, row in groups if (rate := row.gbps(way))]
        if len(measured) < _MIN_GROUPS:
            continue
        for at, (members, row, rate) in enumerate(measured):
            other_groups = measured[:at] + measured[at + 1 :]
            usual = float(np.median([other for _, _, other in other_groups]))
            usual_per_host = float(np.median([other / len(group) for group, _, other in other_groups]))
            _, highest = row.range_gbps(way) or (0.0, 0.0)
            highest_rate = max(rate, highest)
            is_full = row.limited_by(way) == "link"
            if (
                is_full
                and highest_rate < SLOW_SHARE * usual
                and highest_rate / len(members) < SLOW_SHARE * usual_per_host
            ):
                links.append(SlowLink(tuple(members), way, rate, usual))
    return sorted(links, key=lambda link: link.gbps)
