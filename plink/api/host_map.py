"""Map of the hosts: an embedding projected to the plane of most spread."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from plink.api.smoothing import device_for
from plink.documents.codec import decode
from plink.documents.embedding import PlacedHosts
from plink.errors import InputError, NoAnswer
from plink.model.network import Matrix, Network, matrix_from_json
from plink.report.report_data import Floats, HostMap, ReportData
from solvers.embedding.embed import Embedding, embed

_SLOW_FIT_HOSTS = 64  # hosts: fitting more of them takes long enough to say so
_log = logging.getLogger("plink.report")
_UNITS = {1.0: "µs", 2.0: "√µs"}  # in which ||v_i - v_j||^alpha is microseconds


def fitted_map(network: Network, data: ReportData, seed: int = 0) -> tuple[HostMap | None, str]:
    """Embed the hosts (many hosts: blocks of them) and return the map, or None and the reason in a sentence."""
    try:
        return (_fitted_blocks(data, seed) if data.in_blocks else _fitted(network, seed)), ""
    except NoAnswer as error:
        return None, f"The hosts could not be placed: {error}."


def map_of(embedding: Embedding) -> HostMap:
    """Return the map of an embedding."""
    return _map(embedding.coordinates, embedding.alpha, embedding.fitted_us, embedding.held_out_error)


def _fitted(network: Network, seed: int) -> HostMap:
    names = network.hosts.names
    if len(names) > _SLOW_FIT_HOSTS:
        _log.info("placing %d hosts (`plink embed` keeps the result for the next time)", len(names))
    return map_of(embed(network.latency_us, seed=seed, device=device_for("auto", len(names)), names=names))


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
    return replace(_map(embedding.coordinates[of], embedding.alpha, fitted, embedding.held_out_error), by_block=True)


def map_from_json(network: Network, document: dict[str, Any], location: str) -> HostMap:
    """Return the map of a file's embedding (``plink.embedding/1``), NaN for hosts without a place.

    :raises InputError: when it cannot be read.
    """
    n, index = len(network.hosts), {name: i for i, name in enumerate(network.hosts.names)}
    document_embedding = decode(PlacedHosts, document, location)
    names, rows = document_embedding["hosts"], document_embedding["coordinates"]
    if not set(names) <= set(index) or len(set(names)) < len(names):
        raise InputError(f"{location}: hosts", "expected names of hosts of the network; `plink embed` makes it anew")
    if len(rows) != len(names) or len({len(row) for row in rows}) != 1:
        raise InputError(f"{location}: coordinates", f"expected {len(names)} rows of as many numbers")
    indices = [index[name] for name in names]
    coordinates, fitted = np.full((n, len(rows[0])), np.nan), np.full((n, n), np.nan)
    coordinates[indices] = rows
    fitted[np.ix_(indices, indices)] = matrix_from_json(
        document_embedding["fitted_us"], len(indices), f"{location}: fitted_us"
    )
    return _map(coordinates, document_embedding["alpha"], fitted, document_embedding["held_out_error"])


def _map(coordinates: Floats, alpha: float, fitted_us: Matrix, error: float) -> HostMap:
    """Project the coordinates, shape (N, D), to the two directions of most variance (principal components)."""
    placed = np.isfinite(coordinates).all(axis=1)
    centred = coordinates[placed] - coordinates[placed].mean(axis=0)
    _, spread, directions = np.linalg.svd(centred, full_matrices=False)
    xy = np.full((len(coordinates), 2), np.nan)
    flat = centred @ directions[:2].T
    xy[placed] = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
    total = float((spread**2).sum())
    kept_variance = float((spread[:2] ** 2).sum()) / total if total > 0 else 1.0
    unit = _UNITS.get(alpha, f"µs^(1/{alpha:g})")
    return HostMap(xy, unit, kept_variance, coordinates.shape[1], alpha, fitted_us, error)
