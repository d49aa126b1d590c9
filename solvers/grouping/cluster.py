"""Groups of a measured network: an embedding, balanced groups on it, what they are worth, and the natural tiers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.model.network import Matrix, Network
from solvers.grouping.balanced import balanced_groups, by_appearance, evidence_us
from solvers.grouping.even import even_groups
from solvers.grouping.sizes import Sizes, check_elasticity, sizes_for
from solvers.hierarchy.tiers import HierarchyTier, completed_by_detours, tiers

Labels = npt.NDArray[np.intp]
_MIN_EMBEDDABLE_HOSTS = 4  # hosts that can be embedded


@dataclass(frozen=True)
class Apart:
    """Mean round trips in microseconds, ``within_us`` groups and ``across_us``; NaN without such a pair."""

    within_us: float
    across_us: float


@dataclass(frozen=True)
class Clustering:
    """Groups of hosts near each other.

    ``groups``: hosts by their number, in order of their first ones. ``rtt``: their round trips, ``random``: what is
    expected of those of balanced random groups; ``within_us``: mean and longest one in each group, NaN of a host alone.
    Of these, ``predicted_pairs`` were not measured. ``agreement``: the mean adjusted mutual information of any two of
    ``runs`` clusterings. ``hierarchy``, innermost first: the natural tiers, whose labels are of the hosts that are not
    left out; ``tiers``: the same as lists of hosts. ``left_out``: hosts of which nothing was measured. ``method``: in
    words.
    """

    groups: list[list[int]]
    sizes: Sizes
    elasticity: float
    rtt: Apart
    random: Apart
    within_us: list[tuple[float, float]]
    predicted_pairs: int
    agreement: float
    runs: int
    tiers: list[list[list[int]]]
    hierarchy: list[HierarchyTier]
    left_out: tuple[int, ...]
    method: str


def cluster(
    network: Network,
    number: int | None = None,
    elasticity: float = 1.0,
    seed: int = 0,
    keep_going: Callable[[], bool] = lambda: True,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Clustering:
    """Return groups for 2LHA, and the tiers there are.

    Fewer than four hosts cannot be embedded; their groups are the leaves of their hierarchy, cut.

    :param network: where it has halves of the samples, tiers have to stand out in both. Its predictions stand for
        pairs that were not measured; the embedding's, where it has none.
    :param number: of groups; None: round(sqrt(N)) of the hosts that something was measured of.
    :param keep_going: for the embedding; ``advance`` for what follows, (done, total).
    :raises UsageError: when there cannot be so many groups, or elasticity is out of range.
    :raises NoAnswer: when nothing was measured, or the measurements fall apart.
    """
    check_elasticity(elasticity)
    # What a file's embedding predicts says no more than the one made here.
    rtt = network.rtt_us if network.details.predicted_by == "embedding" else network.completed_us
    hosts = measured_hosts(network.rtt_us)
    if not len(hosts):
        raise NoAnswer("nothing was measured between any two hosts; measure them: plink probe")
    sizes = sizes_for(len(hosts), number, elasticity)
    among = np.ix_(hosts, hosts)
    near = rtt[among]
    complete = completed_by_detours(near)
    if len(hosts) < _MIN_EMBEDDABLE_HOSTS:
        label, agreement, runs, method = _groups_of_few(complete, sizes.number), 1.0, 1, "hierarchy"
    else:
        from solvers.embedding.embed import embed
        from solvers.embedding.pairs import EmbeddingConstraints

        # The other settings lose nearly every time (docs/results/embedding.md) and take three quarters of it.
        constraints = EmbeddingConstraints(alpha=1.0, relative=True)
        try:
            fitted = embed(network.rtt_us, constraints, seed, keep_going=keep_going, names=network.hosts.names)
        except NoAnswer:  # what was measured falls apart: the predictions join it
            if rtt is network.rtt_us:
                raise
            fitted = embed(rtt, constraints, seed, keep_going=keep_going, names=network.hosts.names)
        distances = evidence_us(near, fitted.fitted_us[among])
        complete = np.where(np.isnan(near), fitted.fitted_us[among], near)
        balanced = balanced_groups(fitted.coordinates[hosts], distances, sizes, seed, advance)
        label, agreement, runs = balanced.label, balanced.agreement, balanced.runs
        method = "constrained k-means on an embedding, then exchanges"
    groups = _members(label, np.arange(len(hosts)))
    halves = [half[among] for half in network.half_rtts_us]
    hierarchy = tiers(complete, [np.where(np.isnan(half), complete, half) for half in halves], seed)
    return Clustering(
        _members(label, hosts),
        sizes,
        elasticity,
        apart(complete, label),
        _random(complete, sizes),
        [_mean_and_longest(complete[np.ix_(members, members)]) for members in groups],
        int(np.isnan(network.rtt_us[among]).sum()) // 2,
        agreement,
        runs,
        [_members(tier.label, hosts) for tier in hierarchy],
        hierarchy,
        tuple(np.setdiff1d(np.arange(len(rtt)), hosts).tolist()),
        method,
    )


def measured_hosts(rtt_us: Matrix) -> Labels:
    """Return the hosts of which something was measured, of shape (N, N) with NaN elsewhere; a host alone counts."""
    finite = np.isfinite(rtt_us) & ~np.eye(len(rtt_us), dtype=bool)
    return np.flatnonzero(finite.any(axis=1)) if len(rtt_us) > 1 else np.zeros(len(rtt_us), dtype=np.intp)


def apart(rtt_us: Matrix, label: Labels) -> Apart:
    """Return mean round trips within and across groups, of the pairs there are; shapes (N, N), (N,)."""
    pairs = np.isfinite(rtt_us) & ~np.eye(len(rtt_us), dtype=bool)
    same = label[:, None] == label
    means = [float(rtt_us[pairs & side].mean()) if (pairs & side).any() else float("nan") for side in (same, ~same)]
    return Apart(*means)


def _mean_and_longest(rtt_us: Matrix) -> tuple[float, float]:
    """Return the mean and the longest round trip of shape (N, N) between different hosts; NaN for one host."""
    values = rtt_us[~np.eye(len(rtt_us), dtype=bool)]
    return (float(values.mean()), float(values.max())) if len(values) else (float("nan"), float("nan"))


def _groups_of_few(rtt_us: Matrix, number: int) -> Labels:
    label = np.zeros(len(rtt_us), dtype=np.intp)
    for group, members in enumerate(even_groups(rtt_us, number)):
        label[members] = group
    return by_appearance(label)


def _random(rtt_us: Matrix, sizes: Sizes) -> Apart:
    """Return the mean of all pairs: without looking each of them is as likely as any other in one group."""
    mean_us = apart(rtt_us, np.zeros(len(rtt_us), dtype=np.intp)).within_us
    nothing = float("nan")
    return Apart(mean_us if sizes.hosts > sizes.number else nothing, mean_us if sizes.number > 1 else nothing)


def _members(label: Labels, hosts: Labels) -> list[list[int]]:
    return [hosts[label == group].tolist() for group in range(int(label.max()) + 1)]
