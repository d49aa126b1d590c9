"""Plans for measured networks: shapes with a known answer, placement, memory, and the search against brute force."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from benchmarks.pipeline_brute_force import best_by_trying_all, small_problem
from plink.errors import NoAnswer, UsageError
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan import PipelinePlan, pipeline_from_json
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from plink.model.storage import render_document
from solvers.costs.fabric import Fabric
from solvers.pipeline.joint import plan_measured
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts, StageRange
from solvers.pipeline.joint_search import PartitionCandidate, SearchSpace, lower_bound_s, search_partitions, traffic_of
from solvers.pipeline.period import PeriodModel, PlacedPartition
from solvers.pipeline.simulated_ways import WaySimulator
from solvers.pipeline.verifier import verify_actions
from tests.model.schemas import complaints
from tests.solvers.pipeline.test_even import GNMT, RESNET, VGG, layer, profile_of

LAB = 0.2


def fabric_of_racks(hosts: int, size: int, uplink: float = LAB, seed: int = 0) -> Fabric:
    """Hosts in racks, handed out mixed."""
    group_of = np.random.default_rng(seed).permutation(np.arange(hosts) // size)
    rtt = np.where(group_of[:, None] == group_of[None], 200.0, 400.0)
    np.fill_diagonal(rtt, 0)
    rates, uplinks = np.full(hosts, LAB), np.full(int(group_of.max()) + 1, uplink)
    names = tuple(f"h{k}" for k in range(hosts))
    return Fabric(names, rtt, None, rates, rates, group_of, uplinks, uplinks, "measured")


def planned(profile: ModelProfile, fabric: Fabric, slots: int = 1, **options: Any) -> PipelinePlan:
    hosts = Hosts(tuple(Host(name, name, slots) for name in fabric.names))
    options.setdefault("moves", 5000)
    plan = plan_measured(profile, MeasuredHosts(hosts, fabric), JointRequest(**options))
    document = plan.to_json()
    assert complaints("pipeline", document) == []
    assert pipeline_from_json(json.loads(render_document(document)), "p.json") == plan
    assert verify_actions(plan.shape, ranks=[stage.ranks for stage in plan.stages]) == []
    bound_s = plan.lower_bound_s
    assert bound_s is None or bound_s <= plan.predicted.minibatch_s * (1 + 1e-9)
    return plan


def seconds(plan: PipelinePlan) -> float:
    return float(plan.predicted.minibatch_s)


def test_vgg_like_is_3_1() -> None:
    plan = planned(VGG, fabric_of_racks(4, 4), compare=True)
    assert (plan.label, plan.kind) == ("3-1", "1f1b")
    ways = {way.what: way for way in plan.compared}
    assert list(ways)[:5] == [
        "data-parallel", "data-parallel, given order", "straight", "model-parallel", "3-1, given order",
    ]  # fmt: skip
    assert ways["data-parallel"].minibatch_s >= 1.8 * seconds(plan)
    assert ways["model-parallel"].minibatch_s >= 3 * seconds(plan)


def test_gnmt_like_is_straight() -> None:
    """Messages take 5 ms, passes 40: the thesis's depths hide no message, two more in flight do."""
    plan = planned(GNMT, fabric_of_racks(4, 4))
    assert plan.label == "1-1-1-1"
    assert seconds(plan) == pytest.approx(0.04, rel=0.02)
    thesis = planned(GNMT, fabric_of_racks(4, 4), depths="noam")
    assert [stage.depth for stage in thesis.stages] == [4, 3, 2, 1]
    assert seconds(thesis) > 1.05 * seconds(plan)


def test_resnet_like_is_data_parallel() -> None:
    plan = planned(RESNET, fabric_of_racks(4, 4))
    assert (plan.label, plan.kind) == ("4", "data-parallel")


def test_one_host_has_nothing_to_plan() -> None:
    plan = planned(VGG, fabric_of_racks(1, 1), compare=True)
    assert (plan.label, plan.compared) == ("1", ())
    assert seconds(plan) == pytest.approx(VGG.compute_s)


def test_slow_link_leaves_a_host_alone() -> None:
    fabric = fabric_of_racks(2, 1, uplink=0.001)
    plan = planned(RESNET, fabric)
    assert (plan.label, plan.idle) == ("1", ("h1",))
    everybody = planned(RESNET, fabric, all_workers=True)
    assert everybody.ranks == 2
    assert seconds(everybody) > seconds(plan)


