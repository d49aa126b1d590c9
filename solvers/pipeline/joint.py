"""Planner for measured and even networks: partition, replication, placement and depths together.

Candidates come from :mod:`solvers.pipeline.joint_search`, by formulas; of hosts that nobody measured also from the
thesis (:mod:`solvers.pipeline.thesis`). The best few of them, data parallelism and one worker alone are then simulated,
and the fastest is the plan: formulas do not see filling, replicas that wait for each other, or messages that meet.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from plink.errors import NoAnswer, UsageError
from plink.model.document import UNSET
from plink.model.pipeline.document import ComparedWay, PipelineConstraints, PipelinePrediction, StagePrediction
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import ACCUMULATING, Kind, base_depths, delay_of, minibatches_per_update
from plink.model.units import format_bytes
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts
from solvers.pipeline.joint_search import (
    PartitionCandidate,
    SearchSpace,
    Watch,
    lower_bound_s,
    search_partitions,
)
from solvers.pipeline.period import PeriodModel, PlacedPartition
from solvers.pipeline.period_kernels import EXPOSED_ROW, WORK_ROWS
from solvers.pipeline.search_kernels import FIXED, FREE, ONE_STAGE, STRAIGHT
from solvers.pipeline.simulated_ways import (
    MAX_SIMULATED_WORKERS,
    SimulatedWay,
    TrainingMode,
    WaySimulator,
    prove_shape,
)
from solvers.pipeline.thesis import LayerCosts, best_level_partition

_MAX_SIMULATED = 5
_FLUSHED_ROUNDS = 4  # minibatches of a compared flushing kind, over stages times replicas
_MAX_FLUSHED = 256
_MAX_FURTHER = 24  # candidates that are simulated only if those before turn out slower than by formulas
_MAX_WAYS = _MAX_SIMULATED + 7  # simulated: candidates with one stage, one worker, the thesis's, then depths
_WORTH = 0.01  # minibatches in flight that gain less are not worth their memory and delay
_TIE = 1e-3
_NEAR = 0.05  # other depths than the deepest may be faster by so much
_MOVES = 60_000
_TUNED: tuple[Kind, ...] = ("1f1b", "2bw", "1f1b-flush")  # kinds of any depth
_MAX_SEED_STEPS = 1e9  # of the thesis's tables: about a second


def plan_measured(
    profile: ModelProfile, measured: MeasuredHosts, request: JointRequest, watch: Watch | None = None
) -> PipelinePlan:
    """Return the plan of least simulated seconds per minibatch; once ``watch`` says to stop, the best so far.

    :raises UsageError: when the request cannot be. :raises NoAnswer: when nothing fits in the memory.
    """
    return _Planner(profile, measured, request, watch).plan()


class _Planner:
    def __init__(
        self, profile: ModelProfile, measured: MeasuredHosts, request: JointRequest, watch: Watch | None
    ) -> None:
        self._profile, self._measured, self._request, self._watch = profile, measured, request, watch
        self._ways = WaySimulator(profile, measured, request)
        self._space = self._wanted_space()
        self._searched, self._simulations, self._stopped, self._best_s = 0, 0, False, math.inf

    def _show(self, searched: int, steps: int) -> bool:
        """Show progress of the search; return whether to stop."""
        self._searched = searched
        if self._watch is not None and self._watch(searched + min(self._simulations, _MAX_WAYS), steps + _MAX_WAYS):
            self._stopped = True
        return self._stopped

    def _simulate(self, partition: PlacedPartition, depths: tuple[int, ...] | None = None) -> SimulatedWay:
        compared_s = math.inf if partition.stages == 1 else self._best_s  # one stage is stated beside any plan
        way = self._ways.simulate(partition, depths=depths, best_s=compared_s)
        self._simulations += 1
        if way.is_simulated:  # an estimate counts only where it is taken
            self._best_s = min(self._best_s, way.minibatch_s)
        self._show(self._searched, self._searched)
        return way

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

    def _search(self, space: SearchSpace, model: PeriodModel, moves: int | None = None) -> Sequence[PartitionCandidate]:
        candidates = search_partitions(
            model, space, self._request.seed, moves or self._moves, watch=self._show if moves is None else None
        )
        if not self._ways.has_equal_hosts:
            return candidates
        # Where no host differs from another, they serve in the given order.
        order = np.array(space.workers, dtype=np.int64)
        return [
            replace(item, partition=PlacedPartition(item.partition.cuts, item.partition.starts, order))
            for item in candidates
        ]

    @property
    def _moves(self) -> int:
        """Return how many moves a search has.

        Starting shapes are exact for hosts that are alike, and moves take longer with the square of the workers.
        """
        if self._request.moves is not None or not self._measured.levels:
            return self._request.moves or _MOVES
        return round(_MOVES * min(1.0, (MAX_SIMULATED_WORKERS / len(self._measured.workers)) ** 2))

    def _thesis_candidates(self) -> tuple[PartitionCandidate, ...]:
        """Return the partition of the thesis's dynamic programme, of a network that has levels; none where it is not
        requested and its tables would take long.

        :raises UsageError: where it has none.
        """
        space, levels = self._space, self._measured.levels
        layers, workers = len(self._profile.layers), len(space.workers)
        is_long = layers ** min(3, 1 + len(levels)) * workers**2 > _MAX_SEED_STEPS
        if not levels or space.mode not in (FREE, STRAIGHT) or (is_long and self._request.model != "thesis"):
            return ()
        costs = LayerCosts.of(self._profile, self._request.recompute)
        made = best_level_partition(costs, levels, space.may_idle, space.mode == STRAIGHT, self._watch)
        if not made.stages:
            raise UsageError("no cut gives every worker a stage of its own: layers that share a parameter forbid it")
        numbers = [number for stage in made.stages for number in stage.workers]
        numbers += sorted({*range(workers)} - {*numbers})
        cuts = [0, *(stage.last + 1 for stage in made.stages)]
        order = [space.workers[number] for number in numbers]
        placed = PlacedPartition.of(cuts, [len(stage.workers) for stage in made.stages], order)
        return (PartitionCandidate(placed, made.minibatch_s),)

    def plan(self) -> PipelinePlan:
        """Search, simulate, and describe the best."""
        model = self._ways.model()
        seeds = self._thesis_candidates()
        searched = list(seeds)
        if not seeds or self._request.model != "thesis":
            searched = [*self._search(self._space, model), *seeds]
        fitting = [item for item in searched if model.period(item.partition).excess_bytes <= 0]
        fitting = self._with_room(self._divisible(fitting), searched)
        if not fitting and self._stopped:
            raise NoAnswer("stopped before a plan was found that fits in memory")
        if not fitting:
            least = min(self._refused(searched), key=lambda item: model.period(item.partition).excess_bytes)
            raise NoAnswer(self._misses(least, searched))
        candidates = self._worth_simulating(fitting, seeds)
        simulated = self._simulated(candidates)
        simulated += self._further(fitting, candidates)
        best = min(simulated, key=lambda way: way.minibatch_s)
        ties = [way for way in simulated if way.minibatch_s <= best.minibatch_s * (1 + _TIE)]
        best = min(ties, key=self._preference)
        prove_shape(best.plan.shape)
        has_bound = self._space.mode in (FREE, ONE_STAGE) and best.plan.kind in ("1f1b", "data-parallel")
        return _described(self._ways, best, self._compared(best, simulated), has_bound)

    def _preference(self, way: SimulatedWay) -> tuple[bool, float, int, list[int]]:
        """Of ways that are as fast: without delay, then least traffic, fewest workers, earliest cuts."""
        return way.has_delay, self._ways.sent(way), way.plan.ranks, way.partition.cuts.tolist()

    def _simulated(self, candidates: Sequence[PartitionCandidate]) -> list[SimulatedWay]:
        """Simulate candidates, each with the depths that suit it; those that need a round trip that was not measured
        are left out where others do not."""
        ways: list[SimulatedWay] = []
        missing: NoAnswer | None = None
        for item in sorted(candidates, key=lambda item: item.partition.stages > 1):  # one stage has one depth
            if ways and self._stopped:
                break
            try:
                ways.append(self._with_best_depths(item.partition))
                self._best_s = min(self._best_s, ways[-1].minibatch_s)
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

    def _has_requested_stages(self, item: PartitionCandidate) -> bool:
        """Return whether it has a stage for each of the requested depths, where there are several."""
        wanted = self._request.depths
        return isinstance(wanted, tuple) and item.partition.stages == len(wanted) > 1

    def _refused(self, searched: Sequence[PartitionCandidate]) -> Sequence[PartitionCandidate]:
        """Return the candidates of as many stages as requested; all where there are none."""
        requested = [item for item in searched if self._has_requested_stages(item)]
        if not requested and self._request.straight:
            requested = [item for item in searched if item.partition.stages > 1]
        return requested or searched

    def _with_room(
        self, candidates: list[PartitionCandidate], searched: Sequence[PartitionCandidate]
    ) -> list[PartitionCandidate]:
        """Return those that fit in memory with the depths that they are simulated with.

        Those with another number of stages than requested depths are left out, unless the search has no others.
        """
        if any(map(self._has_requested_stages, searched)):
            candidates = [
                item
                for item in candidates
                if self._has_requested_stages(item) or self._ways.resolve(item.partition).kind == "data-parallel"
            ]
        if self._request.memory is None:
            return candidates
        return [item for item in candidates if self._ways.has_room(item.partition, self._ways.depths(item.partition))]

    def _worth_simulating(
        self, fitting: Sequence[PartitionCandidate], seeds: Sequence[PartitionCandidate]
    ) -> list[PartitionCandidate]:
        """Return the best few, with the best single stage, the best single worker, and the thesis's among them."""
        chosen = list(fitting[:_MAX_SIMULATED])
        one_stage = [item for item in fitting if item.partition.stages == 1]
        alone = [item for item in one_stage if item.partition.replicas[0] == 1]
        chosen += [items[0] for items in (one_stage, alone) if items]
        chosen += [item for item in fitting if any(item is seed for seed in seeds)]
        return list({id(item): item for item in chosen}.values())

    def _fits_with_base_depths(self, item: PartitionCandidate) -> bool:
        """Return whether a partition that the requested depths are for would fit with the thesis's."""
        replicas, kind = item.partition.replicas, self._ways.resolve(item.partition).kind
        if kind in ("data-parallel", "model-parallel", "gpipe"):
            return False
        if kind in ACCUMULATING and self._request.accumulate % math.lcm(*replicas):
            return False
        return self._ways.has_room(item.partition, base_depths(replicas))

    def _misses(self, least: PartitionCandidate, searched: Sequence[PartitionCandidate]) -> str:
        """Say which plan misses the memory by least, and what would fit."""
        partition, wanted = least.partition, self._request.depths
        has_depths = self._ways.has_depths(partition)
        depths = self._ways.depths(partition) if has_depths else base_depths(partition.replicas)
        needed = self._ways.model(self._ways.resolve(partition)).memory_of(partition, depths)
        held: dict[int, float] = {}
        for stage in range(partition.stages):
            for host in partition.hosts(stage):
                held[host] = held.get(host, 0.0) + needed[stage].all
        host = max(held, key=lambda number: held[number] - self._ways.memory[number])
        stage = max((s for s in range(partition.stages) if host in partition.hosts(s)), key=lambda s: needed[s].all)
        label = "-".join(map(str, partition.replicas))
        text = (
            f"nothing fits in memory: {label} misses by least; stage {stage} needs {format_bytes(held[host])} on "
            f"{self._measured.fabric.names[host]}, which has {format_bytes(self._ways.memory[host])}"
        )
        if isinstance(wanted, tuple) and not has_depths:
            text += f"; no candidate has the {len(wanted)} stages of --depth"
        if isinstance(wanted, tuple) and any(map(self._fits_with_base_depths, searched)):
            text += "; --depth auto fits"
        if self._space.mode in (FREE, STRAIGHT) and self._request.kind != "model-parallel":
            alone = self._ways.model(TrainingMode("model-parallel", recompute=self._request.recompute))
            straight = search_partitions(alone, replace(self._space, mode=STRAIGHT), self._request.seed, 20_000)
            if alone.period(straight[0].partition).excess_bytes <= 0:
                text += "; --kind model-parallel, one minibatch in flight, fits"
        return text

    def _further(
        self, fitting: Sequence[PartitionCandidate], simulated: Sequence[PartitionCandidate]
    ) -> list[SimulatedWay]:
        """Return the next ways that are faster than the best simulated one by formulas."""
        model, chosen = self._ways.model(), {id(item) for item in simulated}
        rest = [item for item in fitting[:_MAX_FURTHER] if id(item) not in chosen]
        ways: list[SimulatedWay] = []
        for item in rest:
            if self._stopped or model.period(item.partition).minibatch_s >= self._best_s * (1 - _WORTH):
                break
            ways += self._simulated([item])
        return ways

    def _with_best_depths(self, partition: PlacedPartition) -> SimulatedWay:
        """Simulate a partition with the depths that formulas find, and others that may suit it; return the least that
        are as fast.

        At any depths it is no faster than its busiest host and link: where another way is, it is simulated once. Where
        no update bounds them, deeper ones are as a rule faster: depths are tried from the deepest on, but for those
        below any that are slower than others, or than another way.
        """
        mode = self._ways.resolve(partition)
        least_s, best_s = self._ways.model(mode).least_s(partition), self._best_s
        own = self._ways.depths(partition)
        if self._request.depths is not None or mode.kind not in _TUNED or least_s >= best_s * (1 - _TIE):
            return self._simulate(partition)
        others = [
            depths for depths in self._ways.other_depths(partition, own) if self._ways.has_room(partition, depths)
        ]
        deepest_first = mode.kind not in ACCUMULATING
        tried = sorted([own, *others], key=sum, reverse=True) if deepest_first else [own, *others]
        ways: list[SimulatedWay] = []
        for depths in tried:
            if ways and self._stopped:
                break
            limit_s = min([best_s, *(way.minibatch_s for way in ways)]) * (1 + _NEAR)
            is_beaten = any(
                sum(way.plan.shape.depths) <= sum(depths)
                if way.minibatch_s <= least_s * (1 + _WORTH)
                else deepest_first and way.minibatch_s > limit_s and np.less_equal(depths, way.plan.shape.depths).all()
                for way in ways
            )
            if not is_beaten and (way := self._simulate(partition, depths)).is_simulated:
                ways.append(way)
        if not ways:
            return self._simulate(partition)
        limit = min(way.minibatch_s for way in ways) * (1 + _WORTH)
        return min((way for way in ways if way.minibatch_s <= limit), key=lambda way: sum(way.plan.shape.depths))

    def _compared(self, best: SimulatedWay, simulated: Sequence[SimulatedWay]) -> list[SimulatedWay]:
        parallel_mode = TrainingMode("data-parallel")
        ways = [
            self._ways.rival(way.partition, "data-parallel", parallel_mode)
            if self._request.recompute
            else replace(way, what="data-parallel")
            for way in simulated
            if way.plan.kind == "data-parallel"
        ]
        workers = self._measured.workers
        everything = SearchSpace(workers, ONE_STAGE, may_idle=False)
        layers = len(self._profile.layers)
        if not self._request.compare or len(workers) < 2 or self._stopped:
            ranks = 0 if best.plan.kind == "data-parallel" or len(workers) < 2 else len(workers)
            return [way for way in ways if way.plan.ranks == ranks][:1]
        reduce = self._request.reduce
        model = self._ways.model(TrainingMode(None, reduce=reduce))
        moves = max(2000, self._moves // 4)
        parallel = self._search(everything, model, moves)[0].partition
        rows = [self._ways.rival(parallel, "data-parallel", TrainingMode("data-parallel"))]
        if not self._ways.has_equal_hosts:
            unsearched = PlacedPartition.of((0, layers), (len(workers),), workers)
            rows.append(self._ways.rival(unsearched, "data-parallel, given order", TrainingMode("data-parallel")))
        if layers > 1:
            straight = self._search(SearchSpace(workers, STRAIGHT), model, moves)[0].partition
            if straight.stages > 1:
                rows.append(self._ways.rival(straight, "straight", TrainingMode("1f1b", reduce=reduce)))
                rows.append(self._ways.rival(straight, "model-parallel", TrainingMode("model-parallel")))
        if best.plan.ranks > 1 and best.plan.kind != "data-parallel":
            if not self._ways.has_equal_hosts:
                order = np.array(workers, dtype=np.int64)
                unsearched = PlacedPartition(best.partition.cuts, best.partition.starts, order)
                plan = best.plan
                mode = TrainingMode(plan.kind, plan.accumulate, plan.reduce, plan.recompute)
                rows.append(self._ways.simulate(unsearched, f"{plan.label}, given order", mode, plan.shape.depths))
            rows += self._other_kinds(best)
        return rows

    def _other_kinds(self, best: SimulatedWay) -> list[SimulatedWay]:
        """Return the plan's stages trained in other ways: flushing ones have no delay."""
        replicas = best.partition.replicas
        if best.plan.kind != "1f1b" or len(replicas) < 2:
            return []
        rows = []
        if max(replicas) > 1 and best.plan.reduce == "wait" and self._request.depths is None:
            depths = best.plan.shape.depths
            mode = replace(self._ways.requested, reduce="late")
            rows.append(self._ways.simulate(best.partition, f"{best.plan.label}, late reduce", mode, depths))
        cycle = math.lcm(*replicas)
        count = cycle * -(-_FLUSHED_ROUNDS * len(replicas) * max(replicas) // cycle)
        if count <= _MAX_FLUSHED:
            kinds: tuple[Kind, ...] = ("2bw", "1f1b-flush", "gpipe")
            for kind in kinds:
                rows.append(self._ways.rival(best.partition, f"{kind}, update of {count}", TrainingMode(kind, count)))
        return rows


def _described(
    simulator: WaySimulator, best: SimulatedWay, ways: Sequence[SimulatedWay], has_bound: bool
) -> PipelinePlan:
    """Return the plan of a way, with what is predicted of it and of other ways; ``has_bound``: also the least seconds
    that any plan could take."""
    request, plan, result, names = simulator.request, best.plan, best.result, simulator.measured.fabric.names
    model = simulator.model_of(best)
    bound_s = lower_bound_s(model, simulator.measured.workers) if has_bound else None
    needed = model.memory_of(best.partition, plan.shape.depths)
    model.period(best.partition)
    terms = model.scratch.stage[:, : best.partition.stages].copy()
    links_s = np.maximum(model.scratch.sending / model.arrays.out, model.scratch.receiving / model.arrays.into)
    stages = []
    for number, stage in enumerate(plan.stages):
        replicas = len(stage.ranks)
        compute_s = float(terms[WORK_ROWS, number].sum()) / replicas
        predicted = StagePrediction(
            compute_s=compute_s,
            network_s=float(links_s[best.partition.hosts(number)].max()),
            reduce_exposed_s=float(terms[EXPOSED_ROW, number]),
            busy_share=min(1.0, max(share.busy for share in result.shares[number])),
        )
        stages.append(structs.replace(stage, memory_bytes=needed[number], predicted=predicted))
    text = (
        None
        if request.stages is None
        else ",".join(f"{part.first}-{part.last}x{part.replicas}" for part in request.stages)
    )
    return structs.replace(
        plan,
        stages=tuple(stages),
        model=request.model,
        seed=request.seed,
        predicted=PipelinePrediction(
            minibatch_s=result.minibatch_s,
            items_per_s=plan.minibatch / result.minibatch_s,
            fill_s=result.fill_s,
            bytes_per_item=simulator.sent(best) / plan.minibatch,
            limited_by=result.limit(lambda stage, replica: names[best.partition.hosts(stage)[replica]]),
            by="simulator" if best.is_simulated else "model",
        ),
        lower_bound_s=bound_s,
        gap=None if not bound_s else max(0.0, result.minibatch_s / bound_s - 1),
        proven=False,
        compared=tuple(_row(simulator, way) for way in ways),
        constraints=PipelineConstraints(straight=request.straight, stages=UNSET if text is None else text),
    )


def _row(simulator: WaySimulator, way: SimulatedWay) -> ComparedWay:
    shape = way.plan.shape
    updates = min(minibatches_per_update(shape, stage) for stage in range(shape.stages))
    is_limited = any(np.isfinite(size) for size in simulator.memory)
    return ComparedWay(
        what=way.what,
        minibatch_s=way.minibatch_s,
        delay=max(delay_of(shape, stage) for stage in range(shape.stages)),
        items_per_update=float(updates * way.plan.minibatch),
        recompute=way.plan.recompute,
        fits=way.fits if is_limited else None,
    )
