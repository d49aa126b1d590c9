"""Who is to blame, by how much, which of its masters move, and where to: each worked out by hand or rank by rank."""

import numpy as np
import pytest

from solvers.autotune.finetune import FinetuneSettings, FinetuneState, blame, finetune, quicktune
from solvers.autotune.observed import MasterAssignment, ObservedTraffic, sent_bytes
from solvers.schedules.masters import Weights, equal_chunks
from tests.solvers.ranks_on_paper import equal_assignment


def masters(groups: list[list[int]], local: list[list[int]], of_all: list[int]) -> MasterAssignment:
    return MasterAssignment(groups, np.array(local, np.int32), np.array(of_all, np.int32))


def sending(load: list[float], rate: float = 1.0, rtt: float = 0.0) -> ObservedTraffic:
    """Each rank sends so much to the next one."""
    sent = np.roll(np.diag(load), 1, axis=1)
    return ObservedTraffic(sent, np.where(sent > 0, rate, np.nan), np.where(sent > 0, rtt, np.nan))


def test_blame_is_as_it_is_defined_rank_by_rank() -> None:
    rng = np.random.default_rng(0)
    sent = rng.uniform(1, 5, (5, 5)) * (rng.random((5, 5)) < 0.7)
    sent[2] = 0.0
    rate, rtt = rng.uniform(1, 3, (5, 5)), rng.uniform(0, 2, (5, 5))
    load, times = [], []
    for i in range(5):
        there = [j for j in range(5) if sent[i, j] > 0]
        load.append(sum(sent[i, j] for j in there))
        worst = max((rtt[i, j] for j in there), default=0.0)
        times.append(worst + (load[i] / sum(rate[i, j] for j in there) if there else 0.0))
    observed = ObservedTraffic(sent, np.where(sent > 0, rate, np.nan), np.where(sent > 0, rtt, np.nan))
    mean = sum(times) / 5
    expected = [0.3 * item / max(load) + 2.0 * time / mean for item, time in zip(load, times, strict=True)]
    assert blame(observed, FinetuneSettings(beta=0.3, gamma=2.0)) == pytest.approx(expected)
    # What is told of pairs that nothing was sent between counts nothing.
    assert blame(ObservedTraffic(sent, rate, rtt), FinetuneSettings(beta=0.3, gamma=2.0)) == pytest.approx(expected)


@pytest.mark.parametrize(("most", "moves"), [(1.5, False), (1.51, True)])
def test_masters_move_above_the_epsilon_ratio_of_blame(most: float, moves: bool) -> None:
    """By time alone: twice the load at the same rate is twice the blame."""
    settings = FinetuneSettings(beta=0.0, epsilon=1.5)
    decision = finetune(equal_assignment([[0, 1]], 4), sending([most, 1.0]), FinetuneState(0, 2), settings)
    assert bool(decision.moved) == moves
    assert decision.step == (FinetuneState(0, 4) if moves else FinetuneState())
    assert ("rank 0" in decision.reason) == moves


@pytest.mark.parametrize(
    ("step", "number"),
    [(FinetuneState(), 1), (FinetuneState(1, 8), 1), (FinetuneState(0, 3), 6), (FinetuneState(0, 1 << 16), 1 << 16)],
)
def test_repeatedly_blamed_rank_loses_more_up_to_a_limit(step: FinetuneState, number: int) -> None:
    assignment = masters([[0, 1]], [[0]] * 8, [0] * 8)
    decision = finetune(assignment, sending([3.0, 1.0]), step)
    assert decision.step == FinetuneState(0, number)
    assert decision.moved == tuple((chunk, 0, 1, "global") for chunk in range(min(8, number)))
    assert decision.assignment.local_masters[:, 0].tolist() == [1] * min(8, number) + [0] * (8 - min(8, number))


