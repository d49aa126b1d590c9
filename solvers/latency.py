"""The thesis's cost model of a ring: round trips alone (PLink thesis, section 5.2.1)."""

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.model.network import Matrix
from plink.model.units import numbered


def require_complete(cost: Matrix, names: list[str]) -> None:
    """Refuse a matrix with unmeasured pairs.

    :raises NoAnswer: naming the first such pair and the command that would measure it.
    """
    missing = np.argwhere(np.isnan(cost))
    if len(missing):
        i, j = (int(k) for k in missing[0])
        raise NoAnswer(
            f"{numbered(len(missing) // 2, 'pair was', 'pairs were')} not measured, the first {names[i]} - {names[j]}; "
            "measure them with `plink probe`"
        )


def ring_cost(cost: Matrix, order: npt.NDArray[np.intp]) -> float:
    """``sum_i c[r_i, r_{i-1}]`` (T 5.2.1), in the unit of ``cost``; ranks are modulo N.

    :param cost: shape (N, N), symmetric.
    :param order: shape (N,), the host at each rank.
    """
    return float(cost[order, np.roll(order, 1)].sum())
