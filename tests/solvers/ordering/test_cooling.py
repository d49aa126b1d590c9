"""How hot runs of annealing begin and end."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from solvers.ordering.objectives import CoolingSchedule, CoolingSchedules, spread_nearby


def noisy(n: int, median_us: float = 100.0) -> npt.NDArray[np.float64]:
    """Hosts of one place."""
    rtt = median_us * np.random.default_rng(n).lognormal(0.0, 0.15, (n, n))
    rtt = np.maximum(rtt, rtt.T)
    np.fill_diagonal(rtt, 0.0)
    return rtt


def sites(sizes: list[int], apart_us: float) -> npt.NDArray[np.float64]:
    rtt, site = noisy(sum(sizes)), np.repeat(np.arange(len(sizes)), sizes)
    rtt[site[:, None] != site] = apart_us
    return rtt


def test_slices_of_a_run_follow_each_other() -> None:
    plan = CoolingSchedule(8.0, 0.5)
    stretches = [plan.part(k, 4) for k in range(4)]
    assert stretches[0].initial == 8.0
    assert stretches[-1].final == pytest.approx(0.5)
    for item, following in itertools.pairwise(stretches):
        assert following.initial == pytest.approx(item.final)
    assert stretches[0].final / stretches[0].initial == pytest.approx(stretches[3].final / stretches[3].initial)


def test_the_spread_nearby_is_that_of_the_hosts_of_one_place() -> None:
    alone = spread_nearby(noisy(64))
    assert alone == pytest.approx(noisy(64)[~np.eye(64, dtype=bool)].std())
    far = noisy(64)
    far[5, :5] = far[5, 6:] = far[:5, 5] = far[6:, 5] = 20_000.0
    assert alone < spread_nearby(far) < 2 * alone
    for sizes in ([32, 32], [16, 48], [22, 21, 21]):
        assert alone < spread_nearby(sites(sizes, 10_000.0)) < 5 * alone
    assert sites([16, 48], 10_000.0).std() > 100 * alone


def test_equal_round_trips_differ_from_a_host_itself() -> None:
    assert spread_nearby(np.where(np.eye(4, dtype=bool), 0.0, 100.0)) == pytest.approx(np.sqrt(3) * 25)
    assert spread_nearby(np.zeros((3, 3))) == 0
    assert spread_nearby(np.zeros((1, 1))) == 0


def test_short_runs_start_hot_enough_to_leave_a_site() -> None:
    rtt = sites([16, 48], 10_000.0)
    cooling = CoolingSchedules("chain", 1.0, rtt, 64)
    warm, hot = cooling.schedules(0, 2, 20_000)
    assert hot.initial > 1000 > 100 > warm.initial
    assert hot.final == warm.final < warm.initial
    again, mild = cooling.schedules(9, 2, 5_000_000)
    assert again == warm
    assert mild.initial == pytest.approx(warm.initial / 2)
    assert list(cooling.schedules(0, 1, 20_000)) == [warm]


@pytest.mark.parametrize(("what", "ranks"), [("hops", 8), ("hops", 64), ("loads", 64)])
def test_runs_cycle_through_all_plans(what: str, ranks: int) -> None:
    cooling = CoolingSchedules(what, 50.0, noisy(ranks), ranks)
    plans = [plan for run in range(6) for plan in cooling.schedules(run, 2, 1000)]
    cycle = list(dict.fromkeys(plans))
    assert len(cycle) > 1
    assert plans == [cycle[k % len(cycle)] for k in range(12)]
    assert all(0 < plan.initial <= 50.0 and plan.final == pytest.approx(plan.initial / 1000) for plan in cycle)
