"""Stragglers that are helped, in virtual time: how long it takes, and that every grain counts once whatever happens."""

import pytest

from plink.elastic import Rebalance
from tests.runtime.elastic.simulated_helping import Course, Network


def exact(course: Course) -> None:
    """Each update has each grain of each of its shards once, and all shards of all clocks are there."""
    for clock in range(course.clocks):
        shards: list[int] = []
        for (_, at), update in course.updates.items():
            if at == clock:
                assert set(update.values()) <= {1}
                for shard in {grain.shard for grain in update}:
                    assert sum(grain.shard == shard for grain in update) == course.grains
                    shards.append(shard)
        assert sorted(shards) == list(range(course.workers)), f"clock {clock}"


def slow_worker(worker: int, clock: int, work: float, now: float) -> float:
    return 5.0 if worker == 0 and 2 <= clock < 6 else 1.0


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_straggler_is_helped(staleness: int) -> None:
    """Ideally the four clocks of the slow worker would take 8 / 7.2 each."""
    alone = Course(8, 30, 10, slow_worker, staleness, settings=None)
    helped = Course(8, 30, 10, slow_worker, staleness)
    ideal_s = 6 + 4 * 8 / 7.2
    assert alone.run() > 2 * ideal_s
    assert helped.run() < 1.25 * ideal_s
    assert 0.02 < helped.moved / (8 * 30 * 10) < 0.10
    exact(alone)
    exact(helped)


@pytest.mark.parametrize("slow", [2.0, 3.0, 5.0])
def test_helped_sooner_where_costs_of_grains_are_used(slow: float) -> None:
    """The first quarter of each worker's grains is three quarters of its work."""
    seconds = []
    for weighed in (False, True):
        course = Course(
            8, 60, 10, lambda worker, clock, work, now: slow if worker == 0 and 2 <= clock < 6 else 1.0,
            cost=lambda grain: 3.0 if grain.number < 15 else 1 / 3, uses_cost=weighed,
        )  # fmt: skip
        seconds.append(course.run())
        exact(course)
    assert seconds[1] < seconds[0] - 0.5


def test_nothing_moves_among_equals() -> None:
    course = Course(8, 30, 10)
    assert course.run() == pytest.approx(10.0)
    assert course.moved == 0
    exact(course)


def test_frozen_helper_costs_no_more_than_a_clock() -> None:
    """It has begun, and is silent for a hundred seconds."""

    def frozen(worker: int, clock: int, work: float, now: float) -> float:
        return 3000.0 if worker == 1 and 2.7 < now < 3.0 else slow_worker(worker, clock, work, now)

    course = Course(2, 30, 3, frozen, settings=Rebalance(helpers=1))
    course.run()
    exact(course)
    (worker,) = (each for each in course.each if each.number == 0)
    assert worker.clock == 3


@pytest.mark.parametrize("at_s", [2.7, 2.8, 2.9, 3.0, 3.1, 3.3])
@pytest.mark.parametrize("helper", [1, 2, 3])
@pytest.mark.parametrize("cut_s", [1.0, 3.0])
def test_cut_between_helper_and_helpee_costs_no_more_than_a_clock(cut_s: float, helper: int, at_s: float) -> None:
    """Before work is given away, while it is done, or while a result is on its way."""
    settings = Rebalance(helpers=3)
    whole = Course(4, 30, 10, slow_worker, settings=settings)
    network = Network(cut=frozenset({0, helper}), cut_s=(at_s, at_s + cut_s))
    course = Course(4, 30, 10, slow_worker, settings=settings, network=network)
    assert course.run() <= whole.run() + 1.0
    exact(course)


@pytest.mark.parametrize(
    ("parts", "heavy"), [(1, range(0, 16, 2)), (1, range(8)), (8, range(0, 128, 2)), (8, range(64))]
)
def test_uneven_work_is_helped(parts: int, heavy: range) -> None:
    """Three quarters of the work are in half of the shards: those of some workers, or half of each worker's. Progress
    is counted in grains, though these do not take as long as each other."""
    alone, helped = (
        Course(
            16,
            64,
            8,
            staleness=1,
            settings=settings,
            parts=parts,
            cost=lambda grain: 1.5 if grain.shard in heavy else 0.5,
        )
        for settings in (None, Rebalance())
    )
    assert helped.run() < 1.12 * 8
    assert alone.run() >= helped.now
    assert sum(update.total() for update in helped.updates.values()) == 16 * 64 * 8
    assert {count for update in helped.updates.values() for count in update.values()} == {1}


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize(("lost", "number"), [("helper", 0), ("helper", 1), ("helper", 4), ("helpee", 1)])
def test_worker_lost_between_a_result_and_its_merge_under_dssp(lost: str, number: int, noticed: bool) -> None:
    """Each grain counts once: with the result, or, where the helper's loss is noticed first, without it."""
    results: list[tuple[int, int]] = []

    def lose(course: Course, helper: int, helpee: int) -> None:
        results.append((helper, helpee))
        if len(results) == number + 1:
            course.kill(helper if lost == "helper" else helpee)
            if noticed and lost == "helper":
                course.each[helpee].lost(helper)

    course = Course(8, 30, 10, slow_worker, staleness=1, upper=4, before_merge=lose)
    course.run()
    exact(course)
    assert len(results) > number
    assert sum(not each.alive for each in course.each) == 1
