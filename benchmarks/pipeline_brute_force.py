"""Random small planning problems, and the best plan of each by trying everything with the formulas written out anew.

An oracle for the planner's search and its compiled formulas: it shares no code with them. All orders of the hosts are
evaluated at once, as rows.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.pipeline.actions import actions_of, use_of
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from plink.model.pipeline.shape import PipelineShape
from solvers.costs.fabric import Fabric

Rows = npt.NDArray[np.float64]
_GBPS = 1.25e8
_BUCKET = 1 << 20
_ROUND_S = 1.7e-3


@dataclass(frozen=True)
class SmallProblem:
    """A profile, a fabric, and bytes of memory of each host."""

    profile: ModelProfile
    fabric: Fabric
    memory: tuple[float, ...]


def small_problem(seed: int, most_layers: int = 6, most_hosts: int = 5) -> SmallProblem:
    """Draw racks of uneven hosts, sometimes with a slow link, slow hosts, rates of pairs or little memory."""
    rng = np.random.default_rng(seed)
    layers, hosts = int(rng.integers(1, most_layers + 1)), int(rng.integers(1, most_hosts + 1))
    rates = rng.choice([0.05, 0.2, 0.5, 1.0, 10.0]) * rng.uniform(0.7, 1.0, (2, hosts))
    if rng.random() < 0.3:
        rates[:, rng.integers(hosts)] /= 8
    group_of = rng.integers(0, 2, hosts).astype(np.intp)
    uplinks = rng.choice([0.05, 0.2, 1.0, np.inf], (2, 2))
    rtt = np.where(group_of[:, None] == group_of[None], 200.0, 3000.0) * rng.uniform(0.8, 1.2, (hosts, hosts))
    rtt = np.maximum(rtt, rtt.T)
    np.fill_diagonal(rtt, 0)
    pair = rng.uniform(0.05, 1, (hosts, hosts)) if rng.random() < 0.3 else None
    names = tuple(f"h{k}" for k in range(hosts))
    fabric = Fabric(names, rtt, pair, rates[0], rates[1], group_of, uplinks[0], uplinks[1], "measured")
    slow = {name: float(rng.choice([1.0, 1.0, 1.0, 2.0])) for name in names}
    profile = ModelProfile(minibatch=32, layers=tuple(_layer(rng, k) for k in range(layers)), host_slowness=slow)
    memory = float("inf")
    if rng.random() < 0.4:
        memory = float(rng.uniform(0.5, 4)) * 3 * max(1.0, profile.parameter_bytes)
    return SmallProblem(profile, fabric, (memory,) * hosts)


def _layer(rng: np.random.Generator, number: int) -> LayerProfile:
    forward = float(rng.uniform(0.005, 0.05))
    crossing = int(rng.choice([1e4, 1e5, 1e6, 5e6]) * rng.uniform(0.5, 1.5))
    weights = int(rng.choice([0, 1e5, 1e6, 1e7]) * rng.uniform(0.5, 1.5))
    return LayerProfile(
        name=f"l{number}",
        forward_s=forward,
        backward_s=2 * forward,
        parameter_bytes=weights,
        crossing_bytes=crossing,
        crossing_back_bytes=crossing,
        update_s=forward / 50,
        copy_s=forward / 100,
        optimiser_bytes=weights,
        saved_bytes=crossing,
    )


def best_by_trying_all(problem: SmallProblem) -> float:
    """Return the least seconds per minibatch of any plan; infinite where nothing fits in memory."""
    layers, hosts = len(problem.profile.layers), len(problem.fabric.names)
    best = math.inf
    for workers in range(1, hosts + 1):
        orders = np.array(list(itertools.permutations(range(hosts), workers)))
        for stages in range(1, min(layers, workers) + 1):
            for inner in itertools.combinations(range(1, layers), stages - 1):
                for ends in itertools.combinations(range(1, workers), stages - 1):
                    cuts, edges = (0, *inner, layers), (0, *ends, workers)
                    seconds, fits = _seconds(problem, cuts, edges, orders)
                    if fits.any():
                        best = min(best, float(seconds[fits].min()))
    return best


class _Links:
    """Loads of all links, for every row of orders."""

    def __init__(self, fabric: Fabric, orders: npt.NDArray[np.int64]) -> None:
        self.fabric, self.orders = fabric, orders
        self.rows = np.arange(len(orders))
        hosts, groups = len(fabric.names), len(fabric.group_out_gbps)
        self.loads = [np.zeros((len(orders), size)) for size in (hosts, hosts, groups, groups)]
        self.pairs = np.zeros(len(orders))

    def send(self, i: int, j: int, size: float) -> None:
        """Load what place i sends to place j."""
        a, b = self.orders[:, i], self.orders[:, j]
        group = self.fabric.group_of
        crosses = np.where(group[a] != group[b], size, 0.0)
        ends, amounts = (a, b, group[a], group[b]), (size, size, crosses, crosses)
        for load, end, amount in zip(self.loads, ends, amounts, strict=True):
            load[self.rows, end] += amount
        if self.fabric.pair_gbps is not None:
            self.pairs = np.maximum(self.pairs, size / (self.fabric.pair_gbps[a, b] * _GBPS))

    def busiest(self) -> Rows:
        """Return the seconds of the busiest link."""
        fabric = self.fabric
        rates = (fabric.host_out_gbps, fabric.host_in_gbps, fabric.group_out_gbps, fabric.group_in_gbps)
        seconds = self.pairs
        for load, rate in zip(self.loads, rates, strict=True):
            seconds = np.maximum(seconds, (load / (rate * _GBPS)).max(axis=1))
        return seconds

    def rate(self, i: int, j: int) -> Rows:
        """Return the bytes per second of one flow alone."""
        a, b = self.orders[:, i], self.orders[:, j]
        fabric = self.fabric
        rate = np.minimum(fabric.host_out_gbps[a], fabric.host_in_gbps[b])
        if fabric.pair_gbps is not None:
            rate = np.minimum(rate, fabric.pair_gbps[a, b])
        g, h = fabric.group_of[a], fabric.group_of[b]
        uplink = np.minimum(fabric.group_out_gbps[g], fabric.group_in_gbps[h])
        return np.where(g != h, np.minimum(rate, uplink), rate) * _GBPS

    def ring(self, places: range) -> tuple[Rows, Rows]:
        """Return the seconds per byte and of round trips of a ring alone."""
        alone = _Links(self.fabric, self.orders)
        latency = np.zeros(len(self.orders))
        hops = list(zip(places, [*places[1:], places[0]], strict=True))
        slowest = np.zeros(len(self.orders))
        for i, j in hops:
            alone.send(i, j, 1.0)
            slowest = np.maximum(slowest, 1 / self.rate(i, j))
            latency += self.fabric.rtt_us[self.orders[:, i], self.orders[:, j]] / 1e6
        rounds, count = 2 * (len(places) - 1), len(places)
        return rounds / count * np.maximum(slowest, alone.busiest()), rounds / 2 * latency / count


def _seconds(
    problem: SmallProblem, cuts: tuple[int, ...], edges: tuple[int, ...], orders: npt.NDArray[np.int64]
) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Return seconds per minibatch and whether it fits, for every row of orders."""
    layers, stages = problem.profile.layers, len(cuts) - 1
    slow = np.array([problem.profile.slowness[name] for name in problem.fabric.names])
    links, count = _Links(problem.fabric, orders), len(orders)
    passes, work, exposed, buckets = [], [], [], []
    messages = [np.zeros(count) for _ in range(stages)]
    for s in range(stages):
        own, places = layers[cuts[s] : cuts[s + 1]], range(edges[s], edges[s + 1])
        factor = slow[orders[:, places.start : places.stop]].max(axis=1)
        passes.append(factor * sum(layer.forward_s + layer.backward_s for layer in own))
        copies = 0.0 if s == stages - 1 else sum(layer.copy_s for layer in own)
        work.append(passes[-1] + factor * (sum(layer.update_s for layer in own) + copies))
        weights = sum(layer.parameter_bytes for layer in own)
        exposed.append(np.zeros(count))
        buckets.append(np.zeros(count))
        if len(places) > 1 and weights:
            ring = links.ring(places)
            for i, j in zip(places, [*places[1:], places[0]], strict=True):
                links.send(i, j, 2 * (len(places) - 1) / len(places) ** 2 * weights)
            exposed[-1], buckets[-1] = _exposed(own, factor, ring, len(places))
        if s + 1 < stages:
            ahead, back = own[-1].crossing_bytes, own[-1].crossing_back_bytes
            following = range(edges[s + 1], edges[s + 2])
            pairs = math.lcm(len(places), len(following))
            for b in range(pairs):
                i, j = places[b % len(places)], following[b % len(following)]
                links.send(i, j, ahead / pairs)
                links.send(j, i, back / pairs)
                rtt = problem.fabric.rtt_us[orders[:, i], orders[:, j]] / 1e6
                messages[s] = np.maximum(messages[s], rtt + ahead / links.rate(i, j) + back / links.rate(j, i))
    replicas = [b - a for a, b in itertools.pairwise(edges)]
    steps = [seconds / r for seconds, r in zip(work, replicas, strict=True)]
    rounds = [(seconds + more) / r for seconds, more, r in zip(work, exposed, replicas, strict=True)]
    limit_s = np.max([*steps, *rounds, links.busiest()], axis=0)
    loops = [passes[s] + exposed[s] + messages[s] for s in range(stages)]
    return _with_depths(problem, cuts, edges, orders, (limit_s, loops, passes, messages, exposed, buckets))


