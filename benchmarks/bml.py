"""BML over hosts with several interfaces against all-reduces over one (Wang et al., NeurIPS 2018, Figure 5).

A BCube and a star of as many hosts with one interface of the same rate, side by side and in turns. On the BCube ranks
are in the order of ``plink reorder --algo bml``, found from a probe. ``--hypercube``: 8 hosts with 3 cables each, too.
"""

import contextlib
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record

_PROGRAM = str(Path(__file__).parent / "timing" / "allreduce.py")
_SIZES = (1_000_000, 4_000_000, 12_500_000, 25_000_000)
_ROUNDS, _REPEATS = 2, 3
GLOO = "gloo"


@dataclass(frozen=True)
class Shape:
    """A BCube, the rate of its interfaces in bit/s, and the algorithms that are timed on it and on the star."""

    base: int
    levels: int
    rate: int
    on_bcube: tuple[str, ...]
    on_star: tuple[str, ...]

    @property
    def hosts(self) -> int:
        """How many there are."""
        return self.base**self.levels

    def bound_s(self, size_bytes: int) -> float:
        """Return what BML cannot beat: 2(N-1)/(kN) of the vector over one interface."""
        return 2 * (self.hosts - 1) / (self.levels * self.hosts) * 8 * size_bytes / self.rate


SHAPES = {
    "BCube(3,2)": Shape(3, 2, 100_000_000, ("bml", "flat", "bcube", GLOO), ("flat", GLOO)),
    "BCube(2,3)": Shape(2, 3, 67_000_000, ("bml",), ("flat", GLOO)),
}


def _time(bench: BenchLab, algo: str, order: str) -> list[dict[str, Any]]:
    backend = () if algo == GLOO else ("--backend", algo)
    words = ["--order", order, "--hosts", bench.hosts_file, *backend, "--env", "OMP_NUM_THREADS=1", _PROGRAM]
    done = subprocess.run(
        [sys.executable, "-m", "plink", "launch", *words, str(_REPEATS), *map(str, _SIZES)],
        cwd=bench.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def _measure(shape: Shape) -> list[dict[str, Any]]:
    """Return a row for each network, algorithm and size: samples of all rounds, their median, the least idle share."""
    rate = f"{shape.rate}bit"
    on_bcube = ("--topology", "bcube", "--base", str(shape.base), "--levels", str(shape.levels), "--host-rate", rate)
    on_star = ("--racks", "1", "--hosts-per-rack", str(shape.hosts), "--host-rate", rate)
    samples: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    with contextlib.ExitStack() as labs:
        bcube = labs.enter_context(lab("--seed", "3", *on_bcube, suffix="bcube"))
        star = labs.enter_context(lab("--seed", "3", *on_star, suffix="star"))
        for words in (("probe", bcube.hosts_file, "--count", "200"), ("reorder", "--algo", "bml")):
            if (run := bcube.plink(*words)).code:
                raise SystemExit(run.stderr)
        ways = [("bcube", bcube, algo, ".plink/order.json") for algo in shape.on_bcube]
        ways += [("star", star, algo, "given") for algo in shape.on_star]
        for _ in range(_ROUNDS):
            for network, bench, algo, order in ways:
                for row in _time(bench, algo, order):
                    samples.setdefault((network, algo, row["bytes"]), []).append(row)
                print(network, algo, [row["seconds"] for row in samples[network, algo, _SIZES[-1]]], flush=True)
    return [
        {
            "network": network, "algorithm": algo, "bytes": size,
            "seconds": [value for row in rows for value in row["seconds"]],
            "median_s": statistics.median(value for row in rows for value in row["seconds"]),
            "idle": min(row["idle"] for row in rows), "bml_bound_s": round(shape.bound_s(size), 4),
        }
        for (network, algo, size), rows in samples.items()
    ]  # fmt: skip


def main() -> int:
    """Return the exit code: 1 when a bar is missed."""
    names = [name for name in SHAPES if name == "BCube(3,2)" or "--hypercube" in sys.argv]
    results, bars = {}, []
    for name in names:
        rows = results[name] = _measure(SHAPES[name])
        largest = {(row["network"], row["algorithm"]): row for row in rows if row["bytes"] == _SIZES[-1]}
        bml = largest["bcube", "bml"]
        faster = {way: row["median_s"] / bml["median_s"] for way, row in largest.items()}
        if name == "BCube(3,2)":
            bars.append(Bar("BML over its bound", bml["median_s"] / bml["bml_bound_s"], at_most=1.09))
            for algo in ("flat", GLOO):
                bars.append(Bar(f"BML against {algo} on a star", faster["star", algo], at_least=1.85))
            bars.append(Bar("BML against flat on the BCube", faster["bcube", "flat"], at_least=1.35))
            bars.append(Bar("BML against bcube", faster["bcube", "bcube"], at_least=1.35))
        else:
            bars.append(Bar("hypercube: BML against a ring on a star", faster["star", GLOO], at_least=2.6))
            bars.append(Bar("hypercube: BML against flat on a star", faster["star", "flat"], at_least=2.6))
        bars.append(Bar(f"{name}: idle share of the processors", bml["idle"], at_least=0.2))
    return record("bml", {"sizes": _SIZES, "rounds": _ROUNDS, "repeats": _REPEATS}, results, bars)


if __name__ == "__main__":
    sys.exit(main())
