"""What is saved of the hosts that leave, against every other choice."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from solvers.elastic.placement.eviction import Fate, Rescue, Threatened, rescue

BACKUP, TARGET = 90, 91
Jobs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6)


def threatened(jobs: list[tuple[int, int, int]], target: int | None = TARGET) -> list[Threatened]:
    """(host, what the backup lacks, what it has already) of each partition."""
    return [Threatened(i, host, BACKUP, target, lacks + has, lacks) for i, (host, lacks, has) in enumerate(jobs)]


def most(sizes: list[tuple[float, float]], rate: float) -> int:
    """By trying all: how many transfers of (deadline, bytes) one line gets through in time."""

    def fits(some: tuple[tuple[float, float], ...]) -> bool:
        return all(sum(size for d, size in some if d <= deadline) <= rate * deadline for deadline, _ in some)

    subsets = (some for k in range(len(sizes) + 1) for some in itertools.combinations(sizes, k))
    return max(len(some) for some in subsets if fits(some))


def saved(plan: tuple[Rescue, ...]) -> int:
    return sum(rescued.fate is not Fate.FAIL for rescued in plan)


@given(Jobs, st.lists(st.integers(1, 9), min_size=4, max_size=4), st.integers(1, 3))
def test_as_many_get_through_a_backups_line_as_any_choice_brings_through(
    jobs: list[tuple[int, int, int]], deadlines: list[int], rate: int
) -> None:
    plan = rescue(threatened(jobs, target=None), dict(enumerate(deadlines)), {BACKUP: rate})
    assert saved(plan) == most([(deadlines[host], lacks) for host, lacks, _ in jobs], rate)
    assert {rescued.fate for rescued in plan} <= {Fate.DRAIN, Fate.FAIL}


@given(Jobs, st.integers(1, 9), st.integers(1, 3))
def test_as_many_get_out_of_one_host_as_any_choice_brings_out(
    jobs: list[tuple[int, int, int]], deadline: int, rate: int
) -> None:
    jobs = [(0, lacks, has) for _, lacks, has in jobs]
    plan = rescue(threatened(jobs), {0: deadline}, {0: rate})
    assert saved(plan) == most([(deadline, lacks) for _, lacks, _ in jobs], rate)
    sent = sum((lacks + has) if rescued.fate is Fate.MOVE else lacks if rescued.fate is Fate.DRAIN else 0
               for rescued in plan for _, lacks, has in [jobs[rescued.partition]])  # fmt: skip
    assert sent <= rate * deadline


@given(Jobs, st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(1, 5), st.integers(1, 5))
def test_no_line_is_given_more_than_it_carries_until_each_deadline(
    jobs: list[tuple[int, int, int]], deadlines: list[int], narrow: int, wide: int
) -> None:
    rates = {0: narrow, 1: wide, 3: wide, BACKUP: wide, TARGET: narrow}
    given_ = threatened(jobs)
    sent = [(given_[rescued.partition], rescued) for rescued in rescue(given_, dict(enumerate(deadlines)), rates)]
    for line in (0, 1, 2, 3, BACKUP, TARGET):
        for deadline in deadlines:
            load = sum(
                what.move_bytes if rescued.fate is Fate.MOVE else what.drain_bytes
                for what, rescued in sent
                if line in (what.host, rescued.to)
                and rescued.fate is not Fate.FAIL
                and deadlines[what.host] <= deadline
            )
            assert load <= rates.get(line, math.inf) * deadline or not load


def test_the_order_is_by_deadline_then_by_size_and_what_is_given_up_comes_last() -> None:
    jobs = [(0, 5, 0), (1, 3, 0), (0, 2, 0), (1, 9, 0)]
    plan = rescue(threatened(jobs), {0: 60.0, 1: 4.0}, {1: 1.0})
    assert [rescued.partition for rescued in plan] == [1, 2, 0, 3]
    assert [rescued.fate for rescued in plan] == [Fate.MOVE, Fate.MOVE, Fate.MOVE, Fate.FAIL]


def test_what_cannot_move_as_a_whole_drains_to_its_backup() -> None:
    (one,) = rescue(threatened([(0, 2, 8)]), {0: 3.0}, {0: 1.0})
    assert (one.fate, one.to) == (Fate.DRAIN, BACKUP)
    assert "not enough to move" in one.reason


def test_a_deadline_of_nothing_saves_nothing() -> None:
    (one,) = rescue(threatened([(0, 0, 0)]), {0: 0.0}, {})
    assert (one.fate, one.to) == (Fate.FAIL, None)


def test_hosts_whose_rate_nobody_knows_are_fast_enough() -> None:
    assert [rescued.fate for rescued in rescue(threatened([(0, 9, 9), (1, 9, 9)]), {0: 1e-3, 1: 30}, {})] == [
        Fate.MOVE
    ] * 2


def one(partition: int, host: int, move: float, drain: float, target: int | None = TARGET) -> Threatened:
    return Threatened(partition, host, BACKUP, target, move, drain)


def fates(threatened: list[Threatened], deadlines: dict[int, float], rates: dict[int, float]) -> dict[int, Fate]:
    return {result.partition: result.fate for result in rescue(threatened, deadlines, rates)}


def test_lines_in_and_out_are_two() -> None:
    """Host 2 gives up what it has and is the backup of host 1's partition: ten bytes each way in ten seconds."""
    threatened = [Threatened(0, 1, 2, None, 10, 10), Threatened(1, 2, BACKUP, None, 10, 10)]
    assert fates(threatened, {1: 10.0, 2: 10.0}, {2: 1.0}) == {0: Fate.DRAIN, 1: Fate.DRAIN}


def test_moves_are_chosen_by_how_little_more_they_send_than_drains() -> None:
    """Host 1 sends twelve in time, four of them as drains: eight are left, for one of seven more or of two and five."""
    threatened = [one(0, 1, 8, 1), one(1, 1, 4, 2), one(2, 1, 6, 1)]
    assert fates(threatened, {1: 12.0}, {1: 1.0}) == {0: Fate.DRAIN, 1: Fate.MOVE, 2: Fate.MOVE}
    assert fates(threatened, {1: 10.9}, {1: 1.0}) == {0: Fate.DRAIN, 1: Fate.MOVE, 2: Fate.DRAIN}
