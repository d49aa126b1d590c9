"""Network files of a few hosts, for the tests of what changed between two of them."""

import math
from typing import Any

import numpy as np

from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, Network
from tests.networks import details_from


def named(names: str, rows: Matrix | None = None, rates: Matrix | None = None, **details: Any) -> Network:
    """Hosts of one letter each, found under their names; 50 us everywhere unless given otherwise."""
    rows = flat(len(names)) if rows is None else rows
    return Network(Hosts(tuple(Host(name, name) for name in names)), rows, rates, details_from(details), "a file")


def flat(n: int, us: float = 50.0) -> Matrix:
    """All alike."""
    return us * ~np.eye(n, dtype=bool)


def even(n: int, value: float, **but: float) -> list[list[float | None]]:
    """A matrix of a file with one value throughout, except ``x01=...``: of host 0 to host 1."""
    rows = np.full((n, n), float(value))
    for place, other in but.items():
        rows[int(place[1]), int(place[2])] = other
    return [[None if math.isnan(item) else item for item in row] for row in rows.tolist()]
