"""Balanced groups of hosts near each other, and the natural tiers of a network."""

import math
from dataclasses import dataclass

from plink.api.connecting import Progress
from plink.api.embedding import fitting_steps
from plink.errors import UsageError
from plink.model.groups import Groups, NamedTier, Names
from plink.model.network import Network
from solvers.grouping.cluster import Clustering
from solvers.grouping.cluster import cluster as find_groups
from solvers.grouping.sizes import check_elasticity

_DIGITS = 3
_MAX_SEED = 2**32 - 1


@dataclass(frozen=True)
class ClusterRequest:
    """A request for groups of hosts. ``groups``: how many, None: the square root of the hosts; ``elasticity``: how
    uneven they may be, 1 even, 2 from half to twice n/groups hosts; ``seed``: of the search."""

    groups: int | None = None
    elasticity: float = 1.0
    seed: int = 0

    def check(self) -> None:
        """Refuse values out of range.

        :raises UsageError: for a value that is out of range.
        """
        check_elasticity(self.elasticity)
        if self.groups is not None and self.groups < 1:
            raise UsageError(f"--groups {self.groups}: at least 1 is needed")
        if not 0 <= self.seed <= _MAX_SEED:
            raise UsageError(f"--seed {self.seed}: 0 to {_MAX_SEED} are possible")


def cluster(
    network: Network,
    request: ClusterRequest | None = None,
    *,
    progress: Progress = lambda what, done, total: None,
) -> Groups:
    """Group the hosts for hierarchical aggregation.

    :param progress: is told of ``fitting`` an embedding and of ``clustering`` it.
    :raises UsageError: when there cannot be so many groups, or elasticity is out of range.
    :raises NoAnswer: when nothing was measured, or the measurements fall apart.
    """
    request = request or ClusterRequest()
    request.check()
    clustering = find_groups(
        network, request.groups, request.elasticity, request.seed, fitting_steps(progress),
        lambda done, total: progress("clustering", done, total),
    )  # fmt: skip
    return _named_groups(network, clustering, request.seed)


def _named_groups(network: Network, clustering: Clustering, seed: int) -> Groups:
    names = network.hosts.names

    def named(groups: list[list[int]]) -> Names:
        return tuple(tuple(names[host] for host in group) for group in groups)

    return Groups(
        network.fingerprint(),
        named(clustering.groups),
        clustering.elasticity,
        clustering.method,
        _number(clustering.rtt.within_us),
        _number(clustering.rtt.across_us),
        {"cohesion_us": _number(clustering.random.within_us), "across_us": _number(clustering.random.across_us)},
        round(clustering.agreement, 4),
        clustering.runs,
        tuple(
            NamedTier(
                named(groups), _number(tier.within_us), _number(tier.next_us), round(tier.ratio, _DIGITS),
                round(tier.confidence, 4),
            )
            for groups, tier in zip(clustering.tiers, clustering.hierarchy, strict=True)
        ),
        tuple(names[host] for host in clustering.left_out),
        seed,
    )  # fmt: skip


def _number(value: float) -> float | None:
    return round(value, _DIGITS) if math.isfinite(value) else None
