"""Planner for measured networks: partition, replication, placement and depths together.

Candidates come from :mod:`solvers.pipeline.joint_search`, by formulas. The best few of them, data parallelism and one
worker alone are then simulated, and the fastest is the plan: formulas do not see filling, replicas that wait for each
other, or messages that meet.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plink.documents.pipeline import Kind, ReduceMode
from plink.errors import NoAnswer, UsageError
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan import PipelinePlan, PipelineStage, StageBoundary
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import ACCUMULATING, PipelineShape, base_depths, minibatches_to_prove
from plink.model.pipeline.versions import delay_of, learning_rate_scale, minibatches_per_update
from plink.model.units import format_bytes
from solvers.pipeline.depths import depths_from
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts
from solvers.pipeline.joint_search import (
    JointSearch,
    PartitionCandidate,
    SearchSpace,
    Watch,
    lower_bound_s,
    search_partitions,
    traffic_of,
)
from solvers.pipeline.lock_freedom import never_locks
from solvers.pipeline.period import ModelOptions, PeriodModel, PlacedPartition
from solvers.pipeline.period_kernels import MAX_DEPTH
from solvers.pipeline.search_kernels import FIXED, FREE, ONE_STAGE, STRAIGHT
from solvers.pipeline.simulator import PipelineSimulation, RankShares, simulate_pipeline
from solvers.pipeline.stage_costs import costs_of_plan
from solvers.pipeline.training_job import PlacedPipeline
from solvers.pipeline.verifier import verify_actions
from solvers.simulation.network import SimulatedNetwork

_MAX_SIMULATED = 5
_FLUSHED_ROUNDS = 4  # minibatches of a compared flushing kind, over stages times replicas
_MAX_FLUSHED = 256
_MANY_WORKERS = 64
"""Above it no candidates are simulated: formulas decide."""
_MAX_PROVEN_ACTIONS = 20_000
_WORTH = 0.01  # minibatches in flight that gain less are not worth their memory and delay
_TIE = 1e-3
_LIMITING_SHARE = 0.9


@dataclass(frozen=True)
class _SimulatedWay:
    """A way to train, simulated."""

    what: str
    plan: PipelinePlan
    partition: PlacedPartition
    result: PipelineSimulation
    fits: bool

    @property
    def minibatch_s(self) -> float:
        return self.result.minibatch_s


def plan_measured(
    profile: ModelProfile, measured: MeasuredHosts, request: JointRequest, watch: Watch | None = None
) -> PipelinePlan:
    """Return the plan of least simulated seconds per minibatch; ``watch``: called with searches done, and their number.

    :raises UsageError: when the request cannot be. :raises NoAnswer: when nothing fits in the memory.
    """
    return _Planner(profile, measured, request, watch).plan()


class _Planner:
    def __init__(
        self, profile: ModelProfile, measured: MeasuredHosts, request: JointRequest, watch: Watch | None
    ) -> None:
        self._profile, self._measured, self._request, self._watch = profile, measured, request, watch
        names = measured.hosts.names
        self._memory = request.memory or (float("inf"),) * len(names)
        self._network = SimulatedNetwork.of(measured.fabric)
        self._slowness = tuple(profile.slowness.get(name, 1.0) for name in names)
        self._models: dict[tuple[Kind | None, int], PeriodModel] = {}
        self._space = self._wanted_space()

    def _wanted_space(self) -> SearchSpace:
        request, workers = self._request, self._measured.workers
        may_idle = not request.all_workers
        if request.stages is not None:
            if request.kind == "data-parallel" and len(request.stages) > 1:
                raise UsageError("--kind data-parallel is one stage; omit --stages")
            cuts = (0, *(stage.last + 1 for stage in request.stages))
            return SearchSpace(workers, FIXED, True, (cuts, tuple(stage.replicas for stage in request.stages)))
        if request.kind == "data-parallel":
            return SearchSpace(workers, ONE_STAGE, may_idle)
        if request.straight or request.kind == "model-parallel":
            forbidden = sum(last - first for first, last, _ in self._profile.tied_spans())
            most = max(1, len(self._profile.layers) - forbidden)
            if request.all_workers and len(workers) > most:
                raise UsageError(
                    f"{len(workers)} stages of one worker each need as many layers; the profile allows {most}"
                )
            return SearchSpace(workers, STRAIGHT, may_idle)
        return SearchSpace(workers, FREE, may_idle)

    def _model(self, kind: Kind | None = None, accumulate: int | None = None) -> PeriodModel:
        request = self._request
        key = kind, request.accumulate if accumulate is None else accumulate
        if key not in self._models:
            late, deeper = request.reduce == "late", request.depths is None
            options = ModelOptions.of_kind(*key, late, deeper, request.recompute)
            self._models[key] = PeriodModel(self._profile, self._measured.fabric, self._memory, options)
        return self._models[key]

    def _search(self, space: SearchSpace, model: PeriodModel, moves: int | None = None) -> JointSearch:
        return search_partitions(
            model, space, self._request.seed, moves or self._request.moves,
            watch=self._watch if moves is None else None,
        )  # fmt: skip

    def plan(self) -> PipelinePlan:
        """Search, simulate, and describe the best."""
        model = self._model(self._request.kind)
        search = self._search(self._space, model)
        fitting = [item for item in search.candidates if model.period(item.partition).excess_bytes <= 0]
        fitting = self._divisible(fitting)
        if not fitting:
            raise NoAnswer(self._misses(model, search.candidates[0]))
        simulated = self._simulated(self._worth_simulating(fitting))
        best = min(simulated, key=lambda way: way.minibatch_s)
        ties = [way for way in simulated if way.minibatch_s <= best.minibatch_s * (1 + _TIE)]
        best = min(ties, key=lambda way: (self._sent(way), way.plan.ranks))
        if self._request.depths is None and best.plan.kind == "1f1b" and best.plan.ranks <= _MANY_WORKERS:
            best = self._with_tried_depth(best)
        _prove(best.plan.shape)
        return self._described(best, self._compared(best, simulated))

    def _simulated(self, candidates: Sequence[PartitionCandidate]) -> list[_SimulatedWay]:
        """Simulate candidates; those that need a round trip that was not measured are left out where others do not."""
        ways: list[_SimulatedWay] = []
        missing: NoAnswer | None = None
        for item in candidates:
            try:
                ways.append(self._simulate(item.partition))
            except NoAnswer as error:
                missing = error
        if missing is not None and not ways:
            raise missing
        return ways

    def _divisible(self, fitting: list[PartitionCandidate]) -> list[PartitionCandidate]:
        """Return those whose replicas divide what an update averages.

        :raises UsageError: when some fit in memory, and none of them is left.
        """
        count = self._request.accumulate
        if self._request.kind not in ACCUMULATING or not fitting:
            return fitting
        chosen = [item for item in fitting if count % math.lcm(*item.partition.replicas) == 0]
        if not chosen:
            replicas = "-".join(map(str, fitting[0].partition.replicas))
            multiple = math.lcm(*fitting[0].partition.replicas)
            raise UsageError(f"--microbatches {count}: replicas {replicas} need a multiple of {multiple}")
        return chosen

    def _sent(self, way: _SimulatedWay) -> float:
        return float(traffic_of(self._model(way.plan.kind, way.plan.accumulate), way.partition).share.sum())

    def _worth_simulating(self, fitting: Sequence[PartitionCandidate]) -> list[PartitionCandidate]:
        """Return the best few, with the best single stage and the best single worker among them."""
        chosen = list(fitting[:_MAX_SIMULATED])
        one_stage = [item for item in fitting if item.partition.stages == 1]
        alone = [item for item in one_stage if item.partition.replicas[0] == 1]
        chosen += [items[0] for items in (one_stage, alone) if items]
        return list({id(item): item for item in chosen}.values())

    def _misses(self, model: PeriodModel, least: PartitionCandidate) -> str:
        """Say which plan misses the memory by least, and what would fit."""
        partition = least.partition
        depths = model.period(partition).depths
        needed = model.memory_of(partition, depths)
        held: dict[int, float] = {}
        for stage in range(partition.stages):
            for host in partition.hosts(stage):
                held[host] = held.get(host, 0.0) + needed[stage]["all"]
        host = max(held, key=lambda number: held[number] - self._memory[number])
        stage = max((s for s in range(partition.stages) if host in partition.hosts(s)), key=lambda s: needed[s]["all"])
        label = "-".join(map(str, partition.replicas))
        text = (
            f"nothing fits in memory: {label} misses by least; stage {stage} needs {format_bytes(held[host])} on "
            f"{self._measured.hosts.names[host]}, which has {format_bytes(self._memory[host])}"
        )
        if self._space.mode in (FREE, STRAIGHT) and self._request.kind != "model-parallel":
            alone = self._model("model-parallel")
            straight = search_partitions(alone, replace(self._space, mode=STRAIGHT), self._request.seed, 20_000)
            if alone.period(straight.candidates[0].partition).excess_bytes <= 0:
                text += "; --kind model-parallel, one minibatch in flight, fits"
        return text

    def _depths(self, partition: PlacedPartition, kind: Kind, accumulate: int) -> tuple[int, ...]:
        replicas = partition.replicas
        if kind in ("data-parallel", "model-parallel"):
            return (1,) * len(replicas)
        wanted = self._request.depths
        if wanted is None or kind == "gpipe":
            return _without_locks(self._model(kind, accumulate).period(partition).depths, kind, replicas, accumulate)
        if isinstance(wanted, str):
            most = accumulate if kind in ACCUMULATING else MAX_DEPTH * max(replicas)
            depths = tuple(
                min(depth, most // count) for depth, count in zip(base_depths(replicas), replicas, strict=True)
            )
            return _without_locks(depths, kind, replicas, accumulate)
        if len(wanted) == 1:
            return depths_from(wanted[0], replicas)
        if len(wanted) != len(replicas):
            raise UsageError(f"--depth has {len(wanted)} numbers for {len(replicas)} stages")
        return wanted

    def _kind(self, partition: PlacedPartition) -> Kind:
        if self._request.kind is not None:
            return self._request.kind
        return "data-parallel" if partition.stages == 1 and not self._request.vertical_sync else "1f1b"

    def _simulate(
        self, partition: PlacedPartition, what: str = "plan", kind: Kind | None = None,
        depths: tuple[int, ...] | None = None, accumulate: int | None = None, reduce: ReduceMode | None = None,
    ) -> _SimulatedWay:  # fmt: skip
        kind, accumulate = kind or self._kind(partition), accumulate or self._request.accumulate
        depths = depths or self._depths(partition, kind, accumulate)
        plan = self._plan_of(partition, kind, depths, accumulate, reduce or self._request.reduce)
        model = self._model(kind, accumulate)
        fits = model.period(partition).excess_bytes <= 0
        if plan.ranks > _MANY_WORKERS:
            return _SimulatedWay(what, plan, partition, self._estimated(model, partition), fits)
        placed = PlacedPipeline.of(plan, costs_of_plan(plan, self._profile), self._network, self._slowness)
        return _SimulatedWay(what, plan, partition, simulate_pipeline(placed), fits)

    def _estimated(self, model: PeriodModel, partition: PlacedPartition) -> PipelineSimulation:
        """Return what the formulas say instead of a simulation."""
        seconds = model.period(partition).minibatch_s
        stage = model.scratch.stage
        shares = []
        for number, replicas in enumerate(partition.replicas):
            busy = min(1.0, float(stage[:3, number].sum()) / replicas / seconds)
            shares.append((RankShares(busy, 0.0, 0.0, 0.0),) * replicas)
        fill_s = float(stage[7, 0])
        return PipelineSimulation(seconds, False, fill_s, fill_s + seconds, 1, tuple(shares), ())

    def _with_tried_depth(self, best: _SimulatedWay) -> _SimulatedWay:
        """Return it with the thesis's depths, halfway to them, its own, or one more, the least that is as fast."""
        replicas, deep = best.partition.replicas, best.plan.shape.depths
        base = base_depths(replicas)
        halfway = depths_from(
            (base[0] + deep[0]) // 2, replicas, [(a + b) // 2 for a, b in zip(base, deep, strict=True)]
        )
        deeper = depths_from(deep[0] + 1, replicas, [depth + 1 for depth in deep])
        ways = [best]
        for depths in (base, halfway, deeper):
            if depths not in {way.plan.shape.depths for way in ways} and self._has_room(best.partition, depths):
                ways.append(self._simulate(best.partition, depths=depths))
        limit = min(way.minibatch_s for way in ways) * (1 + _WORTH)
        return min((way for way in ways if way.minibatch_s <= limit), key=lambda way: sum(way.plan.shape.depths))

    def _has_room(self, partition: PlacedPartition, depths: tuple[int, ...]) -> bool:
        needed = self._model("1f1b").memory_of(partition, depths)
        held = dict.fromkeys(range(len(self._memory)), 0.0)
        for stage in range(partition.stages):
            for host in partition.hosts(stage):
                held[host] += needed[stage]["all"]
        return all(size <= self._memory[host] for host, size in held.items())

    def _plan_of(
        self, partition: PlacedPartition, kind: Kind, depths: tuple[int, ...], accumulate: int, reduce: ReduceMode
    ) -> PipelinePlan:
        request, profile = self._request, self._profile
        boundaries = tuple(
            StageBoundary(cut - 1, layer.crossing_bytes, layer.crossing_back_bytes, layer.crossing)
            for cut in partition.cuts[1:-1].tolist()
            for layer in (profile.layers[cut - 1],)
        )
        frozen = max((k + 1 for k, boundary in enumerate(boundaries) if boundary.backward_bytes == 0), default=0)
        asynchronous = kind == "1f1b"
        shape = PipelineShape(
            kind, partition.replicas, depths, accumulate if kind in ACCUMULATING else 1,
            request.vertical_sync and asynchronous, reduce if asynchronous else "wait", frozen,
        )  # fmt: skip
        if isinstance(request.depths, tuple):
            _prove(shape)
        hosts, idle, ranks = self._used_hosts(partition)
        buckets = self._model(kind, accumulate).bucket_bytes(partition)
        stages = tuple(
            PipelineStage(
                int(partition.cuts[s]), int(partition.cuts[s + 1]) - 1, ranks[s], depths[s],
                learning_rate_scale(shape, s),
                {"names": [profile.layers[k].name for k in (partition.cuts[s], partition.cuts[s + 1] - 1)]}
                | ({"all_reduce": {"algo": "ring", "bucket_bytes": buckets[s]}} if buckets[s] else {}),
            )
            for s in range(partition.stages)
        )  # fmt: skip
        return PipelinePlan(
            kind, profile.minibatch, hosts, stages, boundaries, shape.accumulate, shape.vertical_sync, shape.reduce,
            recompute=request.recompute, profile=profile.digest(), details={"idle": idle},
        )  # fmt: skip

    def _used_hosts(self, partition: PlacedPartition) -> tuple[Hosts, list[str], list[tuple[int, ...]]]:
        """Return the used hosts with their used slots in the given order, the others' names, and ranks by stage."""
        used = partition.order[: partition.starts[-1]].tolist()
        members: list[Host] = []
        next_rank: dict[int, int] = {}
        count = 0
        for number, host in enumerate(self._measured.hosts):
            if slots := used.count(number):
                members.append(replace(host, slots=slots))
                next_rank[number] = count
                count += slots
        ranks: list[tuple[int, ...]] = []
        for stage in range(partition.stages):
            own = []
            for host_number in partition.hosts(stage):
                own.append(next_rank[host_number])
                next_rank[host_number] += 1
            ranks.append(tuple(own))
        idle = [
            host.name for number, host in enumerate(self._measured.hosts)
            if number not in next_rank and self._measured.may_use(host)
        ]  # fmt: skip
        return Hosts(tuple(members), self._measured.hosts.lab), idle, ranks

    # What the plan says of itself

    def _compared(self, best: _SimulatedWay, simulated: Sequence[_SimulatedWay]) -> list[_SimulatedWay]:
        ways = [replace(way, what="data-parallel") for way in simulated if way.plan.kind == "data-parallel"]
        workers = self._measured.workers
        everything = SearchSpace(workers, ONE_STAGE, may_idle=False)
        layers = len(self._profile.layers)
        if not self._request.compare or len(workers) < 2:
            ranks = 0 if best.plan.kind == "data-parallel" or len(workers) < 2 else len(workers)
            return [way for way in ways if way.plan.ranks == ranks][:1]
        model = self._model()
        moves = max(2000, self._request.moves // 4)
        parallel = self._search(everything, model, moves).candidates[0].partition
        rows = [
            self._simulate(parallel, "data-parallel", "data-parallel"),
            self._simulate(
                PlacedPartition.of((0, layers), (len(workers),), workers), "data-parallel, given order", "data-parallel"
            ),
        ]
        if layers > 1:
            straight = self._search(SearchSpace(workers, STRAIGHT), model, moves).candidates[0].partition
            if straight.stages > 1:
                rows.append(self._simulate(straight, "straight", "1f1b"))
                rows.append(self._simulate(straight, "model-parallel", "model-parallel"))
        if best.plan.ranks > 1 and best.plan.kind != "data-parallel":
            baseline = PlacedPartition(best.partition.cuts, best.partition.starts, np.array(workers, dtype=np.int64))
            rows.append(
                self._simulate(
                    baseline, f"{best.plan.label}, given order", best.plan.kind, best.plan.shape.depths,
                    best.plan.accumulate,
                )
            )  # fmt: skip
            rows += self._other_kinds(best)
        return rows

    def _other_kinds(self, best: _SimulatedWay) -> list[_SimulatedWay]:
        """Return the plan's stages trained in other ways: flushing ones have no delay."""
        replicas = best.partition.replicas
        if best.plan.kind != "1f1b" or len(replicas) < 2:
            return []
        rows = []
        if max(replicas) > 1 and best.plan.reduce == "wait" and self._request.depths is None:
            depths = best.plan.shape.depths
            rows.append(self._simulate(best.partition, f"{best.plan.label}, late reduce", depths=depths, reduce="late"))
        cycle = math.lcm(*replicas)
        count = cycle * -(-_FLUSHED_ROUNDS * len(replicas) * max(replicas) // cycle)
        if count <= _MAX_FLUSHED:
            kinds: tuple[Kind, ...] = ("2bw", "1f1b-flush", "gpipe")
            for kind in kinds:
                depths = self._depths(best.partition, kind, count)
                rows.append(self._simulate(best.partition, f"{kind}, update of {count}", kind, depths, count))
        return rows

    def _described(self, best: _SimulatedWay, ways: Sequence[_SimulatedWay]) -> PipelinePlan:
        request, plan, result = self._request, best.plan, best.result
        model = self._model(plan.kind, plan.accumulate)
        searched = self._space.mode in (FREE, ONE_STAGE) and plan.kind in ("1f1b", "data-parallel")
        bound_s = lower_bound_s(model, self._measured.workers) if searched else None
        needed = model.memory_of(best.partition, plan.shape.depths)
        model.period(best.partition)
        terms = model.scratch.stage[:, : best.partition.stages].copy()
        stages = []
        for number, stage in enumerate(plan.stages):
            replicas = len(stage.ranks)
            compute_s = float(terms[:3, number].sum()) / replicas
            network_s = float(terms[4, number] + terms[6, number]) / replicas
            predicted = {
                "compute_s": compute_s, "network_s": network_s, "reduce_exposed_s": float(terms[4, number]),
                "busy_share": min(1.0, max(share.busy for share in result.shares[number])),
            }  # fmt: skip
            details = dict(stage.details) | {"memory_bytes": needed[number], "predicted": predicted}
            stages.append(replace(stage, details=details))
        text = {} if request.stages is None else {
            "stages": ",".join(f"{part.first}-{part.last}x{part.replicas}" for part in request.stages)
        }  # fmt: skip
        details = {
            "model": "contention",
            "seed": request.seed,
            "idle": plan.details["idle"],
            "predicted": {
                "minibatch_s": result.minibatch_s,
                "items_per_s": plan.minibatch / result.minibatch_s,
                "fill_s": result.fill_s,
                "bytes_per_item": self._sent(best) / plan.minibatch,
                "limited_by": self._limit(best),
                "by": "simulator" if plan.ranks <= _MANY_WORKERS else "model",
            },
            "lower_bound_s": bound_s,
            "gap": None if not bound_s else max(0.0, result.minibatch_s / bound_s - 1),
            "proven": False,
            "compared": [self._row(way) for way in ways],
            "constraints": {"straight": request.straight} | text,
        }
        return replace(plan, stages=tuple(stages), details=details)

    def _limit(self, best: _SimulatedWay) -> str:
        stage, replica, busy = best.result.busiest
        link, used = best.result.links[0] if best.result.links else ("", 0.0)
        if max(busy, used) >= _LIMITING_SHARE:
            host = best.partition.hosts(stage)[replica]
            return f"compute of {self._measured.hosts.names[host]}" if busy >= used else link
        return self._model(best.plan.kind, best.plan.accumulate).period(best.partition).limited_by

    def _row(self, way: _SimulatedWay) -> dict[str, Any]:
        shape = way.plan.shape
        updates = min(minibatches_per_update(shape, stage) for stage in range(shape.stages))
        is_limited = any(np.isfinite(size) for size in self._memory)
        return {
            "what": way.what,
            "minibatch_s": way.minibatch_s,
            "delay": max(delay_of(shape, stage) for stage in range(shape.stages)),
            "items_per_update": float(updates * way.plan.minibatch),
            "fits": way.fits if is_limited else None,
        }


def _without_locks(
    depths: tuple[int, ...], kind: Kind, replicas: tuple[int, ...], accumulate: int
) -> tuple[int, ...]:  # fmt: skip
    """Return depths of an accumulating kind, each as much smaller as it takes for nobody to wait in a circle.

    A stage in front whose depth an update's minibatches bound waits for that update's all-reduce; a stage that is ahead
    of it for its next inputs.
    """
    while kind in ACCUMULATING and max(depths) > 1:
        shape = PipelineShape(kind, replicas, depths, accumulate)
        if never_locks(shape) or not verify_actions(shape):
            break
        depths = tuple(max(1, depth - 1) for depth in depths)
    return depths


def _prove(shape: PipelineShape) -> None:
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
