"""The measured pairs an embedding is fitted to, and those kept back to see how well it does.

What equation 4.1 leaves open: dimension, alpha, heights, and whether errors count relative to the distance.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from plink.errors import NoAnswer, UsageError
from plink.model.network import Matrix
from solvers.prediction.observed import ObservedPairs, observed

_DIMENSIONS = (2, 4, 8, 16, 32)
_HOSTS_PER_DIMENSION = 128
_ALPHAS = (1.0, 2.0)
MAX_DIMENSIONS = 64
Integers = npt.NDArray[np.intp]
MIN_HOSTS = 4
_HELD_OUT_FRACTION = 5  # one pair in so many is held out
_MAX_HELD_OUT_PAIRS = 4000  # in a fold: more do not change the error
_TARGET_HELD_OUT_PAIRS = 1200  # over all folds: fewer do not separate the settings
_MAX_FOLDS = 4
_MAX_NAMED_HOSTS = 5


@dataclass(frozen=True)
class Setting:
    """One way to fit distances: ``||v_i - v_j||^alpha + h_i + h_j``.

    In ``dimension`` dimensions, with or without ``heights`` h; errors in microseconds or ``relative`` to the
    measurement.

    :raises UsageError: when dimension or alpha is out of range.
    """

    dimension: int
    alpha: float
    heights: bool
    relative: bool

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= MAX_DIMENSIONS:
            raise UsageError(f"dimension {self.dimension}: it takes 1 to {MAX_DIMENSIONS}")
        if not (math.isfinite(self.alpha) and 1.0 <= self.alpha <= 2.0):
            raise UsageError(f"alpha {self.alpha:g}: it takes 1 to 2")


@dataclass(frozen=True)
class EmbeddingConstraints:
    """What the user has fixed; None is chosen by held-out error."""

    dimension: int | None = None
    alpha: float | None = None
    heights: bool | None = None
    relative: bool | None = None

    def settings(self, hosts: int) -> list[Setting]:
        """Return all that remain to be tried for so many hosts, the plainest first.

        Of dimensions are tried those below N / 2, so that pairs outnumber coordinates, and where there are many hosts
        not the fewest: the far pairs are so many that a flat map leaves the near ones no place (2 dimensions had 0.6
        where 32 had 1.0 of the triplets of 1,024 hosts right).

        :raises UsageError: when a value is out of range.
        """
        fewest = min(hosts / _HOSTS_PER_DIMENSION, max(_DIMENSIONS))
        fitting = [dimension for dimension in _DIMENSIONS if fewest <= dimension < max(hosts / 2, 3)]
        return [
            Setting(*values)
            for values in itertools.product(
                fitting if self.dimension is None else [self.dimension],
                _ALPHAS if self.alpha is None else [self.alpha],
                [False, True] if self.heights is None else [self.heights],
                [False, True] if self.relative is None else [self.relative],
            )
        ]


@dataclass(frozen=True)
class Reachable:
    """``hosts``, shape (N',): those with a measured pair; ``pairs``: between them, numbered within ``hosts``."""

    hosts: Integers
    pairs: ObservedPairs


def reachable(measured: Matrix, names: Sequence[str] | None = None) -> Reachable:
    """Return the hosts of ``measured``, shape (N, N), microseconds, NaN where unmeasured, that can be placed.

    :param names: of the hosts, for errors; their numbers when not given.
    :raises NoAnswer: when there are fewer than four, or when no chain of measured pairs joins them.
    """
    finite = np.isfinite(measured) & ~np.eye(len(measured), dtype=bool)
    hosts = np.nonzero((finite | finite.T).any(axis=1))[0]
    n = len(hosts)
    if n < MIN_HOSTS:
        raise NoAnswer(
            f"an embedding takes {MIN_HOSTS} hosts with measured distances, here are {n} (of {len(measured)}): "
            "probe more hosts"
        )
    pairs = observed(measured[np.ix_(hosts, hosts)])
    parts, label = connected_components(coo_array((np.ones(len(pairs)), (pairs.i, pairs.j)), shape=(n, n)))
    if parts > 1:
        apart = hosts[label == np.argmin(np.bincount(label))]
        shown = ", ".join(names[k] if names else f"host {k}" for k in apart[:_MAX_NAMED_HOSTS])
        more = f" and {len(apart) - _MAX_NAMED_HOSTS} more" if len(apart) > _MAX_NAMED_HOSTS else ""
        raise NoAnswer(
            f"the measured pairs fall into {parts} parts with nothing measured between them; one is {shown}{more}: "
            "probe pairs between the parts"
        )
    return Reachable(hosts, pairs)


def folds(pairs: ObservedPairs, rng: np.random.Generator) -> list[Integers]:
    """Return which pairs to hold out, once or several times: each a list of places in ``pairs``, disjoint.

    A tree that joins all hosts, drawn at random for each fold, is never held out, so that what is left still places
    every host. Small clouds have few pairs, so they are given several folds.

    :raises NoAnswer: when the measured pairs are such a tree: nothing could contradict an embedding.
    """
    spare = len(pairs) - pairs.n + 1
    each = min(max(1, len(pairs) // _HELD_OUT_FRACTION), _MAX_HELD_OUT_PAIRS, spare)
    if each < 1:
        raise NoAnswer(
            f"{len(pairs)} measured pairs join {pairs.n} hosts without a loop, which says nothing about where they "
            "lie: probe more pairs"
        )
    fold_count = int(np.clip(_TARGET_HELD_OUT_PAIRS // each, 1, _MAX_FOLDS))
    result: list[Integers] = []  # the first of them there always is: the tree leaves ``spare`` pairs
    free = np.ones(len(pairs), dtype=bool)
    ends = pairs.i.astype(np.int32), pairs.j.astype(np.int32)  # SciPy's trees have no others before 1.17.1
    for _ in range(fold_count):
        weight = rng.random(len(pairs)) + 1.0
        graph = coo_array((weight, ends), shape=(pairs.n, pairs.n))
        tree = minimum_spanning_tree(graph).tocoo()
        remaining = np.isin(pairs.i * pairs.n + pairs.j, tree.row.astype(np.intp) * pairs.n + tree.col)
        drawn = rng.permutation(np.nonzero(free & ~remaining)[0])[:each]
        if len(drawn) < each:
            break
        free[drawn] = False
        result.append(drawn)
    return result
