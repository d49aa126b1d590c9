"""Random numbers inside compiled loops: splitmix64, so that a seed means the same with every version of Numba."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def njit_inner(**options: Any) -> Callable[[Function], Function]:
    """Compile a function that only compiled code calls; none of the code that would let Python call it is made."""
    jit: Any = njit  # its types do not know of these options
    options = {"cache": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
    compiled: Callable[[Function], Function] = jit(**options)
    return compiled


@njit(error_model="numpy", cache=True, inline="always")
def draw(state: Any) -> Any:
    """The next 64 random bits; ``state``: one unsigned 64-bit integer in an array (Steele, Lea and Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(error_model="numpy", cache=True)
def below(state: Any, n: Any) -> Any:
    """A whole number from 0 to n - 1."""
    return np.int64(draw(state) % np.uint64(n))


@njit(error_model="numpy", cache=True)
def unit(state: Any) -> Any:
    """A number from 0 up to, not including, 1."""
    return (draw(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
