"""Planner for even networks: every worker computes alike, every link of a level carries alike.

Searches the partition of least seconds per minibatch by one of three cost models. All are of steady state, without
latencies and without shared links; memory is not looked at.
"""

from dataclasses import dataclass, replace
from typing import Any

from plink.documents.pipeline import Kind, ReduceMode
from plink.errors import UsageError
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan import PipelinePlan, PipelineStage, StageBoundary
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import PipelineShape, base_depths
from plink.model.pipeline.versions import delay_of, learning_rate_scale, minibatches_per_update
from solvers.pipeline.layer_costs import LayerCosts, layer_costs
from solvers.pipeline.levels import LevelPartition, NetworkLevel, PlacedStage, Watch, best_level_partition
from solvers.pipeline.stage_times import EVEN_MODELS, EvenModel, reduce_s
from solvers.pipeline.threshold import StageRange, best_partition, fixed_partition
from solvers.pipeline.verifier import verify_actions

PLANNED_KINDS: tuple[Kind, ...] = ("1f1b", "2bw", "data-parallel", "model-parallel")


@dataclass(frozen=True)
class EvenRequest:
    """What is wanted: ``kind`` None leaves 1f1b or data parallelism to the planner; ``depths`` None: the thesis's.

    ``stages``: a given partition instead of a search. ``fewer_workers``: workers may stay idle.
    """

    model: EvenModel = "ring"
    kind: Kind | None = None
    stages: tuple[StageRange, ...] | None = None
    depths: tuple[int, ...] | None = None
    accumulate: int = 1
    vertical_sync: bool = False
    reduce: ReduceMode = "wait"
    straight: bool = False
    fewer_workers: bool = True


def plan_even(
    profile: ModelProfile,
    hosts: Hosts,
    levels: tuple[NetworkLevel, ...],
    request: EvenRequest,
    watch: Watch | None = None,
) -> PipelinePlan:
    """Return the plan of least predicted seconds per minibatch; ``levels``: innermost first, over all hosts' slots.

    ``watch``: called with how much of a table is filled, and its size.

    :raises UsageError: when the request cannot be, such as depths that would lock.
    """
    workers = sum(host.slots for host in hosts)
    costs = layer_costs(profile, with_updates=request.model == "ring")
    partition = _partition(costs, levels, request, workers, watch)
    kind = request.kind
    if kind is None:
        kind = "data-parallel" if len(partition.stages) == 1 and not request.vertical_sync else "1f1b"
    shape = _shape(partition, profile, kind, request)
    used, idle, numbers = _used_hosts(hosts, partition)
    prediction = _Prediction(profile, costs, levels, request.model, partition, kind)
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
    bound_s = partition.minibatch_s if searched and kind in ("1f1b", "2bw", "data-parallel") else None
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
        profile=profile.digest(),
        details={
            "model": request.model,
            "idle": idle,
            "predicted": prediction.of_pipeline(),
            "lower_bound_s": bound_s,
            "gap": None if bound_s is None else 0.0,
            "proven": bound_s is not None,
            "compared": _compared(profile, costs, levels, request.model),
            "constraints": {"straight": request.straight} | _stages_text(request.stages),
        },
    )


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
        return _data_parallel(costs, levels, request.model, workers)
    if request.stages is not None:
        if len(levels) > 1:
            raise UsageError("--stages go with a network of one level; give --gbps one rate and leave --levels out")
        fixed = fixed_partition(costs, request.stages, levels[0].bandwidth, request.model)
        return LevelPartition(_consecutive(fixed.stages), fixed.minibatch_s)
    if request.straight or request.kind == "model-parallel":
        if workers > (cuts := _possible_stages(costs)):
            raise UsageError(f"{workers} stages of one worker each need as many layers; the profile allows {cuts}")
        straight = best_level_partition(costs, levels, request.model, False, True, watch)
        if straight.minibatch_s == float("inf"):
            raise UsageError("no cut gives every worker a stage of its own: layers that share a parameter forbid it")
        return straight
    if len(levels) == 1 and request.fewer_workers and request.model != "published":
        result = best_partition(costs, workers, levels[0].bandwidth, request.model)
        return LevelPartition(_consecutive(result.stages), result.minibatch_s)
    return best_level_partition(costs, levels, request.model, request.fewer_workers, watch=watch)


def _possible_stages(costs: LayerCosts) -> int:
    return int((costs.crossing[1:-1] < float("inf")).sum()) + 1


def _consecutive(stages: tuple[StageRange, ...]) -> tuple[PlacedStage, ...]:
    """Give stages neighbouring workers, first to last."""
    placed, worker = [], 0
    for stage in stages:
        placed.append(PlacedStage(stage.first, stage.last, tuple(range(worker, worker + stage.replicas))))
        worker += stage.replicas
    return tuple(placed)


def _data_parallel(
    costs: LayerCosts, levels: tuple[NetworkLevel, ...], model: EvenModel, workers: int
) -> LevelPartition:
    """Return one stage on all workers, as the levels' recurrence prices it."""
    one_layer = LayerCosts(costs.seconds[[0, -1]], costs.weights[[0, -1]], costs.crossing[[0, -1]])
    priced = best_level_partition(one_layer, levels, model, fewer_workers=False)
    return LevelPartition((PlacedStage(0, costs.layers - 1, tuple(range(workers))),), priced.minibatch_s)


