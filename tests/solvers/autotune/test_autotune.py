"""Autotune on a network on paper: what it decides when a rank slows down, recovers, or nothing happens."""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import UsageError
from solvers.autotune.finetune import FinetuneSettings, FinetuneState, blame, finetune
from solvers.autotune.observed import MasterAssignment, ObservedTraffic, sent_bytes
from solvers.autotune.quicktune import quicktune
from solvers.autotune.trajectory import changed
from tests.solvers.ranks_on_paper import CHUNK, GROUPS, RATE, equal_assignment, seen


def balance(assignment: MasterAssignment) -> float:
    """The most that a rank sends over the least."""
    load = sent_bytes(assignment, np.full(len(assignment.global_group), CHUNK)).sum(axis=1)
    return float(load.max() / load.min())


def steps(
    assignment: MasterAssignment, rates: npt.NDArray[np.float64], number: int
) -> list[tuple[MasterAssignment, float]]:
    """Quicktune, and so many steps of Finetune: (masters, seconds) after each."""
    result = [quicktune(assignment, seen(assignment, rates)[0])]
    step = FinetuneState()
    for _ in range(number):
        decision = finetune(result[-1], seen(result[-1], rates)[0], step)
        result.append(decision.assignment)
        step = decision.step
    return [(item, seen(item, rates)[1]) for item in result]


def test_what_is_sent_is_what_the_thesis_counts() -> None:
    """One chunk, two groups of two: 0 is the local and global master, 2 the local one of its group."""
    assignment = MasterAssignment([[0, 1], [2, 3]], np.array([[0, 2]], np.int32), np.array([0], np.int32))
    assert sent_bytes(assignment, np.array([10.0])).tolist() == [
        [0, 10, 10, 0],
        [10, 0, 0, 0],
        [10, 0, 0, 10],
        [0, 0, 10, 0],
    ]


@pytest.mark.parametrize("slow", [0, 5, 15])
def test_a_rank_at_a_quarter_of_its_rate(slow: int) -> None:
    """Within 12 steps at least 1.27 times as fast as the masters by size (Figure 6.15), on other ranks too."""
    rates = np.full(16, RATE)
    rates[slow] /= 4
    static = seen(equal_assignment(GROUPS, 64), rates)[1]
    tuned = steps(equal_assignment(GROUPS, 64), rates, 11)
    assert min(seconds for _, seconds in tuned) < static / 1.27
    assert tuned[0][1] < static, "Quicktune alone helps"


@pytest.mark.parametrize("slow", [0, 5, 15])
def test_after_it_has_recovered(slow: int) -> None:
    """Loads within 1.05 of each other in 15 steps, and left there."""
    rates = np.full(16, RATE)
    rates[slow] /= 4
    uneven = steps(equal_assignment(GROUPS, 64), rates, 11)[-1][0]
    assert balance(uneven) > 1.2
    rates[slow] *= 4
    tuned = [item for item, _ in steps(uneven, rates, 15)]
    assert balance(tuned[-1]) < 1.05
    last = finetune(tuned[-1], seen(tuned[-1], rates)[0], FinetuneState())
    assert last.moved == ()


def test_a_steady_network_is_left_alone() -> None:
    assignment = equal_assignment(GROUPS, 64)
    decision = finetune(assignment, seen(assignment, np.full(16, RATE))[0], FinetuneState(3, 8))
    assert decision.assignment is assignment
    assert (decision.moved, decision.step) == ((), FinetuneState())


def test_repeatedly_blamed_rank_loses_twice_as_many() -> None:
    rates = np.full(16, RATE)
    rates[2] /= 10
    assignment, step, numbers = equal_assignment(GROUPS, 256), FinetuneState(), []
    for _ in range(4):
        decision = finetune(assignment, seen(assignment, rates)[0], step)
        assert decision.step.blamed == 2
        assignment, step = decision.assignment, decision.step
        numbers.append(len(decision.moved))
        assert {(rank, to == 2) for _, rank, to, _ in decision.moved} == {(2, False)}
    assert numbers == [1, 2, 4, 8]


def test_global_masters_go_first_and_local_ones_stay_in_their_group() -> None:
    rates = np.full(16, RATE)
    rates[5] /= 10
    assignment, step, kinds = equal_assignment(GROUPS, 64), FinetuneState(), []
    for _ in range(8):
        decision = finetune(assignment, seen(assignment, rates)[0], step)
        if decision.step.blamed != 5:
            break
        assignment, step = decision.assignment, decision.step
        kinds += [kind for *_, kind in decision.moved]
        assert all(to in GROUPS[1] for *_, to, kind in decision.moved if kind == "local")
    assert kinds == sorted(kinds), "global before local"
    assert set(kinds) == {"global", "local"}
    assert not (assignment.global_masters == 5).any()