@pytest.mark.extended
def test_pairs_that_were_not_measured_are_avoided() -> None:
    """Stages after each other, and a ring of replicas, fit between the pairs that are missing."""
    fabric = fabric_of_racks(6, 6)
    rtt = fabric.rtt_us.copy()
    for a, b in ((0, 2), (0, 3), (1, 4)):
        rtt[a, b] = rtt[b, a] = np.nan
    assert seconds(planned(GNMT, replace(fabric, rtt_us=rtt))) > 0
    alone = np.full((6, 6), np.nan)
    np.fill_diagonal(alone, 0.0)
    with pytest.raises(NoAnswer, match="was not measured"):
        planned(GNMT, replace(fabric, rtt_us=alone), all_workers=True)


@pytest.mark.extended
def test_replicas_are_placed_by_racks() -> None:
    """The ring of 15 crosses each uplink once a way: hosts of a rack are neighbours, also where ranks are sorted."""
    fabric = fabric_of_racks(16, 4)
    plan = planned(VGG, fabric, compare=True, moves=20_000)
    assert plan.label == "15-1"
    names = plan.host_names()
    ring = fabric.group_of[[fabric.names.index(names[rank]) for rank in plan.stages[0].ranks]]
    assert (ring != np.roll(ring, 1)).sum() == 4
    assert list(plan.stages[0].ranks) == sorted(plan.stages[0].ranks)
    baseline = next(way for way in plan.compared if way.what == "15-1, given order")
    assert baseline.minibatch_s > 1.3 * seconds(plan)


def test_slow_host_gets_the_small_stage() -> None:
    slow = ModelProfile(minibatch=VGG.minibatch, layers=VGG.layers, host_slowness={"h1": 3.0})
    plan = planned(slow, fabric_of_racks(4, 4))
    last = plan.host_names()[plan.stages[-1].ranks[0]]
    assert plan.label == "3-1"
    assert last == "h1"


def test_memory_decides_the_partition() -> None:
    """Data parallelism is fastest, but needs all parameters on every host."""
    profile = profile_of(*(layer(f"l{k}", 2.0, 5_000_000, 10_000 * (k < 5)) for k in range(6)))
    free = planned(profile, fabric_of_racks(4, 4))
    assert free.label == "4"
    need = 0.95 * max(stage.memory_bytes.all for stage in free.stages)
    limited = planned(profile, fabric_of_racks(4, 4), memory=(need,) * 4)
    assert len(limited.stages) > 1
    assert all(stage.memory_bytes.all <= need for stage in limited.stages)


def test_memory_of_one_host_decides_the_placement() -> None:
    need = [stage.memory_bytes.all for stage in planned(VGG, fabric_of_racks(4, 4)).stages]
    small = min(need) * 1.01
    plan = planned(VGG, fabric_of_racks(4, 4), memory=(small, *(max(need) * 1.01,) * 3))
    names = plan.host_names()
    for stage in plan.stages:
        assert "h0" not in {names[rank] for rank in stage.ranks} or stage.memory_bytes.all <= small


def test_nothing_fits_in_memory() -> None:
    with pytest.raises(NoAnswer, match=r"nothing fits in memory: .* stage \d+ needs .* on h\d, which has 1 MB"):
        planned(VGG, fabric_of_racks(2, 2), memory=(1e6, 1e6))


def test_one_minibatch_in_flight_would_fit() -> None:
    """Older versions of 100 MB of parameters do not fit, all layers on one host neither."""
    profile = profile_of(*(layer(f"l{k}", 0.1, 100_000_000, 1000 * (k < 3)) for k in range(4)))
    with pytest.raises(NoAnswer, match="--kind model-parallel, one minibatch in flight, fits"):
        planned(profile, fabric_of_racks(4, 4), memory=(210e6,) * 4)


