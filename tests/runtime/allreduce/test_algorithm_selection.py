"""From which size on the engine is used: by what was measured, the same on all ranks."""

import time
from functools import partial

import pytest
import torch

from plink.runtime.allreduce.algorithm_selection import (
    NEVER,
    Candidates,
    SizeRange,
    measure,
    measure_delegation,
    measure_size_range,
)
from plink.runtime.allreduce.secondary_group import all_reduce
from tests.runtime.allreduce.thread_ranks import Clock, everywhere, gloo_groups


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What measurements go by, instead of the machine's: busy machines measure something else."""
    clock = Clock()
    monkeypatch.setattr("plink.runtime.allreduce.algorithm_selection.time", clock)
    return clock


class Done:
    """A work that is over."""

    def wait(self) -> bool:
        """At once."""
        return True


def done(clock: Clock, seconds: float) -> Done:
    """Pass the time that a work takes."""
    clock.now += seconds
    return Done()


@pytest.mark.parametrize(
    ("slower_below", "slow_rank", "expected"),
    [(0, 0, 0), (10_000, 1, 64 << 10), (300_000, 0, 1 << 20), (1 << 40, 0, NEVER)],
)
def test_all_ranks_take_the_slowest_of_them(slower_below: int, slow_rank: int, expected: int, clock: Clock) -> None:
    """The engine is slower below a size, on one rank only."""
    with gloo_groups(2) as groups:

        def work(rank: int) -> int:
            def gloo(data: torch.Tensor, op: object) -> object:
                if data.dtype is torch.float64:  # what they agree by
                    return all_reduce(groups[rank], data, op)
                return done(clock, 0.01)

            def engine(data: torch.Tensor, op: object) -> Done:
                return done(clock, 0.05 if data.nbytes < slower_below and rank == slow_rank else 0.0)

            return measure(Candidates(engine, gloo, lambda size: True))  # type: ignore[arg-type]

        assert everywhere(2, work) == [expected] * 2


@pytest.mark.parametrize(
    ("slower_from", "eager_max_bytes", "expected", "used"),
    [
        (2 << 20, 1 << 20, SizeRange(0, 1 << 20), [True, True, False, False]),
        (2 << 20, None, SizeRange(0), [True] * 4),
        (1 << 40, 1 << 20, SizeRange(0), [True] * 4),
        (0, 1 << 20, SizeRange(NEVER), [False] * 4),
    ],
)
def test_large_messages_by_another_path_are_validated(
    slower_from: int, eager_max_bytes: int | None, expected: SizeRange, used: list[bool], clock: Clock
) -> None:
    """What is found of short ones says nothing of them."""
    looked_at: set[int] = set()

    def gloo(data: torch.Tensor, op: object) -> Done:
        if data.dtype is torch.float64:
            return Done()
        looked_at.add(data.nbytes)
        return done(clock, 0.002)

    def engine(data: torch.Tensor, op: object) -> Done:
        return done(clock, 0.02 if data.nbytes >= slower_from else 0.0)

    threshold = measure_size_range(Candidates(engine, gloo, lambda size: True), 2, eager_max_bytes)
    assert threshold == expected
    assert ((4 << 20) in looked_at) == (eager_max_bytes is not None)
    assert [size in threshold for size in (4, 1 << 20, (1 << 20) + 1, 1 << 30)] == used


def test_gloo_does_not_answer_for_ranks_that_the_engine_left_late() -> None:
    """One rank is through at once, the other is not: what the first then waits for it is none of Gloo's time."""
    with gloo_groups(2) as groups:

        def work(rank: int) -> int:
            def engine(data: torch.Tensor, op: object) -> Done:
                time.sleep(0.1 * rank)
                return Done()

            gloo = partial(all_reduce, groups[rank])
            return measure(Candidates(engine, gloo, lambda size: size < 1 << 20), 2)  # type: ignore[arg-type]

        assert everywhere(2, work) == [NEVER] * 2


@pytest.mark.parametrize("schedules_from", [100_000, 8 << 20])
def test_sizes_without_a_schedule_are_skipped(schedules_from: int, clock: Clock) -> None:
    """Gloo against itself would tell nothing, and could keep the schedules of larger sizes from being used."""

    def gloo(data: torch.Tensor, op: object) -> Done:
        return done(clock, 0.01 if data.dtype is torch.float32 else 0.0)

    def engine(data: torch.Tensor, op: object) -> Done:
        assert data.nbytes >= schedules_from
        return Done()

    assert measure(Candidates(engine, gloo, lambda size: size >= schedules_from)) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("slower_below", "slow_rank", "expected"), [(0, 0, 256 << 10), (2 << 20, 0, 4 << 20), (1 << 40, 1, NEVER)]
)
def test_what_is_faster_for_large_messages_is_used_from_there_on(
    slower_below: int, slow_rank: int, expected: int, clock: Clock
) -> None:
    """All ranks find the size at and above which the slowest of them gains."""
    with gloo_groups(2) as groups:

        def work(rank: int) -> int:
            def present(data: torch.Tensor, op: object) -> Done:
                return done(clock, 0.03)

            def other(data: torch.Tensor, op: object) -> Done:
                return done(clock, 0.06 if data.nbytes < slower_below and rank == slow_rank else 0.0)

            return measure_delegation(other, present, partial(all_reduce, groups[rank]))  # type: ignore[arg-type]

        assert everywhere(2, work) == [expected] * 2
