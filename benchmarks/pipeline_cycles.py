"""Period of a 1F1B pipeline on fixed transfer times, as the maximum cycle ratio of its event graph.

An oracle for the simulator that shares nothing with it: no action lists, no events, no flows. A static schedule is a
timed event graph. Its period is the greatest ratio, over the cycles of the graph, of the seconds on a cycle to the
repetitions that it spans (Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, 1992, 3.2.4).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from plink.model.pipeline.shape import PipelineShape, base_depths
from solvers.costs.fabric import alike_hosts
from solvers.pipeline.stage_costs import GradientBucket, StageCosts
from solvers.pipeline.training_job import PlacedPipeline
from solvers.pipeline.verifier import verify_actions

_POSTED_RECEIVES = 3
_EPSILON = 1e-13


@dataclass(frozen=True)
class StraightStage:
    """A stage as the oracle sees it: seconds of its passes and its update on each replica, and of a hop of its ring
    all-reduce from each replica to the next, (sending, latency)."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    update_s: tuple[float, ...]
    depth: int
    hops_s: tuple[tuple[float, float], ...] = ()

    @property
    def replicas(self) -> int:
        """How many there are."""
        return len(self.forward_s)


@dataclass
class EventGraph:
    """Edges between events: one begins at least ``seconds`` after another one of ``repetitions`` cycles before."""

    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    edges: list[tuple[int, int, float, int]] = field(default_factory=list)

    def add(self, cycle: int, sooner: tuple[object, ...], later: tuple[object, ...], seconds: float) -> None:
        """Add an edge between events that end with the number of their minibatch."""
        ends = []
        for event in (sooner, later):
            minibatch = event[-1]
            assert isinstance(minibatch, int)
            ends.append(
                (self.numbers.setdefault((*event[:-1], minibatch % cycle), len(self.numbers)), minibatch // cycle)
            )
        self.edges.append((ends[0][0], ends[1][0], seconds, ends[1][1] - ends[0][1]))


def pipeline_period_s(
    stages: Sequence[StraightStage], messages_s: Sequence[Sequence[Sequence[tuple[float, float]]]],
) -> float:  # fmt: skip
    """Return the seconds per minibatch of 1F1B-RR.

    :param messages_s: of each boundary, forward then back: for each minibatch of a cycle, the seconds that it takes to
        send and its latency.
    """
    cycle = math.lcm(*(stage.replicas for stage in stages))
    graph = EventGraph()
    for s, stage in enumerate(stages):
        for b in range(cycle):
            _add_passes(graph, cycle, s, stage, b)
            if s + 1 < len(stages):
                _add_messages(graph, cycle, (s, b), stages, messages_s[s])
    return max_cycle_ratio(graph) / cycle


def _add_passes(graph: EventGraph, cycle: int, s: int, stage: StraightStage, b: int) -> None:
    r, q = stage.replicas, b % stage.replicas
    begun = b - (stage.depth - 1) * r
    graph.add(cycle, ("F", s, b), ("B", s, begun), stage.forward_s[q])
    graph.add(cycle, ("U", s, begun), ("F", s, b + r), stage.update_s[q])
    graph.add(cycle, ("B", s, b), ("U", s, b), stage.backward_s[q])
    if r == 1:
        return
    first, follower = b - q, (q + 1) % r
    for step in range(2 * (r - 1)):
        sending_s, latency_s = stage.hops_s[q]
        for ready in (q, follower):
            graph.add(cycle, ("B", s, first + ready), ("R", s, step, b), stage.backward_s[ready])
        if step:
            graph.add(cycle, ("R", s, step - 1, b), ("R", s, step, b), sending_s)
            before = stage.hops_s[(q - 1) % r]
            graph.add(cycle, ("R", s, step - 1, first + (q - 1) % r), ("R", s, step, b), sum(before))
        for end in (q, follower):
            graph.add(cycle, ("R", s, step, b), ("U", s, first + end), sending_s + latency_s)
    graph.add(cycle, ("R", s, 2 * (r - 1) - 1, b), ("R", s, 0, b + r), stage.hops_s[q][0])


def _add_messages(
    graph: EventGraph, cycle: int, place: tuple[int, int], stages: Sequence[StraightStage],
    messages_s: Sequence[Sequence[tuple[float, float]]],
) -> None:  # fmt: skip
    s, b = place
    here, there = stages[s], stages[s + 1]
    ends = (("F", here, s, s + 1, there), ("B", there, s + 1, s, here))
    for direction, (kind, sender, source, target, receiver) in enumerate(ends):
        sending_s, latency_s = messages_s[direction][b]
        message = ("X", kind, s)
        seconds = (sender.forward_s if kind == "F" else sender.backward_s)[b % sender.replicas]
        graph.add(cycle, (kind, source, b), (*message, b), seconds)
        graph.add(cycle, (*message, b), (kind, target, b), sending_s + latency_s)
        # One connection for each pair of replicas.
        pair = math.lcm(sender.replicas, receiver.replicas)
        graph.add(cycle, (*message, b), (*message, b + pair), sending_s)
        r = receiver.replicas
        later = b + _POSTED_RECEIVES * r
        graph.add(cycle, (*message, b), (*message, later), sending_s + latency_s)
        q = b % r
        if kind == "F":
            graph.add(cycle, ("U", target, b - receiver.depth * r), (*message, later), receiver.update_s[q])
        else:
            graph.add(cycle, ("F", target, b + (receiver.depth - 1) * r), (*message, later), receiver.forward_s[q])


def max_cycle_ratio(graph: EventGraph) -> float:
    """Return the greatest seconds over repetitions of any cycle: from a ratio that some cycle has to that of a cycle
    with more, until no cycle has (Lawler 1976, chapter 3.13, with the cycle's own ratio for a bisection)."""
    count = len(graph.numbers)
    sooner, later = (np.array([edge[k] for edge in graph.edges]) for k in (0, 1))
    seconds = np.array([edge[2] for edge in graph.edges])
    repetitions = np.array([edge[3] for edge in graph.edges])
    ratio = 0.0
    while True:
        cycle = _positive_cycle(count, sooner, later, seconds - ratio * repetitions)
        if cycle is None:
            return ratio
        better = float(seconds[cycle].sum() / repetitions[cycle].sum())
        if not better > ratio * (1 + _EPSILON):
            return ratio
        ratio = better


def _positive_cycle(count: int, sooner: np.ndarray, later: np.ndarray, weight: np.ndarray) -> list[int] | None:
    """Return the edges of a cycle whose weights add up to more than 0 (Bellman and Ford), None when there is none."""
    value, edge_to = np.zeros(count), np.full(count, -1)
    tolerance = _EPSILON * float(np.abs(weight).max())
    order = np.argsort(later, kind="stable")
    starts = np.flatnonzero(np.diff(later[order], prepend=-1))
    targets = later[order][starts]
    lengths = np.diff(np.append(starts, len(order)))
    for number in range(count + 1):
        candidate = (value[sooner] + weight)[order]
        best = np.maximum.reduceat(candidate, starts)
        rising = best > value[targets] + tolerance
        if not rising.any():
            return None
        is_best = candidate == np.repeat(best, lengths)
        position = np.where(is_best, np.arange(len(order)), -1)
        chosen = order[np.maximum.reduceat(position, starts)]
        value[targets[rising]] = best[rising]
        edge_to[targets[rising]] = chosen[rising]
        if number % 8 == 7 or number == count:
            cycle = _cycle_of(edge_to, sooner)
            if cycle is not None:
                return cycle
    return None


def _cycle_of(edge_to: np.ndarray, sooner: np.ndarray) -> list[int] | None:
    """Return a cycle of the edges by which values rose last."""
    visited = np.zeros(len(edge_to), dtype=np.int64)
    for begin in range(len(edge_to)):
        node, path = begin, []
        while visited[node] == 0 and edge_to[node] >= 0:
            visited[node] = begin + 1
            path.append(int(edge_to[node]))
            node = int(sooner[edge_to[node]])
        if path and visited[node] == begin + 1 and edge_to[node] >= 0:
            cycle, at = [], node
            while True:
                cycle.append(int(edge_to[at]))
                at = int(sooner[edge_to[at]])
                if at == node:
                    return cycle
    return None


@dataclass(frozen=True)
class UnsharedCase:
    """A random pipeline whose messages never share a link, as the simulator and as the oracle take it."""

    pipeline: PlacedPipeline
    stages: tuple[StraightStage, ...]
    messages_s: tuple[tuple[tuple[tuple[float, float], ...], ...], ...]


def unshared_case(seed: int, most_stages: int = 4) -> UnsharedCase:
    """Draw a pipeline of up to 4 stages of 1 to 3 replicas, on hosts of uneven speed, rates and round trips."""
    rng = np.random.default_rng(seed)
    stages = int(rng.integers(1, most_stages + 1))
    replicas = tuple(int(count) for count in rng.choice([1, 1, 1, 2, 3], stages))
    depths = base_depths(replicas)
    deeper = (depths[0] + int(rng.integers(1, 3)), *depths[1:])
    if stages > 1 and rng.random() < 0.4 and not verify_actions(PipelineShape("1f1b", replicas, deeper)):
        depths = deeper
    hosts = sum(replicas)
    gbps, latency = rng.uniform(0.1, 1, (hosts, hosts)), rng.uniform(50, 5000, (hosts, hosts))
    latency = (latency + latency.T) / 2
    np.fill_diagonal(latency, 0)
    unlimited = alike_hosts([f"h{k}" for k in range(hosts)], np.inf)
    fabric = replace(unlimited, rtt_us=2 * latency, pair_gbps=gbps)
    slowness = tuple(float(factor) for factor in rng.uniform(1, 2, hosts))
    order = iter(rng.permutation(hosts).tolist())
    places = tuple(tuple(next(order) for _ in range(count)) for count in replicas)
    costs = []
    for _ in range(stages):
        forward_s, backward_s, update_s, size = (float(rng.uniform(*ends)) for ends in _RANGES)
        costs.append(StageCosts(forward_s, backward_s, update_s, 0.0, size, (GradientBucket(backward_s, size),)))
    sizes = tuple((float(rng.uniform(1e4, 2e6)), float(rng.uniform(1e4, 2e6))) for _ in range(stages - 1))
    pipeline = PlacedPipeline(
        PipelineShape("1f1b", replicas, depths), tuple(costs), places, sizes, fabric, slowness
    )  # fmt: skip

    def link(source: int, target: int, size: float) -> tuple[float, float]:
        return size / (gbps[source, target] * 125e6), latency[source, target] / 1e6

    seen = []
    for members, cost, depth in zip(places, costs, depths, strict=True):
        count = len(members)
        hops = [link(a, members[(q + 1) % count], cost.parameter_bytes / count) for q, a in enumerate(members)]
        slow = [
            tuple(seconds * slowness[host] for host in members)
            for seconds in (cost.forward_s, cost.backward_s, cost.update_s)
        ]
        seen.append(StraightStage(slow[0], slow[1], slow[2], depth, tuple(hops)))
    messages = []
    for s, (forward, back) in enumerate(sizes):
        pairs = [(places[s][b % replicas[s]], places[s + 1][b % replicas[s + 1]]) for b in range(math.lcm(*replicas))]
        messages.append((tuple(link(a, b, forward) for a, b in pairs), tuple(link(b, a, back) for a, b in pairs)))
    return UnsharedCase(pipeline, tuple(seen), tuple(messages))


_RANGES = ((0.01, 0.1), (0.01, 0.1), (0.001, 0.01), (1e5, 3e6))  # of both passes, an update, and bytes of parameters
