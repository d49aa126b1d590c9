"""What an embedding sees through the noise: PAIA before and after (PLink thesis 6.2.5), and how long it takes.

Clouds of three tiers, in even and uneven racks, whose hosts differ by nothing but their place; the noise is so large
that the raw round trips have about 0.81 of the triplets right, as the thesis measured. Each size is timed in a process
of its own, imports and PyTorch's first steps not counted.
"""

import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.clouds import Cloud, three_tier
from benchmarks.record import Bar, record, seeds_of
from benchmarks.thesis_plot import ThesisPlot
from plink.features.order.smoothing import verdict_on
from plink.model.network import Matrix, symmetrised
from solvers.affinity import paia
from solvers.embedding.embed import embed
from solvers.embedding.pairs import EmbeddingConstraints

_HOSTS = 64
_SEEDS = {_HOSTS: 10}  # of each kind of racks
_KINDS = ("powers", "uneven")
_SIGMA = 0.85
_RAW = (0.78, 0.84)  # PAIA that counts as about 0.81
_CONSTRAINTS = {
    "alpha 1": EmbeddingConstraints(alpha=1.0),
    "alpha 2": EmbeddingConstraints(alpha=2.0),
    "alpha 1, 2 dimensions, no heights, absolute": EmbeddingConstraints(2, 1.0, heights=False, relative=False),
    "alpha 2, 2 dimensions, no heights, absolute": EmbeddingConstraints(2, 2.0, heights=False, relative=False),
    "chosen": EmbeddingConstraints(),
}
_BARS = {"alpha 1": 5, "alpha 2": 8, "chosen": 12}  # points
_SECONDS = {64: 2.0, 512: 20.0, 1024: 20.0}
_MEGABYTES = 1536


def _cloud(hosts: int, kind: str, seed: int) -> tuple[Cloud, Matrix]:
    """Return a cloud, and what was measured of it."""
    cloud = three_tier(hosts, seed, kind, noise_sigma=0.0, sample_sigma=_SIGMA)
    return cloud, symmetrised(cloud.sample(np.random.default_rng((seed, 1))))


def gains_of(kind: str, seeds: int) -> list[dict[str, Any]]:
    """For each cloud PAIA raw, and by how many points each wish raises it."""
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        cloud, measured = _cloud(_HOSTS, kind, seed)
        raw = paia(measured, cloud.rtt_us)
        row: dict[str, Any] = {"kind": kind, "seed": seed, "raw": round(raw, 4), "points": {}, "settings": {}}
        for name, constraints in _CONSTRAINTS.items():
            embedding = embed(measured, constraints, seed)
            row["points"][name] = round(100 * (paia(embedding.fitted_us, cloud.rtt_us) - raw), 2)
            row["settings"][name] = [
                *vars(embedding.setting).values(),
                embedding.steps,
                round(embedding.held_out_error, 4),
            ]
        rows.append(row)
    return rows


def _seconds_of(hosts: int) -> tuple[float, float, float, float]:
    """Return seconds with the verdict, the process's largest size in MB, and PAIA raw and fitted; in a process of its
    own."""
    cloud, measured = _cloud(hosts, "uneven", 0)
    network = cloud.network(np.random.default_rng((0, 2)))
    embed(measured[:8, :8])
    began = time.perf_counter()
    embedding = embed(measured)
    verdict_on(network, embedding, 0)
    took = time.perf_counter() - began
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return took, largest, paia(measured, cloud.rtt_us), paia(embedding.fitted_us, cloud.rtt_us)


def timed(hosts: int) -> dict[str, float]:
    """Return the same from outside."""
    command = [sys.executable, "-m", "benchmarks.embedding", "--time", str(hosts)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = ("seconds", "megabytes", "raw", "fitted")
    return {name: round(float(value), 3) for name, value in zip(names, done.stdout.split(), strict=True)}


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    from benchmarks.drawing import strips

    points, clouds = figures["points"], figures["clouds"]
    raw = statistics.mean(row["raw"] for row in clouds)
    plane = [points[f"alpha {alpha}, 2 dimensions, no heights, absolute"]["mean"] for alpha in (1, 2)]
    text = (
        f"from {100 * raw:.1f} %, {len(clouds)} clouds: {points['alpha 1']['mean']:.1f} points at alpha 1, "
        f"{points['alpha 2']['mean']:.1f} at alpha 2; as the thesis fits, in a plane, {plane[0]:.1f} and {plane[1]:.1f}"
    )
    names = {
        "alpha 1": "alpha 1", "alpha 2": "alpha 2", "chosen": "what plink chooses",
        "alpha 1, 2 dimensions, no heights, absolute": "alpha 1, a plane",
        "alpha 2, 2 dimensions, no heights, absolute": "alpha 2, a plane",
    }  # fmt: skip
    picture = strips(
        "embedding", "Points of PAIA that an embedding adds",
        f"{len(clouds)} clouds of 64 hosts; the crosses are the thesis's",
        {label: [row["points"][name] for row in clouds] for name, label in names.items()}, "points",
        marks={"alpha 1": 5.0, "alpha 2": 8.1, "alpha 1, a plane": 5.0, "alpha 2, a plane": 8.1},
    )  # fmt: skip
    return {"embedding": ThesisPlot(text, picture)}


def main() -> int:
    """Run and record; the exit code."""
    if "--time" in sys.argv:
        print(*_seconds_of(int(sys.argv[sys.argv.index("--time") + 1])))
        return 0
    seeds = seeds_of(_SEEDS)[_HOSTS]
    rows = [row for kind in _KINDS for row in gains_of(kind, seeds)]
    points = {name: [row["points"][name] for row in rows] for name in _CONSTRAINTS}
    times = {hosts: timed(hosts) for hosts in _SECONDS}
    raw = statistics.mean(row["raw"] for row in rows)
    bars = [
        Bar("PAIA of the raw round trips, far enough from 1", raw, at_most=_RAW[1]),
        Bar("PAIA of the raw round trips, far enough from chance", raw, at_least=_RAW[0]),
        *(
            Bar(f"points of PAIA gained, mean, {name}", round(statistics.mean(points[name]), 2), at_least=least)
            for name, least in _BARS.items()
        ),
        *(Bar(f"seconds, {hosts} hosts", row["seconds"], at_most=_SECONDS[hosts]) for hosts, row in times.items()),
        Bar("megabytes, 1024 hosts", times[1024]["megabytes"], at_most=_MEGABYTES),
    ]
    figures = {
        "points": {
            name: {"mean": round(statistics.mean(values), 2), "least": min(values)} for name, values in points.items()
        },
        "times": times,
        "clouds": rows,
    }
    configuration = {"hosts": _HOSTS, "seeds": seeds, "kinds": _KINDS, "sample_sigma": _SIGMA}
    return record("embedding", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
