"""Patterns as arrays for the compiled loops: every hop once, found from its ranks, and priced by a plain loop."""

from typing import Any

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import BYTES_PER_US
from solvers.costs.patterns import Pattern
from solvers.ordering.objectives import chain_of, hops_of, loads_of
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric

Lists = tuple[Any, ...]


def lists(arrays: tuple[object, ...]) -> Lists:
    return tuple(np.asarray(one).tolist() for one in arrays)


def listed(pattern: Pattern) -> list[tuple[int, int, int]]:
    """(round, lower rank, higher rank), each once."""
    ends = zip(pattern.round.tolist(), pattern.source.tolist(), pattern.target.tolist(), strict=True)
    return sorted({(when, min(a, b), max(a, b)) for when, a, b in ends})


def touching(hops: list[tuple[int, ...]], rank: int) -> list[int]:
    return sorted(k for k, ends in enumerate(hops) if rank in ends)


def of_rank(offsets: list[int], numbers: list[int], rank: int) -> list[int]:
    return numbers[offsets[rank] : offsets[rank + 1]]


@pytest.mark.parametrize("algo", ["halving-doubling", "recursive-doubling", "bcube", "bml", "2lha"])
def test_each_pair_of_ranks_is_a_hop_once_a_round(algo: str) -> None:
    n = 8
    pattern = pattern_for(algo, n, Options(groups=[[0, 1, 2], [3, 4], [5, 6, 7]]))
    weight, low, high, when, starts, hop_ptr, hop_of = lists(hops_of(pattern))
    assert weight == pattern.there.tolist()
    assert list(zip(when, low, high, strict=True)) == listed(pattern)
    assert starts == [sum(r < number for r in when) for number in range(len(weight) + 1)]
    for rank in range(n):
        assert sorted(of_rank(hop_ptr, hop_of, rank)) == touching(list(zip(low, high, strict=True)), rank)


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("algo", ["ring", "gloo", "ring-chunked"])
def test_each_hop_of_a_pipeline_is_a_round_that_counts_once(algo: str, n: int) -> None:
    """Between two ranks there is one hop each way."""
    weight, low, high, when, starts, hop_ptr, hop_of = lists(hops_of(pattern_for(algo, n, Options())))
    assert weight == [1.0] * n
    assert when == list(range(n))
    assert starts == list(range(n + 1))
    ring = [tuple(sorted((rank, (rank + 1) % n))) for rank in range(n)]
    assert sorted(zip(low, high, strict=True)) == sorted(ring)
    for rank in range(n):
        assert sorted(of_rank(hop_ptr, hop_of, rank)) == touching(list(zip(low, high, strict=True)), rank)


@pytest.mark.parametrize("algo", ["tree", "double-binary-tree", "nccl-tree"])
def test_a_chain_of_hops_is_priced_by_adding_up_along_it(algo: str) -> None:
    """Each hop stands behind those that it waits for, is what those wait with, and begins where they end."""
    for n in (2, 5, 12):
        pattern, found = pattern_for(algo, n, Options()), fabric(n, 3)
        source, target, wait_ptr, waits, after, last, levels, hop_ptr, hop_of = lists(chain_of(pattern))
        order = np.random.default_rng(n).permutation(n)
        done: list[float] = []
        deep: list[int] = []
        for hop, (a, b) in enumerate(zip(source, target, strict=True)):
            before = of_rank(wait_ptr, waits, hop)
            assert all(one < hop and after[one] == hop and target[one] == a for one in before)
            done.append(found.rtt_us[order[a], order[b]] + max((done[one] for one in before), default=0.0))
            deep.append(1 + max((deep[one] for one in before), default=0))
        assert max(done) == pytest.approx(closed_form(pattern, found, 1e6, "latency")(order), rel=1e-12)
        assert last == [hop for hop, next_one in enumerate(after) if next_one < 0]
        assert sorted(waits + last) == list(range(len(source)))
        assert levels >= max(deep)
        for rank in range(n):
            to = [hop for hop, end in enumerate(target) if end == rank]
            assert of_rank(hop_ptr, hop_of, rank) == to + [hop for hop, end in enumerate(source) if end == rank]


@pytest.mark.parametrize("pairs", [False, True])
def test_loads_are_bytes_over_bytes_a_microsecond(pairs: bool) -> None:
    n, size = 8, 3e5
    pattern, found = pattern_for("halving-doubling", n, Options()), fabric(n, 2, pairs=pairs)
    for model, mode in (("contention", 1), ("alpha-beta", 2)):
        (said, repeat, low, high, when, starts, hop_ptr, hop_of, rtt, source, target, edge_round, moved, edge_ptr,
         edge_of, group_of, group_out, group_in, slow, host_out, host_in) = lists(
            loads_of(pattern, found, size, model))  # fmt: skip
        assert (said, repeat) == (mode, pattern.repeat.tolist())
        assert list(zip(when, low, high, strict=True)) == listed(pattern)
        assert starts == [sum(r < number for r in when) for number in range(len(repeat) + 1)]
        assert rtt == found.rtt_us.tolist()
        assert (source, target, edge_round) == (
            pattern.source.tolist(), pattern.target.tolist(), pattern.round.tolist(),
        )  # fmt: skip
        assert moved == pytest.approx([share * size for share in pattern.share.tolist()])
        for rank in range(n):
            assert sorted(of_rank(hop_ptr, hop_of, rank)) == touching(list(zip(low, high, strict=True)), rank)
            sends, gets = ([k for k, end in enumerate(ends) if end == rank] for ends in (source, target))
            assert of_rank(edge_ptr, edge_of, rank) == sends + gets
        assert group_of == found.group_of.tolist()
        for rates, gbps in (
            (group_out, found.group_out_gbps),
            (group_in, found.group_in_gbps),
            (host_out, found.host_out_gbps),
            (host_in, found.host_in_gbps),
        ):
            assert rates == pytest.approx((gbps * BYTES_PER_US).tolist())
        if model == "contention":
            continue
        for a in range(n):
            for b in range(n):
                rate = found.pair_gbps[a, b] if found.pair_gbps is not None else None
                rate = min(found.host_out_gbps[a], found.host_in_gbps[b]) if rate is None else rate
                assert slow[a][b] == pytest.approx(0.0 if a == b else 1 / (rate * BYTES_PER_US))
