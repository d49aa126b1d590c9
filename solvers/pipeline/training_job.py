"""A plan's actions as a job of tasks: what each rank computes, in the sequence of its actions, and what it sends.

Actions are those of :func:`plink.model.pipeline.actions.actions_of`, which the executor runs. As there:

- a rank does one action after the other, and waits only for messages and all-reduces that the action needs;
- what a pass sends is not waited for; messages of one connection follow each other;
- a message moves when its receiver is ready for it: receives are posted for the next 3 minibatches;
- the backward pass that completes an update hands on buckets of gradients as they are ready. Two buckets at a time are
  added up (Gloo has two threads for it), by the transfers of the stage's all-reduce.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import coo_array

from plink.model.pipeline.actions import PipelineAction, actions_of
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.shape import PipelineShape, minibatches_per_update, replica_of
from solvers.costs.fabric import Fabric
from solvers.pipeline.stage_costs import StageCosts, keeps_versions
from solvers.schedules.catalogue import schedule_for
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.job import Integers, Resources, Tasks, Vector, resources_between

Watch = Callable[[int, int], None]
POSTED_RECEIVES = 3
"""Minibatches whose messages a rank is ready for, as the executor's transport."""
REDUCE_THREADS = 2
"""All-reduces that a rank works on at once, as a Gloo process group."""
MAX_REDUCE_TRANSFERS = 300_000
"""Above it each all-reduce is one flow on each connection instead of all its rounds."""
STEP_KINDS = ("F", "B", "REDUCE", "UPDATE")
"""Kinds of actions, by index."""
_RING = "ring"
_DEFAULTS = {"source": -1, "target": -1, "amount": 0.0, "lead": 0.0, "extra_lag": 0.0, "queue": -1, "priority": 0}
_REDUCE, _ADD_UP, _COMPUTE = 2, 3, 4  # purposes of queues, with the directions of messages


@dataclass(frozen=True)
class ReplicaSteps:
    """A replica's actions in their sequence. ``kind``, shape (A,): the index in ``STEP_KINDS``; ``number``: the
    minibatch or update; ``first``, ``last``: the first and last task of each."""

    actions: tuple[PipelineAction, ...]
    kind: Integers
    number: Integers
    first: Integers
    last: Integers

    def of_kind(self, kind: str) -> Integers:
        """Return where the actions of a kind stand."""
        return np.flatnonzero(self.kind == STEP_KINDS.index(kind))


@dataclass(frozen=True)
class _Transfers:
    """The transfers of one all-reduce, by numbers from 0. ``columns``: of any of them; ``amount``, shape (buckets,
    count): bytes. ``among``: pairs (earlier, later) of transfers that wait for each other; ``after``, ``before``:
    pairs (transfer, replica), which it begins after, or which ends after it."""

    count: int
    columns: Mapping[str, object]
    amount: Vector
    among: list[tuple[Integers, Integers]]
    after: list[tuple[Integers, Integers]]
    before: list[tuple[Integers, Integers]]


@dataclass(frozen=True)
class PlacedPipeline:
    """A pipeline on a network: ``places[s][q]`` is the host of replica q of stage s, ``slowness`` of each host how many
    times as long it computes. ``boundary_bytes``: of each boundary, forward and back. ``algorithms``: of each stage's
    all-reduce."""

    shape: PipelineShape
    costs: tuple[StageCosts, ...]
    places: tuple[tuple[int, ...], ...]
    boundary_bytes: tuple[tuple[float, float], ...]
    fabric: Fabric
    slowness: tuple[float, ...]
    algorithms: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        plan: PipelinePlan,
        costs: tuple[StageCosts, ...],
        fabric: Fabric,
        slowness: Sequence[float],
        places: tuple[tuple[int, ...], ...] | None = None,
    ) -> "PlacedPipeline":
        """Return a plan's pipeline; its hosts are those of the fabric with their names, unless ``places`` says so."""
        if places is None:
            number = {name: k for k, name in enumerate(fabric.names)}
            hosts = [number[name] for name in plan.host_names()]
            places = tuple(tuple(hosts[rank] for rank in stage.ranks) for stage in plan.stages)
        return cls(
            plan.shape,
            costs,
            places,
            tuple((float(item.forward_bytes), float(item.backward_bytes)) for item in plan.boundaries),
            fabric,
            tuple(slowness),
            tuple(stage.all_reduce.algo if stage.all_reduce else _RING for stage in plan.stages),
        )


