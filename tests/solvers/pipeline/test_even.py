"""Plans for hosts that nobody measured: levels, what was asked for, who is idle, and that it can be run."""

import json
from typing import Any

import pytest

from plink.errors import UsageError
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan import PipelinePlan, pipeline_from_json
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from plink.model.storage import render_document
from solvers.pipeline.joint import plan_measured
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts, StageRange, requested_stages
from solvers.pipeline.thesis import NetworkLevel
from solvers.pipeline.verifier import verify_actions
from tests.model.schemas import complaints


def layer(name: str, seconds: float, weights: int, crossing: int) -> LayerProfile:
    return LayerProfile(
        name=name,
        forward_s=seconds / 3,
        backward_s=seconds * 2 / 3,
        parameter_bytes=weights,
        crossing_bytes=crossing,
        crossing_back_bytes=crossing,
    )


def profile_of(*layers: LayerProfile, **options: Any) -> ModelProfile:
    return ModelProfile(minibatch=64, layers=layers, **options)


# The D.1 shapes: 336 ms of which 98 % first; weights 10.7 % first; large tensors inside the first part.
VGG = profile_of(
    layer("f0", 0.082, 500_000, 4_000_000), layer("f1", 0.082, 500_000, 2_000_000),
    layer("f2", 0.082, 540_000, 1_000_000), layer("f3", 0.083, 0, 166_000), layer("head", 0.007, 12_860_000, 0),
)  # fmt: skip
GNMT = profile_of(*(layer(f"l{k}", 0.02, 960_000, 62_000) for k in range(7)), layer("l7", 0.02, 960_000, 0))
RESNET = profile_of(
    *(layer(f"r{k}", 0.04, 100_000, 8_000_000 - 600_000 * k) for k in range(10)), layer("fc", 0.04, 3_000_000, 0)
)
FOUR = profile_of(*(layer(f"l{k}", 0.08, 4_000_000, 62_000) for k in range(4)))
LAB = 25e6


def hosts(number: int, slots: int = 1) -> Hosts:
    return Hosts(tuple(Host(f"h{k}", f"10.0.0.{k}", slots) for k in range(number)))


def planned(
    profile: ModelProfile, number: int, *levels: NetworkLevel, slots: int = 1, by_slot: bool = False, **options: Any
) -> PipelinePlan:
    measured = MeasuredHosts.even(hosts(number, slots), levels or (NetworkLevel(number, LAB),), by_slot=by_slot)
    plan = plan_measured(profile, measured, JointRequest(**{"moves": 2000, **options}))
    document = plan.to_json()
    assert complaints("pipeline", document) == []
    assert pipeline_from_json(json.loads(render_document(document)), "p.json") == plan
    assert verify_actions(plan.shape, ranks=[stage.ranks for stage in plan.stages]) == []
    return plan


def seconds(plan: PipelinePlan) -> float:
    return float(plan.predicted.minibatch_s)


def test_vgg_like_is_3_1() -> None:
    """Cut before f3, which takes 119 ms at the thesis's depths and 93 ms one deeper; before the head, 119 ms at any."""
    plan = planned(VGG, 4)
    assert (plan.label, plan.kind) == ("3-1", "1f1b")
    assert [(stage.first, stage.last, stage.ranks) for stage in plan.stages] == [(0, 2, (0, 1, 2)), (3, 4, (3,))]
    assert seconds(plan) == pytest.approx(0.093, rel=1e-3)
    assert [way.what for way in plan.compared] == ["data-parallel"]
    assert [stage.lr_scale for stage in plan.stages] == [1.0, 1 / 3]


def test_network_is_the_busiest_link() -> None:
    """The head's host gets 166 kB of each minibatch and sends as much back, 6.64 ms at 25 MB/s."""
    stages = (StageRange(0, 3, 3), StageRange(4, 4, 1))
    plan = planned(VGG, 4, stages=stages)
    network_s = [stage.predicted.network_s for stage in plan.stages if stage.predicted]
    # Three replicas each send a third of it, and 4/3 of 1.54 MB of gradients for each round of three.
    assert network_s == pytest.approx([(166e3 + 4 * 1.54e6 / 3) / 3 / LAB, 166e3 / LAB])


