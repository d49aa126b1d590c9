"""Adaptive probing in simulation: the scheduler and the predictor plink runs, on fabrics that exist on paper.

make bench NAME=adaptive-probing
"""

import argparse
import dataclasses
import json
import multiprocessing
import platform
import resource
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.fabric import SimulatedFabric, three_tier
from benchmarks.prediction_methods import coordinates, low_rank
from benchmarks.record import Bar, record
from plink.model.network import Matrix
from probes.adaptive import AdaptivePlan, AdaptiveSettings
from probes.disjoint_pairs import RoundRobin
from probes.plan import AllPairs, ProbePlan
from solvers.prediction.observed import observed
from solvers.prediction.tiered import TieredPrediction, predict_tiered

HOSTS = 1024
LARGE_FLEET_HOSTS = 10_000
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "noise of each direction": {"one_way": True},
    "uneven racks": {"uneven": True},
    "host offsets": {"offset_us": 5.0},
    "uneven racks, host offsets, noise of each direction": {"uneven": True, "offset_us": 5.0, "one_way": True},
    "racks of 4": {"rack_size": 4, "racks_per_pod": 32},
    "close tiers": {"tiers_us": (40.0, 55.0, 80.0)},
    "noise 20 %": {"noise": 0.20},
    "one host in twenty dead": {},
}
TO_THE_END = AdaptiveSettings(convergence_rounds=1_000_000)


def run(
    fabric: SimulatedFabric, plan: ProbePlan, dead: npt.NDArray[np.bool_] | None = None
) -> tuple[Matrix, int, float]:
    """Measure what ``plan`` asks for: the matrix, the rounds it took, the seconds spent deciding."""
    n = len(fabric)
    measured, rounds, seconds = np.full((n, n), np.nan), 0, 0.0
    while True:
        start = time.perf_counter()
        pairs = plan.next_round(measured)
        seconds += time.perf_counter() - start
        if pairs is None:
            return measured, rounds, seconds
        rounds += 1
        i, j = np.array(pairs).T
        if dead is not None:
            answers = ~dead[i] & ~dead[j]
            i, j = i[answers], j[answers]
        measured[i, j], measured[j, i] = fabric.rtt_us(i, j), fabric.rtt_us(j, i)


class Predictor:
    """Predictor of a plan, which keeps its last prediction."""

    last: TieredPrediction

    def __call__(self, measured: Matrix) -> TieredPrediction:
        self.last = predict_tiered(measured)
        return self.last

    def error(self, held_out: npt.NDArray[np.intp], measured: Matrix) -> float:
        """Return the median relative error on pairs that it never saw, shape (k, 2)."""
        i, j = held_out.T
        truth = np.fmax(measured[i, j], measured[j, i])
        i, j, truth = (column[truth > 0] for column in (i, j, truth))
        chunks = [slice(k, k + 128) for k in range(0, len(i), 128)]
        expected = [self.last.rtt_us(i[chunk])[np.arange(len(i[chunk])), j[chunk]] for chunk in chunks]
        return float(np.median(np.abs(np.concatenate(expected) - truth) / truth))


def neighbours(
    fabric: SimulatedFabric, full: Matrix, groups: npt.NDArray[np.intp], hosts: npt.NDArray[np.intp]
) -> dict[str, float]:
    """Return how many rack neighbours are found, over ``hosts`` that have any; ``full``: measured or predicted, (N,
    N).

    ``found_nearest``: of a host's k rack neighbours, those among its k nearest; ``found_in_group``: those in its group;
    ``group_precision``: of the others in its group, those in its rack. Each is a mean over hosts.
    """
    rack = fabric.rack[hosts]
    mates = (rack[:, None] == rack) & ~np.eye(len(hosts), dtype=bool)
    grouped = (groups[hosts, None] == groups[hosts]) & ~np.eye(len(hosts), dtype=bool)
    distance = full[np.ix_(hosts, hosts)].copy()
    np.fill_diagonal(distance, np.inf)
    rank = np.argsort(np.argsort(distance, axis=1), axis=1)
    k = mates.sum(axis=1)
    some, held = k > 0, grouped.sum(axis=1) > 0
    recall = (mates & grouped).sum(axis=1)[some] / k[some]
    return {
        "found_nearest": float(np.mean((mates & (rank < k[:, None])).sum(axis=1)[some] / k[some])),
        "found_in_group": float(np.mean(recall)),
        "hosts_with_95_percent_in_group": float(np.mean(recall >= 0.95)),
        "group_precision": float(np.mean((mates & grouped).sum(axis=1)[held] / grouped.sum(axis=1)[held])),
    }


