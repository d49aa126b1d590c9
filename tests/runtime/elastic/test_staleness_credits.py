"""DSSP's credits: pure, in simulated time, beside SSP with each bound."""

import math

import pytest

from plink.runtime.elastic.worker.dynamic_staleness import StalenessCredits, WorkerClock


def simulated(speeds: list[list[float]], bound: tuple[int, int] | int) -> tuple[list[float], list[int]]:
    """Workers whose clocks take so many seconds each, one after the other. Return when each ends its last clock, and
    the most clocks that each was ahead of the slowest at a beginning."""
    workers, clocks = range(len(speeds)), len(speeds[0])
    ends: list[list[float]] = [[] for _ in workers]
    farthest = [0 for _ in workers]
    credits = {w: StalenessCredits(*bound) for w in workers} if isinstance(bound, tuple) else {}
    free = [0.0 for _ in workers]
    while min(len(each) for each in ends) < clocks:
        worker = min((w for w in workers if len(ends[w]) < clocks), key=lambda w: (free[w], w))
        now, clock = free[worker], len(ends[worker]) + 1

        def finished(w: int, now: float = now) -> int:
            return sum(end <= now + 1e-9 for end in ends[w])

        others = {w: WorkerClock(finished(w), speeds[w][max(0, finished(w) - 1)]) for w in workers if w != worker}
        if isinstance(bound, tuple):
            staleness = credits[worker].bound(clock, speeds[worker][max(0, clock - 2)], others, now)
        else:
            staleness = bound
        state = clock - 1 - staleness
        behind = [w for w in others if finished(w) < state]
        if behind:  # waits until the slowest has ended that clock
            if all(len(ends[w]) >= state for w in behind):
                now = max(ends[w][state - 1] for w in behind)
                farthest[worker] = max(farthest[worker], clock - 1 - min(finished(w, now) for w in others))
                ends[worker].append(now + speeds[worker][clock - 1])
                free[worker] = ends[worker][-1]
            else:
                free[worker] = min(free[w] for w in workers if len(ends[w]) < clocks and free[w] >= now and w != worker)
                free[worker] += 1e-6
            continue
        farthest[worker] = max(farthest[worker], clock - 1 - min(other.finished for other in others.values()))
        ends[worker].append(now + speeds[worker][clock - 1])
        free[worker] = ends[worker][-1]
    return [each[-1] for each in ends], farthest


@pytest.mark.parametrize(("lower", "upper"), [(0, 0), (0, 4), (1, 3), (2, 2)])
def test_no_worker_is_further_ahead_than_the_upper_bound(lower: int, upper: int) -> None:
    speeds = [[1.0] * 40, [1.3] * 40, [0.4] * 40]
    _, farthest = simulated(speeds, (lower, upper))
    assert max(farthest) <= upper
    if lower == upper:
        assert simulated(speeds, (lower, upper)) == simulated(speeds, lower)


def test_temporarily_slow_worker_delays_no_other() -> None:
    """The fast one goes on beyond the lower bound, and ends sooner than under it."""
    speeds = [[1.0] * 30, [1.0] * 8 + [3.0] * 3 + [0.5] * 19]
    low, credit = simulated(speeds, 2)[0][0], simulated(speeds, (2, 12))[0][0]
    assert credit < low


def test_credit_ends_where_the_slowest_ends_a_clock() -> None:
    """Of the slowest's 5 s 2 are over: after 3 clocks of 1 s nobody waits."""
    credits = StalenessCredits(1, 9)
    slowest = {7: WorkerClock(3, 5.0)}
    assert credits.bound(5, 1.0, slowest, 10.0) == 1  # within the lower bound; the slowest's end is seen
    bounds = [credits.bound(clock, 1.0, slowest, 6.0 + clock) for clock in range(6, 12)]
    assert bounds[:4] == [2, 3, 4, 1]


def test_unknown_times_give_no_credit() -> None:
    credits = StalenessCredits(2, 9)
    assert credits.bound(9, 0.0, {1: WorkerClock(1, 5.0)}, 1.0) == 2
    assert credits.bound(9, 1.0, {1: WorkerClock(1, 0.0)}, 1.0) == 2
    assert credits.bound(9, 1.0, {}, 1.0) == 2


def test_roll_back_forgets_a_credit() -> None:
    credits = StalenessCredits(0, 9)
    slowest = {1: WorkerClock(3, 4.0)}
    assert credits.bound(5, 1.0, slowest, 0.0) == 1
    credits.roll_back()
    assert credits.bound(3, 1.0, {1: WorkerClock(2, 4.0)}, 1.0) == 0
    assert not math.isnan(credits.bound(4, 1.0, {1: WorkerClock(3, 4.0)}, 2.0))
