"""Planner of pipelines on measured networks: against brute force, a planted optimum, the clock, and other plans.

All without hosts: networks are made, times are simulated. The simulator itself is held against cycle ratios here, and
against the clock by a benchmark of the lab.
"""

import math
import resource
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs

from benchmarks.pipeline_brute_force import best_by_trying_all, small_problem
from benchmarks.pipeline_cycles import pipeline_period_s, unshared_case
from benchmarks.record import Bar, record, seeds_of
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from solvers.costs.fabric import Fabric
from solvers.pipeline.joint import plan_measured
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts
from solvers.pipeline.joint_search import SearchSpace, lower_bound_s, search_partitions
from solvers.pipeline.period import PeriodModel, PlacedPartition
from solvers.pipeline.simulator import simulate_pipeline
from solvers.pipeline.stage_costs import costs_of_plan
from solvers.pipeline.thesis import NetworkLevel
from solvers.pipeline.training_job import PlacedPipeline

_LAB_GBPS = 0.2  # 25 MB/s: the lab's links
_HEURISTIC_MOVES = 8000
_PERIOD_MINIBATCHES = (None, 2000, 10_000)


def layer(name: str, seconds: float, weights: float, crossing: float) -> LayerProfile:
    """A layer whose forward pass takes a third of its seconds, and with gradients of what crosses."""
    size = int(crossing)
    return LayerProfile(
        name=name,
        forward_s=seconds / 3,
        backward_s=seconds * 2 / 3,
        parameter_bytes=int(weights),
        crossing_bytes=size,
        crossing_back_bytes=size,
        saved_bytes=size,
        optimiser_bytes=int(weights),
    )


def shapes(vgg_s: float, gnmt_layers: int, gnmt_s: float) -> dict[str, ModelProfile]:
    """The models of the thesis's evaluation by their shapes, scaled to links of 25 MB/s."""
    first = vgg_s * 0.98 / 4
    head = 14.4e6 * 0.893
    weights = 7.7e6 if gnmt_layers <= 8 else 14.4e6
    gnmt = [layer(f"g{k}", gnmt_s / gnmt_layers, weights / gnmt_layers, 62e3) for k in range(gnmt_layers)]
    lstm = [layer(f"m{k}", 0.02, 12.5e6 / 8, 80e3) for k in range(8)]
    resnet = [layer(f"r{k}", 0.04, 1e6 / 7 if k < 7 else 3e6 / 4, 8e6 - 6e5 * k) for k in range(11)]
    return {
        "VGG-like": ModelProfile(minibatch=64, layers=(
            layer("f0", first, 5e5, 4e6), layer("f1", first, 5e5, 2e6), layer("f2", first, 5.4e5, 1e6),
            layer("f3", first, 0, 166e3), layer("head", vgg_s * 0.02, head, 0),
        )),
        "AlexNet-like": ModelProfile(minibatch=256, layers=(
            *(layer(f"f{k}", 0.251 * 0.89 / 4, 14.4e6 * 0.01, 144e3 * (1 << (3 - k))) for k in range(4)),
            *(layer(f"c{k}", 0.251 * 0.11 / 2, 14.4e6 * 0.48, 144e3 / 4) for k in range(2)),
        )),
        "GNMT-like": ModelProfile(minibatch=64, layers=tuple(gnmt)),
        "LM-like": ModelProfile(minibatch=80, layers=tuple(lstm)),
        "S2VT-like": ModelProfile(minibatch=80, layers=(
            layer("a", 0.12, 11e6 * 0.05, 60e3), layer("b", 0.05, 11e6 * 0.45, 60e3), layer("c", 0.03, 11e6 * 0.5, 0),
        )),
        "ResNet-like": ModelProfile(minibatch=128, layers=tuple(resnet)),
    }  # fmt: skip