def _exposed(
    layers: tuple[LayerProfile, ...], factor: Rows, ring: tuple[Rows, Rows], replicas: int
) -> tuple[Rows, Rows]:
    """Return what the backward pass does not hide of an all-reduce, and the two largest buckets.

    Of all sizes of buckets it is the one that hides most, of equally good ones the largest.
    """
    weights = sum(layer.parameter_bytes for layer in layers)
    exposed, largest = np.zeros(len(factor)), np.zeros(len(factor))
    rows, where = np.unique(np.stack([factor, *ring], axis=1), axis=0, return_inverse=True)
    for row, (slow, per_byte, latency) in enumerate(rows.tolist()):
        own = slow, (per_byte, latency)
        sizes = [min(float(_BUCKET), 2 * (replicas - 1) * _ROUND_S / own[1][0])]
        while sizes[-1] < weights:
            sizes.append(sizes[-1] * 4)
        values = [_exposed_of_size(layers, *own, size) for size in sizes]
        least = min(value for value, _ in values)
        chosen = [pair for pair in values if pair[0] <= least + 1e-12][-1]
        exposed[where == row], largest[where == row] = chosen
    return exposed, largest


def _exposed_of_size(
    layers: tuple[LayerProfile, ...], factor: float, ring: tuple[float, float], bucket_bytes: float
) -> tuple[float, float]:
    groups: list[list[float]] = []  # seconds when ready, bytes
    backward = 0.0
    for layer in reversed(layers):
        backward += layer.backward_s
        if layer.parameter_bytes:
            if groups and groups[-1][1] < bucket_bytes:
                groups[-1] = [backward, groups[-1][1] + layer.parameter_bytes]
            else:
                groups.append([backward, layer.parameter_bytes])
    finished = 0.0
    for ready, size in groups:
        sent_s = size * ring[0]
        finished = max(finished + max(sent_s, (sent_s + ring[1]) / 2), ready * factor + sent_s + ring[1])
    return max(0.0, finished - backward * factor), sum(sorted(size for _, size in groups)[-2:])


