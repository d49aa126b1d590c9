"""Balanced groups of hosts near each other, for 2LHA (PLink thesis 4.2.1, "Grouping Nodes for 2LHA").

Constrained k-means (Bradley, Bennett and Demiriz 2000; the package k-means-constrained) from k-means++ centres (Arthur
and Vassilvitskii 2007), several times, and each result made better by exchanges. k-means alone stops far from the best,
elsewhere each time: on 64 hosts with noise (raw PAIA 0.81) two of its results agree by an AMI of 0.5 at alpha = 2, and
of 0.9 after exchanges.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.grouping.exchanges import refined
from solvers.grouping.sizes import Sizes

Labels = npt.NDArray[np.intp]
_COORDINATE_RANGE = 1000.0  # k-means-constrained rounds distances to a thousandth: coordinates are stretched to this
# (up to so many hosts, clusterings to choose from, starts of each)
_EFFORT = ((256, 10, 10), (1024, 6, 2))
_EFFORT_ABOVE = (5, 1)  # clusterings and starts for more hosts
_MIN_DISTANCE_SHARE = 0.01  # of the median: the smallest distance between two hosts


@dataclass(frozen=True)
class Balanced:
    """Balanced groups, and how well repeated runs agree.

    ``label``, shape (N,): the group of each host, numbered by first appearance. ``agreement``: the mean adjusted mutual
    information between any two of the ``runs`` clusterings it was chosen from, 1 where they are all the same and 0
    where they agree by chance only.
    """

    label: Labels
    agreement: float
    runs: int


def evidence_us(measured_us: Matrix, fitted_us: Matrix) -> Matrix:
    """Return distances by what was measured between hosts and by what all others imply.

    The geometric mean of measured and fitted distances; the fitted one where nothing was measured.

    An embedding smooths away noise and some of the truth. Either alone makes worse groups: 64 hosts in racks of eight,
    25 us, measured with much noise, come to 28 us within groups by the measured ones, 32 to 36 by the fitted ones, 27
    by both (docs/analyse.md).

    :param measured_us: shape (N, N), symmetric, NaN where unmeasured.
    :param fitted_us: the same, complete.
    """
    positive = fitted_us[fitted_us > 0]
    least = _MIN_DISTANCE_SHARE * (float(np.median(positive)) if len(positive) else 1.0)
    fitted = np.maximum(fitted_us, least)
    measured = np.where(np.isfinite(measured_us), np.maximum(measured_us, least), fitted)
    both = np.sqrt(fitted * measured)
    np.fill_diagonal(both, 0.0)
    return np.asarray((both + both.T) / 2)


def balanced_groups(
    coordinates: Matrix,
    distances_us: Matrix,
    sizes: Sizes,
    seed: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Balanced:
    """Return the most even of several clusterings; of those the one whose members are nearest to each other.

    :param coordinates: shape (N, D); k-means starts from these.
    :param distances_us: shape (N, N), symmetric, complete, 0 on the diagonal: what exchanges make less of.
    :param seed: the same gives the same groups.
    :param advance: told how many clusterings of how many there are.
    """
    runs, starts = effort(sizes.hosts)
    result: list[Labels] = []
    ranks: list[tuple[int, float]] = []
    for run in range(runs):
        label, objective = clustering(coordinates, distances_us, sizes, seed * runs + run, starts)
        result.append(label)
        ranks.append((_unevenness(label, sizes), objective))
        advance(run + 1, runs)
    best = min(range(runs), key=lambda run: ranks[run])
    return Balanced(result[best], agreement(result), runs)


def effort(hosts: int) -> tuple[int, int]:
    """Return how many clusterings are made of so many hosts, and from how many starts each."""
    return next(((runs, starts) for most, runs, starts in _EFFORT if hosts <= most), _EFFORT_ABOVE)


def clustering(coordinates: Matrix, distances_us: Matrix, sizes: Sizes, seed: int, starts: int) -> tuple[Labels, float]:
    """Return one clustering, the best of some starts, and its objective; arguments as in :func:`balanced_groups`."""
    if sizes.number in (1, sizes.hosts):
        label = np.arange(sizes.hosts) if sizes.number > 1 else np.zeros(sizes.hosts, dtype=np.intp)
        return refined(label.astype(np.intp), distances_us, sizes)
    begun = (k_means(coordinates, sizes, seed * starts + start) for start in range(starts))
    label, objective = min((refined(start, distances_us, sizes) for start in begun), key=lambda pair: pair[1])
    return by_appearance(label), objective


def k_means(coordinates: Matrix, sizes: Sizes, seed: int) -> Labels:
    """Return one start of constrained k-means, shape (N,); coordinates as in :func:`balanced_groups`."""
    from k_means_constrained import KMeansConstrained  # a machine may plan by given groups and lack it, and OR-tools

    reach = float(np.abs(coordinates - coordinates.mean(axis=0)).max())
    stretched = coordinates * (_COORDINATE_RANGE / reach if reach > 0 else 1.0)
    model = KMeansConstrained(
        sizes.number, size_min=sizes.least, size_max=sizes.most, n_init=1, random_state=seed % (1 << 32)
    )
    return np.asarray(model.fit(stretched).labels_, dtype=np.intp)


def agreement(result: list[Labels]) -> float:
    """Return the mean adjusted mutual information between any two clusterings (Vinh, Epps and Bailey 2010)."""
    from sklearn.metrics import adjusted_mutual_info_score

    distinct, index = np.unique(np.stack([by_appearance(label) for label in result]), axis=0, return_inverse=True)
    apart = {
        (a, b): float(adjusted_mutual_info_score(distinct[a], distinct[b]))
        for a, b in itertools.combinations(range(len(distinct)), 2)
    }
    pairs = [(int(min(a, b)), int(max(a, b))) for a, b in itertools.combinations(index.ravel().tolist(), 2)]
    return float(np.mean([1.0 if a == b else apart[a, b] for a, b in pairs])) if pairs else 1.0


def by_appearance(label: Labels) -> Labels:
    """Return the same groups numbered as they appear."""
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse], dtype=np.intp)


def random_groups(sizes: Sizes, rng: np.random.Generator) -> Labels:
    """Draw groups as even as can be without looking at any distance: Balanced Random of the thesis."""
    return np.asarray(rng.permutation(np.arange(sizes.hosts) % sizes.number), dtype=np.intp)


def _unevenness(label: Labels, sizes: Sizes) -> int:
    """Return the sum of squared sizes: least when they are even."""
    return int((np.bincount(label, minlength=sizes.number) ** 2).sum())
