"""Which hosts can be placed, how many pairs are held out, and how often."""

import itertools

import numpy as np
import pytest

from plink.errors import NoAnswer
from plink.model.network import Matrix
from solvers.embedding.embed import held_out_of
from solvers.embedding.pairs import folds, reachable
from solvers.prediction.observed import ObservedPairs, observed


def complete(n: int) -> Matrix:
    """Everyone has measured everyone, all differently."""
    return 1.0 + np.arange(n * n, dtype=np.float64).reshape(n, n)


def ring(n: int) -> ObservedPairs:
    """Each host has measured the next one only."""
    rtt = np.full((n, n), np.nan)
    for k in range(n):
        rtt[k, (k + 1) % n] = 10.0
    return observed(rtt)


def sizes(pairs: ObservedPairs, seed: int = 0) -> list[int]:
    return [len(fold) for fold in folds(pairs, np.random.default_rng(seed))]


def test_four_hosts_are_enough() -> None:
    result = reachable(complete(4))
    assert result.hosts.tolist() == [0, 1, 2, 3]
    assert result.pairs.rtt_us.tolist() == [5, 9, 13, 10, 14, 15]


def test_a_measurement_of_itself_makes_no_host_reachable() -> None:
    rtt = np.full((6, 6), np.nan)
    rtt[:4, :4] = complete(4)
    np.fill_diagonal(rtt, 0.0)
    assert reachable(rtt).hosts.tolist() == [0, 1, 2, 3]


def test_one_direction_of_one_pair_makes_a_host_reachable() -> None:
    """Hosts are numbered anew, those of which nothing is known left out."""
    rtt = np.full((7, 7), np.nan)
    rtt[np.ix_([1, 2, 4, 5], [1, 2, 4, 5])] = 7.0
    rtt[6, 2] = 3.0
    for result in (reachable(rtt), reachable(rtt.T)):
        assert result.hosts.tolist() == [1, 2, 4, 5, 6]
        there = list(zip(result.pairs.i.tolist(), result.pairs.j.tolist(), result.pairs.rtt_us.tolist(), strict=True))
        assert there == [(0, 1, 7), (0, 2, 7), (0, 3, 7), (1, 2, 7), (1, 3, 7), (1, 4, 3), (2, 3, 7)]


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (5, "host 0, host 1, host 2, host 3, host 4: probe"),
        (9, "host 0, host 1, host 2, host 3, host 4 and 4 more: probe"),
    ],
)
def test_of_the_smallest_part_that_is_cut_off_five_hosts_are_named(part: int, named: str) -> None:
    rtt = complete(part + 10)
    rtt[:part, part:] = rtt[part:, :part] = np.nan
    with pytest.raises(NoAnswer, match=f"2 parts .* one is {named}"):
        reachable(rtt)
    other_way_round = rtt[::-1, ::-1]
    with pytest.raises(NoAnswer, match=f"one is host 10, host 11, .*{named.rpartition('host 4')[2]}"):
        reachable(other_way_round)


def test_the_more_pairs_there_are_the_fewer_times_some_are_held_out() -> None:
    """A fifth, four times where there are few; 1,200 pairs in all are wanted, and 4,000 at a time are enough."""
    assert sizes(observed(complete(20))) == [38] * 4  # of 190 pairs
    assert sizes(observed(complete(60))) == [354] * 3  # of 1,770 pairs
    assert sizes(observed(complete(100))) == [990]  # of 4,950 pairs
    assert sizes(observed(complete(210))) == [4000]  # of 21,945 pairs


def test_one_pair_of_a_ring_may_be_unmeasured() -> None:
    """Also where a fifth of the pairs is less than one, or many; each time another pair."""
    for n, seed in itertools.product((4, 9, 30), range(3)):
        result = folds(ring(n), np.random.default_rng(seed))
        assert 1 <= len(result) <= 4
        assert all(len(fold) == 1 for fold in result)
        assert len({int(fold[0]) for fold in result}) == len(result)


def test_two_pairs_more_than_a_tree_are_all_that_is_held_out() -> None:
    """12 hosts in a ring with one chord: 13 pairs, of which a fifth is 2, and 2 can be spared."""
    rtt = np.full((12, 12), np.nan)
    for k in range(12):
        rtt[k, (k + 1) % 12] = 10.0
    rtt[0, 6] = 10.0
    assert sizes(observed(rtt))[0] == 2


def test_what_is_held_out_depends_on_the_seed_alone() -> None:
    pairs = observed(complete(12))
    first, again, other = (folds(pairs, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert [fold.tolist() for fold in first] == [fold.tolist() for fold in again]
    assert [fold.tolist() for fold in first] != [fold.tolist() for fold in other]


def test_all_pairs_are_held_out_as_often_as_others() -> None:
    """Over many seeds: of 10 hosts and 45 pairs 9 at a time, so each pair in a fifth of the first folds."""
    pairs = observed(complete(10))
    times = np.zeros(len(pairs))
    for seed in range(400):
        times[folds(pairs, np.random.default_rng(seed))[0]] += 1
    assert times.sum() == 400 * 9
    assert times.min() > 40
    assert times.max() < 130


def test_embedding_is_validated_on_other_pairs_than_its_setting() -> None:
    pairs = observed(complete(30))
    for seed in range(3):
        validated = held_out_of(pairs, seed)
        assert len(validated) == 87
        assert validated.tolist() == held_out_of(pairs, seed).tolist()
        assert validated.tolist() not in [fold.tolist() for fold in folds(pairs, np.random.default_rng(seed))]
    assert held_out_of(pairs, 0).tolist() != held_out_of(pairs, 1).tolist()
