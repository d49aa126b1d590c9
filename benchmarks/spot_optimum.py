"""The cheapest plan of a job that is to be over by its deadline, if all prices are known: what regret is measured by.

An integer programme (SciPy's ``milp``, HiGHS). A stay of an instance begins at a point of a grid of time, and ends
after whole hours or with the job, as its bid is high enough. On-demand machines of the reference may begin at any
point. Changes cost no pauses. All that is used is paid: the plan is not interrupted on purpose. (With refunds of
interrupted hours, who knew all prices would compute for nothing, by bids that the price exceeds just before each hour
ends: the reference would be the anchors' cost alone.) So a strategy that is refunded can cost less than the plan.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from plink.errors import NoAnswer
from plink.model.spot.prices import HOUR_S, Floats
from solvers.spot.billing import End, Stay
from solvers.spot.footprint import Application
from solvers.spot.simulating import SimulatedMarkets
from solvers.spot.strategies import Comparison

GRID_S = 900.0
_MAX_POINTS = 32  # of the grid: it is coarser for long jobs
_TANGENTS = 6
_GAP, _TIME_LIMIT_S = 0.01, 10.0


@dataclass(frozen=True)
class OfflinePlan:
    """``money`` that the plan costs, reliable machines included; ``seconds`` of the job."""

    money: float
    seconds: float


@dataclass(frozen=True)
class _Stay:
    """One instance: its ``cores``, what it costs, and from when until when it works; ``is_transient``: it counts
    against the limit of cores."""

    cores: float
    money: float
    start: float
    works_from: float
    until: float
    is_transient: bool


def offline_optimum(comparison: Comparison, start: float, work: float, deadline_s: float) -> OfflinePlan:
    """Return the cheapest plan by the prices after ``start``, to 1 % unless a time limit ends the search.

    :param work: seconds of one core that scales linearly.
    :raises NoAnswer: when no plan is done in time.
    """
    grid_s = GRID_S * math.ceil(deadline_s / GRID_S / _MAX_POINTS)
    programmes = []
    for points in range(1, int(deadline_s // grid_s) + 1):
        programme = _Programme(comparison, start, work, grid_s * np.arange(points + 1, dtype=np.float64))
        if (least := programme.solve(in_whole=False)) is not None:
            programmes.append((least, points, programme))
    best: OfflinePlan | None = None
    for least, points, programme in sorted(programmes, key=lambda row: row[:2]):
        if best is not None and least >= best.money * (1 - _GAP):
            break
        money = programme.solve(in_whole=True)
        if money is not None and (best is None or money < best.money):
            best = OfflinePlan(money, points * grid_s)
    if best is None:
        raise NoAnswer(f"no plan does the job within {deadline_s / HOUR_S:g} h")
    return best


class _Programme:
    """The plans of a job that is done at the last point of a grid, seconds after its start. Variables: instances of
    each stay, then the work that is done between two points."""

    def __init__(self, comparison: Comparison, start: float, work: float, grid: Floats) -> None:
        application, anchors, points = comparison.application, comparison.anchors, len(grid) - 1
        edges: Floats = start + grid
        begins, end = [float(edge) for edge in edges[:-1]], float(edges[-1])
        most_cores = comparison.limits.max_cores
        stays = [*_transient(comparison.markets, application, begins, end), *_on_demand(comparison, begins, end)]
        working: Floats = np.array([stay.cores * _overlaps(edges, stay.works_from, stay.until) for stay in stays])
        held: Floats = np.array(
            [stay.cores * stay.is_transient * _overlaps(edges, stay.start, stay.until) for stay in stays]
        )
        reliable = _overlaps(edges, start + application.start_s, end) * anchors.count * anchors.cores
        seconds: Floats = np.diff(edges)
        rows, most = [], []
        for slope, base in _scaled_work(application, most_cores + comparison.reference.total_cores):
            rows.append(np.hstack([-slope * working.T, np.eye(points)]))
            most.append(base * seconds + slope * reliable)
        rows.append(np.hstack([held.T, np.zeros((points, points))]))
        most.append(most_cores * seconds)
        rows.append(np.array([[not stay.is_transient for stay in stays] + [False] * points], dtype=float))
        most.append(np.array([comparison.reference.count]))
        rows.append(np.hstack([np.zeros(len(stays)), -np.ones(points)])[None, :])
        most.append(np.array([-work]))
        self._cost = np.array([*(stay.money for stay in stays), *[0.0] * points])
        self._whole = np.array([1] * len(stays) + [0] * points)
        self._constraint = LinearConstraint(csr_array(np.vstack(rows)), -np.inf, np.concatenate(most))
        self._anchor_money = anchors.count * anchors.price * (end - start) / HOUR_S

    def solve(self, in_whole: bool) -> float | None:
        """Return the least money, None where no plan does the work. Else than ``in_whole`` instances may be parts."""
        result = milp(
            self._cost, constraints=self._constraint, bounds=Bounds(0, np.inf),
            integrality=self._whole if in_whole else None,
            options={"mip_rel_gap": _GAP, "time_limit": _TIME_LIMIT_S},
        )  # fmt: skip
        return None if result.x is None else float(result.fun) + self._anchor_money


def _scaled_work(application: Application, cores: float) -> list[tuple[float, float]]:
    """Return tangents (slope, base) of the work per second by cores, which is concave up to its peak: none is below it,
    and more cores than the peak has need not be used."""
    scaling = application.scaling
    if scaling.a == 0 and scaling.c == 0:
        return [(1.0, 0.0)]
    if scaling.c > 0:
        cores = min(cores, math.sqrt(scaling.b / scaling.c))
    tangents = []
    for place in np.geomspace(min(1.0, cores), cores, _TANGENTS):
        step = 1e-4 * place
        slope = (scaling.speed(place + step) - scaling.speed(place - step)) / (2 * step)
        tangents.append((slope, scaling.speed(place) - slope * place))
    return tangents


def _overlaps(edges: Floats, start: float, until: float) -> Floats:
    """Return the seconds of a time between each two edges."""
    seconds: Floats = np.minimum(edges[1:], until) - np.maximum(edges[:-1], start)
    return np.maximum(seconds, 0.0)


def _transient(
    markets: SimulatedMarkets, application: Application, begins: Sequence[float], end: float
) -> Iterator[_Stay]:
    for trace, cores in zip(markets.traces, markets.cores, strict=True):
        for begin in begins:
            for until, how in _ends(begin, end):
                charge = markets.billing.charged(Stay(begin, until, 1, how), trace.price_at)
                works_from = min(begin + application.start_s, until)
                yield _Stay(cores, charge.money, begin, works_from, until, is_transient=True)


def _ends(begin: float, end: float) -> Iterator[tuple[float, End]]:
    """Yield when a stay may end, and how: with the job, or after whole hours."""
    yield end, "job ended"
    for hours in range(1, math.ceil((end - begin) / HOUR_S)):
        yield begin + hours * HOUR_S, "released"


def _on_demand(comparison: Comparison, begins: Sequence[float], end: float) -> Iterator[_Stay]:
    reference = comparison.reference
    for begin in begins:
        works_from = min(begin + comparison.application.start_s, end)
        yield _Stay(reference.cores, reference.price * (end - begin) / HOUR_S, begin, works_from, end, False)