@dataclass
class TrainingJob:
    """The tasks of a job of some minibatches; ``steps[s, q]``: actions of a replica. ``messages``, shape (2, S, M): the
    task that brings a stage the activations (0) or gradients (1) of a minibatch, -1 where none does. ``watch``: called
    with how many parts are built, and how many there are."""

    pipeline: PlacedPipeline
    minibatches: int
    watch: Watch | None = None
    resources: Resources = field(init=False)
    tasks: Tasks = field(init=False)
    steps: dict[tuple[int, int], ReplicaSteps] = field(init=False, default_factory=dict)
    messages: Integers = field(init=False)

    def __post_init__(self) -> None:
        builder = _Builder(self.pipeline, self.minibatches)
        builder.build(self.watch or (lambda done, total: None))
        self.steps, self.messages = builder.steps, builder.messages
        self.resources, self.tasks = builder.finish()


class _Builder:
    """Collects tasks and what they wait for. A task without source computes; its seconds are its lead."""

    def __init__(self, pipeline: PlacedPipeline, minibatches: int) -> None:
        self._pipeline, self._shape, self._minibatches = pipeline, pipeline.shape, minibatches
        self.steps: dict[tuple[int, int], ReplicaSteps] = {}
        self.messages = np.full((2, self._shape.stages, minibatches), -1, dtype=np.int64)
        self._passes = np.full((3, *self.messages.shape), -1, dtype=np.int64)  # first, last task, the one before
        self._blocks: list[tuple[int, dict[str, Any]]] = []
        self._count = 0
        self._later: list[Integers] = []
        self._sooner: list[Integers] = []
        self._ready: dict[tuple[int, int], Integers] = {}  # of a replica, shape (updates, buckets)
        self._queues: dict[tuple[tuple[int, int], tuple[int, int], int], int] = {}

    def build(self, watch: Watch) -> None:
        """Add all tasks: those of the actions first, then messages and all-reduces, which join them."""
        shape = self._shape
        places = [(s, q) for s in range(shape.stages) for q in range(shape.replicas[s])]
        total = len(places) + 2 * shape.stages
        for done, (stage, replica) in enumerate(places):
            watch(done, total)
            self._add_actions(stage, replica)
        for stage in range(shape.stages):
            watch(len(places) + stage, total)
            for replica in range(shape.replicas[stage]):
                self._add_messages(stage, replica)
        self._wait_for_receives()
        for stage in range(shape.stages):
            watch(len(places) + shape.stages + stage, total)
            if shape.replicas[stage] > 1 and stage >= shape.frozen:
                self._add_reduces(stage)
        watch(total, total)

    def _add_block(self, count: int, columns: dict[str, Any]) -> Integers:
        """Add tasks, and return their numbers."""
        self._blocks.append((count, columns))
        self._count += count
        return np.arange(self._count - count, self._count)

    def _wait(self, later: Integers, sooner: Integers) -> None:
        pairs = np.broadcast_arrays(later, sooner)
        self._later.append(pairs[0].ravel())
        self._sooner.append(pairs[1].ravel())

    def _queue(self, source: tuple[int, int], target: tuple[int, int], purpose: int) -> int:
        """Return the queue from one (stage, replica) to another."""
        return self._queues.setdefault((source, target, purpose), len(self._queues))

    # Actions

    def _add_actions(self, stage: int, replica: int) -> None:
        """Add what a replica computes. The backward pass that completes its part of an update has parts, which end
        where a bucket is ready."""
        shape, costs = self._shape, self._pipeline.costs[stage]
        actions = tuple(actions_of(shape, stage, replica, self._minibatches))
        kind = np.array([STEP_KINDS.index(action.kind) for action in actions], dtype=np.int64)
        number = np.array([action.number for action in actions], dtype=np.int64)
        completing, reducing = np.zeros(0, dtype=np.int64), shape.replicas[stage] > 1 and len(costs.buckets) > 0
        if reducing:
            backward = np.flatnonzero(kind == STEP_KINDS.index("B"))
            update = number[backward] // minibatches_per_update(shape, stage)
            completing = backward[np.diff(update, append=-1) != 0]
        ends_s = [bucket.ready_s for bucket in costs.buckets]
        if ends_s and ends_s[-1] < costs.backward_s:
            ends_s.append(costs.backward_s)
        parts = np.ones(len(actions), dtype=np.int64)
        parts[completing] = len(ends_s)
        last = self._count + np.cumsum(parts) - 1
        first = last - parts + 1

        update_s = costs.update_s + (costs.copy_s if keeps_versions(shape, stage) else 0.0)
        lead_s = np.repeat(np.array([costs.forward_s, costs.backward_s, 0.0, update_s])[kind], parts)
        lead_s[first[completing, None] + np.arange(len(ends_s)) - self._count] = np.diff(ends_s, prepend=0.0)
        slow = self._pipeline.slowness[self._pipeline.places[stage][replica]] * 1e6
        queue = self._queue((stage, replica), (stage, replica), _COMPUTE)
        numbers = self._add_block(len(lead_s), {"lead": lead_s * slow, "queue": queue})
        self._wait(numbers[1:], numbers[:-1])

        self.steps[stage, replica] = steps = ReplicaSteps(actions, kind, number, first, last)
        for direction, each in enumerate(("F", "B")):
            at = steps.of_kind(each)
            before = np.where(at > 0, last[at - 1], -1)
            self._passes[:, direction, stage, number[at]] = first[at], last[at], before
        if reducing:
            self._ready[stage, replica] = self._ready_buckets(steps, completing, len(costs.buckets), queue)

    def _ready_buckets(self, steps: ReplicaSteps, completing: Integers, buckets: int, queue: int) -> Integers:
        """Return the tasks after which a replica's buckets are ready, shape (updates, buckets).

        A replica that has no minibatch of a short last update takes part when it gets there.
        """
        reduces = steps.of_kind("REDUCE")
        ready = np.full((len(reduces), buckets), -1)
        ready[: len(completing)] = steps.first[completing, None] + np.arange(buckets)
        for place in range(len(completing), len(reduces)):
            ready[place] = self._add_block(1, {"queue": queue})
            if (position := reduces[place]) > 0:
                self._wait(ready[place, :1], steps.last[position - 1])
        return ready

    # Messages

    def _add_messages(self, stage: int, replica: int) -> None:
        """Add the activations and gradients that a replica sends."""
        shape, steps, places = self._shape, self.steps[stage, replica], self._pipeline.places
        wanted = [stage + 1 < shape.stages, stage > shape.frozen, False, False]  # by forward_peer and backward_peer
        at = np.flatnonzero(np.array(wanted)[steps.kind])
        direction, minibatch = steps.kind[at], steps.number[at]
        target, queue, size = np.zeros((3, len(at)))
        for way, peer in ((0, stage + 1), (1, stage - 1)):
            if not wanted[way]:
                continue
            sent = direction == way
            receiver = replica_of(shape, peer, minibatch[sent])
            target[sent] = np.array(places[peer])[receiver]
            queues = [self._queue((stage, replica), (peer, q), way) for q in range(shape.replicas[peer])]
            queue[sent] = np.array(queues)[receiver]
            size[sent] = self._pipeline.boundary_bytes[min(stage, peer)][way]
        columns = {"source": places[stage][replica], "target": target, "amount": size, "queue": queue}
        numbers = self._add_block(len(at), columns | {"priority": minibatch})
        receiving = stage + 1 - 2 * direction
        self.messages[direction, receiving, minibatch] = numbers
        self._wait(numbers, steps.last[at])
        self._wait(self._passes[0, direction, receiving, minibatch], numbers)

    def _wait_for_receives(self) -> None:
        """Have each message wait until its receiver takes the one of three own minibatches before."""
        for direction, stage in zip(*np.nonzero(self.messages[:, :, 0] >= 0), strict=True):
            ahead = POSTED_RECEIVES * self._shape.replicas[stage]
            numbers, taken = self.messages[direction, stage, ahead:], self.messages[direction, stage, :-ahead]
            self._wait(numbers, taken)
            before = self._passes[2, direction, stage, :-ahead]
            self._wait(numbers[before >= 0], before[before >= 0])

    # All-reduces

    def _add_reduces(self, stage: int) -> None:
        """Add the all-reduce of every update of a stage, bucket by bucket."""
        shape, costs = self._shape, self._pipeline.costs[stage]
        if not costs.buckets:
            return
        replicas = shape.replicas[stage]
        waiting = [self.steps[stage, q].first[self.steps[stage, q].of_kind("REDUCE")] for q in range(replicas)]
        algorithm = self._pipeline.algorithms[stage] if self._pipeline.algorithms else _RING
        collective = PreparedCollective.of(schedule_for(algorithm, replicas), lockstep=False)
        updates, buckets = len(waiting[0]), len(costs.buckets)
        is_small = len(collective.schedule) * buckets * updates <= MAX_REDUCE_TRANSFERS
        sizes = np.array([bucket.size_bytes for bucket in costs.buckets])
        transfers = self._rounds(stage, collective, sizes) if is_small else self._flows(stage, sizes)

        # Each all-reduce has consecutive numbers: where each replica begins and ends, then the transfers.
        adding_up = [self._queue((stage, q), (stage, q), _ADD_UP) for q in range(replicas)]
        shape_of_all = updates, buckets, 2 * replicas + transfers.count
        columns = {name: np.full(shape_of_all, default) for name, default in _DEFAULTS.items()}
        columns["queue"][..., : 2 * replicas] = np.tile(adding_up, 2)
        for name, values in transfers.columns.items():
            columns[name][..., 2 * replicas :] = values
        columns["amount"][..., 2 * replicas :] = transfers.amount
        columns["priority"][..., 2 * replicas :] = (
            self._count + np.arange(math.prod(shape_of_all)).reshape(shape_of_all)[..., 2 * replicas :]
        )
        numbers = self._add_block(math.prod(shape_of_all), {name: column.ravel() for name, column in columns.items()})
        begin, end, own = np.split(numbers.reshape(-1, shape_of_all[-1]), (replicas, 2 * replicas), axis=1)
        ready = np.array([self._ready[stage, q] for q in range(replicas)])
        self._wait(begin, ready.transpose(1, 2, 0).reshape(-1, replicas))
        self._wait(begin[REDUCE_THREADS:], end[:-REDUCE_THREADS])
        self._wait(np.array(waiting).T[:, None, :], end.reshape(updates, buckets, replicas))
        for earlier, later in transfers.among:
            self._wait(own[:, later], own[:, earlier])
        for transfer, replica in transfers.after:
            self._wait(own[:, transfer], begin[:, replica])
        for transfer, replica in transfers.before:
            self._wait(end[:, replica], own[:, transfer])

    def _rounds(self, stage: int, collective: PreparedCollective, sizes: Vector) -> "_Transfers":
        """Return all transfers of an all-reduce."""
        hosts = np.array(self._pipeline.places[stage])
        schedule = collective.schedule
        source, target = schedule.source.astype(np.int64), schedule.target.astype(np.int64)
        connections = zip(collective.source.tolist(), collective.target.tolist(), strict=True)
        queues = np.array([self._queue((stage, a), (stage, b), _REDUCE) for a, b in connections])
        columns = {"source": hosts[source], "target": hosts[target], "queue": queues[collective.connection]}
        waits = collective.waits
        own = np.arange(len(schedule))
        ends = [(own, source), (own, target)]
        return _Transfers(
            len(schedule),
            columns,
            sizes[:, None] * (schedule.count / schedule.chunks),
            [(waits.sooner, waits.later)],
            ends,
            ends,
        )

    def _flows(self, stage: int, sizes: Vector) -> "_Transfers":
        """Return a ring all-reduce as one flow on each connection, which takes as long as all its rounds."""
        hosts = np.array(self._pipeline.places[stage])
        count = len(hosts)
        replica = np.arange(count)
        following = (replica + 1) % count
        latency = self._pipeline.fabric.rtt_us[hosts, hosts[following]] / 2
        rounds = 2 * (count - 1)
        columns = {
            "source": hosts,
            "target": hosts[following],
            "queue": [self._queue((stage, q), (stage, (q + 1) % count), _REDUCE) for q in range(count)],
            "extra_lag": (rounds - 1) * (float(latency.mean()) + self._pipeline.fabric.overhead_us),
        }
        amount = np.repeat(sizes[:, None] * (rounds / count), count, axis=1)
        everyone = [(np.roll(replica, shift), replica) for shift in range(count)]
        return _Transfers(count, columns, amount, [], [(replica, replica), (replica, following)], everyone)

    def finish(self) -> tuple[Resources, Tasks]:
        """Return the resources and the tasks."""
        columns = {
            name: np.concatenate([np.broadcast_to(block.get(name, default), count) for count, block in self._blocks])
            for name, default in _DEFAULTS.items()
        }
        sends = columns["source"] >= 0
        source = np.where(sends, columns["source"], 0).astype(np.intp)
        target = np.where(sends, columns["target"], 0).astype(np.intp)
        resources, route, latency = resources_between(self._pipeline.fabric, source, target)
        lag_us = latency + np.where(source == target, 0.0, self._pipeline.fabric.overhead_us) + columns["extra_lag"]
        pairs = np.concatenate(self._later), np.concatenate(self._sooner)
        after = coo_array((np.ones(len(pairs[0]), dtype=np.int8), pairs), (self._count, self._count)).tocsr()
        tasks = Tasks(
            route,
            np.where(source == target, 0.0, columns["amount"]),
            columns["lead"],
            lag_us,
            (after.indptr.astype(np.int64), after.indices.astype(np.int64)),
            columns["queue"].astype(np.int64),
            columns["priority"].astype(np.int64),
        )
        return resources, tasks
