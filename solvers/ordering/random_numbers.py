"""Random numbers in compiled loops: splitmix64, so that a seed gives the same numbers with every version of Numba."""

from typing import Any

import numpy as np

from solvers.compilation import njit_inner


@njit_inner(error_model="numpy", inline="always")
def random_bits(state: Any) -> Any:
    """Return the next 64 bits; ``state``: one unsigned 64-bit integer in an array (Steele, Lea and Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit_inner(error_model="numpy")
def random_below(state: Any, n: Any) -> Any:
    """Return a random integer from 0 to n - 1."""
    return np.int64(random_bits(state) % np.uint64(n))


@njit_inner(error_model="numpy")
def random_unit(state: Any) -> Any:
    """Return a random number from 0 up to, not including, 1."""
    return (random_bits(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