def racks(hosts: int, size: int, seed: int = 0, gbps: float = _LAB_GBPS, uplink: float = _LAB_GBPS) -> Fabric:
    """Hosts handed out mixed from racks that share uplinks."""
    group_of = np.random.default_rng(seed).permutation(np.arange(hosts) // size).astype(np.intp)
    rtt = np.where(group_of[:, None] == group_of[None], 200.0, 400.0)
    np.fill_diagonal(rtt, 0)
    rates, uplinks = np.full(hosts, gbps), np.full(int(group_of.max()) + 1, uplink)
    return Fabric(tuple(f"h{k}" for k in range(hosts)), rtt, None, rates, rates, group_of, uplinks, uplinks, "measured")


def measured(fabric: Fabric) -> MeasuredHosts:
    """One worker on each host."""
    return MeasuredHosts(Hosts(tuple(Host(name, name) for name in fabric.names)), fabric)


def against_brute_force(seeds: int) -> dict[str, Any]:
    """Compare the search, exhaustive and forced to anneal, with every partition, replication and order."""
    unequal, over = 0, []
    for seed in range(seeds):
        problem = small_problem(seed)
        model = PeriodModel(problem.profile, problem.fabric, problem.memory)
        space = SearchSpace(tuple(range(len(problem.memory))))
        best = best_by_trying_all(problem)
        values = []
        for exhaustive in (True, False):
            result = search_partitions(model, space, seed, _HEURISTIC_MOVES, exhaustive)
            period = model.period(result[0].partition)
            values.append(math.inf if period.excess_bytes > 0 else period.minibatch_s)
        unequal += not (values[0] == best or abs(values[0] / best - 1) < 1e-7)
        over.append(0.0 if values[1] == best else values[1] / best - 1)
    gaps = np.array(over)
    return {
        "cases": seeds, "exhaustive_unequal": unequal, "annealed_equal": float((gaps < 1e-6).mean()),
        "annealed_within_3_percent": float((gaps < 0.03).mean()), "annealed_worst": float(gaps.max()),
    }  # fmt: skip


def planted(seeds: int) -> dict[str, Any]:
    """Eight stages of eight replicas, each stage a rack: cuts elsewhere and rings across racks are far too slow."""
    layers = []
    for k in range(120):
        is_end = k % 15 == 14
        layers.append(layer(f"l{k}", 0.064, 3e5, 5e4 if is_end else 4e7))
    profile = ModelProfile(minibatch=32, layers=tuple(layers))
    hits, seconds = 0, []
    for seed in range(seeds):
        fabric = racks(64, 8, seed, uplink=0.05)
        model = PeriodModel(profile, fabric, [math.inf] * 64)
        by_rack = np.argsort(fabric.group_of, kind="stable").tolist()
        best = model.period(PlacedPartition.of(range(0, 121, 15), (8,) * 8, by_rack))
        began = time.perf_counter()
        result = search_partitions(model, SearchSpace(tuple(range(64))), seed)
        seconds.append(time.perf_counter() - began)
        period = model.period(result[0].partition)
        hits += period.minibatch_s <= best.minibatch_s * (1 + 1e-6)
    return {"seeds": seeds, "found": hits, "median_s": statistics.median(seconds)}


def against_cycles(seeds: int) -> dict[str, Any]:
    """Compare the simulator with maximum cycle ratios where no link is shared."""
    worst, means = 0.0, 0
    for seed in range(seeds):
        case = unshared_case(seed)
        for count in _PERIOD_MINIBATCHES:
            result = simulate_pipeline(case.pipeline, count)
            if result.is_periodic:
                break
        means += not result.is_periodic
        worst = max(worst, abs(result.minibatch_s / pipeline_period_s(case.stages, case.messages_s) - 1))
    return {"plans": seeds, "worst": worst, "not_periodic": means}


def planning_times() -> dict[str, Any]:
    """Seconds of whole plans: 40 layers on 16 hosts, and 1,000 layers on 256 hosts in 16 racks."""
    rows: dict[str, Any] = {}
    for name, count, hosts, size, gbps in (("40 x 16", 40, 16, 4, 1.0), ("1000 x 256", 1000, 256, 16, 10.0)):
        rng = np.random.default_rng(1)
        drawn = zip(rng.uniform(0.5, 1.5, count), rng.uniform(0, 2, count), rng.uniform(0.5, 1.5, count), strict=True)
        layers = [layer(f"l{k}", 0.8 / count * a, 4e7 / count * b, 2e5 * c) for k, (a, b, c) in enumerate(drawn)]
        fabric = racks(hosts, size, gbps=gbps, uplink=gbps * size / 2)
        began = time.perf_counter()
        plan = plan_measured(ModelProfile(minibatch=64, layers=tuple(layers)), measured(fabric), JointRequest())
        rows[name] = {
            "seconds": round(time.perf_counter() - began, 2), "plan": plan.label[:60], "kind": plan.kind,
            "minibatch_s": plan.minibatch_s, "gap": plan.gap,
        }  # fmt: skip
    rows["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 3)
    return rows


def predicted_gains(hosts: int, size: int, profiles: dict[str, ModelProfile]) -> dict[str, Any]:
    """Simulated gains over data parallelism, fair and in the given order, over model parallelism, bytes and memory."""
    rows: dict[str, Any] = {}
    for name, profile in profiles.items():
        plan = plan_measured(profile, measured(racks(hosts, size)), JointRequest(compare=True))
        seconds = plan.predicted.minibatch_s
        ways = {way.what: way.minibatch_s / seconds for way in plan.compared}
        sent = plan.predicted.bytes_per_item * plan.minibatch
        parallel = 2 * (hosts - 1) / hosts * profile.parameter_bytes
        rows[name] = {
            "plan": plan.label, "kind": plan.kind, "minibatch_ms": 1e3 * seconds,
            "over_data_parallel": ways["data-parallel"], "over_given_order": ways["data-parallel, given order"],
            "over_model_parallel": ways.get("model-parallel"), "fewer_bytes": 1 - sent / parallel,
            "late_over_data_parallel": _late_gain(plan, ways),
        }  # fmt: skip
    return rows


def _late_gain(plan: PipelinePlan, ways: dict[str, float]) -> float | None:
    """Gain over data parallelism where the next forward pass does not wait for the all-reduce."""
    late = ways.get(f"{plan.label}, late reduce")
    return None if late is None else ways["data-parallel"] / late


def gpipe_slowdowns() -> dict[str, float]:
    """How many times as long GPipe takes, with recomputation and as many minibatches as workers (NOAM), simulated."""
    rows = {}
    for hosts, seconds in ((4, 0.16), (16, 0.64)):
        profile = shapes(0.336, max(8, hosts), seconds)["GNMT-like"]
        fabric = measured(racks(hosts, 4))
        plan = plan_measured(profile, fabric, JointRequest())
        options = {"straight": True, "all_workers": True, "recompute": True}
        gpipe = plan_measured(profile, fabric, JointRequest(kind="gpipe", accumulate=hosts, **options))
        rows[str(hosts)] = gpipe.predicted.minibatch_s / plan.predicted.minibatch_s
    return rows


def simulated_s(plan: PipelinePlan, profile: ModelProfile, fabric: Fabric) -> float:
    """Seconds per minibatch of a plan whose hosts are the fabric's."""
    slowness = [profile.slowness.get(name, 1.0) for name in fabric.names]
    placed = PlacedPipeline.of(plan, costs_of_plan(plan, profile), fabric, slowness)
    return simulate_pipeline(placed).minibatch_s


def placement() -> dict[str, Any]:
    """Gain of the placement: 16 hosts, one uplink at a quarter of its rate, one host at half speed."""
    fabric = racks(16, 4)
    uplinks = np.where(np.arange(4) == 1, _LAB_GBPS / 4, _LAB_GBPS)
    fabric = replace(fabric, group_out_gbps=uplinks, group_in_gbps=uplinks)
    rows: dict[str, Any] = {}
    for name, profile in shapes(0.6, 16, 0.64).items():
        if name not in ("VGG-like", "GNMT-like"):
            continue
        slow = structs.replace(profile, host_slowness={"h5": 2.0})
        plan = plan_measured(slow, measured(fabric), JointRequest())
        seconds, rng = plan.predicted.minibatch_s, np.random.default_rng(0)
        randoms = []
        for _ in range(10):
            hosts = Hosts(tuple(Host(f"h{k}", f"h{k}") for k in rng.permutation(16)[: plan.ranks].tolist()))
            randoms.append(simulated_s(structs.replace(plan, host_entries=hosts.entries()), slow, fabric))
        unmeasured = MeasuredHosts.even(
            Hosts(tuple(Host(h, h) for h in fabric.names)), (NetworkLevel(16, _LAB_GBPS * 1.25e8),)
        )
        even = plan_measured(slow, unmeasured, JointRequest(model="thesis", depths="noam"))
        rows[name] = {
            "plan": plan.label, "over_random": statistics.median(randoms) / seconds,
            "thesis_plan": even.label, "over_thesis": simulated_s(even, slow, fabric) / seconds,
        }  # fmt: skip
    return rows


def memory() -> dict[str, Any]:
    """Bytes of the worst stage of a straight pipeline of four, over those of data parallelism; and by depth."""
    rows: dict[str, Any] = {}
    for name, profile in shapes(0.336, 8, 0.16).items():
        if name not in ("GNMT-like", "LM-like"):
            continue
        fabric = measured(racks(4, 4))
        straight = plan_measured(profile, fabric, JointRequest(straight=True, all_workers=True, depths="noam"))
        parallel = plan_measured(profile, fabric, JointRequest(kind="data-parallel", all_workers=True))
        worst = [max(stage.memory_bytes.all for stage in plan.stages) for plan in (straight, parallel)]
        by_depth = [
            plan_measured(
                profile, fabric, JointRequest(straight=True, all_workers=True, depths=(depth, 3, 2, 1))
            ).stages[0].memory_bytes.all
            for depth in range(4, 8)
        ]  # fmt: skip
        rows[name] = {"over_data_parallel": worst[0] / worst[1], "first_stage_by_depth_4_to_7": by_depth}
    return rows


def main() -> int:
    """Run and record; the exit code."""
    began = time.perf_counter()
    counts = {what: seeds_of({0: usual})[0] for what, usual in (("brute", 300), ("planted", 20), ("cycles", 500))}
    plan_measured(shapes(1, 4, 1)["LM-like"], measured(racks(8, 4)), JointRequest())  # compiles what is compiled once
    four, sixteen = shapes(0.336, 8, 0.16), shapes(0.6, 16, 0.64)
    figures: dict[str, Any] = {"planning": planning_times()}
    figures |= {
        "brute_force": against_brute_force(counts["brute"]),
        "planted": planted(counts["planted"]),
        "cycles": against_cycles(counts["cycles"]),
        "predicted_4_hosts": predicted_gains(4, 4, four),
        "predicted_16_hosts": predicted_gains(
            16, 4, {name: sixteen[name] for name in ("VGG-like", "AlexNet-like", "GNMT-like", "ResNet-like")}
        ),
        "gpipe": gpipe_slowdowns(),
        "placement": placement(),
        "memory": memory(),
    }
    model = PeriodModel(four["VGG-like"], racks(4, 4), [math.inf] * 4)
    figures["bound_vgg_s"] = lower_bound_s(model, range(4))
    figures["total_s"] = round(time.perf_counter() - began, 1)
    return record("pipeline-planner", {"seeds": counts, "moves": _HEURISTIC_MOVES}, figures, _bars(figures, counts))


def _bars(figures: dict[str, Any], counts: dict[str, int]) -> list[Bar]:
    brute, planning = figures["brute_force"], figures["planning"]
    few, many = figures["predicted_4_hosts"], figures["predicted_16_hosts"]
    gain, baseline = "over_data_parallel", "over_given_order"
    worst_linear = max(abs(np.diff(row["first_stage_by_depth_4_to_7"], 2)).max() for row in figures["memory"].values())
    bars = [
        Bar("exhaustive search: cases unlike brute force", brute["exhaustive_unequal"], at_most=0),
        Bar("annealed: share equal to brute force", brute["annealed_equal"], at_least=0.9),
        Bar("annealed: share within 3 %", brute["annealed_within_3_percent"], at_least=0.99),
        Bar("annealed: worst", brute["annealed_worst"], at_most=0.1),
        Bar("planted optimum: share found", figures["planted"]["found"] / counts["planted"], at_least=1),
        Bar("40 layers x 16 hosts: plan, s", planning["40 x 16"]["seconds"], at_most=3),
        Bar("1,000 layers x 256 hosts: plan, s", planning["1000 x 256"]["seconds"], at_most=60),
        Bar("1,000 layers x 256 hosts: gap to the bound", planning["1000 x 256"]["gap"], at_most=0.15),
        Bar("peak of planning, GB", planning["peak_gb"], at_most=1),
        Bar("simulator over cycle ratio, less 1, worst", figures["cycles"]["worst"], at_most=1e-9),
        Bar(
            "ResNet-like on 4 hosts is data-parallel", float(few["ResNet-like"]["kind"] == "data-parallel"), at_least=1
        ),
        Bar("ResNet-like on 16 is data-parallel", float(many["ResNet-like"]["kind"] == "data-parallel"), at_least=1),
    ]
    for name, least in (("VGG", 2.0), ("AlexNet", 3.0), ("GNMT", 2.9), ("LM", 3.5), ("S2VT", 2.6)):
        bars.append(
            Bar(f"4 hosts, simulated: {name}-like over data parallel", few[f"{name}-like"][gain], at_least=least)
        )
    for name, fair, as_given in (("VGG", 2.0, 4.3), ("AlexNet", 2.3, 4.5), ("GNMT", 2.2, 4.5)):
        row = many[f"{name}-like"]
        bars.append(Bar(f"16 hosts, simulated: {name}-like over data parallel", row[gain], at_least=fair))
        bars.append(Bar(f"16 hosts, simulated: {name}-like over the given order", row[baseline], at_least=as_given))
    for hosts, times in figures["gpipe"].items():
        bars.append(Bar(f"GPipe on {hosts} hosts: times as long as the plan", times, at_least=1.5))
    for name, row in figures["placement"].items():
        bars.append(Bar(f"placement of {name} over random ones", row["over_random"], at_least=1.25))
        bars.append(Bar(f"placement of {name} over the thesis's plan", row["over_thesis"], at_least=1.15))
    for name, least in (("VGG", 0.85), ("GNMT", 0.9)):
        bars.append(
            Bar(f"{name}-like: fewer bytes than data parallel", few[f"{name}-like"]["fewer_bytes"], at_least=least)
        )
    for name, row in figures["memory"].items():
        bars.append(Bar(f"memory of {name}, straight over data parallel", row["over_data_parallel"], at_most=1.1))
    bars.append(Bar("memory by depth: bytes off a straight line", float(worst_linear), at_most=2))
    bars.append(Bar("this benchmark, s", figures["total_s"], at_most=180))
    return bars


if __name__ == "__main__":
    sys.exit(main())
