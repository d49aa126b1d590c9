"""A plan's actions as a job of tasks: what each rank computes, in the sequence of its actions, and what it sends.

Actions are those of :func:`plink.model.pipeline.actions.actions_of`, which the executor runs. As there:

- a rank does one action after the other, and waits only for messages and all-reduces that the action needs;
- what a pass sends is not waited for; messages of one connection follow each other;
- a message moves when its receiver is ready for it: receives are posted for the next 3 minibatches;
- the backward pass that completes an update hands on buckets of gradients as they are ready. Two buckets at a time are
  added up (Gloo has two threads for it), by the transfers of the stage's all-reduce.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from plink.model.pipeline.actions import PipelineAction, actions_of
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.shape import PipelineShape
from plink.model.pipeline.versions import backward_peer, forward_peer, own_of_update, replica_of
from solvers.pipeline.stage_costs import StageCosts, keeps_versions
from solvers.schedules.catalogue import schedule_for
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.job import Integers, Resources, Tasks
from solvers.simulation.network import SimulatedNetwork, resources_between

POSTED_RECEIVES = 3
"""Minibatches whose messages a rank is ready for, as the executor's transport."""
REDUCE_THREADS = 2
"""All-reduces that a rank works on at once, as a Gloo process group."""
MAX_REDUCE_TRANSFERS = 300_000
"""Above it each all-reduce is one flow on each connection instead of all its rounds."""
_RING = "ring"
_DEFAULTS = {"source": -1, "target": -1, "amount": 0, "lead": 0, "extra_lag": 0, "queue": -1, "priority": 0}


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
        cls, plan: PipelinePlan, costs: tuple[StageCosts, ...], network: SimulatedNetwork, slowness: Sequence[float]
    ) -> "PlacedPipeline":
        """Return a plan's pipeline; its hosts are hosts of the network."""
        number = {name: k for k, name in enumerate(network.names)}
        hosts = [number[name] for name in plan.host_names()]
        return cls(
            plan.shape,
            costs,
            tuple(tuple(hosts[rank] for rank in stage.ranks) for stage in plan.stages),
            tuple((float(item.forward_bytes), float(item.backward_bytes)) for item in plan.boundaries),
            network,
            tuple(slowness),
            tuple((stage.details.get("all_reduce") or {}).get("algo", _RING) for stage in plan.stages),
        )


