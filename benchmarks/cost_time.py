"""Time to compute a cost: 512 ranks by closed form, 4,096 from nothing, a ring of 1,024 as a whole schedule."""

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.record import Bar, record
from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import MODELS, evaluate
from solvers.costs.fabric import Fabric
from solvers.ordering.annealing import Annealer
from solvers.ordering.constraints import ExchangeClass, moves_of
from solvers.ordering.objectives import CoolingSchedule
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for

_GROUP = 16
_RUNS = 200
_SIZE = 100e6


def _fabric(n: int) -> Fabric:
    """Racks of 16 at 30 us, 90 us between them, noise; uplinks of a quarter of what the hosts could send."""
    rng = np.random.default_rng(0)
    rack = rng.permutation(np.arange(n) // _GROUP)
    rtt = np.where(rack[:, None] == rack[None, :], 30.0, 90.0) * rng.lognormal(0, 0.1, (n, n))
    rtt = np.maximum(rtt, rtt.T)
    np.fill_diagonal(rtt, 0.0)
    rate, uplinks = np.full(n, 10.0), np.full(n // _GROUP, 40.0)
    return Fabric(tuple(map(str, range(n))), rtt, None, rate, rate, rack, uplinks, uplinks, "measured")


def _options(n: int, base: int = 2) -> Options:
    return Options(base=base, groups=[list(range(start, start + _GROUP)) for start in range(0, n, _GROUP)])


def cost_of_512(algo: str) -> dict[str, float]:
    """Microseconds to compute the cost of one order, median, by model; BCube with base 8 (512 = 8^3)."""
    n = 512
    fabric, rng = _fabric(n), np.random.default_rng(1)
    orders = [rng.permutation(n) for _ in range(_RUNS)]
    micros = {}
    for model in MODELS:
        cost_of = closed_form(pattern_for(algo, n, _options(n, 8 if algo == "bcube" else 2)), fabric, _SIZE, model)
        cost_of(orders[0])
        times = []
        for order in orders:
            began = time.perf_counter()
            cost_of(order)
            times.append(1e6 * (time.perf_counter() - began))
        micros[model] = round(statistics.median(times), 1)
    return micros


def move_512(algo: str) -> dict[str, float]:
    """Microseconds that the compiled search takes for a move of single hosts (and for taking it back), by model."""
    n, count = 512, 20_000
    fabric, order = _fabric(n), np.random.default_rng(1).permutation(n)
    pattern = pattern_for(algo, n, _options(n, 8 if algo == "bcube" else 2))
    moves = moves_of([ExchangeClass(tuple(range(n)), 1, single_hosts=True)], n)
    assert moves is not None
    micros = {}
    for model in MODELS:
        if model == "latency" and pattern.timing == "pipeline":
            continue  # rings have a search of their own there
        annealer = Annealer(pattern, fabric, _SIZE, model)
        annealer.run(order, moves, 1, CoolingSchedule(1.0, 0.1), 1)  # compiles
        began = time.perf_counter()
        annealer.run(order, moves, count, CoolingSchedule(1.0, 0.1), 1)
        micros[model] = round(1e6 * (time.perf_counter() - began) / count, 2)
    return micros


# The algorithms whose options decide how much there is to do, at their worst.
_VARIANTS = {
    "2lha, 4 groups": ("2lha", Options(groups=[list(range(start, start + 1024)) for start in range(0, 4096, 1024)])),
    "2lha, 1 group": ("2lha", Options(groups=[list(range(4096))])),
    "ps, half of them servers": ("ps", Options(colocated=False)),
}


def cost_of_4096(name: str) -> dict[str, float]:
    """Return seconds from nothing (but the network) to the cost of one order, and the process's peak, by model."""
    n = 4096
    algo, options = _VARIANTS.get(name, (name, _options(n)))
    fabric, order = _fabric(n), np.random.default_rng(1).permutation(n)
    seconds = {}
    for model in MODELS:
        began = time.perf_counter()
        closed_form(pattern_for(algo, n, options), fabric, _SIZE, model)(order)
        seconds[model] = round(time.perf_counter() - began, 3)
    return {**seconds, "peak_gb": _peak_gb()}


def ring_1024(_: str) -> dict[str, float]:
    """Return the seconds to make a schedule of 2.1 million transfers and to compute its costs, and the peak."""
    n = 1024
    fabric, order = _fabric(n), np.random.default_rng(1).permutation(n)
    began = time.perf_counter()
    schedule = schedule_for("ring", n)
    seconds = {"made_s": round(time.perf_counter() - began, 3)}
    for model in MODELS:
        began = time.perf_counter()
        evaluate(schedule, fabric, order, _SIZE, model)
        seconds[f"{model}_s"] = round(time.perf_counter() - began, 3)
    return {**seconds, "peak_gb": _peak_gb()}


def _peak_gb() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 3)


def _alone(work: Callable[[str], dict[str, float]], algo: str) -> dict[str, float]:
    """In a process of its own: the peak is the process's."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, (algo,))


def main() -> int:
    """Run and record; the exit code."""
    small = {algo: _alone(cost_of_512, algo) for algo in ALGORITHMS}
    large = {algo: _alone(cost_of_4096, algo) for algo in (*ALGORITHMS, *_VARIANTS)}
    ring = _alone(ring_1024, "ring")
    figures: dict[str, Any] = {"us_at_512": small, "seconds_at_4096": large, "ring_schedule_of_1024": ring}
    moves: dict[str, dict[str, float]] = {
        algo: _alone(move_512, algo) for algo in ("ring", "halving-doubling", "double-binary-tree", "bcube")
    }
    figures["us_a_move_at_512"] = moves
    limits = {"ring": 50.0} | dict.fromkeys(("halving-doubling", "tree", "double-binary-tree", "bcube"), 200.0)
    bars = [
        *(
            Bar(f"{algo}, 512 ranks, latency, us", small[algo]["latency"], at_most=most)
            for algo, most in limits.items()
        ),
        *(
            Bar(f"{algo}, {model}, a move's share of a whole order's cost", us / small[algo][model], at_most=1.0)
            for algo, row in moves.items()
            for model, us in row.items()
        ),
        Bar("512 ranks, contention, us, worst", max(row["contention"] for row in small.values()), at_most=2000.0),
        Bar("4,096 ranks, s, worst", max(row[m] for row in large.values() for m in MODELS), at_most=1.0),
        Bar("4,096 ranks, GB, worst", max(row["peak_gb"] for row in large.values()), at_most=2.0),
        Bar("a ring's schedule of 1,024 ranks, made and evaluated, s, worst model",
            ring["made_s"] + max(ring[f"{model}_s"] for model in MODELS), at_most=2.0),
        Bar("a ring's schedule of 1,024 ranks, GB", ring["peak_gb"], at_most=0.5),
    ]  # fmt: skip
    return record("cost-time", {"group": _GROUP, "size_bytes": _SIZE, "orders": _RUNS}, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