def test_requested_depths_count_against_memory() -> None:
    """The first of four stages needs 50 MB with 4 minibatches in flight, and 210 MB with 20."""
    profile = profile_of(*(layer(f"l{k}", 0.03, 10_000_000, 1000 * (k < 3)) for k in range(4)))
    stages = tuple(StageRange(k, k, 1) for k in range(4))
    options: dict[str, Any] = {"kind": "1f1b", "stages": stages}
    with pytest.raises(NoAnswer, match=r"stage 0 needs 210 MB on h., which has 100 MB; --depth auto fits"):
        planned(profile, fabric_of_racks(4, 4), memory=(100e6,) * 4, depths=(20,), **options)
    with pytest.raises(NoAnswer, match="stage 0 needs 210 MB"):
        planned(profile, fabric_of_racks(4, 4), memory=(100e6,) * 4, depths=(20, 3, 2, 1), **options)
    plan = planned(profile, fabric_of_racks(4, 4), memory=(220e6,) * 4, depths=(20,), **options)
    assert [stage.depth for stage in plan.stages] == [20, 3, 2, 1]


def test_ways_fit_with_the_depths_that_are_simulated() -> None:
    profile = profile_of(*(layer(f"l{k}", 0.03, 10_000_000, 1000 * (k < 3)) for k in range(4)))
    measured = MeasuredHosts(Hosts(tuple(Host(f"h{k}", f"h{k}") for k in range(4))), fabric_of_racks(4, 4))
    ways = WaySimulator(profile, measured, JointRequest(memory=(100e6,) * 4))
    partition = PlacedPartition.of(range(5), (1,) * 4, range(4))
    assert ways.simulate(partition, depths=(4, 3, 2, 1)).fits
    assert not ways.simulate(partition, depths=(20, 3, 2, 1)).fits


def test_depths_of_other_stages_leave_rivals_theirs() -> None:
    """Two depths are of the plan's two stages; the straight pipeline beside it has four."""
    stages = (StageRange(0, 2, 3), StageRange(3, 4, 1))
    plan = planned(VGG, fabric_of_racks(4, 4), stages=stages, depths=(2, 1), compare=True)
    assert "straight" in {way.what for way in plan.compared}


EVEN = profile_of(*(layer(f"l{k}", 0.03, 10_000_000, 1000 * (k < 3)) for k in range(4)))


@pytest.mark.parametrize("options", [{"kind": "1f1b"}, {"kind": "2bw", "accumulate": 12}, {}])
@pytest.mark.parametrize("memory", [15e6, 30e6])
def test_nothing_fits_with_several_depths(options: dict[str, Any], memory: float) -> None:
    """Of candidates of two stages that misses by least, though others miss by less."""
    with pytest.raises(NoAnswer, match=r"nothing fits in memory: \d+-\d+ misses by least"):
        planned(EVEN, fabric_of_racks(4, 4), memory=(memory,) * 4, depths=(2, 1), **options)


@pytest.mark.parametrize(("options", "label"), [({"straight": True}, "1-1-1-1"), ({}, "1")])
def test_nothing_fits_with_a_great_depth(options: dict[str, Any], label: str) -> None:
    """One stage misses by least. Straight, a plan of several is named; either way the thesis's depths would fit."""
    with pytest.raises(NoAnswer, match=rf"nothing fits in memory: {label} misses by least; .*; --depth auto fits"):
        planned(EVEN, fabric_of_racks(4, 4), memory=(60e6,) * 4, depths=(20,), **options)
    assert len(planned(EVEN, fabric_of_racks(4, 4), memory=(60e6,) * 4, **options).stages) > 1
    with pytest.raises(NoAnswer) as refused:
        planned(EVEN, fabric_of_racks(4, 4), memory=(15e6,) * 4, depths=(20,), **options)
    assert "--depth auto" not in str(refused.value)


def test_nothing_fits_and_no_candidate_has_as_many_stages() -> None:
    with pytest.raises(NoAnswer, match=r"nothing fits in memory: .* no candidate has the 9 stages of --depth"):
        planned(EVEN, fabric_of_racks(4, 4), memory=(5e6,) * 4, depths=(9, 8, 7, 6, 5, 4, 3, 2, 1), kind="1f1b")


@pytest.mark.parametrize("depths", [(20, 1), (20,)])
def test_deep_plan_is_compared_with_kinds_that_accumulate_less(depths: tuple[int, ...]) -> None:
    """Their updates average 8 minibatches, of which no more than 8 are in flight."""
    stages = (StageRange(0, 1, 1), StageRange(2, 3, 1))
    plan = planned(EVEN, fabric_of_racks(4, 4), depths=depths, stages=stages, kind="1f1b", compare=True)
    assert plan.stages[0].depth == 20
    compared = {way.what for way in plan.compared}
    assert {"2bw, update of 8", "1f1b-flush, update of 8", "gpipe, update of 8"} <= compared


