"""Versions that formulas and copies count, beside a replay of the actions."""

import itertools

import numpy as np
import pytest

from plink.model.pipeline.actions import actions_of, use_of
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from plink.model.pipeline.shape import PipelineShape, base_depths, most_versions
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts
from solvers.pipeline.period import PlacedPartition
from solvers.pipeline.simulated_ways import TrainingMode, WaySimulator, depths_from
from solvers.pipeline.stage_costs import keeps_versions
from solvers.pipeline.thesis import NetworkLevel
from solvers.pipeline.verifier import verify_actions
from tests.solvers.pipeline.test_even import hosts

REPLICAS = [
    *((1,) * count for count in (1, 2, 4)),
    (3,), (3, 1), (1, 3), (2, 2), (2, 1, 1), (4, 6, 1), (2, 3, 1), (3, 2), (6, 4), (1, 2, 4),
]  # fmt: skip
WEIGHTS = 1000


def shapes_of(replicas: tuple[int, ...]) -> list[PipelineShape]:
    """Return every kind with the thesis's depths and deeper ones, with vertical sync, late, and with a frozen stage."""
    frozen = range(min(2, len(replicas)))
    shapes = []
    base = base_depths(replicas)
    deeper = depths_from(base[0] + 2, replicas, [depth + 2 for depth in base])
    for depths, first in itertools.product({base, deeper}, frozen):
        for vertical, late in itertools.product((False, True), repeat=2):
            reduce = "late" if late else "wait"
            shapes.append(PipelineShape("1f1b", replicas, depths, 1, vertical, reduce, first))  # type: ignore[arg-type]
        cycle = int(np.lcm.reduce(replicas))
        many = cycle * -(-max(d * r for d, r in zip(depths, replicas, strict=True)) // cycle)
        shapes.append(PipelineShape("2bw", replicas, depths, many, frozen=first))
        shapes.append(PipelineShape("1f1b-flush", replicas, depths, many, frozen=first))
        gpipe = tuple(many // count for count in replicas)
        shapes.append(PipelineShape("gpipe", replicas, gpipe, many, frozen=first))
        alone = (1,) * len(replicas)
        shapes.append(PipelineShape("model-parallel", replicas, alone, frozen=first))
    return [shape for shape in shapes if not verify_actions(shape)]


def replayed(shape: PipelineShape, stage: int) -> int:
    """Return the most versions that any replica of a stage has."""
    minibatches = 4 * max(d * r for d, r in zip(shape.depths, shape.replicas, strict=True)) + 4 * shape.cycle
    return max(
        use_of(shape, stage, list(actions_of(shape, stage, replica, minibatches))).versions
        for replica in range(shape.replicas[stage])
    )


@pytest.mark.parametrize("replicas", REPLICAS, ids=lambda replicas: "-".join(map(str, replicas)))
def test_versions_are_those_of_a_replay(replicas: tuple[int, ...]) -> None:
    shapes = shapes_of(replicas)
    assert {shape.kind for shape in shapes} == {"1f1b", "2bw", "1f1b-flush", "gpipe", "model-parallel"}
    for shape in shapes:
        expected = [replayed(shape, stage) for stage in range(shape.stages)]
        assert [most_versions(shape, stage) for stage in range(shape.stages)] == expected, shape
        assert [keeps_versions(shape, stage) for stage in range(shape.stages)] == [n > 1 for n in expected], shape
        assert planned_versions(shape) == expected, shape


def planned_versions(shape: PipelineShape) -> list[int]:
    """Return the versions that are in the planner's memory of each stage."""
    count = shape.stages
    layers = tuple(
        LayerProfile(
            name=f"l{k}",
            forward_s=0.1,
            backward_s=0.2,
            parameter_bytes=WEIGHTS,
            crossing_bytes=10 * (k + 1 < count),
            crossing_back_bytes=10 * (shape.frozen <= k < count - 1),
        )
        for k in range(count)
    )
    measured = MeasuredHosts.even(hosts(shape.workers), (NetworkLevel(shape.workers, 1.25e8),))
    request = JointRequest(vertical_sync=shape.vertical_sync, reduce=shape.reduce)
    ways = WaySimulator(ModelProfile(minibatch=1, layers=layers), measured, request)
    partition = PlacedPartition.of(range(count + 1), shape.replicas, range(shape.workers))
    mode = TrainingMode(shape.kind, shape.accumulate, shape.reduce)
    needed = ways.model(mode).memory_of(partition, shape.depths)
    return [1 + stage.versions // WEIGHTS for stage in needed]
