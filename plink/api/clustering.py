"""Balanced groups of hosts near each other, and the natural tiers of a network."""

import math
from dataclasses import dataclass

from plink.api.connecting import Progress
from plink.api.embedding import fitting_steps
from plink.errors import UsageError
from plink.model.groups import Groups, NamedTier, Names
from plink.model.network import Network
from solvers.grouping.cluster import Clustering
from solvers.grouping.cluster import cluster as clustered
from solvers.grouping.sizes import check_elasticity

_DIGITS = 3
_MAX_SEED = 2**32 - 1


@dataclass(frozen=True)
class ClusterRequest:
    """How hosts are grouped. ``groups``: how many, None: the square root of the hosts; ``elasticity``: how uneven they
    may be, 1 even, 2 from half to twice n/groups hosts; ``seed``: of the search."""

    groups: int | None = None
    elasticity: float = 1.0
    seed: int = 0

    def check(self) -> None:
        """:raises UsageError: for a value that is out of range."""
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
    wanted = request or ClusterRequest()
    wanted.check()
    found = clustered(
        network, wanted.groups, wanted.elasticity, wanted.seed, fitting_steps(progress),
        lambda done, total: progress("clustering", done, total),
    )  # fmt: skip
    return _named(network, found, wanted.seed)


def _named(network: Network, found: Clustering, seed: int) -> Groups:
    names = network.hosts.names

    def named(groups: list[list[int]]) -> Names:
        return tuple(tuple(names[host] for host in group) for group in groups)

    return Groups(
        network.fingerprint(),
        named(found.groups),
        found.elasticity,
        found.method,
        _number(found.found.within_us),
        _number(found.found.across_us),
        {"cohesion_us": _number(found.random.within_us), "across_us": _number(found.random.across_us)},
        round(found.agreement, 4),
        found.runs,
        tuple(
            NamedTier(
                named(groups), _number(tier.within_us), _number(tier.next_us), round(tier.ratio, _DIGITS),
                round(tier.confidence, 4),
            )
            for groups, tier in zip(found.tiers, found.hierarchy, strict=True)
        ),
        tuple(names[host] for host in found.left_out),
        seed,
    )  # fmt: skip


def _number(value: float) -> float | None:
    return round(value, _DIGITS) if math.isfinite(value) else None
