"""Predict the round trips that adaptive probing does not measure, and choose pairs that the best ring would use."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.model.network import Matrix, symmetrised, to_rows
from probes.disjoint_pairs import Pair
from probes.measurements import Measurements
from solvers.ordering.problem import SearchBudget
from solvers.ordering.ring import search_ring
from solvers.prediction.tiered import predict_tiered

_MAX_EMBEDDED_HOSTS = 4096  # an embedding of more takes minutes
_MIN_RING_HOSTS = 4  # fewer form one ring
_RING_MOVES = 100_000  # of a search, a few seconds for a thousand hosts

HeldOut = npt.NDArray[np.intp]


@dataclass(frozen=True)
class PairPrediction:
    """Predicted round trips, shape (N, N), microseconds, by ``method`` (``tiers`` or ``embedding``).

    ``held_out_error``: median relative error on pairs that the predictor did not see; NaN without any.
    """

    rtt_us: Matrix
    method: str
    held_out_error: float

    def details(self) -> dict[str, Any]:
        """Return the keys of the network file."""
        error = self.held_out_error
        return {
            "predicted_us": to_rows(self.rtt_us, digits=1),
            "held_out_error": None if error != error else round(error, 4),
            "predicted_by": self.method,
        }


def predict_pairs(latency_us: Matrix, held_out: HeldOut, seed: int, quick: bool = False) -> PairPrediction:
    """Predict by groups of hosts and by an embedding, and return the one with the smaller error on held-out pairs.

    Data centres have tiers of near-equal round trips; over wide areas each pair has its own, which coordinates fit
    better (Vivaldi, Dabek et al. 2004).

    :param latency_us: round trips, shape (N, N), NaN where unmeasured.
    :param held_out: pairs to judge by, shape (k, 2); the returned prediction has seen them too.
    :param quick: by groups only, which takes a moment.
    """
    n = len(latency_us)
    tiers = predict_tiered(latency_us).rtt_us(np.arange(n))
    i, j = held_out.T
    truth = symmetrised(latency_us)[i, j]
    i, j, truth = i[truth > 0], j[truth > 0], truth[truth > 0]
    if not len(truth):
        return PairPrediction(tiers, "tiers", float("nan"))
    visible = latency_us.copy()
    visible[i, j] = visible[j, i] = np.nan
    tiers_error = _median_error(predict_tiered(visible).rtt_us(np.arange(n))[i, j], truth)
    embedded = _embedded(visible, seed) if n <= _MAX_EMBEDDED_HOSTS and not quick else None
    embedding_error = float("nan") if embedded is None else _median_error(embedded[i, j], truth)
    if not embedding_error < tiers_error:
        return PairPrediction(tiers, "tiers", tiers_error)
    complete = _embedded(latency_us, seed)
    if complete is None:
        return PairPrediction(tiers, "tiers", tiers_error)
    return PairPrediction(np.where(np.isnan(complete), tiers, complete), "embedding", embedding_error)


def _median_error(predicted: npt.NDArray[np.float64], truth: npt.NDArray[np.float64]) -> float:
    return float(np.nanmedian(np.abs(predicted - truth) / truth)) if np.isfinite(predicted).any() else float("nan")


def _embedded(latency_us: Matrix, seed: int) -> Matrix | None:
    """Return fitted round trips of an embedding, NaN for hosts without any; None where too little is measured."""
    from solvers.embedding.embed import embed  # brings PyTorch, which takes a second to import

    try:
        return embed(latency_us, seed=seed).fitted_us
    except NoAnswer:
        return None


def unmeasured_ring_pairs(measurements: Measurements, predicted: PairPrediction, seed: int) -> list[list[Pair]]:
    """Return the pairs of the best ring that were not measured, in rounds of disjoint pairs.

    An order goes where round trips are predicted to be short, so errors of the prediction gather on its pairs.
    """
    if len(measurements.hosts) < _MIN_RING_HOSTS:
        return []
    measured_us = symmetrised(measurements.latency)
    known_us = np.where(np.isnan(measured_us), predicted.rtt_us, measured_us)
    order = search_ring(known_us, seed, SearchBudget(_RING_MOVES)).order.tolist()
    measured = np.isfinite(measurements.latency) | np.isfinite(measurements.latency.T)
    failed = {(min(pair), max(pair)) for pair in measurements.errors}
    pairs = [(min(a, b), max(a, b)) for a, b in zip(order, order[1:] + order[:1], strict=True)]
    rounds: list[list[Pair]] = []
    for pair in dict.fromkeys(pairs):
        if pair[0] == pair[1] or measured[pair] or pair in failed:
            continue
        free = (members for members in rounds if not {host for other in members for host in other} & set(pair))
        chosen = next(free, None)
        if chosen is None:
            rounds.append([pair])
        else:
            chosen.append(pair)
    return rounds