def test_global_master_moves_to_the_least_blamed_rank() -> None:
    assignment = masters([[0, 1], [2, 3]], [[1, 2], [0, 2], [0, 3]], [1, 0, 0])
    decision = finetune(assignment, sending([9.0, 4.0, 2.0, 1.0]), FinetuneState())
    assert decision.moved == ((1, 0, 3, "global"),)
    assert decision.assignment.local_masters.tolist() == [[1, 2], [0, 3], [0, 3]]
    assert decision.assignment.global_group.tolist() == [1, 1, 0]
    assert assignment.global_group.tolist() == [1, 0, 0], "that of before stays as it is"


def test_a_local_master_goes_to_the_least_blamed_rank_of_its_group() -> None:
    assignment = masters([[0, 1], [2, 3, 4]], [[0, 3], [1, 2]], [0, 0])
    decision = finetune(assignment, sending([1.0, 2.0, 9.0, 5.0, 4.0]), FinetuneState(2, 1))
    assert decision.moved == ((1, 2, 4, "local"),)
    assert decision.step == FinetuneState(2, 2)
    assert decision.assignment.local_masters.tolist() == [[0, 3], [1, 4]]
    assert decision.assignment.global_group.tolist() == [0, 0]
    assert "rank 2" in decision.reason


def test_what_is_sent_is_what_is_sent_chunk_by_chunk() -> None:
    rng = np.random.default_rng(4)
    groups = [[0, 3, 4], [1], [2, 5]]
    local = np.stack([rng.choice(line, 12) for line in groups], axis=1)
    assignment = masters(groups, local.tolist(), rng.integers(0, 3, 12).tolist())
    size = rng.uniform(1, 9, 12)
    expected = np.zeros((6, 6))
    for chunk in range(12):
        head = int(local[chunk, assignment.global_group[chunk]])
        assert assignment.global_masters[chunk] == head
        for g, line in enumerate(groups):
            own = int(local[chunk, g])
            for item, other in [(member, own) for member in line] + [(own, head)]:
                if item != other:
                    expected[item, other] += size[chunk]
                    expected[other, item] += size[chunk]
    np.testing.assert_allclose(sent_bytes(assignment, size), expected)
    assert assignment.ranks == 6


@pytest.mark.parametrize(("alike", "fewer"), [(0.5, False), (0.49, True), (0.0, True)])
def test_rates_within_a_share_of_their_median_are_taken_for_it(alike: float, fewer: bool) -> None:
    """One rank at half of what the others carry, which is what its own chunks take; the rest as much as each other."""
    rates = np.array([0.5, 1.0, 1.0, 1.0])
    between = np.outer(rates, rates) / rates.sum()
    result = quicktune(equal_assignment([[0, 1, 2, 3]], 28), ObservedTraffic(between, between, between), alike)
    chunks = np.bincount(result.local_masters.ravel(), minlength=4).tolist()
    assert (chunks[0] == 0 and max(chunks) - min(chunks[1:]) <= 1) if fewer else chunks == [7] * 4


def test_masters_are_assigned_by_what_ranks_can_do_for_others() -> None:
    """Five ranks that carry 1 and three that carry 4: the busiest link is within a chunk of the least possible time."""
    rates = np.array([1.0, 1.0, 4.0, 1.0, 4.0, 1.0, 4.0, 1.0])
    groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
    between = np.outer(rates, rates) / rates.sum()
    result = quicktune(equal_assignment(groups, 256), ObservedTraffic(between, between, between))
    busiest = (sent_bytes(result, np.full(256, 1 / 256)).sum(axis=1) / rates).max()
    by_rates = MasterAssignment(groups, *equal_chunks(groups, 256, Weights(np.array([7.0, 10.0]), rates)))
    assert busiest == pytest.approx(1.0, abs=0.02)  # that of a rank's own chunks
    assert (sent_bytes(by_rates, np.full(256, 1 / 256)).sum(axis=1) / rates).max() > 1.05 * busiest
