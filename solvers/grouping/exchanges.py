"""Better groups by exchanging two hosts, or moving one, until nothing comes of it (compiled with Numba).

What becomes less is ``sum over groups of (sum over pairs in the group of their distance) / (size of the group)``: the
k-means objective, written without coordinates, with distances in the place of squared ones.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.compilation import njit
from solvers.grouping.sizes import Sizes

Labels = npt.NDArray[np.intp]
_GAIN = 1e-9  # of the mean distance: less is rounding


def refined(label: Labels, distances: Matrix, sizes: Sizes) -> tuple[Labels, float]:
    """Return the groups when no exchange makes them better, and their objective.

    :param label: shape (N,), the group of each host, 0 to ``sizes.number`` - 1, of sizes that are allowed.
    :param distances: shape (N, N), symmetric, complete, 0 on the diagonal.
    """
    result = label.astype(np.int64)
    gain = _GAIN * float(distances.mean()) if len(label) else 0.0
    objective = _exchange(np.ascontiguousarray(distances), result, sizes.number, sizes.least, sizes.most, gain)
    return result.astype(np.intp), float(objective)


@njit(cache=True)
def _exchange(distances: Any, label: Any, number: int, least: int, most: int, gain: float) -> float:
    """Exchange each host in turn with the best partner or group it finds, until a whole round changes nothing."""
    n = len(label)
    size = np.zeros(number)
    to = np.zeros((n, number))  # what a host has to a group's members in all
    for i in range(n):
        size[label[i]] += 1
        for j in range(n):
            to[i, label[j]] += distances[i, j]
    inside = np.zeros(number)
    for i in range(n):
        inside[label[i]] += to[i, label[i]] / 2
    still = 0
    i = 0
    while still < n:
        a = label[i]
        best, partner, group = -gain, -1, -1
        if size[a] > least:
            for b in range(number):
                if b != a and size[b] < most:
                    change = (inside[a] - to[i, a]) / max(size[a] - 1, 1) - inside[a] / size[a]
                    change += (inside[b] + to[i, b]) / (size[b] + 1) - inside[b] / size[b]
                    if change < best:
                        best, partner, group = change, -1, b
        for j in range(n):
            b = label[j]
            if b != a:
                change = (to[j, a] - to[i, a] - distances[i, j]) / size[a]
                change += (to[i, b] - to[j, b] - distances[i, j]) / size[b]
                if change < best:
                    best, partner, group = change, j, b
        still += 1
        if group >= 0:
            still = 0
            inside[a] -= to[i, a]
            inside[group] += to[i, group]
            for x in range(n):
                to[x, a] -= distances[x, i]
                to[x, group] += distances[x, i]
            label[i] = group
            size[a] -= 1
            size[group] += 1
            if partner >= 0:
                inside[group] -= to[partner, group]
                inside[a] += to[partner, a]
                for x in range(n):
                    to[x, group] -= distances[x, partner]
                    to[x, a] += distances[x, partner]
                label[partner] = a
                size[group] -= 1
                size[a] += 1
        i = (i + 1) % n
    total = 0.0
    for group in range(number):
        total += inside[group] / size[group]
    return total
