"""Compiled seconds per minibatch of a placed partition by formulas, and memory of its replicas (Numba).

The formulas are those of :mod:`solvers.pipeline.period`, which says what they mean. A partition of S stages is
``cuts``, shape (S + 1,): stage s has layers cuts[s] to cuts[s + 1] - 1; ``starts``, shape (S + 1,): its replicas are
``order[starts[s] : starts[s + 1]]``, hosts; what of ``order`` follows is idle.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from solvers.compilation import njit, njit_inner
from solvers.ordering.move_kernels import copy_into

MAX_DEPTH = 4096
POSTED = 3  # minibatches that receives are posted for
COMPUTE, NETWORK, ROUND, LOOP, EXCESS = range(5)
# Rows of ``Scratch.stage``. Seconds on the slowest replica: of the all-reduce what is exposed, of messages both ways,
# from a minibatch's forward pass until its backward pass has ended, and until its gradient is applied. Bytes of the
# largest buckets, and of each one.
FORWARD_ROW, BACKWARD_ROW, UPDATE_ROW, COPY_ROW, EXPOSED_ROW = range(5)
BUCKETS_ROW, MESSAGES_ROW, PASSES_ROW, ROUND_TRIP_ROW, BUCKET_ROW = range(5, 10)
STAGE_ROWS, WORK_ROWS = 10, slice(FORWARD_ROW, UPDATE_ROW + 1)
_TINY = 1e-12
_BUCKET_STEP = 4.0
_BISECTIONS = 16
_MISFIT = 1e3  # replicas that do not divide the minibatches of an update: no such plan
TRIFLE, TIE = 1e-4, 1e-9


class PlanModel(NamedTuple):
    """Layers and hosts as arrays.

    ``forward``, ``backward``, ``update``, ``copy``: seconds of each of N layers; ``weights``, ``optimiser``: bytes;
    ``saved``: bytes that autograd keeps and layers before do not; ``saved_first``: the same without its input, of a
    stage's first layer; ``aliases``: whether its output is in its input's memory; ``passing``, ``stepping``: the most
    that its backward pass and the optimiser's step add; shape (N,). ``ahead``, ``back``: bytes that
    cross before layer k, ``unsaved``: of those ahead, what autograd does not keep; shape (N + 1,), 0 at both ends.
    ``inputs``: bytes of a minibatch. ``is_gpu``: whether memory is that of a GPU.
    ``allowed``: whether a stage may begin with it. ``out``, ``into``: bytes per second of H hosts; ``pair``: of one
    flow, shape (H, H); ``rtt``: seconds. ``group_of``, shape (T, H): groups by tiers, numbered through; ``group_out``,
    ``group_into``: their bytes per second. ``slow``: times as long as a host computes; ``memory``: bytes of a host.
    ``bucket``: bytes of the smallest bucket, unless the link is so slow that smaller ones pay; ``round_s``: see
    :func:`chosen_buckets`. ``late``: an all-reduce may take two passes more. ``deeper``: depths above the thesis's are
    allowed. ``single``: one minibatch in flight. ``accumulate``: minibatches that an update averages; 0: those of a
    round. ``flush``: the pipeline drains at each update. ``gpipe``: all of them go forward first. ``versions``: of the
    parameters; 0: as many as minibatches in flight. ``vertical``: versions follow the first trained stage.
    ``recompute``: a backward pass computes activations again. ``depths``: requested ones of all stages, or that of the
    first; empty: chosen.
    """

    forward: Any
    backward: Any
    update: Any
    copy: Any
    weights: Any
    optimiser: Any
    saved: Any
    saved_first: Any
    aliases: Any
    passing: Any
    stepping: Any
    ahead: Any
    back: Any
    unsaved: Any
    inputs: float
    is_gpu: bool
    allowed: Any
    out: Any
    into: Any
    pair: Any
    rtt: Any
    group_of: Any
    group_out: Any
    group_into: Any
    slow: Any
    memory: Any
    bucket: float
    round_s: float
    late: bool
    deeper: bool
    single: bool
    accumulate: int
    flush: bool
    gpipe: bool
    versions: int
    vertical: bool
    recompute: bool
    depths: Any


class Scratch(NamedTuple):
    """Memory that evaluations use: by host, by group, and by stage (rows of ``stage``: above)."""

    sending: Any
    receiving: Any
    leaving: Any
    entering: Any
    crossing_out: Any
    crossing_into: Any
    held: Any
    stage: Any
    depths: Any


def scratch_for(model: PlanModel, stages: int) -> Scratch:
    """Return memory for up to that many stages."""
    hosts, groups = len(model.out), len(model.group_out)
    return Scratch(
        np.zeros(hosts),
        np.zeros(hosts),
        np.zeros(groups),
        np.zeros(groups),
        np.zeros(groups),
        np.zeros(groups),
        np.zeros(hosts),
        np.zeros((STAGE_ROWS, stages + 1)),
        np.zeros(stages + 1, dtype=np.int64),
    )


@njit_inner()
def _flow_rate(model: Any, a: Any, b: Any) -> Any:
    """Return the bytes per second of one flow alone."""
    rate = min(model.out[a], model.into[b], model.pair[a, b])
    for tier in range(len(model.group_of)):
        g, h = model.group_of[tier, a], model.group_of[tier, b]
        if g != h:
            rate = min(rate, model.group_out[g], model.group_into[h])
    return rate


@njit_inner()
def _add_load(model: Any, scratch: Any, a: Any, b: Any, size: Any) -> None:
    scratch.sending[a] += size
    scratch.receiving[b] += size
    for tier in range(len(model.group_of)):
        g, h = model.group_of[tier, a], model.group_of[tier, b]
        if g != h:
            scratch.leaving[g] += size
            scratch.entering[h] += size


@njit_inner()
def ring_costs(model: Any, order: Any, begin: Any, end: Any, scratch: Any) -> Any:
    """Return the seconds per byte and the seconds of round trips of a ring all-reduce of ``order[begin:end]`` alone."""
    count = end - begin
    slowest, latency = 0.0, 0.0
    groups_out, groups_into = scratch.crossing_out, scratch.crossing_into
    for sign in range(2):  # the second time takes back what the first has counted
        for k in range(count):
            a, b = order[begin + k], order[begin + (k + 1) % count]
            if sign == 0:
                latency += model.rtt[a, b]
                if a != b:
                    slowest = max(slowest, 1.0 / _flow_rate(model, a, b))
            if a == b:
                continue
            for tier in range(len(model.group_of)):
                g, h = model.group_of[tier, a], model.group_of[tier, b]
                if g != h:
                    groups_out[g] += 1.0 - 2.0 * sign
                    groups_into[h] += 1.0 - 2.0 * sign
                    if sign == 0:
                        slowest = max(slowest, groups_out[g] / model.group_out[g], groups_into[h] / model.group_into[h])
    rounds = 2.0 * (count - 1)
    return rounds / count * slowest, rounds / 2.0 * latency / count


@njit_inner()
def exposed_reduce(model: Any, first: Any, last: Any, slow: Any, ring: Any, bucket: Any) -> Any:
    """Return the seconds of a stage's all-reduce that its own backward pass does not hide, and its largest two
    buckets. ``ring``: seconds per byte, and of round trips. ``bucket``: bytes from which on a bucket is full."""
    done, finished, size = 0.0, 0.0, 0.0
    largest, second = 0.0, 0.0
    ready = 0.0
    for k in range(last, first - 2, -1):
        is_end = k < first
        if (is_end or (model.weights[k] > 0 and size >= bucket)) and size > 0:
            sent = size * ring[0]
            # Two all-reduces are under way at a time, so that round trips of one are hidden behind the other.
            finished = max(finished + max(sent, (sent + ring[1]) / 2), ready + sent + ring[1])
            if size > largest:
                largest, second = size, largest
            elif size > second:
                second = size
            size = 0.0
        if is_end:
            break
        done += model.backward[k] * slow
        if model.weights[k] > 0:
            size += model.weights[k]
            ready = done
    return max(0.0, finished - done), largest + second


@njit_inner()
def chosen_buckets(model: Any, first: Any, last: Any, slow: Any, ring: Any, replicas: Any) -> Any:
    """Return what of a stage's all-reduce is exposed, its largest two buckets, and the size of buckets for which the
    former is least, of equally good ones the largest.

    Sizes tried are the smallest, 4, 16, 64 times it, and so on. The smallest takes as long to send as the rounds of its
    all-reduce by themselves, ``round_s`` each, but is ``model.bucket`` at most.
    """
    weights = 0.0
    for k in range(first, last + 1):
        weights += model.weights[k]
    size = model.bucket
    if ring[0] > 0:
        size = max(1.0, min(size, 2.0 * (replicas - 1) * model.round_s / ring[0]))
    exposed, buckets = exposed_reduce(model, first, last, slow, ring, size)
    chosen = size
    while size < weights:
        size *= _BUCKET_STEP
        other, largest = exposed_reduce(model, first, last, slow, ring, size)
        if other <= exposed + _TINY:
            exposed, buckets, chosen = other, largest, size
    return exposed, buckets, chosen


@njit_inner()
def replica_memory(model: Any, layers: Any, depth: Any, versions: Any, replicas: Any, buckets: Any) -> Any:
    """Return the bytes of one replica: parameters, older versions, optimiser, gradients, activations, buffers.

    The most is needed while all other minibatches in flight wait: in the backward pass of a layer, what layers up to it
    keep, what its pass adds, and gradients of the layers after it, unless they were added to others' at once; or in the
    optimiser's step, which takes a GPU's parameters together. ``buckets``: the largest two, of which Gloo copies a
    replica's share at a time. It receives in host memory.
    """
    first, last = layers
    is_end = last + 1 == len(model.weights)
    is_frozen = not is_end and model.back[last + 1] == 0
    weights, optimiser, saved, step = 0.0, 0.0, 0.0, 0.0
    for k in range(first, last + 1):
        weights += model.weights[k]
        optimiser += model.optimiser[k]
        step = step + model.stepping[k] if model.is_gpu else max(step, model.stepping[k])
    # The last stage reads a minibatch for the target's sake, while it sends the gradient of the one before.
    most = model.inputs + model.back[first] if first > 0 and is_end and not model.is_gpu else 0.0
    unreached, is_alone = weights, replicas == 1 and model.accumulate < 2
    is_input = first > 0 or model.recompute
    for k in range(first, last + 1):
        saved += model.saved_first[k] if is_input else model.saved[k]
        is_input = is_input and model.aliases[k]
        unreached -= model.weights[k]
        most = max(most, saved + model.back[k + 1] + model.passing[k] + (unreached if is_alone else 0.0))
    sums = 0.0 if is_alone else weights  # of gradients, from one backward pass to the next
    if replicas > 1 and model.late:
        sums = 2 * weights
    gradients = 0.0 if is_frozen else max(sums, weights)
    others = 0.0 if model.recompute else (depth - 1) * saved
    entering = model.inputs if first == 0 and model.recompute else model.ahead[first]
    activations = depth * entering + others + (saved if is_frozen else max(step, most + sums - gradients))
    posted = 0 if model.is_gpu else min(depth, POSTED)
    outputs = depth * (model.ahead[last + 1] if model.recompute else model.unsaved[last + 1])
    buffers = posted * (model.ahead[first] + model.back[last + 1]) + outputs
    if not model.is_gpu:
        buffers += min(buckets, weights) / replicas
    return weights, (versions - 1) * weights, optimiser, gradients, activations, buffers


@njit_inner()
def first_trained(model: Any, cuts: Any) -> Any:
    """Return the first stage that has something to train."""
    frozen = 0
    for s in range(len(cuts) - 2):
        if model.back[cuts[s + 1]] == 0:
            frozen = s + 1
    return frozen


@njit_inner()
def versions_of(model: Any, starts: Any, depths: Any, frozen: Any, s: Any) -> Any:
    """Return the versions of its parameters that a replica of a stage has, the current one among them.

    The rule, also with vertical sync, is that of :func:`plink.model.pipeline.shape.most_versions`.
    """
    if s < frozen:
        return 1
    if model.versions:
        return model.versions
    if not model.vertical or s == frozen:
        return depths[s]
    size, own = starts[frozen + 1] - starts[frozen], starts[s + 1] - starts[s]
    behind = depths[frozen] - 1 + (1 if model.late and size > 1 else 0)
    unused = size - math.gcd(size, own) + size * behind
    return max(1, -(-unused // own) + 1 - (1 if model.late and own > 1 else 0))


@njit(cache=True)
def stage_memory(model: Any, cuts: Any, starts: Any, depths: Any, s: Any, buckets: Any) -> Any:
    """Return the bytes of one replica of a stage, by the parts of :func:`replica_memory`.

    Gradients that it sent are kept until the stage before must have had them: that is its depth behind.
    """
    in_flight, replicas = depths[s], starts[s + 1] - starts[s]
    if model.gpipe:
        in_flight = max(1, model.accumulate // replicas)
    versions = versions_of(model, starts, depths, first_trained(model, cuts), s)
    parts = replica_memory(model, (cuts[s], cuts[s + 1] - 1), in_flight, versions, replicas, buckets)
    sent = 0.0
    if s > 0:
        before = starts[s] - starts[s - 1]
        window = max(depths[s - 1] * before, model.accumulate)
        sent = max(0, window // replicas - in_flight) * model.back[cuts[s]]  # the next one is in its backward pass
    return parts[0], parts[1], parts[2], parts[3], parts[4], parts[5] + sent


@njit_inner()
def _loads(model: Any, scratch: Any, partition: Any, frozen: Any) -> Any:
    """Fill the loads of a minibatch and the stages' (compute, reduce, message) rows; return the seconds of the busiest
    resource and of the pair that takes longest."""
    cuts, starts, order = partition
    stages, busiest, stage = len(cuts) - 1, 0.0, scratch.stage
    for s in range(stages):
        begin, end = starts[s], starts[s + 1]
        count, slow = end - begin, 0.0
        for k in range(begin, end):
            slow = max(slow, model.slow[order[k]])
        forward, backward, update, copy, weights = 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(cuts[s], cuts[s + 1]):
            forward += model.forward[k]
            backward += model.backward[k]
            update += model.update[k]
            copy += model.copy[k]
            weights += model.weights[k]
        per = model.accumulate if model.accumulate else count
        update, copy = update * count / per, copy * count / per
        if model.recompute:
            backward += forward
        if s < frozen:
            backward, update, copy, weights = 0.0, 0.0, 0.0, 0.0
        stage[FORWARD_ROW, s], stage[BACKWARD_ROW, s] = slow * forward, slow * backward
        stage[UPDATE_ROW, s], stage[COPY_ROW, s] = slow * update, slow * copy
        exposed, buckets, bucket = 0.0, 0.0, 0.0
        if count > 1 and weights > 0:
            ring = ring_costs(model, order, begin, end, scratch)
            exposed, buckets, bucket = chosen_buckets(model, cuts[s], cuts[s + 1] - 1, slow, ring, count)
            if model.late:
                exposed = max(0.0, exposed - slow * (forward + backward))
            size = 2.0 * (count - 1) / count * weights / per
            for k in range(count):
                a, b = order[begin + k], order[begin + (k + 1) % count]
                if a != b:
                    _add_load(model, scratch, a, b, size)
                    busiest = max(busiest, size / model.pair[a, b])
        stage[EXPOSED_ROW, s], stage[BUCKETS_ROW, s], stage[BUCKET_ROW, s] = exposed, buckets, bucket
        stage[MESSAGES_ROW, s] = 0.0
        if s + 1 == stages:
            continue
        other = starts[s + 2] - end
        pairs = count // math.gcd(count, other) * other
        ahead, back = model.ahead[cuts[s + 1]] / pairs, model.back[cuts[s + 1]] / pairs
        for j in range(pairs):
            a, b = order[begin + j % count], order[end + j % other]
            if a == b:
                continue
            _add_load(model, scratch, a, b, ahead)
            there = pairs * ahead / _flow_rate(model, a, b)
            busiest = max(busiest, ahead / model.pair[a, b])
            home = 0.0
            if back > 0:
                _add_load(model, scratch, b, a, back)
                home = pairs * back / _flow_rate(model, b, a)
                busiest = max(busiest, back / model.pair[b, a])
            stage[MESSAGES_ROW, s] = max(stage[MESSAGES_ROW, s], model.rtt[a, b] + there + home)
    for host in range(len(scratch.sending)):
        busiest = max(busiest, scratch.sending[host] / model.out[host], scratch.receiving[host] / model.into[host])
    for group in range(len(scratch.leaving)):
        busiest = max(busiest, scratch.leaving[group] / model.group_out[group])
        busiest = max(busiest, scratch.entering[group] / model.group_into[group])
    return busiest


@njit_inner()
def choose_depths(replicas: Any, wanted: Any, deeper: Any, depths: Any) -> None:
    """Set the depths: the thesis's, or deeper ones as far as they are wanted and cannot lock."""
    stages, behind = len(replicas), 0
    for s in range(stages - 1, -1, -1):
        behind += replicas[s]
        depths[s] = -(-behind // replicas[s])
    if not deeper:
        return
    depths[0] = max(depths[0], min(wanted[0], MAX_DEPTH))
    for s in range(1, stages):
        possible = (replicas[s - 1] * (depths[s - 1] - 1) + 1) // replicas[s]
        depths[s] = max(depths[s], min(wanted[s], possible))


@njit_inner()
def _take_requested(model: Any, replicas: Any, depths: Any) -> None:
    """Replace the thesis's depths by requested ones; those behind the first no deeper than cannot lock."""
    if len(model.depths) == len(replicas):
        copy_into(model.depths, depths)
    elif len(model.depths) == 1:
        depths[0] = model.depths[0]
        for s in range(1, len(replicas)):
            depths[s] = max(1, min(depths[s], (replicas[s - 1] * (depths[s - 1] - 1) + 1) // replicas[s]))


@njit_inner()
def _depths_at(scratch: Any, replicas: Any, most: Any, interval: Any, depths: Any) -> Any:
    """Set the least depths that hide all messages and all-reduces at so many seconds a minibatch and cannot lock;
    return whether none is above ``most``."""
    stages, is_possible = len(replicas), True
    behind, waiting = -math.inf, 0.0  # r_t (d_t - 1): the most of all later stages, less what they are apart; the next
    for s in range(stages - 1, -1, -1):
        waiting = max(waiting, behind + scratch.stage[ROUND_TRIP_ROW, s] / interval - 1.0)
        depths[s] = 1 + math.ceil(waiting / replicas[s] - 1e-9)
        is_possible = is_possible and depths[s] <= most[s]
        waiting = float(replicas[s] * (depths[s] - 1))
        work = scratch.stage[FORWARD_ROW, s] + scratch.stage[BACKWARD_ROW, s]
        behind = max(behind, waiting - (scratch.stage[PASSES_ROW, s] - work) / interval)
    return is_possible


@njit_inner()
def _bounded_depths(scratch: Any, replicas: Any, most: Any, least: Any, depths: Any) -> None:
    """Set the least depths for ``least`` seconds a minibatch; where one would be above ``most``, those of the fewest
    seconds that are possible.

    To bound each depth by itself would leave neighbours as many in flight, so that they take turns.
    """
    low = max(least, _TINY)
    if _depths_at(scratch, replicas, most, low, depths):
        return
    high = low
    for s in range(len(replicas)):
        high = max(high, scratch.stage[ROUND_TRIP_ROW, s])  # one minibatch in flight
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        if _depths_at(scratch, replicas, most, middle, depths):
            high = middle
        else:
            low = middle
    _depths_at(scratch, replicas, most, high, depths)


@njit_inner()
def _longest_loop(scratch: Any, replicas: Any, frozen: Any) -> Any:
    """Return the most seconds a minibatch that the passes of two stages wait for each other."""
    longest, stages = 0.0, len(replicas)
    for s in range(frozen, stages):
        for t in range(s, stages):
            work = scratch.stage[FORWARD_ROW, t] + scratch.stage[BACKWARD_ROW, t]
            seconds = scratch.stage[PASSES_ROW, s] - scratch.stage[PASSES_ROW, t] + work
            between = replicas[s] * scratch.depths[s] - replicas[t] * (scratch.depths[t] - 1)
            longest = max(longest, seconds / max(1, between))
    return longest


@njit_inner()
def _round_trips(scratch: Any, stages: Any) -> None:
    """Set the stages' round trips."""
    total = 0.0
    for s in range(stages - 1, -1, -1):
        total += scratch.stage[FORWARD_ROW, s] + scratch.stage[BACKWARD_ROW, s] + scratch.stage[MESSAGES_ROW, s]
        scratch.stage[PASSES_ROW, s] = total
        scratch.stage[ROUND_TRIP_ROW, s] = total + scratch.stage[EXPOSED_ROW, s]


@njit(cache=True)
def evaluate(model: Any, cuts: Any, starts: Any, order: Any, scratch: Any) -> Any:
    """Return the five terms: seconds of computing, of the network, of a round, of the loop; bytes over the memory.

    ``scratch.depths`` and ``scratch.stage`` have the depths and what is above by stage afterwards.
    """
    stages = len(cuts) - 1
    for array in (scratch.sending, scratch.receiving, scratch.leaving, scratch.entering, scratch.held):
        array[:] = 0.0
    frozen = first_trained(model, cuts)
    network = _loads(model, scratch, (cuts, starts, order), frozen)
    _round_trips(scratch, stages)
    compute, rounds, misfits = 0.0, 0.0, 0
    replicas, wanted, most = np.zeros(stages, np.int64), np.zeros(stages, np.int64), np.zeros(stages, np.int64)
    stage, is_single = scratch.stage, stages == 1 or model.single
    for s in range(stages):
        replicas[s] = starts[s + 1] - starts[s]
        most[s] = max(1, model.accumulate // replicas[s]) if model.accumulate else MAX_DEPTH
        most[s] = most[s] if model.gpipe else min(most[s], MAX_DEPTH)
        is_copied = model.versions > 1 or (not is_single and model.versions == 0 and (model.vertical or s < stages - 1))
        work = (
            stage[FORWARD_ROW, s]
            + stage[BACKWARD_ROW, s]
            + stage[UPDATE_ROW, s]
            + (stage[COPY_ROW, s] if is_copied else 0.0)
        )
        compute = max(compute, work / replicas[s])
        per = model.accumulate if model.accumulate else replicas[s]
        rounds = max(rounds, work / replicas[s] + stage[EXPOSED_ROW, s] / per)
        misfits += per % replicas[s] != 0
    least = max(compute, network, rounds)
    in_flight = 0.0
    for s in range(stages - 1, -1, -1):
        own = stage[FORWARD_ROW, s] + stage[BACKWARD_ROW, s] + stage[EXPOSED_ROW, s] + stage[MESSAGES_ROW, s]
        wanted[s] = max(1, math.ceil((in_flight + own / max(least, _TINY)) / replicas[s] - 1e-9))
        in_flight = float(wanted[s] * replicas[s])
    loop, excess = 0.0, 0.0
    for attempt in range(2):
        is_deeper = model.deeper and attempt == 0
        if model.gpipe:
            copy_into(most, scratch.depths)
        elif is_single:
            scratch.depths[:stages] = 1
        elif model.accumulate and is_deeper:
            _bounded_depths(scratch, replicas, most, least, scratch.depths)
        else:
            choose_depths(replicas, wanted, is_deeper, scratch.depths)
            _take_requested(model, replicas, scratch.depths)
            for s in range(stages):
                scratch.depths[s] = min(scratch.depths[s], most[s])
        loop = 0.0
        if stages > 1 and model.accumulate and not model.gpipe:
            loop = _longest_loop(scratch, replicas, frozen)
        elif stages > 1:
            for s in range(frozen, stages):
                loop = max(
                    loop,
                    (stage[ROUND_TRIP_ROW, s] + (stage[UPDATE_ROW, s] if is_single else 0.0))
                    / (replicas[s] * scratch.depths[s]),
                )
        if model.flush:  # a batch ends when its last minibatch has come back
            loop = max(loop, least) + max(0.0, stage[ROUND_TRIP_ROW, 0] - least) / model.accumulate
        loop += misfits * _MISFIT * least
        excess = _excess(model, cuts, starts, order, scratch)
        if excess <= 0 or not model.deeper:
            break
    return compute, network, rounds, loop, excess


@njit_inner()
def _excess(model: Any, cuts: Any, starts: Any, order: Any, scratch: Any) -> Any:
    """Return by how many bytes hosts exceed their memory, all together."""
    scratch.held[:] = 0.0
    for s in range(len(cuts) - 1):
        size = 0.0
        for part in stage_memory(model, cuts, starts, scratch.depths, s, scratch.stage[BUCKETS_ROW, s]):
            size += part
        for k in range(starts[s], starts[s + 1]):
            scratch.held[order[k]] += size
    excess = 0.0
    for host in range(len(scratch.held)):
        excess += max(0.0, scratch.held[host] - model.memory[host])
    return excess


@njit(cache=True)
def score_of(terms: Any, excess_scale: Any, trifle: Any) -> Any:
    """Return what a search makes small: the longest term, with a trifle of all terms, so that it finds its way on
    plateaus; partitions that exceed the memory come after all that do not."""
    longest = max(terms[0], terms[1], terms[2], terms[3])
    score = longest + trifle * (terms[0] + terms[1] + terms[2] + terms[3])
    if terms[4] > 0:
        return 1e6 * (1.0 + terms[4] / excess_scale) + score
    return score
