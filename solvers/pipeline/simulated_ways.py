"""Ways to train a profile on measured hosts: plans of partitions, each with what its simulation says."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from plink.errors import UsageError
from plink.model.document import UNSET
from plink.model.hosts import Hosts
from plink.model.pipeline.document import PipelineStage, StageAllReduce, StageBoundary
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import (
    ACCUMULATING,
    FLUSHING,
    Kind,
    PipelineShape,
    ReduceMode,
    base_depths,
    delay_of,
    learning_rate_scale,
    minibatches_to_prove,
)
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts
from solvers.pipeline.joint_search import traffic_of
from solvers.pipeline.period import ModelOptions, PeriodModel, PlacedPartition
from solvers.pipeline.period_kernels import LOOP, NETWORK, ROUND, ROUND_TRIP_ROW, WORK_ROWS
from solvers.pipeline.simulator import PipelineSimulation, RankShares, simulate_pipeline, simulated_actions
from solvers.pipeline.stage_costs import costs_of_plan
from solvers.pipeline.training_job import PlacedPipeline
from solvers.pipeline.verifier import never_locks, verify_actions

MAX_SIMULATED_WORKERS = 64
"""Above it no candidates are simulated: formulas decide."""
_MAX_PROVEN_ACTIONS = 20_000
_MAX_PLANNED_ACTIONS = 300_000
"""Of one simulation: more take longer than ten seconds. An update of so many minibatches is nearly all steady state."""


@dataclass(frozen=True)
class TrainingMode:
    """How a partition is trained. ``kind`` None: by 1f1b, or by data parallelism where there is one stage.
    ``accumulate``: minibatches that an update averages, of kinds that accumulate."""

    kind: Kind | None
    accumulate: int = 1
    reduce: ReduceMode = "wait"
    recompute: bool = False


@dataclass(frozen=True)
class SimulatedWay:
    """A way to train, simulated; by formulas where that would take too long."""

    what: str
    plan: PipelinePlan
    partition: PlacedPartition
    result: PipelineSimulation
    fits: bool
    is_simulated: bool = True

    @property
    def minibatch_s(self) -> float:
        """Seconds per minibatch."""
        return self.result.minibatch_s

    @property
    def has_delay(self) -> bool:
        """Whether a gradient is of an older version than the one that it is applied to."""
        shape = self.plan.shape
        return any(delay_of(shape, stage) > 0 for stage in range(shape.stages))


class WaySimulator:
    """Makes plans of partitions, and simulates them. ``memory``: of each host, infinite where nobody says."""

    def __init__(self, profile: ModelProfile, measured: MeasuredHosts, request: JointRequest) -> None:
        self.profile, self.measured, self.request = profile, measured, request
        names = measured.fabric.names
        self.memory = request.memory or (math.inf,) * len(names)
        self._slowness = tuple(profile.slowness.get(name, 1.0) for name in names)
        self._models: dict[TrainingMode, PeriodModel] = {}
        self.requested = TrainingMode(request.kind, request.accumulate, request.reduce, request.recompute)

    @property
    def has_equal_hosts(self) -> bool:
        """Whether no host differs from any other in what the planner knows of it."""
        slots = {host.slots for host in self.measured.hosts}
        is_flat = len(self.measured.levels) == 1
        return is_flat and slots == {1} and len({*self._slowness}) == len({*self.memory}) == 1

    def model(self, mode: TrainingMode | None = None) -> PeriodModel:
        """Return the formulas of a mode; None: of the requested one."""
        mode, request = mode or self.requested, self.request
        if mode not in self._models:
            depths = request.depths if isinstance(request.depths, tuple) else ()
            options = ModelOptions(
                mode.reduce == "late",
                deeper=request.depths is None,
                vertical=request.vertical_sync,
                recompute=mode.recompute,
                depths=depths,
            ).of_kind(mode.kind, mode.accumulate)
            self._models[mode] = PeriodModel(self.profile, self.measured.fabric, self.memory, options)
        return self._models[mode]

    def model_of(self, way: SimulatedWay) -> PeriodModel:
        """Return the formulas of a way."""
        return self.model(_mode_of(way.plan))

    def sent(self, way: SimulatedWay) -> float:
        return float(traffic_of(self.model_of(way), way.partition).share.sum())

    def depths(self, partition: PlacedPartition, mode: TrainingMode | None = None) -> tuple[int, ...]:
        """Return the depths of a partition, as requested or as the network needs.

        :raises UsageError: when those requested are of another number of stages.
        """
        mode, replicas = self.resolve(partition, mode), partition.replicas
        kind, accumulate = mode.kind or "1f1b", mode.accumulate
        if kind in ("data-parallel", "model-parallel"):
            return (1,) * len(replicas)
        wanted = self.request.depths
        if wanted is None or kind == "gpipe":
            return self.model(mode).period(partition).depths
        if isinstance(wanted, str):
            return bounded_depths(base_depths(replicas), kind, replicas, accumulate)
        if len(wanted) == 1:
            return depths_from(wanted[0], replicas)
        if len(wanted) != len(replicas):
            raise UsageError(f"--depth has {len(wanted)} numbers for {len(replicas)} stages")
        return wanted

    def other_depths(self, partition: PlacedPartition, deep: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return depths that may be faster than these, or as fast with fewer minibatches in flight, in rising order.

        They are the thesis's, halfway to them, and one more or half as many more before the last stage. Where a
        pipeline fills at each update, those that fill it too, up to all of its minibatches.
        """
        mode, replicas = self.resolve(partition), partition.replicas
        kind, base, full = mode.kind or "1f1b", base_depths(replicas), [deep]
        if kind in FLUSHING:
            full = [self.model(mode).filling_depths(partition), (mode.accumulate,) * len(replicas)]
        others = [
            [(a + b) // 2 for a, b in zip(base, full[0], strict=True)],
            [*(depth + 1 for depth in deep[:-1]), deep[-1]],
            [*(depth + (depth + 1) // 2 for depth in deep[:-1]), deep[-1]],
        ]
        tried = [base, *full, *(depths_from(depths[0], replicas, depths) for depths in others)]
        bounded = {bounded_depths(depths, kind, replicas, mode.accumulate) for depths in tried}
        return sorted(bounded - {deep}, key=lambda depths: (sum(depths), depths))

    def resolve(self, partition: PlacedPartition, mode: TrainingMode | None = None) -> TrainingMode:
        """Return a mode with its kind, and without what that kind does not have."""
        mode = mode or self.requested
        is_parallel = partition.stages == 1 and not self.request.vertical_sync
        kind = mode.kind or ("data-parallel" if is_parallel else "1f1b")
        return TrainingMode(
            kind,
            mode.accumulate if kind in ACCUMULATING else 1,
            mode.reduce if kind == "1f1b" else "wait",
            mode.recompute,
        )

    def simulate(
        self,
        partition: PlacedPartition,
        what: str = "plan",
        mode: TrainingMode | None = None,
        depths: tuple[int, ...] | None = None,
        best_s: float = math.inf,
    ) -> SimulatedWay:
        """Return what a partition does in a mode, the requested one by default.

        :param best_s: as of :func:`solvers.pipeline.simulator.simulate_pipeline`.
        """
        mode = self.resolve(partition, mode)
        depths = depths or self.depths(partition, mode)
        plan = self._plan_of(partition, mode, depths)
        fits = self.has_room(partition, depths, mode)
        if plan.ranks > MAX_SIMULATED_WORKERS or simulated_actions(plan.shape) > _MAX_PLANNED_ACTIONS:
            result = self._estimated(self.model(mode), partition)
            return SimulatedWay(what, plan, partition, result, fits, is_simulated=False)
        places = tuple(tuple(partition.hosts(stage)) for stage in range(partition.stages))
        costs, fabric = costs_of_plan(plan, self.profile), self.measured.fabric
        placed = PlacedPipeline.of(plan, costs, fabric, self._slowness, places)
        return SimulatedWay(what, plan, partition, simulate_pipeline(placed, best_s=best_s), fits)

    def rival(self, partition: PlacedPartition, what: str, mode: TrainingMode) -> SimulatedWay:
        """Simulate a way to compare with: it computes activations again only where it would not fit otherwise."""
        modes = [replace(mode, recompute=recompute) for recompute in (False, True)]
        rivals = [(mode, self.rival_depths(partition, mode)) for mode in modes]
        fitting = [rival for rival in rivals if self.has_room(partition, rival[1], rival[0])]
        return self.simulate(partition, what, *(fitting or rivals)[0])

    def rival_depths(self, partition: PlacedPartition, mode: TrainingMode) -> tuple[int, ...]:
        """Return the requested depths, the thesis's where those are of another number of stages.

        A kind that accumulates has no more in flight than its update averages.
        """
        mode, replicas = self.resolve(partition, mode), partition.replicas
        depths = self.depths(partition, mode) if self.has_depths(partition, mode) else base_depths(replicas)
        return bounded_depths(depths, mode.kind or "1f1b", replicas, mode.accumulate)

    def has_depths(self, partition: PlacedPartition, mode: TrainingMode | None = None) -> bool:
        """Return whether a partition has as many stages as depths were requested, or needs none of them."""
        wanted, kind = self.request.depths, self.resolve(partition, mode).kind
        return (
            not isinstance(wanted, tuple)
            or len(wanted) in (1, partition.stages)
            or kind in ("data-parallel", "model-parallel", "gpipe")
        )

    def _estimated(self, model: PeriodModel, partition: PlacedPartition) -> PipelineSimulation:
        """Return what the formulas say instead of a simulation."""
        period = model.period(partition)
        seconds, stage = period.minibatch_s, model.scratch.stage
        waits = int(np.argmax(period.terms))  # what is waited for where nobody is busy all the time
        shares = []
        for number, replicas in enumerate(partition.replicas):
            busy = min(1.0, float(stage[WORK_ROWS, number].sum()) / replicas / seconds)
            idle = 1 - busy
            shares.append((RankShares(busy, 0.0, idle * (waits == LOOP), idle * (waits == ROUND)),) * replicas)
        is_flushing = model.options.flush
        # The first minibatch takes a round trip; the others in flight follow it as fast as hosts and links can.
        in_flight = partition.replicas[0] * period.depths[0]
        round_trip_s = float(stage[ROUND_TRIP_ROW, 0])
        fill_s = max(0.0, round_trip_s + (in_flight - 1) * max(period.terms[:LOOP]) - in_flight * seconds)
        if is_flushing or partition.stages == 1:
            fill_s = 0.0
        links = (("the network", period.terms[NETWORK] / seconds),)
        draining = float(is_flushing and waits == LOOP)
        return PipelineSimulation(seconds, False, fill_s, fill_s + seconds, 1, tuple(shares), links, (), draining)

    def has_room(self, partition: PlacedPartition, depths: tuple[int, ...], mode: TrainingMode | None = None) -> bool:
        """Return whether a partition with these depths fits in the memory of its hosts."""
        if self.request.memory is None:
            return True
        needed = self.model(self.resolve(partition, mode)).memory_of(partition, depths)
        held = dict.fromkeys(range(len(self.memory)), 0.0)
        for stage in range(partition.stages):
            for host in partition.hosts(stage):
                held[host] += needed[stage].all
        return all(size <= self.memory[host] for host, size in held.items())

    def _plan_of(self, partition: PlacedPartition, mode: TrainingMode, depths: tuple[int, ...]) -> PipelinePlan:
        """Return the plan of a resolved mode."""
        request, profile = self.request, self.profile
        kind = mode.kind or "1f1b"
        boundaries = tuple(
            StageBoundary(cut - 1, layer.crossing_bytes, layer.crossing_back_bytes, layer.crossing or ())
            for cut in partition.cuts[1:-1].tolist()
            for layer in (profile.layers[cut - 1],)
        )
        frozen = max((k + 1 for k, boundary in enumerate(boundaries) if boundary.backward_bytes == 0), default=0)
        shape = PipelineShape(
            kind,
            partition.replicas,
            depths,
            mode.accumulate,
            request.vertical_sync and kind == "1f1b",
            mode.reduce,
            frozen,
        )
        if isinstance(request.depths, tuple):
            prove_shape(shape)
        hosts, idle, ranks = self._used_hosts(partition)
        buckets = self.model(mode).bucket_bytes(partition)
        stages = tuple(
            PipelineStage(
                layers=(first, last - 1),
                names=(profile.layers[first].name, profile.layers[last - 1].name),
                ranks=ranks[s],
                depth=depths[s],
                lr_scale=learning_rate_scale(shape, s),
                all_reduce=StageAllReduce(algo="ring", bucket_bytes=buckets[s]) if buckets[s] else UNSET,
            )
            for s, (first, last) in enumerate(itertools.pairwise(partition.cuts.tolist()))
        )
        return PipelinePlan(
            kind=kind,
            minibatch=profile.minibatch,
            threads=profile.threads,
            host_entries=hosts.entries(),
            lab=hosts.lab or UNSET,
            stages=stages,
            boundaries=boundaries,
            accumulate=shape.accumulate,
            vertical_sync=shape.vertical_sync,
            reduce=shape.reduce,
            recompute=mode.recompute,
            profile=profile.digest(),
            idle=tuple(idle),
        )

    def _used_hosts(self, partition: PlacedPartition) -> tuple[Hosts, list[str], list[tuple[int, ...]]]:
        """Return the used hosts with their used slots, the others' names, and ranks by stage.

        Hosts are numbered stage by stage, so that the ranks of a stage ascend with its replicas: libraries that sort
        the ranks of a group have its ring in the planned order too.
        """
        names = self.measured.fabric.names
        used = [names[number] for number in partition.order[: partition.starts[-1]].tolist()]
        slots, by_name = Counter(used), self.measured.hosts.by_name()
        members = tuple(replace(by_name[name], slots=count) for name, count in slots.items())
        first_ranks = itertools.accumulate(slots.values(), initial=0)
        next_rank = dict(zip(slots, first_ranks, strict=False))
        ranks: list[tuple[int, ...]] = []
        for stage in range(partition.stages):
            own = []
            for number in partition.hosts(stage):
                own.append(next_rank[names[number]])
                next_rank[names[number]] += 1
            ranks.append(tuple(own))
        idle = [host.name for host in self.measured.hosts if host.name not in slots and self.measured.may_use(host)]
        return Hosts(members, self.measured.hosts.lab), idle, ranks


def depths_from(first: int, replicas: tuple[int, ...], wanted: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return depths of all stages from that of the first: the thesis's, or ``wanted`` ones, as deep as cannot lock.

    A stage deeper than what the one before it has in flight would wait for inputs that never come.
    """
    base, depths = base_depths(replicas), [first]
    for stage in range(1, len(replicas)):
        possible = (replicas[stage - 1] * (depths[-1] - 1) + 1) // replicas[stage]
        want = base[stage] if wanted is None else max(base[stage], wanted[stage])
        depths.append(max(1, min(want, possible)))
    return tuple(depths)


def _mode_of(plan: PipelinePlan) -> TrainingMode:
    return TrainingMode(plan.kind, plan.accumulate, plan.reduce, plan.recompute)


def bounded_depths(depths: tuple[int, ...], kind: Kind, replicas: tuple[int, ...], accumulate: int) -> tuple[int, ...]:
    """Return depths; of an accumulating kind none above what an update averages, and each as much smaller as it takes
    for nobody to wait in a circle.

    A stage in front whose depth an update's minibatches bound waits for that update's all-reduce; a stage that is ahead
    of it for its next inputs.
    """
    if kind not in ACCUMULATING:
        return depths
    depths = tuple(max(1, min(depth, accumulate // count)) for depth, count in zip(depths, replicas, strict=True))
    while max(depths) > 1:
        shape = PipelineShape(kind, replicas, depths, accumulate)
        if never_locks(shape) or not verify_actions(shape):
            break
        depths = tuple(max(1, depth - 1) for depth in depths)
    return depths


def prove_shape(shape: PipelineShape) -> None:
    """Refuse depths that lock. Depths that the planner chooses never do; large plans of others are proven for fewer
    cycles.

    :raises UsageError: with the ranks that wait for each other.
    """
    started = 3 * max(depth * count for depth, count in zip(shape.depths, shape.replicas, strict=True)) + 1
    count = min(minibatches_to_prove(shape), max(started, _MAX_PROVEN_ACTIONS // shape.workers))
    errors = verify_actions(shape, None if never_locks(shape) else count)
    if errors:
        depths = ",".join(map(str, shape.depths))
        raise UsageError(f"depth {depths} of {'-'.join(map(str, shape.replicas))}: {errors[0]}")
