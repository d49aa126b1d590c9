"""How hot runs of annealing begin and end, and how much of what they anneal is smooth."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from plink.model.network import Matrix

_COOLING, _CHAIN_COOLING = 1000.0, 30.0  # the first temperature over the last
# Of each run: (of the first temperature, how much of what is annealed is the smooth stand-in for longest hops). Little
# heat keeps what a start has of the hierarchy; few ranks, and loads, of which there are few different ones, want more.
_HOPS = ((0.05, 1.0), (0.2, 1.0), (0.05, 0.0), (1.0, 0.5))
_HOPS_OF_FEW = ((1.0, 0.5), (0.2, 1.0), (0.05, 0.0))
_FEW = 32
_LOADS = ((1.0, 0.0), (0.2, 0.0))
# Chains: first temperatures over what round trips nearby differ by, of one lane and of the other in long runs, and over
# what all differ by, of the other in short runs.
_NEARBY, _LESS, _OVERALL = 0.1, 0.05, 0.5
_SHORT = 640_000  # moves of a run
_AROUND, _OUTLYING = 4, 2.0  # one in so many hosts is nearby; round trips so much longer than to them are cut there


class Plan(NamedTuple):
    """The first and the last temperature of a run, microseconds; how much of what is annealed is smooth, 0 to 1."""

    hot: float
    cold: float
    soft: float = 0.0

    def stretch(self, k: int, slices: int) -> "Plan":
        """The plan of the k-th of so many slices of the run."""
        ratio = self.cold / self.hot
        return Plan(self.hot * ratio ** (k / slices), self.hot * ratio ** ((k + 1) / slices), self.soft)


class Cooling:
    """The plans of all runs.

    :param what: what is annealed: ``hops``, ``chain`` or ``loads``. :param change: of the cost by a swap, typically;
        positive. :param rtt_us: shape (N, N). :param ranks: how many.
    """

    def __init__(self, what: str, change: float, rtt_us: Matrix, ranks: int) -> None:
        self._chain: tuple[Plan, ...] = ()
        if what == "chain":
            # What tells good orders from bad ones is mostly what hosts of one place differ by. Where places are far
            # apart, short runs so hot that hosts move between them find which place is for which branch.
            nearby, overall = spread_nearby(rtt_us), float(rtt_us.std())
            heats = (nearby * _NEARBY, nearby * _LESS, overall * _OVERALL)
            self._chain = tuple(Plan(heat, min(heats) / _CHAIN_COOLING) for heat in heats)
        few = what == "hops" and ranks <= _FEW
        plans = _LOADS if what == "loads" else _HOPS_OF_FEW if few else _HOPS
        self._turns = [Plan(change * heat, change * heat / _COOLING, soft) for heat, soft in plans]

    def plans(self, run: int, lanes: int, moves: int) -> Sequence[Plan]:
        """One for each lane of the run of that number, which has so many moves."""
        if self._chain:
            warm, mild, hot = self._chain
            return (warm, hot if moves <= _SHORT else mild)[:lanes]
        return [self._turns[(run * lanes + lane) % len(self._turns)] for lane in range(lanes)]


def spread_nearby(rtt_us: Matrix) -> float:
    """The standard deviation of the round trips, microseconds; those much longer than to the nearest quarter of the
    hosts are cut, or what hosts of one place differ by would be lost in them (of four places or more that are far apart
    it is lost, but there what counts is how often chains go from one to another). Where all are alike: with those of a
    host to itself."""
    n = len(rtt_us)
    if n < 2:
        return 0.0
    pairs = rtt_us[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    around = np.median(np.sort(pairs, axis=1)[:, (n - 1) // _AROUND])
    return float(np.minimum(pairs, _OUTLYING * around).std()) or float(rtt_us.std())
