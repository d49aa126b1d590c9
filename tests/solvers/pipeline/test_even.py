"""Plans for even networks: what was asked for, who is idle, what it predicts, and that it can be run."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.plan_file import pipeline_from_json
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from plink.model.storage import render_document
from solvers.pipeline.even import EvenRequest, plan_even
from solvers.pipeline.levels import NetworkLevel
from solvers.pipeline.requested_stages import requested_stages
from solvers.pipeline.simulator import simulate_pipeline
from solvers.pipeline.stage_costs import costs_of_plan
from solvers.pipeline.stage_times import EVEN_MODELS
from solvers.pipeline.training_job import PlacedPipeline
from solvers.pipeline.verifier import verify_actions
from solvers.simulation.network import SimulatedNetwork
from tests.model.schemas import complaints


def layer(name: str, seconds: float, weights: int, crossing: int) -> LayerProfile:
    return LayerProfile(name, seconds / 3, seconds * 2 / 3, weights, crossing, crossing)


def profile_of(*layers: LayerProfile, **options: Any) -> ModelProfile:
    return ModelProfile(64, layers, **options)


# The D.1 shapes: 336 ms of which 98 % first; weights 10.7 % first; large tensors inside the first part.
VGG = profile_of(
    layer("f0", 0.082, 500_000, 4_000_000), layer("f1", 0.082, 500_000, 2_000_000),
    layer("f2", 0.082, 540_000, 1_000_000), layer("f3", 0.083, 0, 166_000), layer("head", 0.007, 12_860_000, 0),
)  # fmt: skip
GNMT = profile_of(*(layer(f"l{k}", 0.02, 960_000, 62_000) for k in range(7)), layer("l7", 0.02, 960_000, 0))
RESNET = profile_of(
    *(layer(f"r{k}", 0.04, 100_000, 8_000_000 - 600_000 * k) for k in range(10)), layer("fc", 0.04, 3_000_000, 0)
)
LAB = 25e6


def hosts(number: int, slots: int = 1) -> Hosts:
    return Hosts(tuple(Host(f"h{k}", f"10.0.0.{k}", slots) for k in range(number)))


def planned(profile: ModelProfile, number: int, **options: Any) -> PipelinePlan:
    plan = plan_even(profile, hosts(number), (NetworkLevel(number, LAB),), EvenRequest(**options))
    document = plan.to_json()
    assert complaints("pipeline", document) == []
    assert pipeline_from_json(json.loads(render_document(document)), "p.json") == plan
    assert verify_actions(plan.shape, ranks=[stage.ranks for stage in plan.stages]) == []
    return plan


def test_vgg_like_is_3_1() -> None:
    plan = planned(VGG, 4)
    assert (plan.label, plan.kind) == ("3-1", "1f1b")
    assert [(stage.first, stage.last, stage.ranks, stage.depth) for stage in plan.stages] == [
        (0, 2, (0, 1, 2), 2), (3, 4, (3,), 1),
    ]  # fmt: skip
    assert plan.details["predicted"]["minibatch_s"] == pytest.approx(0.083 + 0.007)
    assert plan.details["predicted"]["limited_by"] == "compute of stage 1"
    assert plan.details["proven"] is True
    assert [way["what"] for way in plan.details["compared"]] == ["data-parallel", "straight", "model-parallel"]
    assert [stage.lr_scale for stage in plan.stages] == [1.0, 1 / 3]


def test_gnmt_like_is_straight() -> None:
    plan = planned(GNMT, 4)
    assert plan.label == "1-1-1-1"
    assert [boundary.after for boundary in plan.boundaries] == [1, 3, 5]


def test_resnet_like_is_data_parallel() -> None:
    plan = planned(RESNET, 4)
    assert (plan.label, plan.kind) == ("4", "data-parallel")
    assert plan.boundaries == ()


def test_slow_link_leaves_hosts_idle() -> None:
    """One host alone is faster than two that wait for each other."""
    plan = plan_even(GNMT, hosts(2), (NetworkLevel(2, 1e3),), EvenRequest())
    assert plan.label == "1"
    assert plan.details["idle"] == ["h1"]
    assert [host.name for host in plan.hosts] == ["h0"]


def test_a_machine_whose_slots_are_not_all_used_has_fewer() -> None:
    plan = plan_even(
        profile_of(layer("a", 1.0, 0, 10), layer("b", 1.0, 0, 0), tied=(), slowness={}),
        hosts(1, slots=3), (NetworkLevel(3, 1e9),), EvenRequest(straight=False, stages=requested_stages(
            "0,1", profile_of(layer("a", 1.0, 0, 10), layer("b", 1.0, 0, 0)), 3)),
    )  # fmt: skip
    assert [(host.name, host.slots) for host in plan.hosts] == [("h0", 2)]


def test_two_levels_place_a_stage_on_whole_machines() -> None:
    levels = (NetworkLevel(4, 1e9), NetworkLevel(4, LAB))
    plan = plan_even(VGG, hosts(4, slots=4), levels, EvenRequest(model="thesis"))
    ranks = sorted(rank for stage in plan.stages for rank in stage.ranks)
    assert ranks == list(range(plan.ranks))
    terms = [max(stage.details["predicted"]["compute_s"], 0) for stage in plan.stages]
    assert max(terms) <= plan.details["predicted"]["minibatch_s"] * (1 + 1e-12)
    assert pipeline_from_json(plan.to_json(), "p.json") == plan


def test_model_parallel_takes_everything_in_turn() -> None:
    plan = planned(GNMT, 4, kind="model-parallel")
    assert plan.details["predicted"]["minibatch_s"] == pytest.approx(0.16 + 3 * 124_000 / LAB)
    assert {stage.depth for stage in plan.stages} == {1}


def test_data_parallel_on_request() -> None:
    """The backward pass hides its own 0.224 s of the all-reduce, the forward pass none."""
    plan = planned(VGG, 4, kind="data-parallel")
    assert plan.details["predicted"]["minibatch_s"] == pytest.approx((0.112 + 2 * 3 / 4 * 14.4e6 / LAB) / 4)
    assert plan.details["predicted"]["limited_by"] == "all-reduce of stage 0"
    assert plan.details["proven"] is False


@given(seed=st.integers(0, 1 << 32), model=st.sampled_from(EVEN_MODELS), fewer_workers=st.booleans())
@example(seed=1567421, model="ring", fewer_workers=True)
def test_no_compared_way_is_faster_than_the_plan(seed: int, **options: Any) -> None:
    """By what depths allow and by what no backward pass hides, too."""
    random = np.random.default_rng(seed)
    layers, workers = int(random.integers(1, 12)), int(random.integers(1, 6))
    seconds, weights = random.uniform(1e-3, 0.1, layers), 10 ** random.uniform(4, 9, layers)
    costs = zip(seconds, weights.astype(int), (10 ** random.uniform(3, 7, layers)).astype(int), strict=True)
    profile = profile_of(*(layer(f"l{k}", float(s), int(w), int(c)) for k, (s, w, c) in enumerate(costs)))
    depths, rtt_s = random.choice(["noam", ""]) or None, float(random.choice([0, 0.05]))
    levels = (NetworkLevel(workers, float(10 ** random.uniform(7, 11))),)
    plan = plan_even(profile, hosts(workers), levels, EvenRequest(depths=depths, rtt_s=rtt_s, **options))
    least_s = min(row["minibatch_s"] for row in plan.details["compared"])
    assert plan.details["predicted"]["minibatch_s"] <= least_s * (1 + 1e-9)


def test_depths_of_the_request() -> None:
    assert [stage.depth for stage in planned(GNMT, 4, depths=(5,)).stages] == [5, 3, 2, 1]
    assert [stage.depth for stage in planned(GNMT, 4, depths=(2,)).stages] == [2, 2, 2, 1]
    with pytest.raises(UsageError, match="depth 1,3 of 1-1: deadlock: rank 0 in B 0 of stage 0 waits for"):
        planned(profile_of(layer("a", 1, 0, 10), layer("b", 1, 0, 0)), 2, depths=(1, 3), straight=True)
    with pytest.raises(UsageError, match="2 numbers for 4 stages"):
        planned(GNMT, 4, depths=(2, 1))


def test_2bw_needs_minibatches_to_accumulate() -> None:
    assert planned(GNMT, 4, kind="2bw", accumulate=4, straight=True).shape.accumulate == 4
    assert [stage.depth for stage in planned(GNMT, 4, kind="2bw", accumulate=2, straight=True).stages] == [2, 2, 2, 1]
    with pytest.raises(UsageError, match="below the depth of stage 0"):
        planned(GNMT, 4, kind="2bw", accumulate=2, straight=True, depths=(4, 3, 2, 1))


def test_flushing_kinds_of_even_hosts() -> None:
    """m minibatches and three steps more of 40 ms, through four stages; recomputation makes a step a third longer."""
    for kind in ("gpipe", "1f1b-flush"):
        plan = planned(GNMT, 4, kind=kind, accumulate=16, straight=True)
        assert 0.04 * 19 / 16 < plan.details["predicted"]["minibatch_s"] < 0.04 * 19 / 16 * 1.05
    lean = planned(GNMT, 4, kind="gpipe", accumulate=16, straight=True, recompute=True)
    assert lean.recompute
    assert lean.details["predicted"]["minibatch_s"] > 0.04 * 4 / 3


def simulated_s(plan: PipelinePlan, profile: ModelProfile) -> float:
    """Return the seconds of a minibatch of a plan, simulated on hosts that are alike."""
    names = tuple(host.name for host in plan.hosts)
    rates = np.full(len(names), LAB * 8 / 1e9)
    network = SimulatedNetwork(names, np.zeros((len(names),) * 2), None, rates, rates, ())
    placed = PlacedPipeline.of(plan, costs_of_plan(plan, profile), network, [1.0] * len(names))
    return simulate_pipeline(placed).minibatch_s


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("1f1b", {"straight": True}),
        ("2bw", {"straight": True, "accumulate": 8}),
        ("1f1b-flush", {"straight": True, "accumulate": 8}),
        ("gpipe", {"straight": True, "accumulate": 8}),
        ("model-parallel", {}),
        ("data-parallel", {}),
    ],
)
def test_recomputation_takes_what_the_simulation_says(kind: Any, options: dict[str, Any]) -> None:
    """The model leaves out some waiting, as much with recomputation as without."""
    profile = GNMT
    if kind == "data-parallel":
        profile = profile_of(*(layer(f"l{k}", 0.02, 60_000, 62_000) for k in range(8)))
    predicted, taken = [], []
    for recompute in (False, True):
        plan = planned(profile, 4, kind=kind, recompute=recompute, **options)
        predicted.append(plan.details["predicted"]["minibatch_s"])
        taken.append(simulated_s(plan, profile))
        assert 0.9 * taken[-1] < predicted[-1] < 1.001 * taken[-1]
    assert predicted[1] - predicted[0] == pytest.approx(taken[1] - taken[0], rel=0.02)


def test_recomputation_is_part_of_a_stage() -> None:
    """Its forward pass counts twice: in the choice of stages, in the table, and for how long a rank is busy."""
    plan = planned(GNMT, 4, kind="1f1b", straight=True, recompute=True)
    for stage in plan.stages:
        assert stage.details["predicted"]["compute_s"] == pytest.approx(0.04 * 4 / 3)
        assert stage.details["predicted"]["busy_share"] == pytest.approx(1.0)
    uneven = profile_of(
        LayerProfile("a", 0.001, 0.061, 0, 10, 10), LayerProfile("b", 0.001, 0.049, 0, 10, 10),
        LayerProfile("c", 0.058, 0.002, 0, 0, 0),
    )  # fmt: skip
    for recompute, last, minibatch_s in ((False, 0, 0.110), (True, 1, 0.118)):
        plan = planned(uneven, 2, kind="1f1b", straight=True, recompute=recompute)
        assert plan.stages[0].last == last
        assert plan.details["predicted"]["minibatch_s"] == pytest.approx(minibatch_s)


def test_frozen_layers_are_not_recomputed() -> None:
    frozen = profile_of(LayerProfile("a", 0.09, 0.0, 0, 1000, 0), LayerProfile("b", 0.02, 0.05, 0, 0, 0))
    plan = planned(frozen, 2, kind="1f1b", straight=True, recompute=True)
    assert [stage.details["predicted"]["compute_s"] for stage in plan.stages] == pytest.approx([0.09, 0.09])


def test_gpipe_depth_is_the_minibatches_of_an_update() -> None:
    """All of them go forward first; another depth would mean nothing, and is refused."""
    options: dict[str, Any] = {"kind": "gpipe", "accumulate": 8}
    assert planned(GNMT, 4, straight=True, **options).shape.depths == (8,) * 4
    halves = requested_stages("0-3x2,4-7x2", GNMT, 4)
    assert planned(GNMT, 4, stages=halves, **options).shape.depths == (4, 4)
    for depths in ((3,), (3, 3, 3, 3), "noam"):
        with pytest.raises(UsageError, match="omit its depths"):
            planned(GNMT, 4, straight=True, depths=depths, **options)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(UsageError, match="9 stages of one worker each need as many layers; the profile allows 8"):
        planned(GNMT, 9, straight=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-3x2,4-8x2", "layers 0 to 7, there is no layer 8"),
        ("0-3x2", "leave out layers 4 to 7"),
        ("0-3,5-7", "layer 4 comes next, but 5-7 begins with 5"),
        ("0-3,3-7", "layer 4 comes next"),
        ("1-7", "layer 0 comes next"),
        ("0-3x3,4-7x2", "take 5 replicas, but there are 4 workers"),
        ("0-3x0,4-7", "0-3x0 has no replicas"),
        ("0-3,4-2", "ends before it begins"),
        ("", "expected stages like"),
        ("0-3;4-7", "expected stages like"),
        ("0-1,2-3,4-5,6,7,8", "there is no layer 8"),
    ],
)
def test_impossible_stages_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        requested_stages(text, GNMT, 4)


def test_tied_layers_forced_apart_are_refused() -> None:
    tied = profile_of(*GNMT.layers, tied=(("l1.weight", "l6.weight"),))
    with pytest.raises(UsageError, match=r"layers 1 and 6 share the parameter l1.weight"):
        requested_stages("0-3,4-7", tied, 4)
    assert len(requested_stages("0,1-7x2", tied, 4)) == 2
    assert planned(tied, 4).label != planned(GNMT, 4).label
