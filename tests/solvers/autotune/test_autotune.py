"""Autotune on a network on paper: what it decides when a rank slows down, recovers, or nothing happens."""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import UsageError
from solvers.autotune.finetune import FinetuneState, finetune, quicktune
from solvers.autotune.observed import MasterAssignment, ObservedTraffic, sent_bytes
from solvers.autotune.trajectory import changed
from tests.solvers.ranks_on_paper import CHUNK, GROUPS, RATE, equal_assignment, seen


def balance(assignment: MasterAssignment) -> float:
    """The most that a rank sends over the least."""
    load = sent_bytes(assignment, np.full(len(assignment.global_group), CHUNK)).sum(axis=1)
    return float(load.max() / load.min())


def steps(
    assignment: MasterAssignment, rates: npt.NDArray[np.float64], number: int, recovered: bool = False
) -> list[tuple[MasterAssignment, float]]:
    """Quicktune, and so many steps of Finetune: (masters, seconds) after each."""
    result = [quicktune(assignment, seen(assignment, rates)[0], recovered=recovered)]
    step = FinetuneState()
    for _ in range(number):
        decision = finetune(result[-1], seen(result[-1], rates)[0], step)
        result.append(decision.assignment)
        step = decision.step
    return [(item, seen(item, rates)[1]) for item in result]


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
    tuned = [item for item, _ in steps(uneven, rates, 15, recovered=True)]
    assert balance(tuned[-1]) < 1.05
    last = finetune(tuned[-1], seen(tuned[-1], rates)[0], FinetuneState())
    assert last.moved == ()


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


@pytest.mark.parametrize(
    ("throughputs", "expected"),
    [
        ([10.0] * 9, False),
        ([10.0] * 10, False),
        ([10.0] * 5 + [7.9] * 5, True),
        ([10.0] * 5 + [8.1] * 5, False),
        ([7.9] * 5 + [10.0] * 5, True),
        ([10.0] * 5 + [1.0, 1.0, 10.0, 10.0, 10.0], False),
        ([5.0] * 20 + [10.0] * 10, True),
        ([10.0, 10.0, 9.0, 7.5, 6.0, 4.5] + [3.0] * 10, True),
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
