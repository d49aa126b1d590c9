"""Depths by Little's law: enough minibatches in flight to hide the network, never so many that ranks lock."""

import random

import pytest

from plink.model.pipeline.shape import PipelineShape, base_depths
from solvers.pipeline.depths import Depths, StageLoop, depths_of_network, loop_period_s
from solvers.pipeline.verifier import verify_actions
from tests.solvers.pipeline.test_verifier import compositions


def depths_of(loops: tuple[StageLoop, ...], replicas: tuple[int, ...], period_s: float) -> Depths:
    def ends(depths: Depths) -> bool:
        return verify_actions(PipelineShape("1f1b", replicas, depths)) == []

    return depths_of_network(loops, replicas, period_s, ends)


def test_two_hosts_with_a_transfer_as_long_as_a_pass() -> None:
    """The case measured in the design: 20 ms a pass, 20 ms a transfer; one more in flight than NOAM, and no more."""
    loops = (StageLoop(0.04, transfers_s=0.04), StageLoop(0.04))
    assert depths_of(loops, (1, 1), 0.04) == (3, 1)
    assert loop_period_s(loops, (1, 1), (2, 1)) == pytest.approx(0.06)
    assert loop_period_s(loops, (1, 1), (3, 1)) == pytest.approx(0.04)


def test_no_network_needs_the_thesis_depths() -> None:
    for stages in range(1, 6):
        loops = (StageLoop(0.1),) * stages
        assert depths_of(loops, (1,) * stages, 0.1) == base_depths((1,) * stages)
    # A transfer of a thousandth is not worth a minibatch more.
    assert depths_of((StageLoop(0.1, transfers_s=0.0001), StageLoop(0.1)), (1, 1), 0.1) == (2, 1)


def test_short_stages_need_fewer_than_the_thesis_has() -> None:
    loops = (StageLoop(0.1), StageLoop(0.01), StageLoop(0.01), StageLoop(0.01))
    assert depths_of(loops, (1, 1, 1, 1), 0.1) == (2, 1, 1, 1)


def test_periods_of_replications() -> None:
    """Of up to seven workers, on networks from none to far slower than the computing."""
    source = random.Random(5)
    for workers in range(1, 8):
        for replicas in compositions(workers):
            loops = tuple(
                StageLoop(
                    source.uniform(0.01, 1),
                    source.choice([0.0, 0.05]),
                    0.0 if stage + 1 == len(replicas) else source.choice([0.0, 0.01, 1.0, 10.0]),
                )
                for stage in range(len(replicas))
            )
            compute = [(loop.passes_s + loop.own_s) / count for loop, count in zip(loops, replicas, strict=True)]
            depths = depths_of(loops, replicas, max(compute))
            assert verify_actions(PipelineShape("1f1b", replicas, depths)) == [], (replicas, depths)
            if max(replicas) == 1:  # replicas can bound the depths below what would be enough
                assert loop_period_s(loops, replicas, depths) <= 1.011 * max(compute), (loops, depths)