def errors(fabric: SimulatedFabric, predicted: Matrix, unprobed: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Median relative errors over the pairs ``unprobed``, (N, N).

    ``of_typical``: against the round trip without the pair's noise (times the median of the noise, where the worse of
    two directions is taken); ``of_measurement``: against what measuring the pair would have given, noise and all;
    ``noise_floor``: the latter for a predictor that knows the fabric.
    """
    everyone = np.arange(len(fabric))
    i, j = np.nonzero(unprobed & (everyone[:, None] < everyone))
    would_be = np.maximum(fabric.rtt_us(i, j), fabric.rtt_us(j, i))
    typical = fabric.true_us(i, j)
    typical = typical * np.median(would_be / typical)
    guess = predicted[i, j]
    return {
        "of_typical": float(np.median(np.abs(guess - typical) / typical)),
        "of_measurement": float(np.median(np.abs(guess - would_be) / would_be)),
        "noise_floor": float(np.median(np.abs(typical - would_be) / would_be)),
    }


def symmetric(fabric: SimulatedFabric) -> Matrix:
    """Return every pair measured, the worse direction, shape (N, N)."""
    i, j = np.arange(len(fabric))[:, None], np.arange(len(fabric))
    return np.maximum(fabric.rtt_us(i, j), fabric.rtt_us(j, i))


def figures(name: str, seed: int, settings: AdaptiveSettings) -> dict[str, Any]:
    """Return one adaptive run on one fabric."""
    fabric = three_tier(HOSTS, seed, **VARIANTS[name])
    dead = np.random.default_rng(seed).random(HOSTS) < 0.05 if "dead" in name else np.zeros(HOSTS, dtype=bool)
    predictor = Predictor()
    plan = AdaptivePlan(HOSTS, seed, predictor, settings)
    measured, rounds, seconds = run(fabric, plan, dead)
    prediction = predict_tiered(measured)
    everyone = np.arange(HOSTS)
    predicted, complete = prediction.rtt_us(everyone), symmetric(fabric)
    measured_pairs = np.isfinite(measured)
    alive = np.flatnonzero(~dead)
    unprobed = ~measured_pairs & ~dead & ~dead[:, None]
    return {
        "seed": seed,
        "rounds": rounds,
        "converged": plan.converged,
        "probed": float(measured_pairs.sum() / (HOSTS * (HOSTS - 1))),
        **neighbours(fabric, np.where(measured_pairs, complete, predicted), prediction.groups, alive),
        "found_nearest_if_all_measured": neighbours(fabric, complete, prediction.groups, alive)["found_nearest"],
        "groups": len(np.unique(prediction.groups[alive])),
        "racks": len(np.unique(fabric.rack[alive])),
        "error": errors(fabric, predicted, unprobed),
        "held_out_error": predictor.error(plan.held_out, measured),
        "dead": int(dead.sum()),
        "scheduling_s": seconds,
    }


def methods(seed: int) -> list[dict[str, Any]]:
    """Return the base fabric, a tenth of its pairs, chosen at random or by the plan: how well each way to predict
    does."""
    fabric = three_tier(HOSTS, seed)
    circle, at_random = RoundRobin(HOSTS, seed), np.full((HOSTS, HOSTS), np.nan)
    for k in range(int(0.10 * (HOSTS - 1))):
        i, j = circle[k].T
        at_random[i, j] = at_random[j, i] = fabric.rtt_us(i, j)
    adaptive, _, _ = run(fabric, AdaptivePlan(HOSTS, seed, predict_tiered, TO_THE_END))
    rows = []
    for pairs, measured in (("random", at_random), ("adaptive", adaptive)):
        measured_pairs, seen = np.isfinite(measured), observed(measured)
        for method, predict in {
            "groups, tree and offsets (plink)": lambda m=measured: predict_tiered(m).rtt_us(np.arange(HOSTS)),
            "coordinates, 2-D": lambda s=seen: coordinates(s, 2, False, seed),
            "coordinates, 8-D and heights": lambda s=seen: coordinates(s, 8, True, seed),
            "low rank (16)": lambda s=seen: low_rank(s, 16, 25),
        }.items():
            start = time.perf_counter()
            predicted = predict()
            seconds = time.perf_counter() - start
            full = np.where(measured_pairs, symmetric(fabric), predicted)
            nearest = neighbours(fabric, full, fabric.rack, np.arange(HOSTS))["found_nearest"]
            rows.append(
                {
                    "pairs": pairs,
                    "method": method,
                    "found_nearest": nearest,
                    "error": errors(fabric, predicted, ~measured_pairs),
                }
                | {"seconds": seconds}
            )
    return rows


def schedule_all(n: int) -> dict[str, Any]:
    """Return all pairs of ``n`` hosts, scheduled and not measured."""
    plan, nothing = AllPairs(n, 1), np.full((n, n), np.nan)
    rounds = pairs = 0
    start = time.perf_counter()
    while (pairs_of_round := plan.next_round(nothing)) is not None:
        rounds, pairs = rounds + 1, pairs + len(pairs_of_round)
    return {"rounds": rounds, "pairs": pairs, "seconds": time.perf_counter() - start, "peak_rss_gb": _peak_gb()}


def schedule_adaptive(n: int) -> dict[str, Any]:
    """Return the adaptive plan for ``n`` hosts on the base fabric, from first to last round."""
    fabric, predictor = three_tier(n, 1), Predictor()
    plan = AdaptivePlan(n, 1, predictor, AdaptiveSettings())
    measured, rounds, seconds = run(fabric, plan)
    peak = _peak_gb()
    size = np.bincount(fabric.rack)[fabric.rack] - 1
    group = predictor.last.groups
    _, cell, both = np.unique(group * len(fabric) + fabric.rack, return_inverse=True, return_counts=True)
    return {
        "rounds": rounds,
        "pairs": int(np.isfinite(measured).sum()) // 2,
        "probed": float(np.isfinite(measured).sum() / (n * (n - 1))),
        "converged": plan.converged,
        "seconds": seconds,
        "peak_rss_gb": peak,
        "found_in_group": float(np.mean(((both[cell] - 1) / np.maximum(size, 1))[size > 0])),
        "held_out_error": predictor.error(plan.held_out, measured),
    }


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> int:
    """Run everything, print a line each, record it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="fabrics of each kind")
    options = parser.parse_args()
    configuration = {
        "hosts": HOSTS,
        "settings": dataclasses.asdict(AdaptiveSettings()),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }
    results: dict[str, Any] = {"variants": {}}
    for name, parameters in VARIANTS.items():
        results["variants"][name] = {"fabric": parameters}
        for when, settings in (("converged", AdaptiveSettings()), ("budget spent", TO_THE_END)):
            runs = [figures(name, seed, settings) for seed in range(1, options.seeds + 1)]
            results["variants"][name][when] = runs
            print(f"{name}, {when}: " + summary(runs), flush=True)
    results["methods"] = methods(1)
    for row in results["methods"]:
        print(json.dumps(row), flush=True)
    results["scale"] = {"hosts": LARGE_FLEET_HOSTS}
    for schedule in (schedule_all, schedule_adaptive):  # each in a process of its own: the peak is the process's
        with multiprocessing.get_context("spawn").Pool(1) as alone:
            results["scale"][schedule.__name__] = alone.apply(schedule, (LARGE_FLEET_HOSTS,))
        print(schedule.__name__, json.dumps(results["scale"][schedule.__name__]), flush=True)
    return record("adaptive-probing", configuration, results, bars_of(results))