def test_vertical_sync_needs_memory_at_the_last_stage() -> None:
    """It keeps as many versions as the first stage is behind: six where a stage of three replicas comes first."""
    profile = profile_of(*(layer(f"l{k}", 0.03, 10_000_000, 1000 * (k < 3)) for k in range(4)))
    options: dict[str, Any] = {"kind": "1f1b", "stages": (StageRange(0, 2, 3), StageRange(3, 3, 1))}
    options |= {"depths": "noam", "vertical_sync": True}
    plan = planned(profile, fabric_of_racks(4, 4), **options)
    assert [stage.memory_bytes.versions for stage in plan.stages] == [30_000_000, 50_000_000]
    for name in (size.name for size in plan.hosts):
        small = tuple(60e6 if other == name else 200e6 for other in fabric_of_racks(4, 4).names)
        with pytest.raises(NoAnswer, match=rf"needs .* on {name}, which has 60 MB"):
            planned(profile, fabric_of_racks(4, 4), memory=small, **options)


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["1f1b-flush", "gpipe", "2bw"])
def test_updates_of_many_minibatches_are_planned_by_formulas(kind: Any) -> None:
    plan = planned(GNMT, fabric_of_racks(4, 4), kind=kind, accumulate=60_000, straight=True, all_workers=True)
    assert plan.predicted.by == "model"
    assert seconds(plan) == pytest.approx(0.04, rel=0.01)
    few = planned(GNMT, fabric_of_racks(4, 4), kind=kind, accumulate=120, straight=True, all_workers=True)
    assert few.predicted.by == "simulator"


def test_rivals_compute_again_only_where_they_would_not_fit_otherwise() -> None:
    fabric = fabric_of_racks(4, 4)
    plain = planned(GNMT, fabric, compare=True)
    free = planned(GNMT, fabric, compare=True, recompute=True)
    times = [{way.what: way.minibatch_s for way in plan.compared} for plan in (plain, free)]
    for what in ("data-parallel", "model-parallel", "straight"):
        assert times[1][what] == pytest.approx(times[0][what])
    assert not any(way.recompute for way in free.compared if "order" not in way.what)
    large = profile_of(
        *(structs.replace(layer(f"l{k}", 0.02, 1000, 1000 * (k < 7)), saved_bytes=10**7 * (k == 0)) for k in range(8))
    )
    stages = tuple(StageRange(2 * k, 2 * k + 1, 1) for k in range(4))
    plan = planned(large, fabric, kind="1f1b", compare=True, recompute=True, memory=(35e6,) * 4, stages=stages)
    needs = {way.what: (way.recompute, way.fits) for way in plan.compared}
    assert needs["data-parallel"] == (False, True)
    assert needs["gpipe, update of 16"] == needs["1f1b-flush, update of 16"] == (True, True)


@pytest.mark.parametrize("kind", ["1f1b", "2bw", "1f1b-flush", "gpipe", "data-parallel", "model-parallel"])
def test_kinds(kind: Any) -> None:
    plan = planned(VGG, fabric_of_racks(4, 4), kind=kind, accumulate=12)
    assert plan.kind == kind
    assert len(plan.stages) == 1 or kind != "data-parallel"


@pytest.mark.extended
@pytest.mark.parametrize("accumulate", [2, 4, 6])
def test_accumulating_kinds_never_lock(accumulate: int) -> None:
    """With fewer minibatches an update than replicas and depths would take."""
    for kind in ("2bw", "1f1b-flush"):
        plan = planned(GNMT, fabric_of_racks(6, 3), kind=kind, accumulate=accumulate)
        assert accumulate % math.lcm(*plan.shape.replicas) == 0


def test_given_stages_are_placed() -> None:
    stages = (StageRange(0, 2, 2), StageRange(3, 4, 1))
    plan = planned(VGG, fabric_of_racks(4, 2, uplink=0.02), stages=stages)
    assert [(stage.first, stage.last, len(stage.ranks)) for stage in plan.stages] == [(0, 2, 2), (3, 4, 1)]
    assert len(plan.idle) == 1
    assert plan.constraints.stages == "0-2x2,3-4x1"


