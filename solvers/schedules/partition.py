"""Chunks of unequal sizes dealt out in proportion to weights: approximate set partition."""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def partition(sizes: Vector, weights: Vector, loads: Vector | None = None) -> npt.NDArray[np.intp]:
    """Who takes each chunk: the largest chunk first, each to whoever has then the least load for its weight (LPT; the
    first of equals).

    The thesis takes "an approximation set partition algorithm" (PLink, 4.2.2) and says of the one it comes from that
    it is a 4/3 approximation (PHub, 3.2.4): with equal weights LPT's largest load is at most 4/3 - 1/(3M) of the
    smallest possible (Graham 1969). With weights, machines of different speeds, it is at most 2M/(M+1) of it
    (Gonzalez, Ibarra and Sahni 1977). Beside the shares: when the last chunk, of size p, went to who is busiest, all
    others would have been no sooner done with it, so that ``max load/w <= (sum of sizes + (M-1) p) / sum(w)``.

    :param sizes: bytes, shape (C,). :param weights: shape (M,), not all 0: with 0 it takes none. :param loads: what
        each has already, shape (M,).
    :returns: shape (C,), numbers from 0 to M-1.
    """
    taken = np.zeros(len(weights)) if loads is None else loads.astype(np.float64)
    able = np.flatnonzero(weights > 0)
    takers = np.empty(len(sizes), dtype=np.intp)
    for chunk in np.argsort(-sizes, kind="stable").tolist():
        taker = int(able[np.argmin((taken[able] + sizes[chunk]) / weights[able])])
        taken[taker] += sizes[chunk]
        takers[chunk] = taker
    return takers