def bars_of(recorded: dict[str, Any]) -> list[Bar]:
    """Return what is wanted of 1,024 hosts on the base fabric (the worst seed), and of 10,000."""
    base = recorded["variants"]["base"]["converged"]
    one_way = recorded["variants"]["noise of each direction"]["converged"]
    bars = [
        Bar("share of the pairs probed", max(run["probed"] for run in base), at_most=0.10),
        Bar("rack neighbours found, nearest", min(run["found_nearest"] for run in base), at_least=0.95),
        Bar("rack neighbours found, in group", min(run["found_in_group"] for run in base), at_least=0.95),
        Bar("error, without noise", max(run["error"]["of_typical"] for run in base), at_most=0.06),
        Bar("error, worse direction", max(run["error"]["of_measurement"] for run in one_way), at_most=0.06),
    ]
    for name in (schedule_all.__name__, schedule_adaptive.__name__):
        row = recorded["scale"][name]
        bars.append(Bar(f"{name} of {LARGE_FLEET_HOSTS} hosts, seconds", row["seconds"], at_most=60.0))
        bars.append(Bar(f"{name} of {LARGE_FLEET_HOSTS} hosts, GB", row["peak_rss_gb"], at_most=4.0))
    return bars


def summary(runs: list[dict[str, Any]]) -> str:
    """Means over the seeds, and the worst where there is a bar."""
    mean = {key: np.mean([r[key] for r in runs]) for key in ("probed", "group_precision", "rounds", "scheduling_s")}
    nearest, grouped = ([r[key] for r in runs] for key in ("found_nearest", "found_in_group"))
    typical, measurement, floor = (
        [r["error"][key] for r in runs] for key in ("of_typical", "of_measurement", "noise_floor")
    )
    return (
        f"probed {mean['probed']:.4f} in {mean['rounds']:.0f} rounds; nearest {np.mean(nearest):.4f} (worst "
        f"{min(nearest):.4f}), in group {np.mean(grouped):.4f} (worst {min(grouped):.4f}), precision "
        f"{mean['group_precision']:.4f}; error {np.mean(typical):.4f} (worst {max(typical):.4f}), of measurement "
        f"{np.mean(measurement):.4f} (floor {np.mean(floor):.4f}), held out "
        f"{np.mean([r['held_out_error'] for r in runs]):.4f}; {mean['scheduling_s']:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
