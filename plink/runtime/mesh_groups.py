"""Check that a program's groups of ranks are those that its order was priced for; runs in the program's ranks."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plink.errors import PlinkError
from plink.model.mesh import MESH_VARIABLE, Mesh, parse_axes

_MAX_SHOWN_RANKS = 16


def verify_mesh(groups: Any) -> bool:
    """Compare a program's groups of ranks with those that its order was priced for.

    They are those of the mesh in the variable ``PLINK_MESH``, like ``pp=2,dp=4``, which ``plink launch`` and ``plink
    compare`` set with an order of ``plink reorder --mesh``. Without it nothing is compared.

    :param groups: a PyTorch ``DeviceMesh`` whose dimensions have the names of axes, or the ranks of this rank's groups
        by axis: ``{"tp": [0, 1], "edp+ep": [0, 1, 2, 3]}``, in any order: PyTorch numbers them by ascending rank.
    :returns: whether there was a mesh to compare with.
    :raises TypeError: for what is neither.
    :raises PlinkError: naming the first group that differs, an axis that was not priced, or the number of ranks.
    """
    text = os.environ.get(MESH_VARIABLE, "")
    if not text:
        return False
    try:
        mesh = Mesh(parse_axes(text), ())
    except PlinkError as error:
        raise PlinkError(f"{MESH_VARIABLE}={text}: {error}") from None
    ordered = f"ranks were ordered for the mesh {text}"
    names = {name for name, _ in mesh.axes}
    world = int(os.environ.get("WORLD_SIZE") or mesh.ranks)
    if world != mesh.ranks:
        raise PlinkError(f"{ordered}, which has {mesh.ranks} ranks; the program has {world}")
    for axis, rows in _by_axis(groups).items():
        if unknown := sorted(set(axis.split("+")) - names):
            raise PlinkError(f"{ordered}, which has no axis {unknown[0]}; the program has groups along it")
        priced = {rank: row for row in mesh.groups(axis.split("+")).tolist() for rank in row}
        for ranks in rows:
            if sorted(ranks) != (expected := priced.get(ranks[0], [])):
                there = f"{ranks[0]} is in the group {_shown(expected)}" if expected else f"no rank is {ranks[0]}"
                raise PlinkError(f"{ordered}: along {axis} {there}; in the program it is {_shown(ranks)}")
    return True


def _by_axis(groups: Any) -> dict[str, list[list[int]]]:
    """Return the ranks of the groups along each axis, without groups of one rank."""
    if isinstance(groups, Mapping):
        return {axis: [list(ranks)] for axis, ranks in groups.items() if len(ranks) > 1}
    if not hasattr(groups, "mesh_dim_names"):
        raise TypeError(f"a DeviceMesh or a mapping of axes to ranks was expected, not {type(groups).__name__}")
    ranks = np.array(groups.mesh.tolist())
    names: Sequence[str] | None = groups.mesh_dim_names
    if names is None:
        raise PlinkError("a DeviceMesh without names of its dimensions: give mesh_dim_names, as the axes are called")
    along = {name: np.moveaxis(ranks, k, -1).reshape(-1, ranks.shape[k]) for k, name in enumerate(names)}
    return {name: rows.tolist() for name, rows in along.items() if rows.shape[1] > 1}


def _shown(ranks: Sequence[int]) -> str:
    shown = " ".join(str(rank) for rank in ranks[:_MAX_SHOWN_RANKS])
    return f"{shown} ..." if len(ranks) > _MAX_SHOWN_RANKS else shown