def _with_depths(
    problem: SmallProblem, cuts: tuple[int, ...], edges: tuple[int, ...], orders: npt.NDArray[np.int64],
    parts: tuple[Rows, list[Rows], list[Rows], list[Rows], list[Rows], list[Rows]],
) -> tuple[Rows, npt.NDArray[np.bool_]]:  # fmt: skip
    """Return seconds and whether it fits with depths that hide messages, or the thesis's where those do not."""
    limit_s, loops, passes, messages, exposed, buckets = parts
    stages = len(cuts) - 1
    replicas = [b - a for a, b in itertools.pairwise(edges)]
    base = [-(-sum(replicas[s:]) // replicas[s]) for s in range(stages)]
    seconds, fits = np.zeros(len(orders)), np.zeros(len(orders), dtype=np.bool_)
    for row in range(len(orders)):
        wanted, behind = [0] * stages, 0.0
        for s in reversed(range(stages)):
            wanted[s] = max(1, math.ceil((behind + loops[s][row] / limit_s[row]) / replicas[s] - 1e-9))
            behind = wanted[s] * replicas[s]
        deep = [max(base[0], wanted[0])]
        for s in range(1, stages):
            deep.append(max(base[s], min(wanted[s], (replicas[s - 1] * (deep[-1] - 1) + 1) // replicas[s])))
        for depths in ([1],) if stages == 1 else (deep, base):
            value = limit_s[row]
            for s in range(stages):
                if stages > 1:
                    trip = sum(passes[t][row] + messages[t][row] for t in range(s, stages)) + exposed[s][row]
                    value = max(value, trip / (replicas[s] * depths[s]))
            seconds[row], fits[row] = (
                value,
                _fits(problem, cuts, edges, orders[row], (depths, [size[row] for size in buckets])),
            )
            if fits[row]:
                break
    return seconds, fits


@functools.cache
def _versions(replicas: tuple[int, ...], depths: tuple[int, ...]) -> tuple[int, ...]:
    """Return the versions of each stage's parameters that a replay of its actions has at once."""
    shape = PipelineShape("1f1b", replicas, depths)
    minibatches = 3 * max(depth * count for depth, count in zip(depths, replicas, strict=True))
    return tuple(use_of(shape, s, list(actions_of(shape, s, 0, minibatches))).versions for s in range(len(depths)))


def _fits(
    problem: SmallProblem, cuts: tuple[int, ...], edges: tuple[int, ...], order: npt.NDArray[np.int64],
    use: tuple[list[int], list[float]],
) -> bool:  # fmt: skip
    held = dict.fromkeys(range(len(problem.memory)), 0.0)
    layers = problem.profile.layers
    versions = _versions(tuple(b - a for a, b in itertools.pairwise(edges)), tuple(use[0]))
    for s, (depth, bucket) in enumerate(zip(*use, strict=True)):
        own = layers[cuts[s] : cuts[s + 1]]
        weights = sum(layer.parameter_bytes for layer in own)
        before = (layers[cuts[s] - 1].crossing_bytes, layers[cuts[s] - 1].crossing_back_bytes) if s else (0, 0)
        after = (own[-1].crossing_bytes, own[-1].crossing_back_bytes) if s + 1 < len(cuts) - 1 else (0, 0)
        replicated = edges[s + 1] - edges[s] > 1
        size = weights * (versions[s] + replicated) + sum(layer.optimiser_bytes for layer in own)
        size += bucket / (edges[s + 1] - edges[s])
        size += depth * (before[0] + after[0]) + min(depth, 3) * (before[0] + after[1])
        if s:
            ahead = use[0][s - 1] * (edges[s] - edges[s - 1]) // (edges[s + 1] - edges[s])
            size += max(0, ahead - depth) * before[1]
        size += (depth - 1) * sum(layer.saved_bytes or 0 for layer in own)
        size += _most_of_a_backward_pass(own, (before[1], after[1]), replicated)
        for host in order[edges[s] : edges[s + 1]]:
            held[int(host)] += size
    return all(size <= problem.memory[host] for host, size in held.items())


def _most_of_a_backward_pass(own: Sequence[LayerProfile], outer: tuple[int, int], replicated: bool) -> int:
    """Return the most bytes while a stage's layers go backward: activations of those before a layer and its own, both
    its gradients, and the gradients of the parameters after it that no bucket has. ``outer``: gradients of the stage's
    input and output."""
    most = 0
    crossing = [outer[0], *(layer.crossing_back_bytes for layer in own[:-1]), outer[1]]
    for k, layer in enumerate(own):
        made = sum(later.parameter_bytes for later in own[k + 1 :]) * (not replicated)
        activations = sum(layer.saved_bytes or 0 for layer in own[: k + 1])
        most = max(most, activations + crossing[k] + crossing[k + 1] + layer.parameter_bytes + made)
    return most