def test_given_depths() -> None:
    assert [stage.depth for stage in planned(GNMT, fabric_of_racks(2, 2), depths=(5, 1)).stages] == [5, 1]
    with pytest.raises(UsageError, match="deadlock: rank"):
        planned(GNMT, fabric_of_racks(2, 2), depths=(2, 4), straight=True, all_workers=True)
    with pytest.raises(UsageError, match="--depth has 3 numbers for 2 stages"):
        planned(GNMT, fabric_of_racks(2, 2), depths=(3, 2, 1))


def test_more_hosts_than_layers() -> None:
    with pytest.raises(UsageError, match="8 stages of one worker each need as many layers; the profile allows 5"):
        planned(VGG, fabric_of_racks(8, 4), straight=True, all_workers=True)


def test_slots_of_a_host_are_workers() -> None:
    plan = planned(VGG, fabric_of_racks(2, 2), slots=2)
    assert sum(len(stage.ranks) for stage in plan.stages) == plan.ranks
    assert set(plan.host_names()) <= {"h0", "h1"}
    assert plan.ranks > 2


def test_tied_layers_stay_together() -> None:
    tied = ModelProfile(minibatch=GNMT.minibatch, layers=GNMT.layers, tied=(("l2.weight", "l5.weight"),))
    for plan in (planned(tied, fabric_of_racks(4, 4)), planned(tied, fabric_of_racks(12, 4), moves=2000)):
        assert not {stage.first for stage in plan.stages} & {3, 4, 5}


def test_traffic_is_what_a_minibatch_sends() -> None:
    """2-2 with 1 MB across: replica q meets replica q only; each ring moves half its parameters a minibatch."""
    profile = profile_of(layer("a", 0.1, 4_000_000, 1_000_000), layer("b", 0.1, 8_000_000, 0))
    model = PeriodModel(profile, fabric_of_racks(4, 4), [math.inf] * 4)
    pattern = traffic_of(model, PlacedPartition.of((0, 1, 2), (2, 2), (0, 1, 2, 3)))
    hops = dict(zip(zip(pattern.source.tolist(), pattern.target.tolist(), strict=True), pattern.share, strict=True))
    assert hops == {
        (0, 1): 2e6, (1, 0): 2e6, (2, 3): 4e6, (3, 2): 4e6,
        (0, 2): 5e5, (2, 0): 5e5, (1, 3): 5e5, (3, 1): 5e5,
    }  # fmt: skip


def value(model: PeriodModel, result: Sequence[PartitionCandidate]) -> float:
    period = model.period(result[0].partition)
    return math.inf if period.excess_bytes > 0 else period.minibatch_s


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_exhaustive_search_equals_brute_force(seed: int) -> None:
    problem = small_problem(seed, most_layers=5, most_hosts=4)
    model = PeriodModel(problem.profile, problem.fabric, problem.memory)
    space = SearchSpace(tuple(range(len(problem.memory))))
    result = search_partitions(model, space)
    best = best_by_trying_all(problem)
    assert value(model, result) == pytest.approx(best, rel=1e-7)
    if best < math.inf:
        assert lower_bound_s(model, space.workers) <= best * (1 + 1e-9)
        annealed = search_partitions(model, space, exhaustive=False, moves=4000)
        assert value(model, annealed) <= 1.1 * best


def test_search_repeats_by_its_seed() -> None:
    model = PeriodModel(VGG, fabric_of_racks(12, 4), [math.inf] * 12)
    first, second = (search_partitions(model, SearchSpace(tuple(range(12))), seed=3, moves=3000)[0] for _ in range(2))
    assert first.score == second.score
    assert first.partition.order.tolist() == second.partition.order.tolist()


def test_unmeasured_layers_are_no_layers() -> None:
    """A layer without time, bytes or parameters changes nothing."""
    empty = LayerProfile(
        name="relu",
        forward_s=0.0,
        backward_s=0.0,
        parameter_bytes=0,
        crossing_bytes=166_000,
        crossing_back_bytes=166_000,
    )
    longer = ModelProfile(minibatch=64, layers=(*VGG.layers[:4], empty, *VGG.layers[4:]))
    fabric = fabric_of_racks(4, 4)
    assert seconds(planned(longer, fabric)) == pytest.approx(seconds(planned(VGG, fabric)))


