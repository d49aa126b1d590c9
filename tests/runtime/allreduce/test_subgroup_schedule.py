"""What is left of a schedule for some of its ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.model.schedule import Schedule, forward_and_reverse, make_schedule
from plink.runtime.allreduce.subgroup_schedule import subgroup_schedule
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.hierarchical import two_level_reduce_scatter
from solvers.schedules.masters import Weights, equal_chunks
from solvers.schedules.verifier import verify
from tests.runtime.allreduce.schedules import schedules

# Chunks come back to ranks that gave them away: no trees. The last three are those only where ranks are no power of 2.
NO_TREES = ("recursive-doubling", "openmpi-recursive-doubling")
TREES_OF_POWERS = ("halving-doubling", "openmpi-rabenseifner", "lightgbm")


def sends(schedule: Schedule) -> np.ndarray:
    """How many chunks go from whom to whom, shape (N, N)."""
    restricted = np.zeros((schedule.ranks, schedule.ranks), dtype=int)
    np.add.at(restricted, (schedule.source, schedule.target), schedule.count)
    return restricted


@settings(max_examples=100, deadline=None)
@given(schedules(), st.data())
def test_it_is_an_all_reduce_of_the_members(schedule: Schedule, data: st.DataObject) -> None:
    """Whatever the algorithm, whoever is left, in whatever order; but for what has no trees."""
    some = st.lists(st.integers(0, schedule.ranks - 1), min_size=2, max_size=schedule.ranks, unique=True)
    members = data.draw(some)
    restricted = subgroup_schedule(schedule, members)
    whole = schedule.ranks & (schedule.ranks - 1) == 0
    assert (restricted is None) <= (schedule.algo in NO_TREES or (schedule.algo in TREES_OF_POWERS and not whole))
    if restricted is not None:
        assert (restricted.ranks, restricted.collective, restricted.algo) == (len(members), "all-reduce", schedule.algo)
        assert verify(restricted) == []


@given(st.lists(st.integers(0, 15), min_size=2, max_size=16, unique=True), st.sampled_from(["ring", "flat"]))
def test_what_is_left_of_a_ring_is_a_ring(members: list[int], algo: str) -> None:
    """In the order of the ring, as many rounds, as much for each; and so with flat aggregation."""
    restricted, small = subgroup_schedule(schedule_for(algo, 16), sorted(members)), schedule_for(algo, len(members))
    assert restricted is not None
    assert (restricted.rounds, restricted.chunks) == (small.rounds, small.chunks)
    assert np.array_equal(sends(restricted), sends(small))


@pytest.mark.parametrize("members", [[1, 5, 9, 13], [0, 2, 4, 6, 8, 10, 12, 14]])
def test_what_is_left_of_halving_is_halving_where_it_fits(members: list[int]) -> None:
    """Rows and columns of a mesh."""
    restricted, small = (
        subgroup_schedule(schedule_for("halving-doubling", 16), members),
        schedule_for("halving-doubling", len(members)),
    )
    assert restricted is not None
    assert restricted.rounds == small.rounds
    assert np.array_equal(sends(restricted), sends(small))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 23), min_size=2, max_size=24, unique=True))
def test_groups_stay_groups(members: list[int]) -> None:
    """Two-level aggregation crosses between groups as rarely as can be, there and back, and loads nobody with the work
    of all who are absent."""
    group = np.arange(24) * 7 % 24 // 8
    groups = [np.flatnonzero(group == g).tolist() for g in range(3)]
    restricted = subgroup_schedule(schedule_for("2lha", 24, Options(groups=groups)), members)
    assert restricted is not None
    where = group[np.array(members)]
    present = len(set(where.tolist()))
    across = where[restricted.source] != where[restricted.target]
    assert restricted.count[across].sum() == 2 * (present - 1) * restricted.chunks
    got = sends(restricted).sum(axis=0)
    for g in set(where.tolist()):  # of one group: within what one more chunk for each absent rank brings
        mine = got[where == g]
        assert mine.max() - mine.min() <= 2 * len(members) + 8


def test_masters_keep_their_shares() -> None:
    """Who is given little to do by all is given little by some."""
    weights = Weights(np.ones(1), np.array([0.25, 1.0, 1.0, 1.0, 1.0, 1.0]))
    whole = forward_and_reverse(two_level_reduce_scatter([range(6)], *equal_chunks([range(6)], 24, weights)))
    restricted = subgroup_schedule(whole, [0, 2, 4])
    assert restricted is not None
    there = ~restricted.copies
    taken = np.bincount(restricted.target[there], restricted.count[there], 3)
    assert taken[0] * 3 < min(taken[1:])


@pytest.mark.parametrize("hubs", [1, 3])
def test_some_workers_share_the_sums_of_absent_hubs(hubs: int) -> None:
    restricted = subgroup_schedule(schedule_for("phub", 8 + hubs, Options(servers=hubs)), [1, 3, 4, 6])
    assert restricted is not None
    assert not verify(restricted)
    assert sends(restricted).sum(axis=1).tolist() == [6 * restricted.chunks // 4] * 4


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 0, 1, 0, 1, 0), (0, 2, 1, 0, 1, 0), (1, 1, 0, 0, 1, 1), (2, 0, 2, 0, 1, 1), (3, 1, 2, 0, 1, 1)],
        [(0, 0, 1, 0, 1, 0), (1, 2, 0, 0, 1, 0), (2, 1, 0, 0, 1, 1), (2, 1, 2, 0, 1, 1)],
        [(0, 0, 1, 0, 1, 0), (1, 1, 2, 0, 1, 1)],
    ],
)
def test_what_is_no_tree_is_left_to_gloo(rows: list[tuple[int, ...]]) -> None:
    """A rank that gets the sum twice, one that adds after it has passed on, one that gives nothing."""
    assert subgroup_schedule(make_schedule("own", 3, 1, rows), [0, 1]) is None


def test_a_root_that_is_absent_is_replaced() -> None:
    """A star without its middle, and a way down that begins elsewhere than the way up ends."""
    star = [(0, 0, 2, 0, 1, 0), (0, 1, 2, 0, 1, 0), (0, 3, 2, 0, 1, 0)]
    back = [(1, 2, 3, 0, 1, 1), (2, 3, 1, 0, 1, 1), (3, 1, 0, 0, 1, 1)]
    restricted = subgroup_schedule(make_schedule("own", 4, 1, star + back), [0, 1, 3])
    assert restricted is not None
    assert verify(restricted) == []
