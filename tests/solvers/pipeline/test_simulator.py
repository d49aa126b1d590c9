"""Simulated pipelines: hand cases, what shared links do, and the cycle ratio as an oracle."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.pipeline_cycles import pipeline_period_s, unshared_case
from plink.errors import UsageError
from plink.model.pipeline.shape import PipelineShape, base_depths
from solvers.costs.fabric import TierLinks, alike_hosts
from solvers.pipeline.simulator import PipelineSimulation, simulate_pipeline
from solvers.pipeline.stage_costs import GradientBucket, StageCosts
from solvers.pipeline.training_job import PlacedPipeline

GBPS = 0.2  # 25 MB/s


def simulated(
    stages: list[tuple[float, float, float]], replicas: tuple[int, ...], crossing: float = 0.0, **options: Any
) -> PipelineSimulation:
    """``stages``: seconds of both passes and bytes of parameters; each replica on a host of its own."""
    kind = options.pop("kind", "1f1b")
    depths = options.pop("depths", base_depths(replicas) if kind in ("1f1b", "2bw") else (1,) * len(replicas))
    hosts = sum(replicas)
    names = tuple(f"h{k}" for k in range(hosts))
    rtt = np.full((hosts, hosts), options.pop("rtt_us", 0.0))
    alike = alike_hosts(names, options.pop("gbps", GBPS))
    fabric = replace(alike, rtt_us=rtt, outer_tiers=options.pop("tiers", ()))
    slowness = options.pop("slowness", (1.0,) * hosts)
    minibatches = options.pop("minibatches", None)
    crossing_back = options.pop("crossing_back", crossing)
    costs = [
        StageCosts(forward, back, 0.0, 0.0, size, (GradientBucket(back, size),) if size else ())
        for forward, back, size in stages
    ]
    order = iter(options.pop("order", range(hosts)))
    places = tuple(tuple(next(order) for _ in range(count)) for count in replicas)
    boundaries = ((crossing, crossing_back),) * (len(stages) - 1)
    shape = PipelineShape(kind, replicas, depths, **options)
    return simulate_pipeline(
        PlacedPipeline(shape, tuple(costs), places, boundaries, fabric, slowness), minibatches
    )  # fmt: skip


def test_model_parallelism_adds_everything_up() -> None:
    result = simulated([(0.01, 0.02, 0), (0.02, 0.02, 0)], (1, 1), 500_000, kind="model-parallel", rtt_us=2000)
    assert result.minibatch_s == pytest.approx(0.07 + 2 * (0.02 + 0.001))


def test_data_parallelism_waits_for_its_all_reduce() -> None:
    """Four hosts send 2 x 3/4 of the gradients, behind the backward pass because they are one bucket."""
    result = simulated([(0.1, 0.2, 2_500_000)], (4,), kind="data-parallel", rtt_us=4000)
    assert 4 * result.minibatch_s == pytest.approx(0.3 + 1.5 * 0.1 + 6 * 0.002)
    assert result.shares[0][0].all_reduce == pytest.approx(0.162 / 0.462)
    assert result.links[0][1] == pytest.approx(0.15 / 0.462)


def test_flush_costs_the_fill() -> None:
    """(m + S - 1) / m of the time without a flush."""
    result = simulated(
        [(0.01, 0.02, 0)] * 3, (1, 1, 1), kind="1f1b-flush", depths=(3, 2, 1), accumulate=6, minibatches=60
    )
    assert result.minibatch_s == pytest.approx(0.03 * 8 / 6)


@pytest.mark.parametrize("kind", ["1f1b-flush", "gpipe"])
def test_two_updates_show_the_time_of_all(kind: Any) -> None:
    """Each of them fills and drains, so nothing is left that only the beginning takes."""
    options: dict[str, Any] = {"kind": kind, "depths": (4, 3, 2, 1), "accumulate": 12}
    stages, replicas = [(0.01, 0.03, 0.0)] * 4, (1, 1, 1, 1)
    few = simulated(stages, replicas, minibatches=24, **options)
    many = simulated(stages, replicas, minibatches=240, **options)
    assert [few.minibatch_s, many.minibatch_s] == pytest.approx([0.04 * 15 / 12] * 2)
    assert few.is_periodic
    assert few.fill_s == many.fill_s == 0.0
    assert few.limit(lambda stage, replica: "a") == "filling and draining"
    assert [stage[0].busy for stage in few.shares] == pytest.approx([12 / 15] * 4)


@pytest.mark.parametrize("kind", ["1f1b-flush", "gpipe", "2bw"])
def test_less_than_two_updates_is_refused(kind: Any) -> None:
    options: dict[str, Any] = {"kind": kind, "depths": (2, 1), "accumulate": 12}
    with pytest.raises(UsageError, match="simulate 24 or more"):
        simulated([(0.01, 0.03, 0.0)] * 2, (1, 1), minibatches=23, **options)


@pytest.mark.parametrize("kind", ["1f1b-flush", "2bw"])
def test_default_job_has_several_updates(kind: Any) -> None:
    """Also where an update averages more minibatches than a job usually has."""
    result = simulated([(0.01, 0.03, 0.0)] * 2, (1, 1), kind=kind, depths=(2, 1), accumulate=400)
    assert result.minibatches >= 1200
    assert result.minibatch_s == pytest.approx(0.04 * (401 / 400 if kind == "1f1b-flush" else 1), rel=1e-3)


def test_update_of_too_many_minibatches_names_how_many_can_be() -> None:
    """Two updates are the least that show anything, so fewer minibatches are no advice."""
    options: dict[str, Any] = {"kind": "1f1b-flush", "depths": (2, 1)}
    with pytest.raises(UsageError, match="plan with --microbatches 166666 or fewer"):
        simulated([(0.01, 0.03, 0.0)] * 2, (1, 1), accumulate=200_000, **options)


def test_depth_hides_slow_messages() -> None:
    """Both ways of 20 ms, passes of 20 ms: two in flight wait, three do not (little's law)."""
    waiting = simulated([(0.02, 0.02, 0)] * 2, (1, 1), 500_000)
    hidden = simulated([(0.02, 0.02, 0)] * 2, (1, 1), 500_000, depths=(4, 1))
    assert waiting.minibatch_s == pytest.approx(0.06)
    assert waiting.shares[0][0].gradients == pytest.approx(1 / 3)
    assert hidden.minibatch_s == pytest.approx(0.04)


@pytest.mark.parametrize("minibatches", [None, 20, 200])
def test_equal_gaps_within_a_longer_cycle(minibatches: int | None) -> None:
    """Four minibatches in flight return after 168 ms: gaps of 46, 46, 46 and 30 ms."""
    result = simulated([(0.01, 0.02, 0)] * 4, (1,) * 4, 1_000_000, gbps=1, minibatches=minibatches)
    assert result.minibatch_s == pytest.approx(0.168 / 4)
    assert result.is_periodic
    assert result.fill_s == pytest.approx(0.12)
    assert result.limit(lambda stage, replica: "a") == "round trips"


@pytest.mark.parametrize("minibatches", [2, 3, 12])
def test_shares_of_a_short_job_add_up(minibatches: int) -> None:
    """The last stage ends before the first one does."""
    result = simulated([(0.01, 0.02, 0), (0.001, 0.002, 0)], (2, 1), 1_000_000, gbps=1, minibatches=minibatches)
    for shares in (share for stage in result.shares for share in stage):
        assert shares.busy + shares.activations + shares.gradients + shares.all_reduce == pytest.approx(1)


def test_fewer_minibatches_than_replicas() -> None:
    result = simulated([(0.1, 0.2, 0)], (4,), kind="data-parallel", minibatches=3)
    assert result.minibatch_s == pytest.approx(0.1)
    assert result.shares[0][0].busy == pytest.approx(1)


def test_flows_share_an_uplink() -> None:
    """Two senders of one rack share 0.2 Gbit/s: their activations of 1.25 MB take twice as long as one alone."""
    group_of = np.array([0, 0, 1, 1])
    rack = TierLinks(group_of, np.array([GBPS, np.inf]), np.array([np.inf, np.inf]))
    options: dict[str, Any] = {"crossing": 1_250_000, "crossing_back": 10, "kind": "model-parallel"}
    free = simulated([(0.02, 0.02, 0)] * 2, (2, 2), **options)
    shared = simulated([(0.02, 0.02, 0)] * 2, (2, 2), tiers=(rack,), **options)
    assert 2 * free.minibatch_s == pytest.approx(0.08 + 0.05, rel=1e-4)
    assert 2 * shared.minibatch_s == pytest.approx(0.08 + 0.10, rel=1e-4)
    assert shared.links[0][0] == "the way out of the tier-2 group of h0"


def test_frozen_layers_compute_forward_only() -> None:
    result = simulated([(0.03, 0.9, 0), (0.01, 0.01, 0)], (1, 1), 1000, crossing_back=0, frozen=1)
    assert result.minibatch_s == pytest.approx(0.03)
    assert result.shares[0][0].gradients == 0


def test_many_replicas_as_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = simulated([(0.1, 0.2, 2_500_000)], (8,), kind="data-parallel", rtt_us=4000)
    monkeypatch.setattr("solvers.pipeline.training_job.MAX_REDUCE_TRANSFERS", 1)
    coarse = simulated([(0.1, 0.2, 2_500_000)], (8,), kind="data-parallel", rtt_us=4000)
    assert coarse.minibatch_s == pytest.approx(exact.minibatch_s, rel=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_period_is_the_cycle_ratio(seed: int) -> None:
    case = unshared_case(seed)
    result = next(
        result for count in (None, 2000, 10_000)  # a job with two cycles that are nearly critical takes long to settle
        if (result := simulate_pipeline(case.pipeline, count)).is_periodic
    )  # fmt: skip
    assert result.minibatch_s == pytest.approx(pipeline_period_s(case.stages, case.messages_s), rel=1e-9)