@dataclass
class TrainingJob:
    """The tasks of a job of some minibatches; ``steps[s, q]``: actions of a replica, each with its tasks."""

    pipeline: PlacedPipeline
    minibatches: int
    resources: Resources = field(init=False)
    tasks: Tasks = field(init=False)
    steps: dict[tuple[int, int], list[tuple[PipelineAction, StepTimes]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        builder = _Builder(self.pipeline, self.minibatches)
        builder.build()
        self.steps = builder.steps
        self.resources, self.tasks = builder.finish()


class _Builder:
    """Collects tasks and what they wait for. A task without source computes; its seconds are its lead."""

    def __init__(self, pipeline: PlacedPipeline, minibatches: int) -> None:
        self._pipeline, self._shape, self._minibatches = pipeline, pipeline.shape, minibatches
        self.steps: dict[tuple[int, int], list[tuple[PipelineAction, StepTimes]]] = {}
        self._columns: dict[str, list[npt.NDArray[np.float64]]] = {name: [] for name in _DEFAULTS}
        self._count = 0
        self._later: list[Integers] = []
        self._sooner: list[Integers] = []
        self._queues: dict[tuple[int, int, int], int] = {}
        self._messages: dict[tuple[str, int, int], int] = {}
        self._ready: dict[tuple[int, int, int], list[int]] = {}

    def build(self) -> None:
        """Add all tasks: those of the actions first, then messages and all-reduces, which join them."""
        shape = self._shape
        places = [(s, q) for s in range(shape.stages) for q in range(shape.replicas[s])]
        for stage, replica in places:
            self._add_actions(stage, replica)
        for stage in range(shape.stages):
            self._add_messages(stage)
        self._wait_for_receives()
        for stage in range(shape.stages):
            if shape.replicas[stage] > 1 and stage >= shape.frozen:
                self._add_reduces(stage)

    def _add(self, count: int, **columns: object) -> int:
        """Add tasks, and return the number of the first."""
        defaults = {
            "source": -1,
            "target": -1,
            "amount": 0.0,
            "lead": 0.0,
            "extra_lag": 0.0,
            "queue": -1,
            "priority": 0,
        }
        for name, default in defaults.items():
            value = np.broadcast_to(np.asarray(columns.get(name, default), dtype=np.float64), count)
            self._columns[name].append(value)
        self._count += count
        return self._count - count

    def _wait(self, later: int | Integers, sooner: int | Integers) -> None:
        pairs = np.broadcast_arrays(np.asarray(later, dtype=np.int64), np.asarray(sooner, dtype=np.int64))
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
        for action in actions_of(shape, stage, replica, self._minibatches):
            if action.kind == "B" and action.number in last_of_update:
                step = self._add_split_backward((stage, replica), last_of_update[action.number], slow, queue)
            else:
                lead = {"F": costs.forward_s, "B": costs.backward_s, "REDUCE": 0.0, "UPDATE": update_s}[action.kind]
                number = self._add(1, lead=lead * slow, queue=queue)
                step = StepTimes(number, number)
            if steps:
                self._wait(step.first, steps[-1][1].last)
            if action.kind == "REDUCE" and (stage, replica, action.number) not in self._ready:
                # It has no minibatch of a short last update: it takes part when it gets here.
                number = self._add(1, queue=queue)
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
            number = self._add(1, lead=(end_s - begin_s) * slow, queue=queue)
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
        number = self._add(1, source=source, target=target, amount=size, queue=pair, priority=action.number)
        self._wait(number, sender)
        receiver = self._pass(peer, action)
        self._wait(receiver[1].first, number)
        self._messages[action.kind, peer[0], action.number] = number

    def _wait_for_receives(self) -> None:
        """Have each message wait until its receiver takes the one of three own minibatches before."""
        for (kind, stage, minibatch), number in self._messages.items():
            replica = replica_of(self._shape, stage, minibatch)
            earlier = minibatch - POSTED_RECEIVES * self._shape.replicas[stage]
            if (taken := self._messages.get((kind, stage, earlier))) is not None:
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
        collective = PreparedCollective.of(schedule_for(algorithm, replicas))
        is_small = len(collective.schedule) * len(costs.buckets) * len(waiting[0]) <= MAX_REDUCE_TRANSFERS
        own_queues = np.array([self._queue(*(self._rank((stage, q)),) * 2, 3) for q in range(replicas)])
        done: list[Integers] = []  # of each bucket, the task after which each replica has its sums
        for update in range(len(waiting[0])):
            for number, bucket in enumerate(costs.buckets):
                begin = self._add(replicas, queue=own_queues) + np.arange(replicas)
                self._wait(begin, np.array([self._ready[stage, q, update][number] for q in range(replicas)]))
                if len(done) >= REDUCE_THREADS:
                    self._wait(begin, done[-REDUCE_THREADS])
                end = self._add(replicas, queue=own_queues) + np.arange(replicas)
                if is_small:
                    self._add_rounds(stage, collective, bucket.size_bytes, (begin, end))
                else:
                    self._add_flows(stage, bucket.size_bytes, (begin, end))
                done.append(end)
                self._wait(np.array([waiting[q][update] for q in range(replicas)]), end)

    def _add_rounds(
        self, stage: int, collective: PreparedCollective, size: float, ends: tuple[Integers, Integers]
    ) -> None:
        """Add all transfers of one all-reduce; ``ends``: the tasks of each replica before and after it."""
        hosts = np.array(self._pipeline.places[stage])
        schedule = collective.schedule
        source, target = schedule.source.astype(np.int64), schedule.target.astype(np.int64)
        connections = zip(collective.source.tolist(), collective.target.tolist(), strict=True)
        queues = np.array([self._queue(self._rank((stage, a)), self._rank((stage, b)), 2) for a, b in connections])
        own = self._count + np.arange(len(schedule))
        self._add(
            len(schedule), source=hosts[source], target=hosts[target], amount=schedule.count * (size / schedule.chunks),
            queue=queues[collective.connection], priority=own,
        )  # fmt: skip
        offsets, needed = collective.after
        self._wait(np.repeat(own, np.diff(offsets)), own[needed])
        for replica in (source, target):
            self._wait(own, ends[0][replica])
            self._wait(ends[1][replica], own)

    def _add_flows(self, stage: int, size: float, ends: tuple[Integers, Integers]) -> None:
        """Add a ring all-reduce as one flow on each connection, which takes as long as all its rounds."""
        hosts = np.array(self._pipeline.places[stage])
        count = len(hosts)
        replica = np.arange(count)
        following = (replica + 1) % count
        latency = self._pipeline.network.latency_us[hosts, hosts[following]]
        rounds = 2 * (count - 1)
        queues = [self._queue(self._rank((stage, q)), self._rank((stage, (q + 1) % count)), 2) for q in range(count)]
        own = self._count + replica
        self._add(
            count, source=hosts, target=hosts[following], amount=rounds * size / count, queue=np.array(queues),
            priority=own, extra_lag=(rounds - 1) * float(latency.mean()),
        )  # fmt: skip
        for other in (replica, following):
            self._wait(own, ends[0][other])
        for shift in range(count):
            self._wait(ends[1], np.roll(own, shift))

    def finish(self) -> tuple[Resources, Tasks]:
        """Return the resources and the tasks."""
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        sends = columns["source"] >= 0
        source = np.where(sends, columns["source"], 0).astype(np.intp)
        target = np.where(sends, columns["target"], 0).astype(np.intp)
        resources, route, latency = resources_between(self._pipeline.network, source, target)
        pairs = np.unique(
            np.concatenate(self._later) * self._count + np.concatenate(self._sooner)
            if self._later else np.zeros(0, dtype=np.int64)
        )  # fmt: skip
        offsets = np.searchsorted(pairs // self._count, np.arange(self._count + 1)).astype(np.int64)
        tasks = Tasks(
            route, np.where(source == target, 0.0, columns["amount"]), columns["lead"],
            latency + columns["extra_lag"], (offsets, pairs % self._count), columns["queue"].astype(np.int64),
            columns["priority"].astype(np.int64),
        )  # fmt: skip
        return resources, tasks
