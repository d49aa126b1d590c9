"""Groups of a network file that share links: which hosts they are of, and what a row says of their rates."""

from collections.abc import Sequence

import numpy as np

from plink.model.document import UNSET
from plink.model.network_file import SharedLinkEntry

MIN_RATE_SIGMA = 0.02  # relative: probes of one lab, minutes apart, differ by as much
_RMS_RANGE_OF_THREE = 1.912  # root mean square of the range of three normal draws, in standard deviations
_MEDIAN_OF_THREE = 0.67  # standard deviation of the median of three such draws
_MIN_CONFIDENCE = 0.5
Row = SharedLinkEntry


def shared_rows(rows: Sequence[Row], names: list[str]) -> list[tuple[list[int], Row]]:
    """Return the groups of a file, as (indices, row).

    :param rows: groups of a tier of a network's ``shared_links``, which checks that they are of its hosts, each once.
    """
    index = {name: i for i, name in enumerate(names)}
    return [(sorted({index[name] for name in row.members}), row) for row in rows]


def is_uncertain(row: Row) -> bool:
    """Return whether a group is rather another one, by its ``confidence``: orders do not use what it shares."""
    return float(1.0 if row.confidence is UNSET else row.confidence) < _MIN_CONFIDENCE


def is_measured(row: Row) -> bool:
    """Return whether both directions were measured."""
    return row.gbps("out") is not None and row.gbps("in") is not None


def rate_sigma(rows: Sequence[Row]) -> float:
    """Return the relative standard deviation of a capacity, the median of three runs, by the ranges of all groups'."""
    squares = [
        ((ends[1] - ends[0]) / _RMS_RANGE_OF_THREE / gbps) ** 2
        for row in rows
        for way in ("out", "in")
        if (ends := row.range_gbps(way)) and (gbps := row.gbps(way))
    ]
    return max(MIN_RATE_SIGMA, _MEDIAN_OF_THREE * float(np.sqrt(np.mean(squares)))) if squares else MIN_RATE_SIGMA


def capacity_of(row: Row, way: str) -> float:
    """Return a group's capacity, Gbit/s; infinite where its hosts, or links of a tier below, were the limit, the group
    is uncertain, or nothing crosses its link (:attr:`solvers.costs.fabric.Fabric.blocked`). Where the links of all
    other groups were the limit, it is what they carry together."""
    has_limit = row.limited_by(way) not in ("hosts", "groups") and not is_uncertain(row)
    return row.gbps(way) or float("inf") if has_limit else float("inf")


def one_flow_rate(row: Row) -> float:
    """Return the rate of one flow alone, which is that of a host."""
    alone = max(row.one_flow_gbps(way) or 0.0 for way in ("out", "in"))
    return alone or max((row.out_gbps or 0.0) / (row.out_flows or 1), (row.in_gbps or 0.0) / (row.in_flows or 1))
