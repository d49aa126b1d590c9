"""Embed the hosts of a network in a space, and group those near each other."""

import math
from collections.abc import Callable

import numpy as np

from plink.features.analyse.request import ClusterRequest, EmbedRequest
from plink.features.order.smoothing import RELATIVE, device_for, setting_json, verdict_on
from plink.model.embedding import NetworkEmbedding
from plink.model.groups import Agreement, Groups, GroupTier, Names, RandomGroups, WithinGroup
from plink.model.network import Network, to_rows
from plink.transport.fleet import Progress
from solvers.embedding.embed import embed as fit_embedding
from solvers.embedding.fitting import STEPS
from solvers.embedding.pairs import EmbeddingConstraints
from solvers.grouping.cluster import cluster as find_groups


def _silent(what: str, done: int, total: int) -> None: ...


def embed(network: Network, request: EmbedRequest | None = None, *, progress: Progress = _silent) -> NetworkEmbedding:
    """Embed the hosts, and validate the embedding on held-out pairs.

    :param progress: is told of the steps of ``fitting``.
    :raises UsageError: for a device that cannot be used.
    :raises NoAnswer: when fewer than four hosts have measured pairs, or too few pairs say where they lie.
    """
    request = request or EmbedRequest()
    names = network.hosts.names
    constraints = EmbeddingConstraints(request.dimension, request.alpha, request.heights, RELATIVE[request.loss])
    device = device_for(request.device, len(names))
    fit = fit_embedding(network.latency_us, constraints, request.seed, device, _fitting_steps(progress), names)
    placed = np.setdiff1d(np.arange(len(names)), np.array(fit.left_out, dtype=np.intp))
    among = np.ix_(placed, placed)
    return NetworkEmbedding(
        network=network.fingerprint(),
        hosts=tuple(names[host] for host in placed),
        left_out=tuple(names[host] for host in fit.left_out),
        **setting_json(fit.setting),
        settings_tried=fit.tried,
        steps=fit.steps,
        seed=request.seed,
        unmeasured_by=fit.unmeasured_by,
        held_out_error=round(fit.held_out_error, 6),
        triangle_violations=None if np.isnan(fit.triangle_violations) else round(fit.triangle_violations, 6),
        verdict=verdict_on(network, fit, request.seed),
        coordinates=tuple(tuple(round(value, 4) for value in row) for row in fit.coordinates[placed].tolist()),
        heights_us=tuple(round(value, 3) for value in fit.heights_us[placed].tolist()),
        fitted_us=to_rows(fit.fitted_us[among]),
        measured_us=to_rows(network.rtt_us[among]),
    )


def cluster(network: Network, request: ClusterRequest | None = None, *, progress: Progress = _silent) -> Groups:
    """Group the hosts for hierarchical aggregation.

    :param progress: is told of ``fitting`` an embedding and of ``clustering`` it.
    :raises UsageError: when there cannot be so many groups.
    :raises NoAnswer: when nothing was measured, or the measurements fall apart.
    """
    request = request or ClusterRequest()
    clustering = find_groups(
        network,
        request.groups,
        request.elasticity,
        request.seed,
        _fitting_steps(progress),
        lambda done, total: progress("clustering", done, total),
    )
    names = network.hosts.names

    def named(groups: list[list[int]]) -> tuple[Names, ...]:
        return tuple(tuple(names[host] for host in group) for group in groups)

    return Groups(
        network=network.fingerprint(),
        groups=named(clustering.groups),
        k=len(clustering.groups),
        elasticity=clustering.elasticity,
        method=clustering.method,
        cohesion_us=_rounded(clustering.rtt.within_us),
        across_us=_rounded(clustering.rtt.across_us),
        random=RandomGroups(
            cohesion_us=_rounded(clustering.random.within_us), across_us=_rounded(clustering.random.across_us)
        ),
        within=tuple(
            WithinGroup(mean_us=_rounded(mean), longest_us=_rounded(longest)) for mean, longest in clustering.within_us
        ),
        predicted_pairs=clustering.predicted_pairs,
        agreement=Agreement(ami=round(clustering.agreement, 4), runs=clustering.runs),
        tiers=tuple(
            GroupTier(
                groups=named(groups),
                within_us=_rounded(tier.within_us),
                next_us=_rounded(tier.next_us),
                ratio=round(tier.ratio, 3),
                confidence=round(tier.confidence, 4),
            )
            for groups, tier in zip(clustering.tiers, clustering.hierarchy, strict=True)
        ),
        left_out=tuple(names[host] for host in clustering.left_out),
        seed=request.seed,
    )


def _rounded(us: float) -> float | None:
    return round(us, 3) if math.isfinite(us) else None


def _fitting_steps(progress: Progress) -> Callable[[], bool]:
    """Return a callback for each step of an embedding that reports progress."""
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        progress("fitting", min(steps, 2 * STEPS), 2 * STEPS)
        return True

    return step
