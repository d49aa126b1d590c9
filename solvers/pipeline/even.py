"""Planner for even networks: every worker computes alike, every link of a level carries alike.

Searches the partition of least seconds per minibatch by one of three cost models. All are of steady state, without
latencies and without shared links; memory is not looked at.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from plink.documents.pipeline import Kind, ReduceMode
from plink.errors import UsageError
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan import PipelinePlan, PipelineStage, StageBoundary
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import ACCUMULATING, FLUSHING, PipelineShape, base_depths
from plink.model.pipeline.versions import delay_of, learning_rate_scale, minibatches_per_update
from solvers.pipeline.depths import (
    MIN_GAIN,
    Depths,
    StageLoop,
    depths_from,
    depths_of_network,
    loop_period_s,
    round_trips_s,
)
from solvers.pipeline.layer_costs import LayerCosts, layer_costs, passes_s
from solvers.pipeline.levels import (
    LevelPartition,
    NetworkLevel,
    PlacedStage,
    Watch,
    best_level_partition,
    data_parallel,
    partitions_of_all_workers,
    possible_stages,
)
from solvers.pipeline.stage_costs import least_bucket_bytes
from solvers.pipeline.stage_times import EVEN_MODELS, EvenModel, reduce_s
from solvers.pipeline.threshold import StageRange, best_partition, fixed_partition
from solvers.pipeline.verifier import verify_actions

_WAYS: tuple[tuple[str, Kind, str], ...] = (
    ("data-parallel", "data-parallel", "data-parallel"),
    ("straight", "1f1b", "straight"),
    ("model-parallel", "model-parallel", "straight"),
)
"""To compare with: name, kind, and whose stages."""
PLANNED_KINDS: tuple[Kind, ...] = ("1f1b", "2bw", "1f1b-flush", "gpipe", "data-parallel", "model-parallel")


@dataclass(frozen=True)
class EvenRequest:
    """What is wanted: ``kind`` None leaves 1f1b or data parallelism to the planner; ``depths`` None: those that the
    network needs, for the model ``ring``, and the thesis's for the others; ``noam``: the thesis's. ``rtt_s``: seconds
    of a round trip between hosts.

    ``stages``: a given partition instead of a search. ``fewer_workers``: workers may stay idle.
    """

    model: EvenModel = "ring"
    kind: Kind | None = None
    stages: tuple[StageRange, ...] | None = None
    depths: tuple[int, ...] | Literal["noam"] | None = None
    rtt_s: float = 0.0
    accumulate: int = 1
    vertical_sync: bool = False
    reduce: ReduceMode = "wait"
    straight: bool = False
    fewer_workers: bool = True
    recompute: bool = False


def plan_even(
    profile: ModelProfile,
    hosts: Hosts,
    levels: tuple[NetworkLevel, ...],
    request: EvenRequest,
    watch: Watch | None = None,
) -> PipelinePlan:
    """Return the plan of least predicted seconds per minibatch; ``levels``: innermost first, over all hosts' slots.

    The partition of least bottleneck may need more: what its depths allow, or an all-reduce that no backward pass
    hides. So it is compared with data parallelism, one worker a stage and one worker alone. ``watch``: called with how
    much of a table is filled, and its size.

    :raises UsageError: when the request cannot be, such as depths that would lock.
    """
    workers = sum(host.slots for host in hosts)
    costs = layer_costs(profile, request.model == "ring", request.recompute)
    partition = _partition(costs, levels, request, workers, watch)
    if partition.minibatch_s == math.inf:  # stages of the user's own on several levels
        priced = _Prediction(profile, costs, levels, request, partition, "1f1b")
        partition = replace(partition, minibatch_s=priced.slowest_s)
    bottleneck_s = partition.minibatch_s
    prediction = _predicted(profile, costs, levels, request, partition)
    if request.stages is None and not request.straight and request.kind not in ("data-parallel", "model-parallel"):
        others = partitions_of_all_workers(costs, levels, request.model)
        if request.fewer_workers:
            alone = PlacedStage(0, costs.layers - 1, (0,))
            others["alone"] = LevelPartition((alone,), float(costs.seconds[-1]))
        for other in others.values():
            with suppress(UsageError):  # the requested depths are of another number of stages
                tried = _predicted(profile, costs, levels, request, other)
                prediction = min(prediction, tried, key=lambda entry: entry.minibatch_s)
    partition, shape, kind = prediction.partition, prediction.shape, prediction.kind
    assert shape is not None
    used, idle, numbers = _used_hosts(hosts, partition)
    stages = tuple(
        PipelineStage(
            stage.first,
            stage.last,
            tuple(numbers[worker] for worker in stage.workers),
            shape.depths[number],
            learning_rate_scale(shape, number),
            {"names": [profile.layers[k].name for k in (stage.first, stage.last)], **prediction.of_stage(number)},
        )
        for number, stage in enumerate(partition.stages)
    )
    searched = request.stages is None and not request.straight and request.fewer_workers
    bound_s = bottleneck_s if searched and kind in ("1f1b", "2bw", "data-parallel") else None
    if kind == "data-parallel" and request.kind is not None:
        bound_s = None
    return PipelinePlan(
        kind=kind,
        minibatch=profile.minibatch,
        hosts=used,
        stages=stages,
        boundaries=_boundaries(profile, partition),
        accumulate=request.accumulate,
        vertical_sync=request.vertical_sync,
        reduce=request.reduce,
        recompute=request.recompute,
        profile=profile.digest(),
        details={
            "model": request.model,
            "idle": idle,
            "predicted": prediction.of_pipeline(),
            "lower_bound_s": bound_s,
            "gap": None if bound_s is None else prediction.minibatch_s / bound_s - 1,
            "proven": bound_s is not None and prediction.minibatch_s == bound_s,
            "compared": _compared(profile, levels, request),
            "constraints": {"straight": request.straight} | _stages_text(request.stages),
        },
    )


def _predicted(
    profile: ModelProfile, costs: LayerCosts, levels: tuple[NetworkLevel, ...], request: EvenRequest,
    partition: LevelPartition,
) -> "_Prediction":  # fmt: skip
    """Return what a partition does in the requested way.

    :raises UsageError: where its actions would not end."""
    kind = request.kind
    if kind is None:
        kind = "data-parallel" if len(partition.stages) == 1 and not request.vertical_sync else "1f1b"
    prediction = _Prediction(profile, costs, levels, request, partition, kind)
    return replace(prediction, shape=_shape(prediction))


def _stages_text(stages: tuple[StageRange, ...] | None) -> dict[str, str]:
    if stages is None:
        return {}
    return {"stages": ",".join(f"{stage.first}-{stage.last}x{stage.replicas}" for stage in stages)}


def _partition(
    costs: LayerCosts, levels: tuple[NetworkLevel, ...], request: EvenRequest, workers: int, watch: Watch | None
) -> LevelPartition:
    """Return the stages, by the fastest of the exact algorithms that fits the request."""
    if request.kind == "data-parallel":
        if request.stages is not None and len(request.stages) > 1:
            raise UsageError("--kind data-parallel is one stage; leave --stages out")
        return data_parallel(costs, levels, request.model)
    if request.stages is not None:
        if len(levels) > 1:
            return LevelPartition(_consecutive(request.stages), math.inf)
        fixed = fixed_partition(costs, request.stages, levels[0].bandwidth, request.model)
        return LevelPartition(_consecutive(fixed.stages), fixed.minibatch_s)
    if request.straight or request.kind == "model-parallel":
        if workers > (cuts := possible_stages(costs)):
            raise UsageError(f"{workers} stages of one worker each need as many layers; the profile allows {cuts}")
        straight = best_level_partition(costs, levels, request.model, False, True, watch)
        if straight.minibatch_s == float("inf"):
            raise UsageError("no cut gives every worker a stage of its own: layers that share a parameter forbid it")
        return straight
    if len(levels) == 1 and request.fewer_workers and request.model != "published":
        result = best_partition(costs, workers, levels[0].bandwidth, request.model)
        return LevelPartition(_consecutive(result.stages), result.minibatch_s)
    return best_level_partition(costs, levels, request.model, request.fewer_workers, watch=watch)


def _consecutive(stages: tuple[StageRange, ...]) -> tuple[PlacedStage, ...]:
    """Give stages neighbouring workers, first to last."""
    placed, worker = [], 0
    for stage in stages:
        placed.append(PlacedStage(stage.first, stage.last, tuple(range(worker, worker + stage.replicas))))
        worker += stage.replicas
    return tuple(placed)


def _shape(prediction: "_Prediction") -> PipelineShape:
    """Return what the plan's actions follow from, proven to end."""
    request, kind, partition = prediction.request, prediction.kind, prediction.partition
    replicas = tuple(len(stage.workers) for stage in partition.stages)
    back = [boundary.backward_bytes for boundary in _boundaries(prediction.profile, partition)]
    frozen = max((number + 1 for number, size in enumerate(back) if size == 0), default=0)

    def shape_of(depths: Depths) -> PipelineShape:
        options = request.accumulate, request.vertical_sync, request.reduce
        return PipelineShape(kind, replicas, depths, *options, frozen)

    depths = (1,) * len(replicas) if kind in ("data-parallel", "model-parallel") else base_depths(replicas)
    if kind in ACCUMULATING:
        most = [max(1, request.accumulate // count) for count in replicas]
        depths = tuple(most) if kind == "gpipe" else tuple(map(min, depths, most))
    if kind == "gpipe" and request.depths is not None:
        raise UsageError("gpipe has all minibatches of an update in flight; omit its depths")
    if isinstance(request.depths, tuple):
        depths = request.depths if len(request.depths) > 1 else depths_from(request.depths[0], replicas)
        if len(depths) != len(replicas):
            raise UsageError(f"--depth has {len(depths)} numbers for {len(replicas)} stages")
    elif kind == "1f1b" and request.depths is None and request.model == "ring":
        depths = depths_of_network(
            prediction.loops, replicas, partition.minibatch_s, lambda tried: not verify_actions(shape_of(tried))
        )
    shape = shape_of(depths)
    errors = verify_actions(shape)
    if errors:
        raise UsageError(f"depth {','.join(map(str, depths))} of {'-'.join(map(str, replicas))}: {errors[0]}")
    return shape


def _used_hosts(hosts: Hosts, partition: LevelPartition) -> tuple[Hosts, list[str], dict[int, int]]:
    """Return the hosts that compute with their used slots, the others' names, and each used worker's rank."""
    used = sorted(worker for stage in partition.stages for worker in stage.workers)
    numbers = {worker: rank for rank, worker in enumerate(used)}
    members: list[Host] = []
    idle: list[str] = []
    begin = 0
    for host in hosts:
        slots = sum(begin <= worker < begin + host.slots for worker in used)
        begin += host.slots
        if slots:
            members.append(replace(host, slots=slots))
        else:
            idle.append(host.name)
    return Hosts(tuple(members), hosts.lab), idle, numbers


def _boundaries(profile: ModelProfile, partition: LevelPartition) -> tuple[StageBoundary, ...]:
    return tuple(
        StageBoundary(stage.last, layer.crossing_bytes, layer.crossing_back_bytes, layer.crossing)
        for stage in partition.stages[:-1]
        for layer in (profile.layers[stage.last],)
    )


@dataclass(frozen=True)
class _Prediction:
    """What a partition is predicted to do, each stage and each cut at the level whose links it uses."""

    profile: ModelProfile
    costs: LayerCosts
    levels: tuple[NetworkLevel, ...]
    request: EvenRequest
    partition: LevelPartition
    kind: Kind
    shape: PipelineShape | None = None

    @property
    def loops(self) -> tuple[StageLoop, ...]:
        """What a minibatch takes from a stage on and back to it."""
        loops = []
        passes = passes_s(self.profile, self.request.recompute)
        for number, stage in enumerate(self.partition.stages):
            layers = self.profile.layers[stage.first : stage.last + 1]
            reduce_s = self._reduce_s(stage) * len(stage.workers)
            hidden_s = float("inf") if self.request.reduce == "late" else sum(layer.backward_s for layer in layers)
            update_s = sum(layer.update_s + layer.copy_s for layer in layers)
            transfers_s = 0.0
            if number + 1 < len(self.partition.stages):
                crossing = float(self.costs.crossing[stage.last + 1])
                transfers_s = crossing / self._meeting(number)[0].bandwidth + self.request.rtt_s
            compute_s = sum(passes[stage.first : stage.last + 1])
            loops.append(StageLoop(compute_s, update_s + max(0.0, reduce_s - hidden_s), transfers_s))
        return tuple(loops)

    def _compute_s(self, stage: PlacedStage) -> float:
        return float(self.costs.seconds[stage.last + 1] - self.costs.seconds[stage.first]) / len(stage.workers)

    def _reduce_s(self, stage: PlacedStage) -> float:
        """Return the all-reduce's seconds per minibatch: of the level at which it takes longest."""
        weights = float(self.costs.weights[stage.last + 1] - self.costs.weights[stage.first])
        code = EVEN_MODELS.index(self.request.model)
        longest_s, size, outside = 0.0, 1, len(stage.workers)
        for level in self.levels:
            components = len({worker // size for worker in stage.workers})
            size *= level.components
            parts = components // len({worker // size for worker in stage.workers})
            taken_s = float(reduce_s(code, weights / level.bandwidth, parts)) / outside
            longest_s, outside = max(longest_s, taken_s), outside // parts
        return longest_s

    def _slowest_bandwidth(self, stage: PlacedStage) -> float:
        """Return the least bandwidth between replicas of a stage, bytes/s."""
        size, slowest = 1, float("inf")
        for level in self.levels:
            parts = len({worker // size for worker in stage.workers})
            size *= level.components
            if len({worker // size for worker in stage.workers}) < parts:
                slowest = min(slowest, level.bandwidth)
        return slowest

    def _crossing_s(self, number: int) -> float:
        """Return the seconds per minibatch of the cut after a stage, at the level at which both sides meet."""
        stages = self.partition.stages
        if number + 1 == len(stages):
            return 0.0
        level, size = self._meeting(number)
        copies = len({worker // size for worker in stages[number].workers})
        return float(self.costs.crossing[stages[number].last + 1]) / level.bandwidth / copies

    def _meeting(self, number: int) -> tuple[NetworkLevel, int]:
        """Return the level at which a stage and the next one meet, and the workers of one of its components."""
        stage, other = self.partition.stages[number : number + 2]
        size = 1
        for level in self.levels:
            size *= level.components
            if stage.workers[0] // size == other.workers[0] // size:
                break
        return level, size

    @property
    def minibatch_s(self) -> float:
        """Seconds per minibatch: of the slowest stage or cut, or what the depths allow; of everything in turn without
        a pipeline."""
        if self.kind in FLUSHING:
            steady_s = self.slowest_s
            return steady_s + max(0.0, round_trips_s(self.loops)[0] - steady_s) / self.request.accumulate
        if self.kind != "model-parallel":
            return self._loop_s or self.partition.minibatch_s
        stages = self.partition.stages
        compute_s = sum(self._compute_s(stage) * len(stage.workers) for stage in stages)
        crossing_s = sum(map(self._crossing_s, range(len(stages)))) + self.request.rtt_s * (len(stages) - 1)
        return (compute_s + crossing_s) / len(stages[0].workers)

    @property
    def slowest_s(self) -> float:
        """Seconds per minibatch of the slowest stage or cut, each at the level whose links it uses; with flushes
        all-reduces are once for each."""
        slowest_s = 0.0
        for number, stage in enumerate(self.partition.stages):
            compute_s, reduce_s = self._compute_s(stage), self._reduce_s(stage)
            taken_s = compute_s + reduce_s if self.request.model == "published" else max(compute_s, reduce_s)
            if self.kind in FLUSHING:
                taken_s = max(compute_s, reduce_s * len(stage.workers) / self.request.accumulate)
            slowest_s = max(slowest_s, taken_s, self._crossing_s(number))
        return slowest_s

    @property
    def _loop_s(self) -> float | None:
        """Seconds per minibatch of depths that are too small for the network, or for an all-reduce that no backward
        pass hides; None where they are not."""
        if self.shape is None or self.kind not in ("1f1b", "data-parallel") or self.request.model != "ring":
            return None
        period_s = loop_period_s(self.loops, self.shape.replicas, self.shape.depths)
        return period_s if period_s > self.partition.minibatch_s * (1 + MIN_GAIN) else None

    def of_stage(self, number: int) -> dict[str, Any]:
        """Return the details of a stage."""
        stage = self.partition.stages[number]
        crossing_s = self._crossing_s(number) + (self._crossing_s(number - 1) if number else 0.0)
        compute_s = self._compute_s(stage)
        prediction = {
            "compute_s": compute_s,
            "network_s": self._reduce_s(stage) + crossing_s / len(stage.workers),
            "busy_share": min(1.0, compute_s / self.minibatch_s),
        }
        reduced = {}
        if len(stage.workers) > 1:
            size = least_bucket_bytes(len(stage.workers), self._slowest_bandwidth(stage))
            reduced = {"all_reduce": {"algo": "ring", "bucket_bytes": size}}
        return reduced | {"predicted": prediction}

    def of_pipeline(self) -> dict[str, Any]:
        """Return the details of the whole."""
        return {
            "minibatch_s": self.minibatch_s,
            "items_per_s": self.profile.minibatch / self.minibatch_s,
            "bytes_per_item": self._bytes() / self.profile.minibatch,
            "limited_by": self._limit(),
            "by": "model",
        }

    def _bytes(self) -> float:
        """Return the bytes that all workers send for one minibatch."""
        stages = self.partition.stages
        sent = sum(float(self.costs.crossing[stage.last + 1]) for stage in stages[:-1])
        for stage in stages:
            replicas = len(stage.workers)
            weights = float(self.costs.weights[stage.last + 1] - self.costs.weights[stage.first])
            sent += 2 * (replicas - 1) * weights / replicas
        return sent

    def _limit(self) -> str:
        """Return what takes longest."""
        if self.kind == "model-parallel":
            return "one minibatch in flight"
        if self._loop_s is not None and len(self.partition.stages) > 1:
            return "round trips: too few minibatches in flight"
        terms: dict[str, float] = {}
        for number, stage in enumerate(self.partition.stages):
            terms[f"compute of stage {number}"] = self._compute_s(stage)
            terms[f"all-reduce of stage {number}"] = self._reduce_s(stage)
            terms[f"what crosses after layer {stage.last}"] = self._crossing_s(number)
        return max(terms, key=lambda name: terms[name])


def _compared(
    profile: ModelProfile, levels: tuple[NetworkLevel, ...], request: EvenRequest
) -> list[dict[str, Any]]:  # fmt: skip
    """Return other ways to use all workers: data parallelism, one worker a stage, and that without a pipeline.

    None computes activations again: memory, the reason for it, is not looked at."""
    costs = layer_costs(profile, request.model == "ring", recompute=False)
    partitions = partitions_of_all_workers(costs, levels, request.model)
    depths = None if isinstance(request.depths, tuple) else request.depths
    rows = []
    for name, kind, stages in _WAYS:
        if stages not in partitions:
            continue
        plain = EvenRequest(request.model, kind, depths=depths, rtt_s=request.rtt_s)
        prediction = _predicted(profile, costs, levels, plain, partitions[stages])
        shape = prediction.shape
        assert shape is not None
        updates = min(minibatches_per_update(shape, stage) for stage in range(shape.stages))
        rows.append(
            {
                "what": name,
                "minibatch_s": prediction.minibatch_s,
                "delay": max(delay_of(shape, stage) for stage in range(shape.stages)),
                "items_per_update": float(updates * profile.minibatch),
                "recompute": False,
            }
        )
    return rows