def _shape(partition: LevelPartition, profile: ModelProfile, kind: Kind, request: EvenRequest) -> PipelineShape:
    """Return what the plan's actions follow from, proven to end."""
    replicas = tuple(len(stage.workers) for stage in partition.stages)
    depths = base_depths(replicas) if kind in ("1f1b", "2bw") else (1,) * len(replicas)
    if request.depths is not None:
        depths = request.depths if len(request.depths) > 1 else _from_first(replicas, request.depths[0])
        if len(depths) != len(replicas):
            raise UsageError(f"--depth has {len(depths)} numbers for {len(replicas)} stages")
    back = [boundary.backward_bytes for boundary in _boundaries(profile, partition)]
    frozen = max((number + 1 for number, size in enumerate(back) if size == 0), default=0)
    shape = PipelineShape(kind, replicas, depths, request.accumulate, request.vertical_sync, request.reduce, frozen)
    errors = verify_actions(shape)
    if errors:
        raise UsageError(f"depth {','.join(map(str, depths))} of {'-'.join(map(str, replicas))}: {errors[0]}")
    return shape


def _from_first(replicas: tuple[int, ...], depth: int) -> tuple[int, ...]:
    """Return depths of all stages from that of the first: as deep as cannot lock, never below the thesis's.

    A stage deeper than what the one before it has in flight would wait for inputs that never come.
    """
    depths = [depth]
    for stage in range(1, len(replicas)):
        possible = (replicas[stage - 1] * (depths[-1] - 1) + 1) // replicas[stage]
        depths.append(max(1, min(base_depths(replicas)[stage], possible)))
    return tuple(depths)


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
    model: EvenModel
    partition: LevelPartition
    kind: Kind

    def _compute_s(self, stage: PlacedStage) -> float:
        return float(self.costs.seconds[stage.last + 1] - self.costs.seconds[stage.first]) / len(stage.workers)

    def _reduce_s(self, stage: PlacedStage) -> float:
        """Return the all-reduce's seconds per minibatch: of the level at which it takes longest."""
        weights = float(self.costs.weights[stage.last + 1] - self.costs.weights[stage.first])
        code = EVEN_MODELS.index(self.model)
        longest_s, size, outside = 0.0, 1, len(stage.workers)
        for level in self.levels:
            components = len({worker // size for worker in stage.workers})
            size *= level.components
            parts = components // len({worker // size for worker in stage.workers})
            taken_s = float(reduce_s(code, weights / level.bandwidth, parts)) / outside
            longest_s, outside = max(longest_s, taken_s), outside // parts
        return longest_s

    def _crossing_s(self, number: int) -> float:
        """Return the seconds per minibatch of the cut after a stage, at the level at which both sides meet."""
        stages = self.partition.stages
        if number + 1 == len(stages):
            return 0.0
        stage, other = stages[number], stages[number + 1]
        size, bandwidth = 1, self.levels[-1].bandwidth
        for level in self.levels:
            size *= level.components
            if stage.workers[0] // size == other.workers[0] // size:
                bandwidth = level.bandwidth
                break
        copies = len({worker // size for worker in stage.workers})
        return float(self.costs.crossing[stage.last + 1]) / bandwidth / copies

    @property
    def minibatch_s(self) -> float:
        """Seconds per minibatch: of the slowest stage or cut; of everything in turn without a pipeline."""
        if self.kind != "model-parallel":
            return self.partition.minibatch_s
        stages = self.partition.stages
        compute_s = sum(self._compute_s(stage) * len(stage.workers) for stage in stages)
        return (compute_s + sum(map(self._crossing_s, range(len(stages))))) / len(stages[0].workers)

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
        reduced = {"all_reduce": {"algo": "ring"}} if len(stage.workers) > 1 else {}
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
        terms: dict[str, float] = {}
        for number, stage in enumerate(self.partition.stages):
            terms[f"compute of stage {number}"] = self._compute_s(stage)
            terms[f"all-reduce of stage {number}"] = self._reduce_s(stage)
            terms[f"what crosses after layer {stage.last}"] = self._crossing_s(number)
        return max(terms, key=lambda name: terms[name])


def _compared(
    profile: ModelProfile, costs: LayerCosts, levels: tuple[NetworkLevel, ...], model: EvenModel
) -> list[dict[str, Any]]:
    """Return other ways to use all workers: data parallelism, one worker a stage, and that without a pipeline."""
    workers = 1
    for level in levels:
        workers *= level.components
    ways: list[tuple[str, Kind, LevelPartition]] = [
        ("data-parallel", "data-parallel", _data_parallel(costs, levels, model, workers))
    ]
    straight = None
    if 1 < workers <= _possible_stages(costs):
        straight = best_level_partition(costs, levels, model, fewer_workers=False, straight=True)
    if straight is not None and straight.minibatch_s < float("inf"):
        ways += [("straight", "1f1b", straight), ("model-parallel", "model-parallel", straight)]
    rows = []
    for name, kind, partition in ways:
        replicas = tuple(len(stage.workers) for stage in partition.stages)
        depths = base_depths(replicas) if kind == "1f1b" else (1,) * len(replicas)
        shape = PipelineShape(kind, replicas, depths)
        updates = min(minibatches_per_update(shape, stage) for stage in range(shape.stages))
        rows.append(
            {
                "what": name,
                "minibatch_s": _Prediction(profile, costs, levels, model, partition, kind).minibatch_s,
                "delay": max(delay_of(shape, stage) for stage in range(shape.stages)),
                "items_per_update": float(updates * profile.minibatch),
            }
        )
    return rows
