"""Orders for collectives that are no rings: against plain annealing, against known optima, and the whole command.

``python -m benchmarks.orders --fresh`` runs the plain annealing again, hours of it, instead of taking what is kept.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clouds import Cloud, three_tier
from benchmarks.plain_annealing import SWAPS, annealed, fingerprint, recorded_run
from benchmarks.record import Bar, record, seeds_of
from benchmarks.results import RECORDS
from plink.features.order.algorithms import rank_groups
from solvers.costs.by_name import NAMES, cost_function_for, pattern_for
from solvers.costs.fabric import Fabric
from solvers.ordering.problem import OrderingProblem, OrderingResult, SearchBudget, SearchProgress
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options

BASELINES = RECORDS / "orders-baselines.json"
_ALGORITHMS = ("halving-doubling", "double-binary-tree", "bcube", "2lha")
_SEEDS = {64: 10, 512: 10}
_KNOWN_SEEDS = 10
_SHARE = 0.1  # of the plain annealing's time
_ENDING = 0.9  # of that: what is left is for the last slice
_MAX_S = 10.0  # plink reorder's default
_UNLIMITED_MOVES = 1 << 50
_SIZE, _MODEL = 100e6, "latency"
_TIERS_US = (25.0, 60.0, 120.0)
_BLOCKS = (8, 32)  # hosts of a rack and of a pod, where they are powers of two
_RUNS = 5


@dataclass(frozen=True)
class OrderProblem:
    """An algorithm on a cloud; two-level aggregation by the groups that plink sees in the given order."""

    cloud: Cloud
    fabric: Fabric
    algo: str
    options: Options

    def cost_of(self, result: OrderingResult) -> float:
        """Microseconds of the order that was found."""
        cost_of = cost_function_for(self.algo, len(self.cloud), self.options, self.fabric, _SIZE, _MODEL)
        return cost_of(result.order)

    def search(self, seed: int, seconds: float, enough: float = 0.0) -> tuple[OrderingResult, float]:
        """Return what is found within so many seconds, or at a cost so low, and how long it took."""
        began = time.monotonic()

        def going(progress: SearchProgress) -> bool:
            return time.monotonic() - began < seconds and progress.cost > enough

        task = OrderingProblem(self.fabric, np.arange(len(self.cloud)), self.algo, self.options, _SIZE, _MODEL)
        return search(task, seed, SearchBudget(_UNLIMITED_MOVES, going)), time.monotonic() - began


def order_problem(cloud: Cloud, algo: str) -> OrderProblem:
    """BCube with base 4, or 8 where the hosts are no power of 4."""
    fabric = cloud.fabric()
    groups = rank_groups(fabric, np.arange(len(cloud))) if algo == "2lha" else None
    base = 4 if len(cloud).bit_length() % 2 else 8
    return OrderProblem(cloud, fabric, algo, Options(base=base if algo == "bcube" else 2, groups=groups))


def baseline(hosts: int, algo: str, seed: int, fresh: bool = False) -> dict[str, Any]:
    """Cost and CPU seconds of plain annealing, as kept or run now."""
    here = order_problem(three_tier(hosts, seed), algo)
    pattern = pattern_for(algo, hosts, here.options)
    cost_of = cost_function_for(algo, hosts, here.options, here.fabric, _SIZE, _MODEL)

    def run() -> dict[str, Any]:
        _, cost, seconds = annealed(pattern, here.fabric.rtt_us, cost_of, SWAPS, seed)
        return {"cost": round(cost, 6), "seconds": round(seconds, 2), "seed": seed, "swaps": SWAPS}

    return recorded_run(BASELINES, f"{algo} {hosts} {fingerprint(pattern, here.fabric.rtt_us)}", run, fresh)


def against_plain(hosts: int, algo: str, seed: int, fresh: bool) -> dict[str, Any]:
    """Return the search in a tenth of the plain annealing's time."""
    plain = baseline(hosts, algo, seed, fresh)
    here = order_problem(three_tier(hosts, seed), algo)
    result, took = here.search(seed, _ENDING * _SHARE * plain["seconds"])
    return {
        "seed": seed,
        "plain": plain["cost"],
        "plain_s": plain["seconds"],
        "found": round(here.cost_of(result), 3),
        "found_s": round(took, 2),
        "ratio": round(here.cost_of(result) / plain["cost"], 5),
        "share": round(took / plain["seconds"], 4),
        "given": round(result.baseline_cost, 3),
        "bound": None if result.lower_bound is None else round(result.lower_bound, 3),
    }