def test_a_rank_alone_in_its_group_has_nothing_to_give_but_what_is_global() -> None:
    groups = [[0], [1, 2]]
    assignment = MasterAssignment(groups, np.array([[0, 1], [0, 2]], np.int32), np.array([1, 1], np.int32))
    rates = np.array([RATE / 100, RATE, RATE])
    decision = finetune(assignment, seen(assignment, rates)[0], FinetuneState())
    assert (decision.moved, decision.step.blamed) == ((), 0)
    assert "0 of its masters move" in decision.reason


@given(st.data())
def test_whatever_is_seen_masters_stay_masters(data: st.DataObject) -> None:
    """An Assignment checks itself; each rank is the local master only in its own group, and no chunk is lost."""
    seed = data.draw(st.integers(0, 10_000))
    random = np.random.default_rng(seed)
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda s: sum(s) > 1))
    bounds = np.cumsum([0, *sizes])
    groups = [list(range(a, b)) for a, b in itertools.pairwise(bounds)]
    assignment = equal_assignment(groups, data.draw(st.integers(1, 20)))
    n = sum(sizes)
    random_rates = random.lognormal(0, 1, n) * RATE
    step = FinetuneState()
    for _ in range(4):
        observed, _ = seen(assignment, random_rates)
        decision = finetune(assignment, observed, step)
        assert len(decision.assignment.global_group) == len(assignment.global_group)
        assignment, step = decision.assignment, decision.step
    if n > 1:
        assert quicktune(assignment, seen(assignment, random_rates)[0]).ranks == n


def test_blame_is_load_and_time() -> None:
    """Two ranks, one sends twice as much at the same rate: l = 1 and 0, t = 4/3 and 2/3."""
    sent = np.array([[0.0, 2e6], [1e6, 0.0]])
    observed = ObservedTraffic(sent, np.where(sent > 0, 1e6, np.nan), np.where(sent > 0, 0.0, np.nan))
    assert blame(observed, FinetuneSettings()) == pytest.approx([1 + 4 / 3, 2 / 3])
    assert blame(observed, FinetuneSettings(beta=0)) == pytest.approx([4 / 3, 2 / 3])
    assert blame(observed, FinetuneSettings(gamma=0)) == pytest.approx([1, 0])
    slow_path = ObservedTraffic(sent, observed.bytes_per_s, np.where(sent > 0, [[0, 0], [3.0, 0]], np.nan))
    assert blame(slow_path, FinetuneSettings(beta=0)) == pytest.approx([2 / 3, 4 / 3])


@pytest.mark.parametrize(
    ("throughputs", "expected"),
    [
        ([10.0] * 9, False),
        ([10.0] * 10, False),
        ([10.0] * 5 + [7.9] * 5, True),
        ([10.0] * 5 + [8.1] * 5, False),
        ([7.9] * 5 + [10.0] * 5, True),
        ([10.0] * 5 + [1.0, 1.0, 10.0, 10.0, 10.0], False),
        ([5.0] * 20 + [10.0] * 5 + [10.0] * 5, False),
        ([0.0] * 10, False),
    ],
)
def test_next_check_time(throughputs: list[float], expected: bool) -> None:
    assert changed(throughputs) is expected


def broken(name: str, value: Any) -> ObservedTraffic:
    """An observation with one thing wrong."""
    zero = np.zeros((2, 2))
    return ObservedTraffic(**{"sent_bytes": zero, "bytes_per_s": zero, "rtt_s": zero, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sent_bytes", np.full((2, 2), np.nan)),
        ("bytes_per_s", np.zeros((3, 3))),
        ("bytes_per_s", np.full((2, 2), -1.0)),
        ("rtt_s", np.full((2, 2), np.inf)),
    ],
)
def test_what_is_no_observation(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"observed {name}"):
        broken(name, value)


def test_rank_rate_is_its_slower_direction() -> None:
    """Rank 0 sends 60 and gets 10, rank 1 sends 10 and gets 20, rank 2 only gets, rank 3 does nothing."""
    rates = np.full((4, 4), np.nan)
    rates[0, 1], rates[1, 0], rates[0, 2] = 20.0, 10.0, 40.0
    assert ObservedTraffic(np.nan_to_num(rates), rates, rates).rates().tolist() == [10.0, 10.0, 40.0, 20.0]


def test_nothing_was_seen() -> None:
    with pytest.raises(UsageError, match="nothing was observed"):
        quicktune(equal_assignment([[0, 1]], 4), broken("sent_bytes", np.zeros((2, 2))))


@pytest.mark.parametrize(
    ("local", "group"),
    [([[2, 2]], [0]), ([[0, 2]], [2]), ([[0]], [0]), ([[0, 2]], [0, 0]), ([[0, 2]], [-1]), ([[0, 1]], [0])],
)
def test_what_is_no_assignment(local: list[list[int]], group: list[int]) -> None:
    with pytest.raises(UsageError, match="masters"):
        MasterAssignment([[0, 1], [2, 3]], np.array(local, np.int32), np.array(group, np.int32))
