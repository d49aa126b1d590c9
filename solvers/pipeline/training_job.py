"""A plan's actions as a job of tasks: what each rank computes, in the sequence of its actions, and what it sends.

Actions are those of :func:`plink.model.pipeline.actions.actions_of`, which the executor runs. As there:

- a rank does one action after the other, and waits only for messages and all-reduces that the action needs;
- what a pass sends is not waited for; messages of one connection follow each other;
- a message moves when its receiver is ready for it: receives are posted for the next 3 minibatches;
- the backward pass that completes an update hands on buckets of gradients as they are ready. Two buckets at a time are
  added up (Gloo has two threads for it), by the transfers of the stage's all-reduce.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from plink.model.pipeline.actions import PipelineAction, actions_of
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.shape import PipelineShape, backward_peer, forward_peer, own_of_update, replica_of
from solvers.pipeline.stage_costs import StageCosts, keeps_versions
from solvers.schedules.catalogue import schedule_for
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.job import Integers, Resources, SimulatedNetwork, Tasks, Vector, resources_between

Watch = Callable[[int, int], None]
POSTED_RECEIVES = 3
"""Minibatches whose messages a rank is ready for, as the executor's transport."""
REDUCE_THREADS = 2
"""All-reduces that a rank works on at once, as a Gloo process group."""
MAX_REDUCE_TRANSFERS = 300_000
"""Above it each all-reduce is one flow on each connection instead of all its rounds."""
_RING = "ring"
_DEFAULTS = {
    "source": -1.0,
    "target": -1.0,
    "amount": 0.0,
    "lead": 0.0,
    "extra_lag": 0.0,
    "queue": -1.0,
    "priority": 0.0,
}


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


class StepTimes(NamedTuple):
    """Numbers of an action's first and last task."""

    first: int
    last: int


@dataclass(frozen=True)
class PlacedPipeline:
    """A pipeline on a network: ``places[s][q]`` is the host of replica q of stage s, ``slowness`` of each host how many
    times as long it computes. ``boundary_bytes``: of each boundary, forward and back. ``algorithms``: of each stage's
    all-reduce."""

    shape: PipelineShape
    costs: tuple[StageCosts, ...]
    places: tuple[tuple[int, ...], ...]
    boundary_bytes: tuple[tuple[float, float], ...]
    network: SimulatedNetwork
    slowness: tuple[float, ...]
    algorithms: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        plan: PipelinePlan,
        costs: tuple[StageCosts, ...],
        network: SimulatedNetwork,
        slowness: Sequence[float],
        places: tuple[tuple[int, ...], ...] | None = None,
    ) -> "PlacedPipeline":
        """Return a plan's pipeline; its hosts are those of the network with their names, unless ``places`` says so."""
        if places is None:
            number = {name: k for k, name in enumerate(network.names)}
            hosts = [number[name] for name in plan.host_names()]
            places = tuple(tuple(hosts[rank] for rank in stage.ranks) for stage in plan.stages)
        return cls(
            plan.shape,
            costs,
            places,
            tuple((float(item.forward_bytes), float(item.backward_bytes)) for item in plan.boundaries),
            network,
            tuple(slowness),
            tuple(stage.all_reduce.algo if stage.all_reduce else _RING for stage in plan.stages),
        )


