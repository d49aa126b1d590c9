"""Symmetric TSPLIB files whose distances come from coordinates (Reinelt 1991), and their optimal tours' lengths."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

_EARTH_RADIUS_KM = 6378.388
SOLUTIONS = "solutions"  # a file of lines `name : length`


@dataclass(frozen=True)
class TspInstance:
    """Instance of N cities: ``distance``, shape (N, N), whole numbers; ``optimum``: the length of the best tour."""

    name: str
    distance: Matrix
    optimum: float


def read_instance(folder: Path, name: str) -> TspInstance:
    """Return an instance of a folder that has the file ``name.tsp`` and one with the optima.

    :raises ValueError: for a kind of distance that is not one of coordinates.
    """
    text = (folder / f"{name}.tsp").read_text()
    kind = re.search(r"EDGE_WEIGHT_TYPE\s*:\s*(\S+)", text)
    rows = text[text.index("NODE_COORD_SECTION") :].splitlines()[1:]
    points = [row.split() for row in rows if len(row.split()) == 3]
    place = np.array([(float(x), float(y)) for _, x, y in points])
    return TspInstance(name, _distances(place, kind.group(1) if kind else ""), _optimum(folder, name))


def _distances(place: npt.NDArray[np.float64], kind: str) -> Matrix:
    """Round as TSPLIB's documentation says, section 2."""
    if kind == "GEO":
        degrees = np.trunc(place)
        latitude, longitude = (math.pi * (degrees + 5 * (place - degrees) / 3) / 180).T
        q1, q2, q3 = (
            np.cos(longitude[:, None] - longitude),
            np.cos(latitude[:, None] - latitude),
            np.cos(latitude[:, None] + latitude),
        )
        angle = np.arccos(np.clip(((1 + q1) * q2 - (1 - q1) * q3) / 2, -1, 1))
        distance = np.floor(_EARTH_RADIUS_KM * angle + 1)
    else:
        exact = np.hypot(*(place[:, None] - place).transpose(2, 0, 1))
        rounding = {
            "EUC_2D": lambda: np.floor(exact + 0.5),
            "CEIL_2D": lambda: np.ceil(exact),
            "ATT": lambda: np.ceil(exact / math.sqrt(10) - 1e-9),
        }
        if kind not in rounding:
            raise ValueError(f"distances of kind {kind or 'unknown'} are not computed from coordinates here")
        distance = rounding[kind]()
    np.fill_diagonal(distance, 0.0)
    return np.asarray(distance)


def _optimum(folder: Path, name: str) -> float:
    for line in (folder / SOLUTIONS).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return float(value.split()[0])
    raise ValueError(f"{folder / SOLUTIONS} has no optimum of {name}")