@pytest.mark.parametrize("kind", ["1f1b-flush", "gpipe"])
def test_flushing_kinds_pay_for_filling(kind: Any) -> None:
    """m minibatches of 40 ms through 4 stages take m + 3 steps, and messages; more of them hide that."""
    fabric = fabric_of_racks(4, 4)
    options: dict[str, Any] = {"kind": kind, "straight": True, "all_workers": True}
    few, many = (planned(GNMT, fabric, accumulate=count, **options) for count in (4, 32))
    assert {stage.memory_bytes.versions for stage in few.stages} == {0}
    assert 0.07 < seconds(few) < 0.077
    assert 0.04 * 35 / 32 < seconds(many) < 0.04 * 35 / 32 * 1.05
    in_flight = [stage.depth for stage in many.stages]
    assert in_flight == [32] * 4 if kind == "gpipe" else max(in_flight) < 12


def test_recomputation_trades_time_for_memory() -> None:
    fabric = fabric_of_racks(4, 4)
    options: dict[str, Any] = {"kind": "gpipe", "accumulate": 16, "straight": True, "all_workers": True}
    plain, lean = (planned(GNMT, fabric, recompute=recompute, **options) for recompute in (False, True))
    assert lean.recompute
    assert seconds(lean) == pytest.approx(seconds(plain) * 4 / 3, rel=0.05)
    plain_bytes, lean_bytes = (sum(stage.memory_bytes.activations for stage in plan.stages) for plan in (plain, lean))
    assert lean_bytes < plain_bytes


def test_memory_leads_to_recomputation_free_kinds() -> None:
    """Where versions do not fit, a flushing kind does: it keeps one, beside sums of gradients and a new gradient."""
    profile = profile_of(*(layer(f"l{k}", 0.1, 100_000_000, 1000 * (k < 3)) for k in range(4)))
    plan = planned(profile, fabric_of_racks(4, 4), memory=(310e6,) * 4, kind="1f1b-flush", accumulate=8)
    assert plan.kind == "1f1b-flush"
    assert all(stage.memory_bytes.all <= 310e6 for stage in plan.stages)


def test_updates_that_replicas_do_not_divide() -> None:
    """With 8 minibatches an update, stages have 1, 2, 4 or 8 replicas."""
    plan = planned(VGG, fabric_of_racks(8, 4), kind="2bw", accumulate=8)
    assert all(8 % len(stage.ranks) == 0 for stage in plan.stages)
    with pytest.raises(UsageError, match="replicas 3-1 need a multiple of 3"):
        planned(
            VGG, fabric_of_racks(4, 4), kind="gpipe", accumulate=4, stages=(StageRange(0, 3, 3), StageRange(4, 4, 1))
        )


def test_comparison_has_synchronous_kinds() -> None:
    plan = planned(GNMT, fabric_of_racks(4, 4), compare=True)
    ways = {way.what: way for way in plan.compared}
    assert ways["1f1b-flush, update of 16"].delay == 0
    assert ways["2bw, update of 16"].delay == 1
    assert ways["1f1b-flush, update of 16"].minibatch_s > 1.15 * seconds(plan)
    assert ways["1f1b-flush, update of 16"].items_per_update == 16 * GNMT.minibatch


def test_late_reduce_is_compared_where_it_matters() -> None:
    plan = planned(VGG, fabric_of_racks(4, 4), compare=True)
    late = next(way for way in plan.compared if way.what == "3-1, late reduce")
    assert late.minibatch_s < seconds(plan)
    assert late.delay == 1 + max(stage["delay"] for stage in plan.to_json()["stages"])


@pytest.mark.parametrize("hosts", [5, 16])
def test_a_stopped_search_gives_the_best_plan_so_far(hosts: int) -> None:
    """Five hosts are searched exhaustively, sixteen by annealing: both end at once, with a whole plan."""
    shown: list[tuple[int, int]] = []

    def watch(done: int, total: int) -> bool:
        shown.append((done, total))
        return len(shown) == 2

    members = Hosts(tuple(Host(f"h{k}", f"h{k}") for k in range(hosts)))
    measured = MeasuredHosts(members, fabric_of_racks(hosts, 4))
    plan = plan_measured(GNMT, measured, JointRequest(moves=10**9, compare=True), watch)
    assert verify_actions(plan.shape, ranks=[stage.ranks for stage in plan.stages]) == []
    assert all(0 < done < total for done, total in shown)
    assert len(shown) <= 4
