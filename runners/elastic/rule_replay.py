"""Replay of a run under other rules, from its own measured step times.

Assumed: each clock of an iteration takes the iteration's mean, hosts take as long under another rule as they did,
messages cost nothing, and an iteration teaches as much. So it is an estimate of what waiting costs, not of accuracy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.consistency import SSP, parse_rule
from plink.model.rules.asp import ASP
from plink.model.rules.dssp import DSSP
from plink.model.rules.elastic_bsp import ElasticBSP
from plink.records.elastic_history import Work
from plink.runtime.elastic.worker.zipline import barrier
from solvers.elastic.speeds import MIN_GAIN, UNEVEN_CLOCKS

_BY_SPEED, _REBALANCE = " --shares speed", " --rebalance"
BY_SPEED = "bsp" + _BY_SPEED
REBALANCED = "bsp" + _REBALANCE
CANDIDATES = ("bsp", "ssp:3", BY_SPEED, REBALANCED, "elastic-bsp:15", "asp")  # who waits less comes later
_LEAST_GAIN = 0.1
_MAX_ITERATIONS = 2000  # the latest
_LATEST_SHARE = 0.5  # as workers plan supersteps

Steps = npt.NDArray[np.float64]  # seconds of a step, shape (clocks, hosts)


@dataclass(frozen=True)
class Hint:
    """A rule that would have taken less time: the share of it that it would have saved."""

    rule: str
    saved: float


def rule_in_use(rule: str, shares: str | None, *, rebalance: bool) -> str:
    """Return a run's rule with the options that say who does which work, as they are typed."""
    return rule + _BY_SPEED * (shares == "speed") + _REBALANCE * rebalance


def step_seconds(iterations: Sequence[Work]) -> Steps:
    """Return seconds of a step by iteration and host, of the hosts that are in all of the latest iterations; shape
    (iterations, hosts), without any where nothing was measured."""
    latest = [work for work in iterations if work][-_MAX_ITERATIONS:]
    if not latest:
        return np.zeros((0, 0))
    hosts = sorted(latest[-1])
    latest = [work for work in latest if sorted(work) == hosts and all(row[0] > 0 for row in work.values())]
    return np.array([[work[host][0] / max(1, work[host][2]) for host in hosts] for work in latest])


@dataclass(frozen=True)
class Division:
    """Limits to dividing the work of a clock. ``shards``: into so many parts; None: any. ``batches``: clocks of an
    iteration."""

    shards: int | None = None
    batches: int = 1


ANY_DIVISION = Division()


def predicted_s(steps: Steps, rule: str, division: Division = ANY_DIVISION) -> float:
    """Return seconds that as many steps as there are in all take under a rule, with each host's own step times.

    :param steps: shape (clocks, hosts); a host that gets ahead takes as long as it did at the clock of that number.
    """
    if rule.endswith(_REBALANCE):  # each clock's work is divided by what hosts take at it
        return float((_shares(steps, division.shards) * steps).max(axis=1).sum())
    if rule.endswith(_BY_SPEED):  # by what hosts took over the whole run, once that is measured
        mean = steps.mean(axis=0, keepdims=True)
        shares, first = _shares(mean, division.shards), -(-UNEVEN_CLOCKS // division.batches)
        if mean.max() <= MIN_GAIN * (shares * mean).max():
            first = len(steps)
        return float(steps[:first].max(axis=1).sum() + (steps[first:] * shares).max(axis=1, initial=0.0).sum())
    parsed = parse_rule(rule)
    if isinstance(parsed, ElasticBSP):
        return _supersteps_s(steps, parsed.most_steps)
    if isinstance(parsed, ASP):  # nobody waits
        return float(steps.shape[0] * steps.shape[1] / (1 / steps.mean(axis=0)).sum())
    return _bounded_s(steps, parsed.apart if isinstance(parsed, SSP | DSSP) else 0)


def _shares(seconds: Steps, shards: int | None) -> Steps:
    """Return each host's work over an equal share of it, such that the last to end ends soonest; by whole shards, the
    fewest of the slowest."""
    hosts = seconds.shape[1]
    if shards is None:
        return np.asarray(1 / seconds / (1 / seconds).mean(axis=1, keepdims=True))
    counts = np.zeros_like(seconds)
    for _ in range(shards):  # each to whom it ends first with
        rows = np.arange(len(seconds))
        counts[rows, ((counts + 1) * seconds).argmin(axis=1)] += 1
    return np.asarray(counts * hosts / shards)


def hint(steps: Steps, rule: str, division: Division = ANY_DIVISION, *, optimisers: bool = False) -> Hint | None:
    """Return the rule that would have saved most, if that is more than a tenth; of nearly equal ones that which keeps
    more of BSP's promises. With ``optimisers`` on the servers it is one that keeps them all.

    :param rule: of the run (:func:`rule_in_use`).
    """
    if not len(steps):
        return None
    now_s = predicted_s(steps, rule, division)
    candidates = [name for name in CANDIDATES if name != rule and (name.startswith("bsp") or not optimisers)]
    saved = {name: 1 - predicted_s(steps, name, division) / now_s for name in candidates}
    best = max(saved.values())
    if best <= _LEAST_GAIN:
        return None
    name = next(name for name in _BY_PROMISE if saved.get(name, 0.0) > max(_LEAST_GAIN, best - _LEAST_GAIN))
    return Hint(name, saved[name])


_BY_PROMISE = ("bsp", BY_SPEED, REBALANCED, "ssp:3", "elastic-bsp:15", "asp")


def _bounded_s(steps: Steps, apart: int) -> float:
    """Return when all have done all clocks, none more than ``apart`` ahead of the slowest."""
    ends = np.zeros((len(steps) + 1, steps.shape[1]))
    for clock in range(1, len(steps) + 1):
        slowest = ends[max(0, clock - 1 - apart)].max()
        ends[clock] = np.maximum(ends[clock - 1], slowest) + steps[clock - 1]
    return float(ends[-1].max())


def _supersteps_s(steps: Steps, most: int) -> float:
    """Return when the steps of all clocks are done, in supersteps that are planned as workers plan them."""
    clocks, hosts = steps.shape
    done, now, expected = 0, 0.0, None
    while done < clocks * hosts:
        actual = steps[min(clocks - 1, done // hosts)]
        counts = np.ones(hosts) if expected is None else barrier(expected[:, None] * np.arange(1, most + 1))[1]
        left = clocks * hosts - done
        counts = np.maximum(1, np.floor(counts * min(1.0, left / counts.sum())))
        now += float((counts * actual).max())
        done += int(counts.sum())
        expected = actual if expected is None else _LATEST_SHARE * actual + (1 - _LATEST_SHARE) * expected
    return now