@pytest.mark.parametrize("most", [0, 64])
def test_fill_by_formulas_is_that_of_a_simulation(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of 20 ms on each host, messages of 2.48 ms: the first minibatch is 3 passes and 6 messages late."""
    monkeypatch.setattr("solvers.pipeline.simulated_ways.MAX_SIMULATED_WORKERS", most)
    plan = planned(GNMT, 4, straight=True, all_workers=True)
    assert plan.predicted is not None
    assert (plan.predicted.by, plan.predicted.minibatch_s) == ("simulator" if most else "model", pytest.approx(0.04))
    assert plan.predicted.fill_s == pytest.approx(3 * 0.04 + 6 * 62e3 / LAB, rel=0.1)


def test_slow_link_leaves_hosts_idle() -> None:
    """One host alone is faster than two that wait for each other."""
    plan = planned(GNMT, 2, NetworkLevel(2, 1e3))
    assert plan.label == "1"
    assert plan.idle == ("h1",)
    assert [host.name for host in plan.hosts] == ["h0"]


def test_a_machine_whose_slots_are_not_all_used_has_fewer() -> None:
    two = profile_of(layer("a", 1.0, 0, 10), layer("b", 1.0, 0, 0))
    plan = planned(two, 1, NetworkLevel(3, 1e9), slots=3, stages=requested_stages("0,1", two, 3))
    assert [(host.name, host.slots) for host in plan.hosts] == [("h0", 2)]


@pytest.mark.parametrize("model", ["contention", "thesis"])
def test_slots_with_a_limit_of_their_own_are_ranks_of_their_host(model: str) -> None:
    levels = NetworkLevel(4, 1e9), NetworkLevel(4, LAB)
    plan = planned(VGG, 4, *levels, slots=4, by_slot=True, model=model)
    assert sorted(rank for stage in plan.stages for rank in stage.ranks) == list(range(plan.ranks))
    assert all(host.slots <= 4 for host in plan.hosts)
    assert len(plan.hosts) + len(plan.idle) == 4
    slow = planned(VGG, 4, NetworkLevel(4, LAB / 4), levels[1], slots=4, by_slot=True)
    assert seconds(slow) > seconds(planned(VGG, 4, *levels, slots=4, by_slot=True))


def test_all_reduces_of_levels_stay_inside_machines() -> None:
    """Four machines of two, linked ten times as fast inside: both replicas of a stage share a machine."""
    plan = planned(
        FOUR, 8, NetworkLevel(2, 10 * LAB), NetworkLevel(4, LAB), by_slot=True,
        stages=requested_stages("0x2,1x2,2x2,3x2", FOUR, 8),
    )  # fmt: skip
    names = plan.host_names()
    for stage in plan.stages:
        machines = {int(names[rank][1:]) // 2 for rank in stage.ranks}
        assert len(machines) == 1
    assert seconds(plan) < 0.06


def test_plan_is_no_slower_than_the_thesis() -> None:
    """Its stages are among those that are simulated; its depths are fewer."""
    for levels in ((NetworkLevel(8, LAB),), (NetworkLevel(2, 8 * LAB), NetworkLevel(4, LAB))):
        for profile in (VGG, GNMT, RESNET):
            own, thesis = (
                planned(profile, 8, *levels, by_slot=True, model=model) for model in ("contention", "thesis")
            )
            assert thesis.model == "thesis"
            assert seconds(own) <= seconds(thesis) * (1 + 1e-9)
            assert own.lower_bound_s <= seconds(own) * (1 + 1e-9)


def test_thesis_has_its_depths() -> None:
    plan = planned(GNMT, 4, model="thesis", depths="noam", straight=True)
    assert [stage.depth for stage in plan.stages] == [4, 3, 2, 1]
    assert [boundary.after for boundary in plan.boundaries] == [1, 3, 5]


@pytest.mark.extended
def test_many_hosts_are_planned_by_formulas() -> None:
    plan = planned(GNMT, 300, NetworkLevel(300, 1e9), moves=None)
    assert plan.predicted.by == "model"
    assert plan.gap < 0.1


def test_model_parallel_takes_everything_in_turn() -> None:
    plan = planned(GNMT, 4, kind="model-parallel", all_workers=True)
    assert seconds(plan) == pytest.approx(0.16 + 3 * 124_000 / LAB, rel=0.01)
    assert {stage.depth for stage in plan.stages} == {1}


def test_data_parallel_on_request() -> None:
    """The backward pass hides its own 0.224 s of the all-reduce, the forward pass none."""
    plan = planned(VGG, 4, kind="data-parallel", all_workers=True)
    assert seconds(plan) == pytest.approx((0.112 + 2 * 3 / 4 * 14.4e6 / LAB) / 4, rel=0.03)


def test_depths_of_the_request() -> None:
    straight: dict[str, Any] = {"straight": True, "all_workers": True}
    assert [stage.depth for stage in planned(GNMT, 4, depths=(5,), **straight).stages] == [5, 3, 2, 1]
    assert [stage.depth for stage in planned(GNMT, 4, depths=(2,), **straight).stages] == [2, 2, 2, 1]
    two = profile_of(layer("a", 1, 0, 10), layer("b", 1, 0, 0))
    with pytest.raises(UsageError, match="depth 1,3 of 1-1: deadlock: rank 0 in B 0 of stage 0 waits for"):
        planned(two, 2, depths=(1, 3), **straight)


def test_frozen_layers_are_not_recomputed() -> None:
    frozen = profile_of(
        LayerProfile(
            name="a", forward_s=0.09, backward_s=0.0, parameter_bytes=0, crossing_bytes=1000, crossing_back_bytes=0
        ),
        LayerProfile(
            name="b", forward_s=0.02, backward_s=0.05, parameter_bytes=0, crossing_bytes=0, crossing_back_bytes=0
        ),
    )
    plan = planned(frozen, 2, kind="1f1b", straight=True, recompute=True)
    assert [stage.predicted.compute_s for stage in plan.stages] == pytest.approx([0.09, 0.09])


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
