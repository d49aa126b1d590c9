"""Simulate a pipeline on a network: seconds per minibatch in steady state, and what each rank waits for.

Runs the job of :mod:`solvers.pipeline.training_job`, whose messages share links max-min fairly. It knows none of the
planner's formulas: filling, replicas that wait for each other and flows that meet come out of the events.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from plink.errors import UsageError
from plink.model.pipeline.results import TimedAction
from plink.model.pipeline.shape import ACCUMULATING, FLUSHING, PipelineShape, minibatches_per_update
from solvers.pipeline.training_job import POSTED_RECEIVES, STEP_KINDS, PlacedPipeline, TrainingJob, Watch
from solvers.simulation.job import Vector

_SAME_TIME = 1e-9  # relative: minibatches that repeat so exactly are in steady state
_SAME_MEAN = 2e-4  # relative: a mean that changes no more with twice as many minibatches is that of the steady state
_BEATEN = 0.02  # first means of 16 hosts were within 0.03 % of the last
_MOST_MINIBATCHES = 4096
MAX_SIMULATED_ACTIONS = 2_000_000
"""A million take half a minute."""
_MAX_CONVERGENCE_ACTIONS = 40_000
"""Up to which a job is made longer until its steady state repeats."""
_ACTIONS_OF_MINIBATCH = 3  # both passes and an update, at each stage
_LIMITING_SHARE = 0.9  # of the time, from which on a rank or a link is what limits


@dataclass(frozen=True)
class RankShares:
    """Shares of a rank's time in steady state: computing, and waiting for messages of others."""

    busy: float
    activations: float
    gradients: float
    all_reduce: float


@dataclass(frozen=True)
class PipelineSimulation:
    """What a simulated job does.

    ``minibatch_s``: seconds per minibatch in steady state. ``is_periodic``: it repeats exactly, so that this is no
    mean. ``fill_s``: by how much longer all minibatches take than their number times that, at the beginning; 0 where
    they are no slower there: messages may meet only later.
    ``makespan_s``: all of them, with the last ones drained. ``shares[s][q]``: of replica q of stage s. ``links``: the
    busiest resources of the network with the share of time that their bytes take, the busiest first. ``draining``: the
    share of time in which the busiest rank waits for passes of other stages because each update fills and drains the
    pipeline. ``timeline``: the actions of all ranks, where that was asked for.
    """

    minibatch_s: float
    is_periodic: bool
    fill_s: float
    makespan_s: float
    minibatches: int
    shares: tuple[tuple[RankShares, ...], ...]
    links: tuple[tuple[str, float], ...]
    timeline: tuple[TimedAction, ...] = ()
    draining: float = 0.0

    @property
    def busiest(self) -> tuple[int, int, float]:
        """Return the stage, replica and share of the rank that computes most of the time."""
        ranks = [(s, q, share.busy) for s, stage in enumerate(self.shares) for q, share in enumerate(stage)]
        return max(ranks, key=lambda rank: rank[2])

    def limit(self, host_of: Callable[[int, int], str]) -> str:
        """Name the rank or link that is busy most of the time, or what the busiest rank waits for where none is.

        :param host_of: of (stage, replica).
        """
        stage, replica, busy = self.busiest
        link, used = self.links[0] if self.links else ("", 0.0)
        if max(busy, used) >= _LIMITING_SHARE:
            return f"compute of {host_of(stage, replica)}" if busy >= used else link
        if self.draining >= (1 - busy) / 2:
            return "filling and draining"
        waits = self.shares[stage][replica]
        return "all-reduce" if waits.all_reduce > waits.activations + waits.gradients else "round trips"


