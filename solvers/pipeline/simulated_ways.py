"""Ways to train a profile on measured hosts: plans of partitions, each with what its simulation says."""

from dataclasses import dataclass, replace

from plink.documents.pipeline import Kind, ReduceMode
from plink.errors import UsageError
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan import PipelinePlan, PipelineStage, StageBoundary
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import ACCUMULATING, PipelineShape, base_depths, minibatches_to_prove
from plink.model.pipeline.versions import delay_of, learning_rate_scale
from solvers.pipeline.depths import depths_from
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts
from solvers.pipeline.joint_search import traffic_of
from solvers.pipeline.lock_freedom import never_locks
from solvers.pipeline.period import ModelOptions, PeriodModel, PlacedPartition
from solvers.pipeline.period_kernels import MAX_DEPTH
from solvers.pipeline.simulator import PipelineSimulation, RankShares, simulate_pipeline
from solvers.pipeline.stage_costs import costs_of_plan
from solvers.pipeline.training_job import PlacedPipeline
from solvers.pipeline.verifier import verify_actions
from solvers.simulation.network import SimulatedNetwork

MAX_SIMULATED_WORKERS = 64
"""Above it no candidates are simulated: formulas decide."""
_MAX_PROVEN_ACTIONS = 20_000


@dataclass(frozen=True)
class SimulatedWay:
    """A way to train, simulated."""

    what: str
    plan: PipelinePlan
    partition: PlacedPartition
    result: PipelineSimulation
    fits: bool

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
        names = measured.hosts.names
        self.memory = request.memory or (float("inf"),) * len(names)
        self._network = SimulatedNetwork.of(measured.fabric)
        self._slowness = tuple(profile.slowness.get(name, 1.0) for name in names)
        self._models: dict[tuple[Kind | None, int], PeriodModel] = {}

    @property
    def has_equal_hosts(self) -> bool:
        """Whether no host differs from any other in what the planner knows of it."""
        slots = {host.slots for host in self.measured.hosts}
        return self.measured.is_even and slots == {1} and len({*self._slowness}) == len({*self.memory}) == 1

    def model(self, kind: Kind | None = None, accumulate: int | None = None) -> PeriodModel:
        request = self.request
        key = kind, request.accumulate if accumulate is None else accumulate
        if key not in self._models:
            late, deeper = request.reduce == "late", request.depths is None
            options = ModelOptions.of_kind(*key, late, deeper, request.recompute)
            self._models[key] = PeriodModel(self.profile, self.measured.fabric, self.memory, options)
        return self._models[key]

    def sent(self, way: SimulatedWay) -> float:
        return float(traffic_of(self.model(way.plan.kind, way.plan.accumulate), way.partition).share.sum())

    def depths(self, partition: PlacedPartition, kind: Kind, accumulate: int) -> tuple[int, ...]:
        replicas = partition.replicas
        if kind in ("data-parallel", "model-parallel"):
            return (1,) * len(replicas)
        wanted = self.request.depths
        if wanted is None or kind == "gpipe":
            return _without_locks(self.model(kind, accumulate).period(partition).depths, kind, replicas, accumulate)
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

    def kind(self, partition: PlacedPartition) -> Kind:
        if self.request.kind is not None:
            return self.request.kind
        return "data-parallel" if partition.stages == 1 and not self.request.vertical_sync else "1f1b"

    def simulate(
        self, partition: PlacedPartition, what: str = "plan", kind: Kind | None = None,
        depths: tuple[int, ...] | None = None, accumulate: int | None = None, reduce: ReduceMode | None = None,
    ) -> SimulatedWay:  # fmt: skip
        kind, accumulate = kind or self.kind(partition), accumulate or self.request.accumulate
        depths = depths or self.depths(partition, kind, accumulate)
        plan = self._plan_of(partition, kind, depths, accumulate, reduce or self.request.reduce)
        model = self.model(kind, accumulate)
        fits = model.period(partition).excess_bytes <= 0
        if plan.ranks > MAX_SIMULATED_WORKERS:
            return SimulatedWay(what, plan, partition, self._estimated(model, partition), fits)
        placed = PlacedPipeline.of(plan, costs_of_plan(plan, self.profile), self._network, self._slowness)
        return SimulatedWay(what, plan, partition, simulate_pipeline(placed), fits)

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

    def has_room(self, partition: PlacedPartition, depths: tuple[int, ...]) -> bool:
        needed = self.model("1f1b").memory_of(partition, depths)
        held = dict.fromkeys(range(len(self.memory)), 0.0)
        for stage in range(partition.stages):
            for host in partition.hosts(stage):
                held[host] += needed[stage]["all"]
        return all(size <= self.memory[host] for host, size in held.items())

    def _plan_of(
        self, partition: PlacedPartition, kind: Kind, depths: tuple[int, ...], accumulate: int, reduce: ReduceMode
    ) -> PipelinePlan:
        request, profile = self.request, self.profile
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
            prove_shape(shape)
        hosts, idle, ranks = self._used_hosts(partition)
        buckets = self.model(kind, accumulate).bucket_bytes(partition)
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
        for number, host in enumerate(self.measured.hosts):
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
            host.name for number, host in enumerate(self.measured.hosts)
            if number not in next_rank and self.measured.may_use(host)
        ]  # fmt: skip
        return Hosts(tuple(members), self.measured.hosts.lab), idle, ranks


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
