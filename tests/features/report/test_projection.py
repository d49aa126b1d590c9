"""The plane of a map: groups do not lie over each other, and the plane of most spread is kept where they do not."""

import numpy as np
import pytest

from plink.features.report.projection import plane_of


def racks(groups: int, hosts: int, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Racks that are all equally far from each other: that many dimensions, each rack on an axis of its own."""
    group_of = np.repeat(np.arange(groups), hosts)
    rng = np.random.default_rng(1)
    return 10 * np.eye(groups)[group_of] + rng.normal(0, noise, (len(group_of), groups)), group_of


def apart(xy: np.ndarray, group_of: np.ndarray) -> bool:
    """Whether each host is nearer to the middle of its own group than to any other."""
    middles = np.stack([xy[group_of == group].mean(axis=0) for group in range(group_of.max() + 1)])
    return bool((np.linalg.norm(xy[:, None] - middles, axis=2).argmin(axis=1) == group_of).all())


def test_plane_of_most_spread_is_kept_where_it_separates() -> None:
    xy, group_of = racks(3, 5)
    plane = plane_of(xy, group_of)
    assert (plane.kind, plane.overlaps) == ("spread", 0)
    assert plane.kept_variance > 0.9


@pytest.mark.parametrize(("groups", "kind"), [(12, "groups"), (16, "groups"), (24, "moved")])
def test_many_racks_do_not_overlap(groups: int, kind: str) -> None:
    xy, group_of = racks(groups, 4)
    plane = plane_of(xy, group_of)
    assert (plane.kind, plane.overlaps) == (kind, 0)
    assert apart(plane.xy, group_of)
    assert np.isnan(plane.kept_variance) == (kind == "moved")


def test_overlapping_racks_are_separated() -> None:
    """Three pods far apart span the plane of most spread; the racks of a pod differ in a third direction only."""
    pod, group_of = np.repeat([0, 0, 1, 2], 4), np.repeat([0, 1, 2, 3], 4)
    xy = np.hstack([50 * np.array([[0.0, 0], [1, 0], [0, 1]])[pod], 8.0 * (group_of == 1)[:, None]])
    xy += np.random.default_rng(0).normal(0, 0.2, xy.shape)
    plane = plane_of(xy, group_of)
    assert (plane.kind, plane.overlaps) == ("groups", 0)
    assert apart(plane.xy, group_of)


def test_same_map_every_time() -> None:
    xy, group_of = racks(12, 4)
    assert (plane_of(xy, group_of).xy == plane_of(xy, group_of).xy).all()
