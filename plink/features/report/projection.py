"""Place hosts on a map: an embedding projected to a plane in which groups do not lie over each other.

The plane of most spread (principal components) keeps distances best and is taken if it separates the groups. Racks that
are equally far from each other need as many dimensions as there are racks, less one: there it lays one over the other.
Then planes are searched for the one that separates them (projection pursuit, Friedman and Tukey 1974), and where none
does, hosts are moved in the plane itself until their distances there are those of the embedding as nearly as can be
(stress majorisation, de Leeuw 1977).
"""

import logging
from dataclasses import replace

import numpy as np

from plink.errors import InputError
from plink.features.order.smoothing import device_for
from plink.features.report.blocks import Indices
from plink.features.report.data import HostMap, Plane, PlaneKind, ReportData
from plink.model.embedding import NetworkEmbedding
from plink.model.network import Network, matrix_from_json
from plink.pictures import Floats
from solvers.embedding.embed import Embedding, embed

_MARGIN_SHARE = 0.06  # of the extent of the map: the gap that is wanted between two groups
_MIN_RADIUS_SHARE = 0.015  # of the extent of the map: of a group's mark, however near its hosts are
_RADIUS_PERCENTILE = 90  # of the distances from the middle of a group: one host that is far off is no overlap
_MAX_SEARCHED_GROUPS = 20  # of which a plane can separate all; of more it takes them apart only where they are moved
_MAX_MOVED_GROUPS = 128  # the numbers of more do not fit on a map
_MAX_MOVED_POINTS = 1024  # whose distances are kept in the plane: each step takes their square
_STARTS, _STEPS, _MAJORISATIONS = 16, 120, 100
_SHRINKAGES = (1.0, 0.7, 0.5, 0.35, 0.25)  # of the distances within groups that are moved apart
_SLOW_FIT_HOSTS = 64  # hosts: fitting more of them takes long enough to say so
_log = logging.getLogger("plink.report")
_UNITS = {1.0: "us", 2.0: "√us"}  # in which ||v_i - v_j||^alpha is microseconds


def plane_of(coordinates: Floats, group_of: Indices) -> Plane:
    """Return the plane for these coordinates, shape (N, D), in which the groups, shape (N,), are best told apart."""
    centred = coordinates - coordinates.mean(axis=0)
    total = float((centred**2).sum())
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    flat = centred @ directions[:2].T
    widest = _plane(np.pad(flat, ((0, 0), (0, 2 - flat.shape[1]))), "spread", total, group_of)
    groups = len(np.unique(group_of))
    if not widest.overlaps or groups > _MAX_MOVED_GROUPS:
        return widest
    planes = [widest]
    if centred.shape[1] > 2 and groups <= _MAX_SEARCHED_GROUPS:
        planes.append(_plane(centred @ _separating(centred, group_of), "groups", total, group_of))
    points, first, of = np.unique(centred, axis=0, return_index=True, return_inverse=True)
    if planes[-1].overlaps and 2 < len(points) <= _MAX_MOVED_POINTS:
        moved = _majorised(points, widest.xy[first])[of.ravel()]
        for shrinkage in _SHRINKAGES:
            planes.append(_plane(_shrunk(moved, group_of, shrinkage), "moved", np.nan, group_of))
            if not planes[-1].overlaps:
                break
    return min(planes, key=lambda plane: plane.overlaps)


def _plane(xy: Floats, kind: PlaneKind, total: float, group_of: Indices) -> Plane:
    remaining = 1.0 if total == 0 else float((xy**2).sum()) / total
    return Plane(xy, kind, remaining, int((_gaps(xy, group_of) < 0).sum()))


def _gaps(xy: Floats, group_of: Indices) -> Floats:
    """Return the gap between the discs of each two groups as a share of the map's extent, negative where they overlap;
    one value a pair."""
    extent = float(np.ptp(xy, axis=0).max()) or 1.0
    labels = np.unique(group_of)
    middles, radii = np.empty((len(labels), 2)), np.empty(len(labels))
    for number, label in enumerate(labels.tolist()):
        members = xy[group_of == label]
        middles[number] = np.median(members, axis=0)
        radii[number] = np.percentile(np.hypot(*(members - middles[number]).T), _RADIUS_PERCENTILE)
    radii = np.maximum(radii / extent, _MIN_RADIUS_SHARE)
    a, b = np.triu_indices(len(labels), 1)
    return np.asarray(np.hypot(*(middles[a] - middles[b]).T) / extent - radii[a] - radii[b], dtype=np.float64)


def _shrunk(xy: Floats, group_of: Indices, share: float) -> Floats:
    """Return the hosts of each group nearer to its middle."""
    shrunk = xy.copy()
    for label in np.unique(group_of).tolist():
        members = group_of == label
        middle = np.median(xy[members], axis=0)
        shrunk[members] = middle + share * (xy[members] - middle)
    return shrunk