@dataclass
class TrainingJob:
    """The tasks of a job of some minibatches; ``steps[s, q]``: actions of a replica, each with its tasks.
    ``messages``: the task of each, by kind, the stage that receives it, and minibatch. ``watch``: called with how many
    parts are built, and how many there are."""

    pipeline: PlacedPipeline
    minibatches: int
    watch: Watch | None = None
    resources: Resources = field(init=False)
    tasks: Tasks = field(init=False)
    steps: dict[tuple[int, int], list[tuple[PipelineAction, StepTimes]]] = field(init=False, default_factory=dict)
    messages: dict[tuple[str, int, int], int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        builder = _Builder(self.pipeline, self.minibatches)
        builder.build(self.watch or (lambda done, total: None))
        self.steps, self.messages = builder.steps, builder.messages
        self.resources, self.tasks = builder.finish()


class _Builder:
    """Collects tasks and what they wait for. A task without source computes; its seconds are its lead."""

    def __init__(self, pipeline: PlacedPipeline, minibatches: int) -> None:
        self._pipeline, self._shape, self._minibatches = pipeline, pipeline.shape, minibatches
        self.steps: dict[tuple[int, int], list[tuple[PipelineAction, StepTimes]]] = {}
        self.messages: dict[tuple[str, int, int], int] = {}
        self._single: list[tuple[float, ...]] = []  # number, then the columns, of tasks added alone
        self._blocks: list[tuple[int, int, dict[str, object]]] = []
        self._count = 0
        self._later: list[Integers] = []
        self._sooner: list[Integers] = []
        self._pairs: list[tuple[int, int]] = []
        self._queues: dict[tuple[int, int, int], int] = {}
        self._ready: dict[tuple[int, int, int], list[int]] = {}

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
            self._add_messages(stage)
        self._wait_for_receives()
        for stage in range(shape.stages):
            watch(len(places) + shape.stages + stage, total)
            if shape.replicas[stage] > 1 and stage >= shape.frozen:
                self._add_reduces(stage)
        watch(total, total)

    def _add_pass(self, lead_us: float, queue: int) -> int:
        """Add a task that computes, and return its number."""
        self._single.append((self._count, -1, -1, 0.0, lead_us, 0.0, queue, 0))
        self._count += 1
        return self._count - 1

    def _add_send(self, ends: tuple[int, int], size: float, queue: int, priority: int) -> int:
        """Add a message, and return its number."""
        self._single.append((self._count, *ends, size, 0.0, 0.0, queue, priority))
        self._count += 1
        return self._count - 1

    def _add_block(self, first: int, count: int, columns: dict[str, object]) -> None:
        """Add tasks with numbers from ``first`` on."""
        self._blocks.append((first, count, columns))

    def _wait(self, later: int, sooner: int) -> None:
        self._pairs.append((later, sooner))

    def _wait_all(self, later: Integers, sooner: Integers) -> None:
        pairs = np.broadcast_arrays(later, sooner)
        self._later.append(pairs[0].ravel())
        self._sooner.append(pairs[1].ravel())

    def _queue(self, source: int, target: int, purpose: int) -> int:
        return self._queues.setdefault((source, target, purpose), len(self._queues))

    # Actions

    def _add_actions(self, stage: int, replica: int) -> None:
        shape, costs = self._shape, self._pipeline.costs[stage]
        slow = self._pipeline.slowness[self._pipeline.places[stage][replica]] * 1e6
        update_s = costs.update_s + (costs.copy_s if keeps_versions(shape, stage) else 0.0)
        last_of_update = self._last_passes(stage, replica)
        steps: list[tuple[PipelineAction, StepTimes]] = []
        queue = self._queue(stage, replica, -1)
        leads = {"F": costs.forward_s, "B": costs.backward_s, "REDUCE": 0.0, "UPDATE": update_s}
        for action in actions_of(shape, stage, replica, self._minibatches):
            if action.kind == "B" and action.number in last_of_update:
                step = self._add_split_backward((stage, replica), last_of_update[action.number], slow, queue)
            else:
                number = self._add_pass(leads[action.kind] * slow, queue)
                step = StepTimes(number, number)
            if steps:
                self._wait(step.first, steps[-1][1].last)
            if action.kind == "REDUCE" and (stage, replica, action.number) not in self._ready:
                # It has no minibatch of a short last update: it takes part when it gets here.
                number = self._add_pass(0.0, queue)
                if steps:
                    self._wait(number, steps[-1][1].last)
                self._ready[stage, replica, action.number] = [number] * max(1, len(costs.buckets))
            steps.append((action, step))
        self.steps[stage, replica] = steps

    def _last_passes(self, stage: int, replica: int) -> dict[int, int]:
        """Return the minibatch whose backward pass completes the replica's part of an update, with the update."""
        if self._shape.replicas[stage] == 1 or not self._pipeline.costs[stage].buckets:
            return {}
        last: dict[int, int] = {}
        number = 0
        while own := own_of_update(self._shape, (stage, replica), number, self._minibatches):
            last[own[-1]] = number
            number += 1
        return last

    def _add_split_backward(self, place: tuple[int, int], update: int, slow: float, queue: int) -> StepTimes:
        """Add a backward pass in parts that end where a bucket is ready."""
        costs = self._pipeline.costs[place[0]]
        ready, begin_s, first, last = [], 0.0, -1, -1
        ends = [bucket.ready_s for bucket in costs.buckets]
        if ends[-1] < costs.backward_s:
            ends.append(costs.backward_s)
        for end_s in ends:
            number = self._add_pass((end_s - begin_s) * slow, queue)
            if last >= 0:
                self._wait(number, last)
            first, last, begin_s = (number if first < 0 else first), number, end_s
            ready.append(number)
        self._ready[place[0], place[1], update] = ready[: len(costs.buckets)]
        return StepTimes(first, last)

    # Messages

    def _add_messages(self, stage: int) -> None:
        """Add the activations and gradients that a stage sends."""
        shape = self._shape
        for replica in range(shape.replicas[stage]):
            for action, step in self.steps[stage, replica]:
                if action.kind == "F":
                    peer, direction = forward_peer(shape, stage, action.number), 0
                elif action.kind == "B":
                    peer, direction = backward_peer(shape, stage, action.number), 1
                else:
                    continue
                if peer is not None:
                    self._add_message((stage, replica), peer, action, step.last, direction)

    def _add_message(
        self, place: tuple[int, int], peer: tuple[int, int], action: PipelineAction, sender: int, direction: int
    ) -> None:
        source = self._pipeline.places[place[0]][place[1]]
        target = self._pipeline.places[peer[0]][peer[1]]
        size = self._pipeline.boundary_bytes[min(place[0], peer[0])][direction]
        pair = self._queue(self._rank(place), self._rank(peer), direction)
        number = self._add_send((source, target), size, pair, action.number)
        self._wait(number, sender)
        receiver = self._pass(peer, action)
        self._wait(receiver[1].first, number)
        self.messages[action.kind, peer[0], action.number] = number

    def _wait_for_receives(self) -> None:
        """Have each message wait until its receiver takes the one of three own minibatches before."""
        for (kind, stage, minibatch), number in self.messages.items():
            replica = replica_of(self._shape, stage, minibatch)
            earlier = minibatch - POSTED_RECEIVES * self._shape.replicas[stage]
            if (taken := self.messages.get((kind, stage, earlier))) is not None:
                self._wait(number, taken)
                position = self._positions[kind, stage, earlier]
                if position > 0:
                    self._wait(number, self.steps[stage, replica][position - 1][1].last)

    def _rank(self, place: tuple[int, int]) -> int:
        return sum(self._shape.replicas[: place[0]]) + place[1]

    @cached_property
    def _positions(self) -> dict[tuple[str, int, int], int]:
        """Where a pass of a minibatch stands in its replica's list."""
        return {
            (action.kind, stage, action.number): position
            for (stage, _), steps in self.steps.items()
            for position, (action, _) in enumerate(steps)
            if action.kind in ("F", "B")
        }

    def _pass(self, place: tuple[int, int], action: PipelineAction) -> tuple[PipelineAction, StepTimes]:
        return self.steps[place][self._positions[action.kind, place[0], action.number]]

    # All-reduces

    def _add_reduces(self, stage: int) -> None:
        """Add the all-reduce of every update of a stage, bucket by bucket."""
        shape, costs = self._shape, self._pipeline.costs[stage]
        if not costs.buckets:
            return
        replicas = shape.replicas[stage]
        waiting = [
            [step.first for action, step in self.steps[stage, replica] if action.kind == "REDUCE"]
            for replica in range(replicas)
        ]
        algorithm = self._pipeline.algorithms[stage] if self._pipeline.algorithms else _RING
        collective = PreparedCollective.of(schedule_for(algorithm, replicas), lockstep=False)
        updates, buckets = len(waiting[0]), len(costs.buckets)
        is_small = len(collective.schedule) * buckets * updates <= MAX_REDUCE_TRANSFERS
        sizes = np.array([bucket.size_bytes for bucket in costs.buckets])
        transfers = self._rounds(stage, collective, sizes) if is_small else self._flows(stage, sizes)

        # Each all-reduce has consecutive numbers: where each replica begins and ends, then the transfers.
        block = 2 * replicas + transfers.count
        first = self._count + block * np.arange(updates * buckets)[:, None]
        self._count += block * updates * buckets
        begin, end = first + np.arange(replicas), first + replicas + np.arange(replicas)
        own = first + 2 * replicas + np.arange(transfers.count)
        queues = np.array([self._queue(*(self._rank((stage, q)),) * 2, 3) for q in range(replicas)], dtype=np.float64)
        for number in range(updates * buckets):
            start = int(first[number, 0])
            self._add_block(start, 2 * replicas, {"queue": np.tile(queues, 2)})
            columns = dict(transfers.columns) | {"amount": transfers.amount[number % buckets], "priority": own[number]}
            self._add_block(int(own[number, 0]), transfers.count, columns)
        ready = [self._ready[stage, q, update] for update in range(updates) for q in range(replicas)]
        self._wait_all(begin, np.array(ready).reshape(updates, replicas, buckets).swapaxes(1, 2).reshape(-1, replicas))
        self._wait_all(begin[REDUCE_THREADS:], end[:-REDUCE_THREADS])
        self._wait_all(np.array(waiting).T[:, None, :], end.reshape(updates, buckets, replicas))
        for earlier, later in transfers.among:
            self._wait_all(own[:, later], own[:, earlier])
        for transfer, replica in transfers.after:
            self._wait_all(own[:, transfer], begin[:, replica])
        for transfer, replica in transfers.before:
            self._wait_all(end[:, replica], own[:, transfer])

    def _rounds(self, stage: int, collective: PreparedCollective, sizes: Vector) -> "_Transfers":
        """Return all transfers of an all-reduce."""
        hosts = np.array(self._pipeline.places[stage])
        schedule = collective.schedule
        source, target = schedule.source.astype(np.int64), schedule.target.astype(np.int64)
        connections = zip(collective.source.tolist(), collective.target.tolist(), strict=True)
        queues = np.array([self._queue(self._rank((stage, a)), self._rank((stage, b)), 2) for a, b in connections])
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
        latency = self._pipeline.network.latency_us[hosts, hosts[following]]
        rounds = 2 * (count - 1)
        queues = [self._queue(self._rank((stage, q)), self._rank((stage, (q + 1) % count)), 2) for q in range(count)]
        columns = {
            "source": hosts,
            "target": hosts[following],
            "queue": np.array(queues),
            "extra_lag": (rounds - 1) * (float(latency.mean()) + self._pipeline.network.overhead_us),
        }
        amount = np.repeat(sizes[:, None] * (rounds / count), count, axis=1)
        everyone = [(np.roll(replica, shift), replica) for shift in range(count)]
        return _Transfers(count, columns, amount, [], [(replica, replica), (replica, following)], everyone)

    def finish(self) -> tuple[Resources, Tasks]:
        """Return the resources and the tasks."""
        columns = {name: np.full(self._count, default) for name, default in _DEFAULTS.items()}
        single = np.array(self._single)
        numbers = single[:, 0].astype(np.int64)
        for k, name in enumerate(_DEFAULTS):
            columns[name][numbers] = single[:, k + 1]
        for first, count, values in self._blocks:
            for name, value in values.items():
                columns[name][first : first + count] = value
        sends = columns["source"] >= 0
        source = np.where(sends, columns["source"], 0).astype(np.intp)
        target = np.where(sends, columns["target"], 0).astype(np.intp)
        resources, route, latency = resources_between(self._pipeline.network, source, target)
        lag_us = latency + np.where(source == target, 0.0, self._pipeline.network.overhead_us) + columns["extra_lag"]
        waits = np.array(self._pairs, dtype=np.int64).reshape(-1, 2)
        later, sooner = np.concatenate([waits[:, 0], *self._later]), np.concatenate([waits[:, 1], *self._sooner])
        pairs = np.sort(later * self._count + sooner)
        pairs = pairs[np.concatenate([[True], pairs[1:] > pairs[:-1]])] if len(pairs) else pairs
        offsets = np.searchsorted(pairs // self._count, np.arange(self._count + 1)).astype(np.int64)
        tasks = Tasks(
            route,
            np.where(source == target, 0.0, columns["amount"]),
            columns["lead"],
            lag_us,
            (offsets, pairs % self._count),
            columns["queue"].astype(np.int64),
            columns["priority"].astype(np.int64),
        )
        return resources, tasks