def known_optimum(hosts: int, algo: str, base: int = 2) -> float:
    """Return the cheapest order of a noise-free cloud of racks of 8 in pods of 4 racks, microseconds, ``latency``.

    *Ring*: a rack or a pod is entered and left at least once. *Halving-doubling, BCube*: the first j rounds tie the
    hosts into blocks of base^j, which a tier must be divisible into if no longer hop is to be among theirs; a host's
    place in its rack, its pod and beyond, written to that base, is an order that needs no more. *2LHA*: its groups are
    the racks and its hops connect all hosts, so one of the two rounds crosses pods; the other one takes a hop in a rack
    at least.
    """
    near, middle, far = _TIERS_US
    racks, pods = (hosts // size for size in _BLOCKS)
    if algo == "ring":
        return (hosts - racks) * near + (racks - pods) * middle + pods * far
    if algo == "2lha":
        return near + far
    total, block = 0.0, base
    while block <= hosts:
        total += next((t for t, size in zip(_TIERS_US, _BLOCKS, strict=False) if size % block == 0), far)
        block *= base
    return total


def at_known(hosts: int, algo: str, seed: int) -> dict[str, Any]:
    """Return whether the known optimum is found, and after how long."""
    here = order_problem(three_tier(hosts, seed, "powers", noise_sigma=0.0, tiers_us=_TIERS_US), algo)
    optimum = known_optimum(hosts, algo, here.options.base)
    result, took = here.search(seed, _MAX_S, optimum * (1 + 1e-9))
    cost = here.cost_of(result)
    assert cost >= optimum * (1 - 1e-9), f"{algo}, {hosts} hosts: {cost} is less than {optimum}, which was optimal"
    return {
        "seed": seed,
        "optimum": optimum,
        "found": round(cost, 3),
        "proven": result.lower_bound is not None and result.lower_bound >= optimum * (1 - 1e-9),
        "seconds": round(took, 2),
    }


def reordered(folder: Path, hosts: int, words: list[str], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Return seconds and peak (GB) of one ``plink reorder`` with its defaults, in a process of its own."""
    network = folder / f"{hosts}.json"
    if not network.exists():
        three_tier(hosts, 0).network(np.random.default_rng(0)).write(network)
    command = [sys.executable, "-m", "plink", "reorder", str(network), *words, "-o", str(folder / "order.json")]
    began = time.monotonic()
    child = subprocess.Popen(
        command, env=os.environ | (environment or {}), stderr=subprocess.PIPE, cwd=RECORDS.parent.parent, text=True
    )
    assert child.stderr is not None
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)}: {errors}")
    return {"seconds": round(time.monotonic() - began, 2), "peak_gb": round(usage.ru_maxrss / 1e6, 3)}


def whole_command() -> dict[str, Any]:
    """Return the first time on a machine (nothing compiled yet), then as usual; every algorithm at 512."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "numba").mkdir()
        first = reordered(folder, 64, [], {"NUMBA_CACHE_DIR": str(folder / "numba")})
        reordered(folder, 64, [])
        usual = [reordered(folder, 64, []) for _ in range(_RUNS)]
        large = {}
        for algo in NAMES:
            large[algo] = reordered(folder, 512, ["--algo", algo, *(["--set", "base=8"] if algo == "bcube" else [])])
            print(f"plink reorder, 512 hosts, {algo}: {large[algo]}", flush=True)
    return {"first_64": first, "usual_64": usual, "hosts_512": large}


def table(what: Callable[..., dict[str, Any]], seeds: dict[int, int], algorithms: tuple[str, ...], *more: Any) -> Any:
    """Rows of each seed by hosts and algorithm."""
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for hosts, number in seeds.items():
        for algo in algorithms:
            order_problem(three_tier(hosts, 0), algo).search(0, 0.5)  # compiles
            rows.setdefault(str(hosts), {})[algo] = [what(hosts, algo, seed, *more) for seed in range(number)]
            print(f"{what.__name__}, {hosts} hosts, {algo}: {rows[str(hosts)][algo]}", flush=True)
    return rows


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted."""
    bars = []
    for hosts, rows in figures["against_plain"].items():
        for algo, seeds in rows.items():
            ratio, share = (statistics.median(row[key] for row in seeds) for key in ("ratio", "share"))
            bars.append(Bar(f"{algo}, {hosts} hosts, cost over that of plain annealing, median", ratio, at_most=1.0))
            bars.append(Bar(f"{algo}, {hosts} hosts, share of its time, median", share, at_most=_SHARE))
    for hosts, rows in figures["known_optima"].items():
        for algo, seeds in rows.items():
            at = sum(row["found"] <= row["optimum"] * (1 + 1e-9) for row in seeds) / len(seeds)
            bars.append(Bar(f"{algo}, {hosts} hosts without noise, clouds with the known optimum", at, at_least=1.0))
    command = figures["command"]
    usual = statistics.median(run["seconds"] for run in command["usual_64"])
    large = command["hosts_512"].values()
    return [
        *bars,
        Bar("plink reorder, 64 hosts, s, median", usual, at_most=2.0),
        Bar("plink reorder, 64 hosts, the first time, s", command["first_64"]["seconds"], at_most=10.0),
        Bar("plink reorder, 512 hosts, worst algorithm, s", max(run["seconds"] for run in large), at_most=20.0),
        Bar("plink reorder, 512 hosts, worst algorithm, GB", max(run["peak_gb"] for run in large), at_most=1.0),
    ]


def main() -> int:
    """Run and record; the exit code."""
    fresh, all_seeds = "--fresh" in sys.argv[1:], seeds_of(_SEEDS)
    if fresh:
        for hosts, number in all_seeds.items():
            for algo in _ALGORITHMS:
                for seed in range(number):
                    baseline(hosts, algo, seed, fresh=True)
    figures = {
        "against_plain": table(against_plain, all_seeds, _ALGORITHMS, False),
        "known_optima": table(
            at_known, dict.fromkeys(_SEEDS, _KNOWN_SEEDS), ("ring", "halving-doubling", "bcube", "2lha")
        ),
        "command": whole_command(),
    }
    configuration = {
        "model": _MODEL,
        "tiers_us": _TIERS_US,
        "swaps": SWAPS,
        "share": _SHARE,
        "seeds": all_seeds,
        "known_seeds": _KNOWN_SEEDS,
        "baselines": BASELINES.name,
    }
    return record("orders", configuration, figures, bars_of(figures))


if __name__ == "__main__":
    sys.exit(main())
