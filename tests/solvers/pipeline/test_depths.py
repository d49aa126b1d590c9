"""Depths that the planner chooses for kinds that accumulate: beside the thesis's, and beside all that are possible."""

import itertools
from typing import Any

import numpy as np
import pytest

from plink.errors import NoAnswer
from plink.features.pipeline.plan import plan_pipeline
from plink.features.pipeline.request import PipelineRequest
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from plink.model.pipeline.shape import PipelineShape
from solvers.pipeline.verifier import never_locks


def profile_of(forward_s: list[float], backward_s: list[float], crossing_bytes: int = 1000) -> ModelProfile:
    last = len(forward_s) - 1
    layers = [
        LayerProfile(
            name=f"l{k}",
            forward_s=forward_s[k],
            backward_s=backward_s[k],
            parameter_bytes=1_000_000,
            crossing_bytes=crossing_bytes * (k < last),
            crossing_back_bytes=crossing_bytes * (k < last),
        )
        for k in range(last + 1)
    ]
    return ModelProfile(minibatch=8, layers=tuple(layers))


def equal(layers: int) -> ModelProfile:
    return profile_of([0.01] * layers, [0.02] * layers)


def uneven(layers: int, seed: int) -> ModelProfile:
    rng = np.random.default_rng(seed)
    return profile_of(
        rng.uniform(0.005, 0.05, layers).tolist(), rng.uniform(0.01, 0.1, layers).tolist(), int(rng.integers(1e4, 1e7))
    )


def planned(profile: ModelProfile, **options: Any) -> PipelinePlan:
    return plan_pipeline(profile, PipelineRequest(**options))


def seconds(plan: PipelinePlan) -> float:
    return float(plan.minibatch_s or 0)


@pytest.mark.parametrize(("layers", "count"), [(3, 3), (4, 4), (4, 5), (5, 6), (6, 9), (8, 13)])
def test_updates_of_few_minibatches_keep_all_stages_busy(layers: int, count: int) -> None:
    """Neighbours with as many in flight, all that an update has, would take turns."""
    options = {"hosts": layers, "gbps": [1000.0], "kind": "2bw", "microbatches": count, "straight": True}
    assert seconds(planned(equal(layers), **options)) == pytest.approx(0.03, rel=0.01)


def test_fewer_minibatches_than_stages() -> None:
    """Two in flight at most: those of the thesis for four stages leave three of them in turns, 90 ms."""
    options = {"hosts": 4, "gbps": [1000.0], "kind": "2bw", "microbatches": 2, "stages": "0,1,2,3"}
    assert seconds(planned(equal(4), **options)) < 0.065
    assert seconds(planned(equal(4), depth="noam", **options)) > 0.085


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["2bw", "1f1b-flush"])
def test_no_depths_are_much_faster(kind: Any, seed: int) -> None:
    stages, replicas = (("0,1,2", (1, 1, 1)), ("0,1,2x2", (1, 1, 2)), ("0x2,1-2", (2, 1)))[seed % 3]
    options = {"hosts": 4, "gbps": [2.0], "rtt_s": 0.005, "kind": kind, "microbatches": 4, "stages": stages}
    profile = uneven(3, seed)
    auto = seconds(planned(profile, **options))
    assert auto <= seconds(planned(profile, depth="noam", **options)) * 1.001
    for depths in itertools.product(*(range(1, 4 // count + 1) for count in replicas)):
        if never_locks(PipelineShape(kind, replicas, depths, 4)):
            assert auto <= seconds(planned(profile, depth=",".join(map(str, depths)), **options)) * 1.02, depths


def test_tried_depths_fit_in_memory() -> None:
    profile = profile_of([0.01] * 4, [0.02] * 4, 10_000_000)
    options = {"hosts": 4, "gbps": [10.0], "rtt_s": 0.02, "kind": "2bw", "microbatches": 16, "stages": "0,1,2,3"}
    free = planned(profile, **options)
    needed = max(stage.memory_bytes.all for stage in free.stages if stage.memory_bytes)
    for share in (0.4, 0.6, 0.8, 1.0):
        try:
            plan = planned(profile, memory={"": share * needed}, **options)
        except NoAnswer:
            assert share < 1
            continue
        assert all(stage.memory_bytes and stage.memory_bytes.all <= share * needed for stage in plan.stages)
        assert seconds(plan) >= seconds(free) * 0.99
