"""Cooling schedules of simulated annealing: initial and final temperatures, and the weight of the smoothed cost."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from plink.model.network import Matrix

_COOLING, _CHAIN_COOLING = 1000.0, 30.0  # the first temperature over the last
# Of each run: (initial temperature over the typical change, weight of the smoothed cost). A low temperature keeps what
# a start order has of the hierarchy. Few ranks, and loads, of which there are few different ones, need a higher one.
_HOPS = ((0.05, 1.0), (0.2, 1.0), (0.05, 0.0), (1.0, 0.5))
_HOPS_OF_SMALL_JOBS = ((1.0, 0.5), (0.2, 1.0), (0.05, 0.0))
_SMALL_JOB_MAX_RANKS = 32
_LOADS = ((1.0, 0.0), (0.2, 0.0))
# Chains: initial temperatures of the two parallel runs. The first run: over the deviation of nearby round trips. The
# second: the same in long runs, over the deviation of all round trips in short ones.
_FIRST_OVER_NEARBY, _SECOND_OVER_NEARBY, _SECOND_OVER_ALL = 0.1, 0.05, 0.5
_SHORT_RUN_MAX_MOVES = 640_000
_NEARBY_FRACTION = 4  # one in so many hosts is nearby
_MAX_OVER_NEARBY = 2.0  # longer round trips are cut at so many times the nearby ones


class CoolingSchedule(NamedTuple):
    """Initial and final temperature of a run, microseconds, and the weight of the smoothed cost, 0 to 1."""

    initial: float
    final: float
    smoothing: float = 0.0

    def part(self, k: int, slices: int) -> "CoolingSchedule":
        """Return the schedule of the k-th slice of the run."""
        ratio = self.final / self.initial
        return CoolingSchedule(
            self.initial * ratio ** (k / slices), self.initial * ratio ** ((k + 1) / slices), self.smoothing
        )


class CoolingSchedules:
    """The cooling schedules of all runs of a search.

    :param kind: ``hops``, ``chain`` or ``loads``. :param change: typical change of the cost by a swap; positive.
    :param rtt_us: shape (N, N). :param ranks: how many.
    """

    def __init__(self, kind: str, change: float, rtt_us: Matrix, ranks: int) -> None:
        self._chain: tuple[CoolingSchedule, ...] = ()
        if kind == "chain":
            # Mostly the differences between hosts of one site tell good orders from bad ones. Where sites are far
            # apart, short hot runs move hosts between them and find the site for each branch.
            nearby, overall = spread_nearby(rtt_us), float(rtt_us.std())
            temperatures = (nearby * _FIRST_OVER_NEARBY, nearby * _SECOND_OVER_NEARBY, overall * _SECOND_OVER_ALL)
            self._chain = tuple(
                CoolingSchedule(temperature, min(temperatures) / _CHAIN_COOLING) for temperature in temperatures
            )
        small_job = kind == "hops" and ranks <= _SMALL_JOB_MAX_RANKS
        heats = _LOADS if kind == "loads" else _HOPS_OF_SMALL_JOBS if small_job else _HOPS
        self._cycle = [
            CoolingSchedule(change * temperature, change * temperature / _COOLING, smoothing)
            for temperature, smoothing in heats
        ]

    def schedules(self, run: int, parallel: int, moves: int) -> Sequence[CoolingSchedule]:
        """Return one schedule for each parallel run; ``run``: how many came before, ``moves``: of each."""
        if self._chain:
            first, second_long, second_short = self._chain
            return (first, second_short if moves <= _SHORT_RUN_MAX_MOVES else second_long)[:parallel]
        return [self._cycle[(run * parallel + k) % len(self._cycle)] for k in range(parallel)]


def spread_nearby(rtt_us: Matrix) -> float:
    """Return the standard deviation of the round trips between nearby hosts, microseconds.

    Round trips much longer than those to the nearest quarter of the hosts are cut, or the differences within a site
    would be lost. (With four distant sites or more they are, but there the number of hops between sites counts.)
    Where all pairs are equally far, a host's round trip to itself counts too.
    """
    n = len(rtt_us)
    if n < 2:
        return 0.0
    pairs = rtt_us[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    nearby = np.median(np.sort(pairs, axis=1)[:, (n - 1) // _NEARBY_FRACTION])
    return float(np.minimum(pairs, _MAX_OVER_NEARBY * nearby).std()) or float(rtt_us.std())
