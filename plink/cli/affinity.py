"""Measure how well measured and fitted distances agree with the hosts' true locations (``plink check --truth``).

Imported when that is asked for: it needs the solvers.
"""

import math
from typing import Any

import numpy as np

from plink.api.smoothing import device_for
from plink.errors import NoAnswer
from plink.model.network import Matrix, Network
from plink.terminal.screen import say
from solvers.affinity import paia, triplets
from solvers.embedding.embed import embed
from solvers.prediction.topology import UNKNOWN


def affinity_of(network: Network, levels: Any, seed: int) -> dict[str, Any]:
    """Return PAIA of the measured and of the fitted distances, None where there is none.

    :param levels: shape (N, N), how many levels apart two hosts truly are.
    """
    measured = network.rtt_us
    truth = np.where(levels == UNKNOWN, np.nan, levels.astype(float))
    fitted: Matrix | None
    try:
        names = network.hosts.names
        fitted = embed(network.latency_us, seed=seed, device=device_for("auto", len(names)), names=names).fitted_us
    except NoAnswer as error:
        say(f"no fitted distances: {error}")
        fitted = None

    def share(distances: "Matrix | None") -> float | None:
        value = math.nan if distances is None else paia(distances, truth)
        return None if math.isnan(value) else round(value, 6)

    return {"triplets": triplets(truth), "measured": share(measured), "fitted": share(fitted)}
