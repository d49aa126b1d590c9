"""How hot runs of annealing begin and end."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from solvers.ordering.cooling import Cooling, Plan, spread_nearby


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
    plan = Plan(8.0, 0.5)
    stretches = [plan.stretch(k, 4) for k in range(4)]
    assert stretches[0][0] == 8.0
    assert stretches[-1][1] == pytest.approx(0.5)
    for (_, end), (begin, _) in itertools.pairwise(stretches):
        assert begin == pytest.approx(end)
    assert stretches[0][1] / stretches[0][0] == pytest.approx(stretches[3][1] / stretches[3][0])


def test_the_spread_nearby_is_that_of_the_hosts_of_one_place() -> None:
    alone = spread_nearby(noisy(64))
    assert alone == pytest.approx(noisy(64)[~np.eye(64, dtype=bool)].std())
    far = noisy(64)
    far[5, :5] = far[5, 6:] = far[:5, 5] = far[6:, 5] = 20_000.0
    assert alone < spread_nearby(far) < 2 * alone
    for sizes in ([32, 32], [16, 48], [22, 21, 21]):
        assert alone < spread_nearby(sites(sizes, 10_000.0)) < 5 * alone
    assert sites([16, 48], 10_000.0).std() > 100 * alone


def test_round_trips_that_do_not_differ_still_have_a_spread_beside_a_host_itself() -> None:
    assert spread_nearby(np.where(np.eye(4, dtype=bool), 0.0, 100.0)) == pytest.approx(np.sqrt(3) * 25)
    assert spread_nearby(np.zeros((3, 3))) == 0
    assert spread_nearby(np.zeros((1, 1))) == 0


def test_short_runs_of_one_lane_are_hot_enough_to_leave_a_site_and_long_ones_are_not() -> None:
    rtt = sites([16, 48], 10_000.0)
    cooling = Cooling("chain", 1.0, rtt, 64)
    warm, hot = cooling.plans(0, 2, 20_000)
    assert hot.hot > 1000 > 100 > warm.hot
    assert hot.cold == warm.cold < warm.hot
    again, mild = cooling.plans(9, 2, 5_000_000)
    assert again == warm
    assert mild.hot == pytest.approx(warm.hot / 2)
    assert list(cooling.plans(0, 1, 20_000)) == [warm]


@pytest.mark.parametrize("what", ["hops", "loads"])
@pytest.mark.parametrize("ranks", [8, 64])
def test_lanes_take_turns_through_all_plans(what: str, ranks: int) -> None:
    cooling = Cooling(what, 50.0, noisy(ranks), ranks)
    lanes = [plan for run in range(6) for plan in cooling.plans(run, 2, 1000)]
    turns = list(dict.fromkeys(lanes))
    assert len(turns) > 1
    assert lanes == [turns[k % len(turns)] for k in range(12)]
    assert all(0 < plan.hot <= 50.0 and plan.cold == pytest.approx(plan.hot / 1000) for plan in turns)


def test_the_spread_is_of_round_trips_cut_at_twice_those_to_the_nearest_quarter_written_out() -> None:
    """Of n - 1 others the one at place (n - 1) // 4, counted from the nearest, of the host in the middle."""
    for n in (2, 3, 5, 8, 9, 13):
        rtt = noisy(n) * np.random.default_rng(n).choice([1.0, 40.0], n)[:, None]
        rtt = np.maximum(rtt, rtt.T)
        others = [sorted(rtt[host, k] for k in range(n) if k != host) for host in range(n)]
        around = np.median([row[(n - 1) // 4] for row in others])
        cut = [min(value, 2 * around) for row in others for value in row]
        expected = float(np.std(cut)) or float(np.std(rtt))
        assert spread_nearby(rtt) == pytest.approx(expected, rel=1e-12)


def test_a_chain_is_as_warm_as_a_tenth_of_what_hosts_nearby_differ_by() -> None:
    """The other lane has half of that in long runs, half of what all differ by in short ones; all of them end at a
    thirtieth of the least."""
    rtt = sites([16, 48], 10_000.0)
    nearby, overall = spread_nearby(rtt), float(rtt.std())
    cooling = Cooling("chain", 1.0, rtt, 64)
    for moves, other in ((640_000, 0.5 * overall), (640_001, 0.05 * nearby)):
        plans = cooling.plans(3, 2, moves)
        assert [plan.hot for plan in plans] == pytest.approx([0.1 * nearby, other])
        assert [plan.cold for plan in plans] == pytest.approx([0.05 * nearby / 30] * 2)
        assert [plan.soft for plan in plans] == [0.0, 0.0]


def test_few_ranks_begin_as_hot_as_a_swap_changes_the_cost_and_many_keep_what_they_have() -> None:
    """32 are few; loads, of which there are few different ones, begin hot whatever the number."""
    first = {(what, ranks): Cooling(what, 50.0, noisy(8), ranks).plans(0, 2, 1)[0].hot for what in ("hops", "loads")
             for ranks in (32, 33)}  # fmt: skip
    assert first["hops", 32] == first["loads", 32] == first["loads", 33] == 50.0
    assert first["hops", 33] < 5.0


@pytest.mark.parametrize("ranks", [32, 33])
def test_hops_are_annealed_smooth_in_part_and_loads_are_not(ranks: int) -> None:
    turns = Cooling("hops", 50.0, noisy(8), ranks).plans(0, 12, 1)
    assert {plan.soft for plan in turns} == {0.0, 0.5, 1.0}
    assert min(plan.hot for plan in turns) == pytest.approx(50.0 / 20)
    assert max(plan.hot for plan in turns) == 50.0
    assert {plan.soft for plan in Cooling("loads", 50.0, noisy(8), ranks).plans(0, 12, 1)} == {0.0}


def test_slices_of_a_long_run_are_equal_ratios_written_out() -> None:
    plan = Plan(16.0, 1.0)
    assert [plan.stretch(k, 4) for k in range(4)] == [(16.0, 8.0), (8.0, 4.0), (4.0, 2.0), (2.0, 1.0)]
    assert plan.stretch(0, 1) == (16.0, 1.0)
