"""Rings on public instances of TSPLIB against fast-tsp in equal time: how many are solved to optimality.

``--folder DIR``: with `NAME.tsp` files and `solutions` (`git clone https://github.com/mastqe/tsplib`). ``--instances
A,B`` takes these; ``--seconds N`` changes the time.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clouds import three_tier
from benchmarks.record import Bar, record
from benchmarks.tsplib import SOLUTIONS, TspInstance, read_instance
from plink.features.order.fast_tsp_process import FastTsp
from solvers.latency import ring_cost
from solvers.ordering.problem import SearchBudget
from solvers.ordering.ring import search_ring

# Of 400 to 1,400 cities; plane, geographic and clustered ones, drillings and grids.
INSTANCES = (
    "rd400", "fl417", "gr431", "pr439", "pcb442", "d493", "att532", "ali535", "u574", "rat575", "p654", "d657",
    "gr666", "u724", "rat783", "dsj1000", "pr1002", "u1060", "vm1084", "pcb1173", "d1291", "rl1304", "rl1323",
    "nrw1379", "fl1400",
)  # fmt: skip
_SECONDS = 10.0
_LARGEST_DISTANCE = 65535  # of fast-tsp, whose distances have 16 bits
_UNLIMITED_MOVES = 1 << 50
_ENDING = 0.95  # of the time: the last batch of moves comes on top


def solve_by_plink(instance: TspInstance, seconds: float) -> tuple[float, float, float]:
    """Return the length of plink's tour over the optimum, its bound over the optimum, and the seconds it took."""
    began = time.monotonic()
    deadline = began + _ENDING * seconds
    budget = SearchBudget(
        _UNLIMITED_MOVES, lambda _: time.monotonic() < deadline, deadline=deadline, ring_engine=FastTsp
    )
    ring = search_ring(instance.distance, 0, budget)
    return ring.cost / instance.optimum, ring.lower_bound / instance.optimum, time.monotonic() - began


def solve_by_fast_tsp(instance: TspInstance, seconds: float) -> tuple[float, float]:
    """Return the length of fast-tsp's tour over the optimum, and the seconds it took."""
    import fast_tsp

    scale = min(1.0, _LARGEST_DISTANCE / float(instance.distance.max()))
    whole = np.rint(instance.distance * scale).astype(int).tolist()
    began = time.monotonic()
    tour = fast_tsp.find_tour(whole, duration_seconds=seconds)
    took = time.monotonic() - began
    return ring_cost(instance.distance, np.array(tour)) / instance.optimum, took


def compare(instance: TspInstance, seconds: float) -> dict[str, Any]:
    """Solve one instance by both, one after the other."""
    plink, bound, plink_s = solve_by_plink(instance, seconds)
    fast_tsp, fast_tsp_s = solve_by_fast_tsp(instance, seconds)
    row = {
        "cities": len(instance.distance),
        "plink_gap": round(plink - 1, 6) + 0.0,
        "fast_tsp_gap": round(fast_tsp - 1, 6) + 0.0,
        "bound_gap": round(1 - bound, 6),
        "plink_s": round(plink_s, 2),
        "fast_tsp_s": round(fast_tsp_s, 2),
    }
    print(f"{instance.name}: {row}", flush=True)
    return row


def _option(name: str, default: str) -> str:
    words = sys.argv[1:]
    return words[words.index(name) + 1] if name in words else default


def main() -> int:
    """Run and record; the exit code."""
    folder, seconds = Path(_option("--folder", "tsplib")), float(_option("--seconds", str(_SECONDS)))
    names = _option("--instances", ",".join(INSTANCES)).split(",")
    if not (folder / SOLUTIONS).is_file():
        print(f"no {folder / SOLUTIONS}: git clone https://github.com/mastqe/tsplib, and give its folder by --folder",
              file=sys.stderr)  # fmt: skip
        return 1
    search_ring(three_tier(32, 0).rtt_us, 0, SearchBudget(1000, lambda _: True))  # compiles
    figures = {name: compare(read_instance(folder, name), seconds) for name in names}
    solved = {
        who: sum(row[f"{who}_gap"] <= 0 for row in figures.values()) for who in ("plink", "fast_tsp")
    }  # as whole numbers, so that no rounding is needed
    print(f"optimal, of {len(names)}: {solved}")
    bars = [
        Bar(f"optimal tours, of {len(names)}", solved["plink"], at_least=solved["fast_tsp"]),
        Bar("mean gap to the optimum", _mean(figures, "plink"), at_most=_mean(figures, "fast_tsp")),
    ]
    return record("order-tsplib", {"seconds": seconds, "instances": names}, figures, bars)


def _mean(figures: dict[str, dict[str, Any]], who: str) -> float:
    return round(float(np.mean([row[f"{who}_gap"] for row in figures.values()])), 6)


if __name__ == "__main__":
    sys.exit(main())
