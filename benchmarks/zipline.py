"""ZipLine beside the grid searches it is compared with (Zhao et al. 2019, Table II): microseconds, and how good.

Each of n workers has R predicted ends, ``start + j * interval`` with intervals of U(0.5, 3): arithmetic rows, as
predictions are. Grid searches are compiled, so that they are no straw men: ``brute`` looks at every point of every
row, as the complexity in the paper's Table I says, ``walking`` goes forward in each row as the row looked at does.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numba import njit

from benchmarks.record import Bar, record
from plink.runtime.elastic.worker.zipline import barrier

if TYPE_CHECKING:
    from benchmarks.thesis_plot import ThesisPlot

Ends = npt.NDArray[np.float64]

# Microseconds of the paper's Table II: ZipLine, FullGridScan.
PAPER = {
    (10, 15): (149, 1_540), (10, 150): (1_320, 46_700), (100, 15): (6_370, 81_300),
    (100, 150): (49_900, 2_150_000), (1000, 15): (253_000, 4_040_000), (1000, 150): (2_380_000, 207_000_000),
}  # fmt: skip
_INSTANCES, _QUALITY_INSTANCES = 10, 10_000
_MOST_US = 2e5  # of a grid search


def ends_of(workers: int, steps: int, seed: int) -> Ends:
    """Return predicted ends, shape (workers, steps)."""
    rng = np.random.default_rng(seed)
    start, interval = rng.uniform(0, 1, (workers, 1)), rng.uniform(0.5, 3, (workers, 1))
    return np.asarray(start + interval * np.arange(1, steps + 1))


def as_printed(ends: Ends) -> tuple[float, list[int]]:
    """Return the least wait and each worker's steps by the paper's Algorithm 2, word by word."""
    workers = len(ends)
    points = sorted((float(end), worker, step + 1) for worker, row in enumerate(ends) for step, end in enumerate(row))
    chosen: dict[int, tuple[float, int]] = {}
    at = 0

    def fill() -> bool:
        nonlocal at
        while len(chosen) < workers:
            if at == len(points):
                return False
            end, worker, step = points[at]
            chosen[worker] = (end, step)
            at += 1
        return True

    def wait() -> float:
        times = [end for end, _ in chosen.values()]
        return max(times) - min(times)

    fill()
    best, result = wait(), dict(chosen)
    while at < len(points):
        del chosen[min(chosen, key=lambda worker: chosen[worker])]
        if fill() and wait() < best:
            best, result = wait(), dict(chosen)
    return best, [result[worker][1] for worker in range(workers)]


@njit(cache=True)
def grid_scan(ends: Ends, base: int, walking: bool) -> float:
    """Return the least wait of the choices of a point of row ``base`` and the nearest one of each other row."""
    workers, steps = ends.shape
    best = np.inf
    near = np.zeros(workers, dtype=np.int64)
    for point in range(steps):
        at = ends[base, point]
        low, high = at, at
        for row in range(workers):
            if row == base:
                continue
            if walking:
                k = near[row]
                while k + 1 < steps and abs(ends[row, k + 1] - at) <= abs(ends[row, k] - at):
                    k += 1
                near[row] = k
                nearest = ends[row, k]
            else:
                nearest = ends[row, 0]
                for k in range(1, steps):
                    if abs(ends[row, k] - at) < abs(nearest - at):
                        nearest = ends[row, k]
            low, high = min(low, nearest), max(high, nearest)
        best = min(best, high - low)
    return best


@njit(cache=True)
def full_grid_scan(ends: Ends, rows: int, walking: bool) -> float:
    """Return the least wait with each of the first ``rows`` rows as the base."""
    best = np.inf
    for base in range(rows):
        best = min(best, grid_scan(ends, base, walking))
    return best


def _median_us(task: Callable[[int], object], instances: int = _INSTANCES) -> float:
    task(0)
    seconds = []
    for instance in range(instances):
        began = time.perf_counter()
        task(instance)
        seconds.append(time.perf_counter() - began)
    return 1e6 * statistics.median(seconds)


def _full_us(instances: list[Ends], walking: bool) -> float:
    """Return the time of FullGridScan; in large cells by as many base rows as that may take, in proportion."""
    workers = len(instances[0])
    row_us = _median_us(lambda _: full_grid_scan(instances[0], 1, walking), 1)
    rows = min(workers, max(1, int(_MOST_US / row_us)))
    count = _INSTANCES if rows == workers else 1
    return _median_us(lambda k: full_grid_scan(instances[k], rows, walking), count) * workers / rows


def thesis_plots(figures: dict[str, Any]) -> "dict[str, ThesisPlot]":
    """For docs/results/theses.md: microseconds of both, by cell, beside the paper's."""
    from benchmarks.drawing import curves
    from benchmarks.thesis_plot import ThesisPlot

    cells = {name: row for name, row in figures.items() if name != "worse than ZipLine"}
    places = list(range(len(cells)))
    lines = {
        "ZipLine, ours": "zipline_us", "ZipLine, the paper": "paper_zipline_us",
        "FullGridScan, compiled here": "full_grid_scan_us", "FullGridScan, the paper": "paper_full_grid_scan_us",
    }  # fmt: skip
    series = {label: (places, [row[key] for row in cells.values()]) for label, key in lines.items()}
    names = {place: name.replace(" workers, ", "\n") for place, name in enumerate(cells)}
    picture = curves(
        "zhao-table-2", "Time to find a barrier", "microseconds, medians", series, "workers and R", "µs", log="y",
        xticks=names,
    )  # fmt: skip
    shares = [row["zipline_us"] / row["paper_zipline_us"] for row in cells.values()]
    ratios = [row["full_grid_scan_us"] / row["zipline_us"] for row in cells.values()]
    worse = figures["worse than ZipLine"]
    text = (
        f"{min(shares):.3f} to {max(shares):.2f} of the paper's times; compiled FullGridScan takes {min(ratios):.1f} "
        f"to {max(ratios):,.0f} times as long, and waits longer in {worse['full']:.1%} of random instances "
        f"(from one row: {worse['grid']:.0%})"
    )
    rows = ["| | " + " | ".join(lines) + " |", "|---" * (1 + len(lines)) + "|"]
    rows += [
        f"| {name} | " + " | ".join(f"{row[key]:,.0f}" for key in lines.values()) + " |" for name, row in cells.items()
    ]
    return {"zhao-table-2": ThesisPlot(text, picture, "Microseconds:\n\n" + "\n".join(rows))}


