"""Whether plink is right about noise: alike hosts keep their order, intervals hold what fresh samples say.

Orders are searched on one half of the samples, judged on the other, and their costs are those of a third of the same
size.
"""

import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.clouds import Cloud, alike, three_tier
from benchmarks.record import Bar, record
from plink.model.network import symmetrised
from solvers.costs.by_name import cost_function_for, pattern_for
from solvers.ordering.cross_validation import CostModel, ValidatedGain, cross_validate, split_halves
from solvers.ordering.problem import OrderingProblem, SearchBudget
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options

_CLOUDS = 300  # of 100, chance alone moves what 95 % holds by 4
_HOSTS = 32
_ALGORITHMS = ("ring", "halving-doubling", "double-binary-tree")
_MODEL, _SIZE = "latency", 100e6
_MOVES = 20_000
_SIGMA = 0.05
_KINDS: dict[str, Callable[[int], Cloud]] = {
    "alike": lambda seed: alike(_HOSTS, seed, _SIGMA),
    "three-tier": lambda seed: three_tier(_HOSTS, seed, sample_sigma=_SIGMA),
}


def validated_and_fresh(cloud: Cloud, algo: str, seed: int) -> tuple[ValidatedGain, float]:
    """Return what is said of the order that was found, and the gain that fresh samples show."""
    rng = np.random.default_rng((seed, 1))
    halves = cloud.halves(rng)
    parts = split_halves([symmetrised(half) for half in halves], symmetrised(np.sqrt(halves[0] * halves[1])))
    assert parts is not None
    fit, held_out = parts
    fabric, baseline = cloud.fabric(fit), np.arange(len(cloud))
    result = search(
        OrderingProblem(fabric, baseline, algo, Options(), _SIZE, _MODEL), seed, SearchBudget(_MOVES, exhaustive=False)
    )
    patterns = [(1.0, pattern_for(algo, len(cloud), Options()))]
    judgement = cross_validate(CostModel(patterns, fabric, _SIZE, _MODEL), result.order, baseline, held_out, seed)
    fresh = replace(fabric, rtt_us=symmetrised(cloud.halves(rng)[0]))
    cost_of = cost_function_for(algo, len(cloud), Options(), fresh, _SIZE, _MODEL)
    return judgement, 1 - cost_of(result.order) / cost_of(baseline)


def figures_of(kind: str, algo: str) -> dict[str, Any]:
    """Counts over all clouds, and means of the gains."""
    pairs = [validated_and_fresh(_KINDS[kind](seed), algo, seed) for seed in range(_CLOUDS)]
    return {
        "kept": sum(not judgement.is_significant for judgement, _ in pairs),
        "held": sum(judgement.low <= fresh <= judgement.high for judgement, fresh in pairs),
        "predicted": round(statistics.mean(judgement.predicted for judgement, _ in pairs), 4),
        "validated": round(statistics.mean(judgement.gain for judgement, _ in pairs), 4),
        "fresh": round(statistics.mean(fresh for _, fresh in pairs), 4),
        "width": round(statistics.mean(judgement.high - judgement.low for judgement, _ in pairs), 4),
        "not_held": [
            {"seed": seed, "low": round(judgement.low, 4), "high": round(judgement.high, 4), "fresh": round(fresh, 4)}
            for seed, (judgement, fresh) in enumerate(pairs)
            if not judgement.low <= fresh <= judgement.high
        ],
    }


def _of_100(clouds: int) -> float:
    return round(100 * clouds / _CLOUDS, 1)


def main() -> int:
    """Run and record; the exit code."""
    figures = {kind: {algo: figures_of(kind, algo) for algo in _ALGORITHMS} for kind in _KINDS}
    bars = [
        *(
            Bar(f"{algo}, alike hosts, of 100 clouds keep the given order", _of_100(row["kept"]), at_least=95)
            for algo, row in figures["alike"].items()
        ),
        *(
            Bar(f"{algo}, three tiers, of 100 intervals hold the fresh gain", _of_100(row["held"]), at_least=90)
            for algo, row in figures["three-tier"].items()
        ),
    ]
    configuration = {
        "clouds": _CLOUDS,
        "hosts": _HOSTS,
        "model": _MODEL,
        "moves": _MOVES,
        "sample_sigma": _SIGMA,
        "confidence": 0.95,
    }
    return record("order-noise", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
