"""How far measured round trips are from distances: the share of detours that are shorter than the straight way."""

import numpy as np

from plink.model.network import Matrix

_THIRD_HOSTS = 256  # drawn when there are more: all N^3 triangles would say the same


def triangle_violations(rtt_us: Matrix, seed: int = 0) -> float:
    """Return the share of (i, j; k), i < j, all three pairs measured, with ``p_ij > p_ik + p_kj``; NaN without any.

    :param rtt_us: shape (N, N), symmetric, NaN where unmeasured.
    :param seed: which hosts k are looked at where there are more than 256.
    """
    n = len(rtt_us)
    far = np.where(np.eye(n, dtype=bool), np.nan, rtt_us)
    third = np.arange(n) if n <= _THIRD_HOSTS else np.random.default_rng(seed).permutation(n)[:_THIRD_HOSTS]
    worse = total = 0
    for k in third:
        detour = far[:, k][:, None] + far[k]
        both = np.isfinite(detour) & np.isfinite(far)
        total += int(both.sum())
        worse += int((both & (far > detour)).sum())
    return worse / total if total else float("nan")
