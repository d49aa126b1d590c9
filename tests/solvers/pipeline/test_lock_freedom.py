"""Depths that are proven to end without running them: never one that locks, always those that the planner chooses."""

import math
import random

import pytest

from plink.model.pipeline.shape import Kind, PipelineShape, base_depths, minibatches_to_prove
from solvers.pipeline.simulated_ways import depths_from
from solvers.pipeline.verifier import never_locks, verify_actions
from tests.solvers.pipeline.test_verifier import compositions

SMALL = [replicas for workers in range(1, 8) for replicas in compositions(workers) if len(replicas) > 1]


def test_thesis_depths_and_deeper_ones_are_proven() -> None:
    for replicas in SMALL:
        base = base_depths(replicas)
        assert never_locks(PipelineShape("1f1b", replicas, base))
        for more in (1, 2, 5):
            deeper = depths_from(base[0] + more, replicas, [depth + more for depth in base])
            assert never_locks(PipelineShape("1f1b", replicas, deeper)), (replicas, deeper)


@pytest.mark.parametrize("kind", ["1f1b", "late", "2bw", "1f1b-flush", "gpipe"])
def test_proven_depths_end_when_executed(kind: str) -> None:
    """Any depths, also below the thesis's; some that lock are among those that are not proven."""
    chance = random.Random(5)
    proven = locked = 0
    for _ in range(250):
        replicas = chance.choice(SMALL)
        depths = tuple(chance.randint(1, 4) for _ in replicas)
        accumulate = math.lcm(*replicas) * chance.randint(1, 3)
        if kind == "2bw" and any(accumulate // count < depth for count, depth in zip(replicas, depths, strict=True)):
            continue
        own: Kind = "1f1b" if kind == "late" else kind  # type: ignore[assignment]
        count = 1 if own == "1f1b" else accumulate
        reduce = "late" if kind == "late" else "wait"
        shape = PipelineShape(own, replicas, depths, count, reduce=reduce)  # type: ignore[arg-type]
        most = minibatches_to_prove(shape)
        ends = all(verify_actions(shape, number) == [] for number in (most, most - 1, chance.randint(1, most)))
        proven += never_locks(shape)
        locked += not ends
        assert ends or not never_locks(shape), shape
    assert proven > 10
    assert locked > 0 or kind not in ("1f1b", "late")


def test_frozen_stages_do_not_count() -> None:
    shape = PipelineShape("1f1b", (1, 1, 1), (1, 2, 1), frozen=1)
    assert never_locks(shape)
    assert verify_actions(shape, 20) == []