def default_minibatches(shape: PipelineShape) -> int:
    """Return how many minibatches show the steady state; of very deep pipelines no more than take seconds."""
    filling = 2 * max(depth * count for depth, count in zip(shape.depths, shape.replicas, strict=True))
    most = min(_MOST_MINIBATCHES, MAX_SIMULATED_ACTIONS // (shape.stages * _ACTIONS_OF_MINIBATCH))
    usual = min(3 * filling + max(64, min(8 * shape.cycle, 256)), most)
    if shape.kind in ACCUMULATING:
        usual = max(usual, min(3 * shape.accumulate, most), 2 * shape.accumulate)
    return usual // shape.cycle * shape.cycle or usual


def simulated_actions(shape: PipelineShape) -> int:
    """Return how many actions the default number of minibatches has."""
    return default_minibatches(shape) * shape.stages * _ACTIONS_OF_MINIBATCH


def simulate_pipeline(
    pipeline: PlacedPipeline,
    minibatches: int | None = None,
    with_timeline: bool = False,
    watch: Watch | None = None,
    best_s: float = math.inf,
) -> PipelineSimulation:
    """Run a job of that many minibatches; by default of enough for a steady state, doubled until it repeats or its mean
    stays.

    :param with_timeline: also return when each action begins and ends. :param watch: called with how much is done, and
        how much there is to do.
    :raises NoAnswer: when a round trip that is used was not measured. :raises UsageError: for a job that would take
        many minutes to simulate, or fewer minibatches than two updates of a kind that accumulates average.
    """
    shape = pipeline.shape
    count = minibatches or default_minibatches(shape)
    result, before_s = _simulated(pipeline, count, with_timeline, watch), math.inf
    most = min(_MOST_MINIBATCHES, _MAX_CONVERGENCE_ACTIONS // (shape.stages * _ACTIONS_OF_MINIBATCH))
    while minibatches is None and not result.is_periodic and count < most:
        if abs(result.minibatch_s / before_s - 1) <= _SAME_MEAN or result.minibatch_s > best_s * (1 + _BEATEN):
            break
        count, before_s = min(max(2 * count, 3 * shape.cycle), most), result.minibatch_s
        result = _simulated(pipeline, count, with_timeline, watch)
    return result


def _simulated(pipeline: PlacedPipeline, count: int, with_timeline: bool, watch: Watch | None) -> PipelineSimulation:
    from solvers.simulation.engine import simulate  # compiled, and imported, only when it is used

    shape = pipeline.shape
    _check_size(shape, count)
    if shape.kind in ACCUMULATING and count < 2 * shape.accumulate:
        raise UsageError(
            f"{count} minibatches show no steady state: an update of {shape.kind} averages {shape.accumulate}; "
            f"simulate {2 * shape.accumulate} or more"
        )
    job = TrainingJob(pipeline, count, watch)
    timeline = simulate(job.resources, job.tasks)
    end_us = timeline.end_us
    times_us = _times_us(job, end_us)
    done_us = np.maximum.accumulate(times_us[:, :2].max(axis=(1, 2)))
    updated_us = np.maximum.accumulate(times_us.max(axis=(1, 2)))
    flushed = flushed_window(updated_us, shape.accumulate) if shape.kind in FLUSHING else None
    begin, end, is_periodic = flushed or steady_window(times_us, shape)
    window_us = float(done_us[begin]), float(done_us[end])
    period_us = (window_us[1] - window_us[0]) / max(1, end - begin)
    if period_us <= 0:  # too few: all that are compared end at once
        window_us, period_us = (0.0, timeline.makespan_us), timeline.makespan_us / count
    if not is_periodic and (half := (end - begin) // (2 * shape.cycle) * shape.cycle):
        halves_us = done_us[end - 2 * half + 1 : end + 1].reshape(2, half).mean(axis=1)
        period_us = float(halves_us[1] - halves_us[0]) / half  # where in a longer cycle the ends are matters less
    rounds = np.arange(end, begin if end > begin else end - 1, -shape.cycle)
    fill_us = float(np.mean(updated_us[rounds] - (rounds + 1) * period_us))
    if fill_us <= _SAME_TIME * timeline.makespan_us:  # rounding: a flush ends as if nothing had been filled
        fill_us = 0.0
    shares = _shares(job, end_us, window_us)
    limited = np.isfinite(job.resources.capacity)
    load = np.where(limited, timeline.moved / np.where(limited, job.resources.capacity, 1.0), 0.0) / count / period_us
    draining = _draining_s(pipeline, shares) / (shape.accumulate * period_us / 1e6) if shape.kind in FLUSHING else 0.0
    links = [(job.resources.name(k), float(load[k])) for k in np.argsort(-load, kind="stable")[:5] if load[k] > 0]
    return PipelineSimulation(
        period_us / 1e6,
        is_periodic,
        fill_us / 1e6,
        timeline.makespan_us / 1e6,
        count,
        shares,
        tuple(links),
        _timeline(job, end_us) if with_timeline else (),
        draining,
    )


def _check_size(shape: PipelineShape, minibatches: int) -> None:
    """Refuse what would take many minutes.

    :raises UsageError: with how many minibatches would not.
    """
    actions = minibatches * shape.stages * _ACTIONS_OF_MINIBATCH
    most = MAX_SIMULATED_ACTIONS // (shape.stages * _ACTIONS_OF_MINIBATCH)
    if actions > MAX_SIMULATED_ACTIONS and shape.kind in ACCUMULATING and most < 2 * shape.accumulate:
        raise UsageError(
            f"an update of {shape.kind} averages {shape.accumulate:,} microbatches: two updates of {shape.stages} "
            f"stages are more than the {MAX_SIMULATED_ACTIONS:,} actions that are simulated; plan with --microbatches "
            f"{most // 2} or fewer"
        )
    if actions > MAX_SIMULATED_ACTIONS:
        raise UsageError(
            f"{minibatches:,} minibatches of {shape.stages} stages are {actions:,} actions; at most "
            f"{MAX_SIMULATED_ACTIONS:,} are simulated: --minibatches {most}"
        )


def flushed_window(done_us: Vector, accumulate: int) -> tuple[int, int, bool] | None:
    """Return the last minibatches of the first and the last whole update of a kind that flushes; None where updates
    take different times.

    A pipeline drains at each update, so the second one already repeats the first.
    """
    ends_us = np.concatenate([[0.0], done_us[accumulate - 1 :: accumulate]])
    differences = np.diff(ends_us)
    if np.ptp(differences) > _SAME_TIME * differences.max():
        return None
    return accumulate - 1, len(differences) * accumulate - 1, True


def steady_window(times_us: Vector, shape: PipelineShape) -> tuple[int, int, bool]:
    """Return two minibatches between which the job is in steady state, and whether it repeats exactly.

    ``times_us``: as :func:`_times_us`. A static schedule on fixed times becomes
    periodic, after some cycles (Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, 1992, 3.7). It is
    where all times of as many minibatches as others still wait for are those of some cycles before, equally shifted:
    equal gaps alone may be a part of a longer cycle. The last minibatches of a job drain, and are left out.
    """
    times_us = times_us[:, times_us.any(axis=0)]
    count, cycle = len(times_us), shape.cycle
    in_flight = max(depth * replicas for depth, replicas in zip(shape.depths, shape.replicas, strict=True))
    waited_for = in_flight + POSTED_RECEIVES * max(shape.replicas) + cycle
    filled = count - min(count // 4, max(2 * cycle, in_flight, count // 8))
    end = max(0, (filled // cycle * cycle or filled) - 1)
    for step in range(cycle, end // 2 + 1, cycle):
        first = end + 1 - step - max(step, waited_for)
        if first < 0:
            break
        shift = times_us[end] - times_us[end - step]
        if np.ptp(shift) > _SAME_TIME * shift.max():
            continue
        shifts = times_us[first + step : end + 1] - times_us[first : end + 1 - step]
        if np.ptp(shifts) <= _SAME_TIME * shifts.max():
            return end - step, end, True
    begin = min(count // 3, max(0, end - 1))
    whole = (end - begin) // cycle * cycle
    return (end - whole if whole else begin), end, False


def _times_us(job: TrainingJob, end_us: Vector) -> Vector:
    """Return when each minibatch's passes, all-reduce, update and messages end, shape (M, 6, stages); 0 where none."""
    shape = job.pipeline.shape
    times = np.zeros((job.minibatches, 6, shape.stages))
    for (stage, _), steps in job.steps.items():
        ended = end_us[steps.last]
        for kind, name in enumerate(STEP_KINDS):
            at = steps.of_kind(name)
            if name in ("F", "B"):
                times[steps.number[at], kind, stage] = ended[at]
            elif len(at):
                taken_in = np.arange(job.minibatches) // minibatches_per_update(shape, stage)
                np.maximum(times[:, kind, stage], ended[at][taken_in], out=times[:, kind, stage])
    times[:, 4:] = np.where(job.messages >= 0, end_us[job.messages], 0.0).transpose(2, 0, 1)
    return times


def _shares(job: TrainingJob, end_us: Vector, window: tuple[float, float]) -> tuple[tuple[RankShares, ...], ...]:
    """Return the shares of each rank's time between two moments.

    A rank that has done its last action waits as it would for those of the next minibatch.
    """
    begin, end = window
    length = max(end - begin, 1e-12)
    shape, lead_us = job.pipeline.shape, job.tasks.lead_us
    stages = []
    for stage in range(shape.stages):
        ranks = []
        for replica in range(shape.replicas[stage]):
            steps = job.steps[stage, replica]
            started, ended = end_us[steps.first] - lead_us[steps.first], end_us[steps.last]
            previous = np.concatenate([[0.0], ended])
            waited = np.bincount(steps.kind, _overlap(previous[:-1], started, window), len(STEP_KINDS))
            waited[1 if stage == 0 else 0] += _overlap(previous[-1:], np.array([end]), window)[0]
            spent = _overlap(started, ended, window).sum(), waited[0], waited[1], waited[2:].sum()
            ranks.append(RankShares(*(float(value) / length for value in spent)))
        stages.append(tuple(ranks))
    return tuple(stages)


def _draining_s(pipeline: PlacedPipeline, shares: Sequence[Sequence[RankShares]]) -> float:
    """Return the seconds of both passes of a minibatch on all stages but the busiest one, on its fastest replicas."""
    busiest = max(range(len(shares)), key=lambda stage: max(share.busy for share in shares[stage]))
    return sum(
        (costs.forward_s + costs.backward_s) * min(pipeline.slowness[host] for host in places)
        for stage, (costs, places) in enumerate(zip(pipeline.costs, pipeline.places, strict=True))
        if stage != busiest
    )


def _timeline(job: TrainingJob, end_us: Vector) -> tuple[TimedAction, ...]:
    """Return all actions with their times, in seconds; the time of a wait for an all-reduce is that of the wait."""
    timed = []
    for (_, replica), steps in job.steps.items():
        previous, ended = 0.0, (end_us[steps.last] / 1e6).tolist()
        started = ((end_us[steps.first] - job.tasks.lead_us[steps.first]) / 1e6).tolist()
        for action, begin, end in zip(steps.actions, started, ended, strict=True):
            timed.append(TimedAction(action, replica, previous if action.kind == "REDUCE" else begin, end))
            previous = end
    return tuple(timed)


def _overlap(begin: Vector, end: Vector, window: tuple[float, float]) -> Vector:
    shared: Vector = np.minimum(end, window[1]) - np.maximum(begin, window[0])
    return shared.clip(min=0.0)
