"""Map of the hosts: an embedding projected to a plane."""

import logging
from dataclasses import replace

import numpy as np

from plink.errors import InputError, NoAnswer
from plink.features.order.smoothing import device_for
from plink.features.report.projection import plane_of
from plink.model.embedding import NetworkEmbedding
from plink.model.network import Network, matrix_from_json
from plink.report.report_data import Floats, HostMap, Indices, ReportData
from solvers.embedding.embed import Embedding, embed

_SLOW_FIT_HOSTS = 64  # hosts: fitting more of them takes long enough to say so
_NO_PLANE = np.empty((0, 2))  # of a map that is yet to be projected
_log = logging.getLogger("plink.report")
_UNITS = {1.0: "us", 2.0: "√us"}  # in which ||v_i - v_j||^alpha is microseconds


def fitted_map(network: Network, data: ReportData, seed: int = 0) -> tuple[HostMap | None, str]:
    """Embed the hosts (many hosts: blocks of them) and return the map, or None and the reason in a sentence."""
    try:
        return (_fitted_blocks(data, seed) if data.in_blocks else _fitted(network, data, seed)), ""
    except NoAnswer as error:
        return None, f"The hosts could not be placed: {error}."


def _fitted_map(embedding: Embedding, group_of: Indices) -> HostMap:
    """Return the map of an embedding, in the plane that tells these groups, shape (N,), apart."""
    host_map = HostMap(
        _NO_PLANE, _unit(embedding.alpha), 1.0, embedding.dimension, embedding.alpha, embedding.fitted_us,
        embedding.held_out_error,
    )  # fmt: skip
    return _projected(host_map, embedding.coordinates, group_of)


def _fitted(network: Network, data: ReportData, seed: int) -> HostMap:
    names = network.hosts.names
    if len(names) > _SLOW_FIT_HOSTS:
        _log.info("placing %d hosts (`plink embed` keeps the result for the next time)", len(names))
    embedding = embed(network.latency_us, seed=seed, device=device_for("auto", len(names)), names=names)
    return _fitted_map(embedding, data.groups.of)


def _fitted_blocks(data: ReportData, seed: int) -> HostMap:
    rows, trips = data.blocks["order"]
    _log.info(
        "placing %d hosts in %d blocks; `plink embed` places each, which takes long",
        len(data.names), len(trips.median),
    )  # fmt: skip
    names = [f"the block of {data.names[hosts[0]]}" for hosts in rows.members]
    medians = trips.median.copy()
    np.fill_diagonal(medians, 0.0)
    embedding = embed(medians, seed=seed, device=device_for("auto", len(names)), names=names)
    of = rows.of
    fitted = embedding.fitted_us[np.ix_(of, of)]
    fitted[of[:, None] == of[None, :]] = np.nan
    host_map = HostMap(
        _NO_PLANE, _unit(embedding.alpha), 1.0, embedding.dimension, embedding.alpha, fitted, embedding.held_out_error,
        by_block=True,
    )  # fmt: skip
    return _projected(host_map, embedding.coordinates[of], data.groups.of)


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
    alpha, error = embedding.alpha, embedding.held_out_error
    host_map = HostMap(_NO_PLANE, _unit(alpha), 1.0, coordinates.shape[1], alpha, fitted, error)
    return _projected(host_map, coordinates, group_of)


def _unit(alpha: float) -> str:
    return _UNITS.get(alpha, f"us^(1/{alpha:g})")


def _projected(host_map: HostMap, coordinates: Floats, group_of: Indices) -> HostMap:
    """Return the map with the hosts of these coordinates, shape (N, D), in a plane."""
    placed = np.isfinite(coordinates).all(axis=1)
    plane = plane_of(coordinates[placed], group_of[placed])
    xy = np.full((len(coordinates), 2), np.nan)
    xy[placed] = plane.xy
    return replace(host_map, xy=xy, kept_variance=plane.kept_variance, plane=plane.kind, overlaps=plane.overlaps)