def main() -> int:
    """Run and record; the exit code."""
    full_grid_scan(ends_of(2, 2, 0), 2, False)
    full_grid_scan(ends_of(2, 2, 0), 2, True)
    figures, bars = {}, []
    for (workers, steps), (paper_us, paper_full_us) in PAPER.items():
        instances = [ends_of(workers, steps, seed) for seed in range(_INSTANCES)]
        own = _median_us(lambda k, instances=instances: barrier(instances[k]))  # type: ignore[misc]
        brute, walking = _full_us(instances, False), _full_us(instances, True)
        cell = {"zipline_us": own, "full_grid_scan_us": brute, "full_grid_scan_walking_us": walking}
        cell |= {"paper_zipline_us": paper_us, "paper_full_grid_scan_us": paper_full_us}
        figures[f"{workers} workers, R={steps}"] = {name: round(value, 1) for name, value in cell.items()}
        bars.append(Bar(f"{workers} workers, R={steps}: time over the paper's", own / paper_us, at_most=0.2))
        if steps == 150 or workers >= 100:
            least = paper_full_us / paper_us
            bars.append(Bar(f"{workers} workers, R={steps}: FullGridScan over ZipLine", brute / own, at_least=least))
    worse = {"grid": 0, "full": 0}
    for seed in range(_QUALITY_INSTANCES):
        ends = ends_of(3 + seed % 6, 5 + seed % 11, seed)
        wait_s = barrier(ends)[0]
        base = int(np.argmin(ends[:, 0]))
        for name, other in (("grid", grid_scan(ends, base, False)), ("full", full_grid_scan(ends, len(ends), False))):
            assert wait_s <= other + 1e-12
            worse[name] += other > wait_s + 1e-12
    figures["worse than ZipLine"] = {name: count / _QUALITY_INSTANCES for name, count in worse.items()}
    return record("zipline", {"instances": _INSTANCES, "quality_instances": _QUALITY_INSTANCES}, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