def _separating(centred: Floats, group_of: Indices) -> Floats:
    """Return the two orthonormal directions, shape (D, 2), that separate the groups best: from that of the groups'
    middles and from random ones downhill."""
    rng = np.random.default_rng(0)  # the same map every time
    labels = np.unique(group_of).tolist()
    middles = np.stack([centred[group_of == label].mean(axis=0) for label in labels])
    scatter = np.stack([np.atleast_2d(np.cov(centred[group_of == label].T, bias=True)) for label in labels])
    a, b = np.triu_indices(len(labels), 1)

    def shortfall(basis: Floats) -> float:
        """By how much gaps between groups are less than wanted, in all; 0 when all are wide enough."""
        at = middles @ basis
        radii = 1.5 * np.sqrt(np.einsum("dk,gde,ek->g", basis, scatter, basis))
        extent = float((np.ptp(at, axis=0) + 2 * radii.max()).max()) or 1.0
        gaps = np.hypot(*(at[a] - at[b]).T) - np.maximum(radii, _MIN_RADIUS_SHARE * extent)[[a, b]].sum(axis=0)
        return float(np.maximum(0.0, _MARGIN_SHARE - gaps / extent).sum())

    _, _, directions = np.linalg.svd(middles - middles.mean(axis=0), full_matrices=True)
    best, best_rank = directions[:2].T, (np.inf, 0.0)
    for start in range(_STARTS):
        basis = directions[:2].T if start == 0 else np.linalg.qr(rng.normal(size=(centred.shape[1], 2)))[0]
        value, reach = shortfall(basis), 0.5
        for _ in range(_STEPS):
            candidate = np.linalg.qr(basis + reach * rng.normal(size=basis.shape))[0]
            candidate_value = shortfall(candidate)
            if candidate_value < value:
                basis, value = candidate, candidate_value
            else:
                reach *= 0.96
        rank = (value, -float(((centred @ basis) ** 2).sum()))  # of those that separate all the one of most spread
        if rank < best_rank:
            best, best_rank = basis, rank
    # Turned so that the first direction is the one of more spread.
    _, _, rotation = np.linalg.svd(centred @ best, full_matrices=False)
    return np.asarray(best @ rotation.T, dtype=np.float64)


def _majorised(points: Floats, start: Floats) -> Floats:
    """Return points of the plane, shape (K, 2), whose distances are those of ``points``, shape (K, D), as nearly as can
    be; relative errors count, so that what is near stays near."""
    distances = np.linalg.norm(points[:, None] - points[None, :], axis=2)
    np.fill_diagonal(distances, 1.0)
    weight = distances**-2.0
    np.fill_diagonal(weight, 0.0)
    laplacian = np.diag(weight.sum(axis=1)) - weight
    inverse = np.linalg.pinv(laplacian)
    xy = start + np.random.default_rng(0).normal(0, 1e-3 * float(np.ptp(start) or 1.0), start.shape)
    for _ in range(_MAJORISATIONS):
        apart = np.linalg.norm(xy[:, None] - xy[None, :], axis=2)
        pull = -weight * distances / np.where(apart > 0, apart, np.inf)
        np.fill_diagonal(pull, 0.0)
        np.fill_diagonal(pull, -pull.sum(axis=1))
        xy = inverse @ (pull @ xy)
    return np.asarray(xy - xy.mean(axis=0), dtype=np.float64)


def fitted_map(network: Network, data: ReportData, seed: int = 0) -> HostMap:
    """Embed the hosts, of many hosts blocks of them, and return the map in the plane that tells their groups apart.

    :raises NoAnswer: when they cannot be embedded.
    """
    names, latency_us = network.hosts.names, network.latency_us
    if data.in_blocks:
        rows, trips = data.blocks["order"]
        _log.info(
            "placing %d hosts in %d blocks; `plink embed` places each, which takes long", len(names), len(trips.median)
        )
        names, latency_us = [f"the block of {names[hosts[0]]}" for hosts in rows.members], trips.median.copy()
        np.fill_diagonal(latency_us, 0.0)
    elif len(names) > _SLOW_FIT_HOSTS:
        _log.info("placing %d hosts (`plink embed` keeps the result for the next time)", len(names))
    embedding = embed(latency_us, seed=seed, device=device_for("auto", len(names)), names=names)
    coordinates, fitted_us = embedding.coordinates, embedding.fitted_us
    if data.in_blocks:
        coordinates, fitted_us = coordinates[rows.of], fitted_us[np.ix_(rows.of, rows.of)]
        fitted_us[rows.of[:, None] == rows.of[None, :]] = np.nan
    result = _map_in_plane(coordinates, fitted_us, embedding, data.groups.of)
    return replace(result, by_block=data.in_blocks)


def map_of(network: Network, group_of: Indices, embedding: NetworkEmbedding, location: str) -> HostMap:
    """Return the map of an embedding, NaN for hosts without a place, in the plane that tells these groups, shape (N,),
    apart.

    :raises InputError: when it cannot be read.
    """
    n, index = len(network.hosts), {name: i for i, name in enumerate(network.hosts.names)}
    names, rows = embedding.hosts, embedding.coordinates
    if not set(names) <= set(index) or len(set(names)) < len(names):
        raise InputError(f"{location}: hosts", "expected names of hosts of the network; `plink embed` makes it anew")
    if len(rows) != len(names) or len({len(row) for row in rows}) != 1:
        raise InputError(f"{location}: coordinates", f"expected {len(names)} rows of as many numbers")
    indices = [index[name] for name in names]
    coordinates, fitted = np.full((n, len(rows[0])), np.nan), np.full((n, n), np.nan)
    coordinates[indices] = rows
    fitted[np.ix_(indices, indices)] = matrix_from_json(embedding.fitted_us, len(indices), f"{location}: fitted_us")
    return _map_in_plane(coordinates, fitted, embedding, group_of)


def _map_in_plane(
    coordinates: Floats, fitted_us: Floats, embedding: Embedding | NetworkEmbedding, group_of: Indices
) -> HostMap:
    """Return the map of the hosts with these coordinates, shape (N, D), in the plane that tells the groups apart."""
    placed = np.isfinite(coordinates).all(axis=1)
    plane = plane_of(coordinates[placed], group_of[placed])
    xy = np.full((len(coordinates), 2), np.nan)
    xy[placed] = plane.xy
    unit = _UNITS.get(embedding.alpha, f"us^(1/{embedding.alpha:g})")
    return HostMap(xy, unit, plane, coordinates.shape[1], fitted_us, embedding.held_out_error)
