"""What each host adds to all of its round trips: a slow NIC or a busy CPU, not a far rack."""

import numpy as np
from scipy.sparse import coo_array

from solvers.prediction.observed import Floats, ObservedPairs

_STEPS = 40


def host_offsets_us(pairs: ObservedPairs, expected_us: Floats) -> Floats:
    """Offsets h, shape (N,), mean 0, so that ``rtt - expected ~ h_i + h_j``, each pair weighted by 1 / expected^2.

    Ridge regression whose penalty is the ratio of the noise's variance to the offsets' own, both estimated from the
    data (method of moments): all zeros where the hosts' mean residuals differ no more than noise makes them differ.
    The heights of network coordinates (Dabek et al., Vivaldi, SIGCOMM 2004) are the same term.

    :param expected_us: shape (M,), what each pair would take without offsets.
    """
    n, i, j = pairs.n, pairs.i, pairs.j
    weight = 1.0 / expected_us**2
    residual = pairs.rtt_us - expected_us
    pull = np.bincount(i, weight * residual, n) + np.bincount(j, weight * residual, n)
    mass = np.bincount(i, weight, n) + np.bincount(j, weight, n)
    noise = float(np.mean(weight * residual**2)) if len(pairs) else 0.0
    seen = mass > 0
    if noise == 0.0 or not seen.any():
        return np.zeros(n)
    own = float(np.var(pull[seen] / mass[seen]) - np.mean(noise / mass[seen]))
    if own <= 0.0:
        return np.zeros(n)
    between = coo_array((weight, (i, j)), shape=(n, n)).tocsr()
    between = between + between.T
    offset = np.zeros(n)
    for _ in range(_STEPS):  # damped Jacobi: the matrix is diagonally dominant
        offset = (offset + (pull - between @ offset) / (mass + noise / own)) / 2
    return np.asarray(offset - offset.mean(), dtype=np.float64)
