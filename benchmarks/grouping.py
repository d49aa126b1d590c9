"""Balanced groups: do repeated clusterings agree (PLink thesis, Figure 4.4), are racks recovered, how long it takes.

The clouds are those of the embedding's benchmark: 64 hosts, noise so that the raw round trips have about 0.81 of the
triplets right. Figure 4.4 says that alpha = 2 makes more consistent clusters than alpha = 1 (AMI 0.76 against 0.59 over
100 runs); it is done again here with plain constrained k-means, as the thesis has it, on the plane and in the dimension
that plink chooses, and with plink's own clusterings. Each size is timed in a process of its own, embedding included,
imports and compilation not counted.
"""

import resource
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.clouds import Cloud, alike, three_tier
from benchmarks.embedding import _KINDS, _SIGMA, _cloud
from benchmarks.record import Bar, record, seeds_of
from plink.model.network import Matrix
from plink.model.network_file import NetworkDetails
from solvers.affinity import paia
from solvers.embedding.embed import Embedding, EmbeddingConstraints, embed
from solvers.grouping.balanced import (
    Labels,
    agreement,
    balanced_groups,
    by_appearance,
    clustering,
    effort,
    evidence_us,
    k_means,
    random_groups,
)
from solvers.grouping.cluster import cluster
from solvers.grouping.sizes import sizes_for
from solvers.hierarchy.tiers import nearest_tier

_HOSTS = 64
_SEEDS = {_HOSTS: 3}  # of each kind of racks
_RUNS = 100  # as in the thesis
_OWN_RUNS = 20
_RACKS = 100
_ALPHAS = (1.0, 1.5, 2.0)
_RAW = (0.78, 0.84)
_SECONDS = {64: 2.0, 1024: 10.0}
_MEGABYTES = 1536


def _within(label: Labels, rtt_us: Matrix) -> float:
    """Return the true mean round trip within groups."""
    return float(rtt_us[(label[:, None] == label) & ~np.eye(len(label), dtype=bool)].mean())


def _agreements(measured: Matrix, embedding: Embedding, cloud: Cloud, elasticity: float) -> dict[str, float]:
    """AMI of plain k-means and of plink's clusterings, and the true round trip within the groups of either."""
    sizes = sizes_for(len(measured), None, elasticity)
    plain = [k_means(embedding.coordinates, sizes, run) for run in range(_RUNS)]
    distances = evidence_us(measured, embedding.fitted_us)
    starts = effort(sizes.hosts)[1]
    own = [clustering(embedding.coordinates, distances, sizes, run, starts)[0] for run in range(_OWN_RUNS)]
    chosen = balanced_groups(embedding.coordinates, distances, sizes, 0).label
    blind = random_groups(sizes, np.random.default_rng(0))
    return {
        "plain": round(agreement(plain), 4),
        "plink": round(agreement(own), 4),
        "plain_within_us": round(statistics.mean(_within(label, cloud.rtt_us) for label in plain), 2),
        "plink_within_us": round(_within(chosen, cloud.rtt_us), 2),
        "random_within_us": round(_within(blind, cloud.rtt_us), 2),
    }


def clouds_of(kind: str, seeds: int) -> list[dict[str, Any]]:
    """For each cloud, by alpha, the agreement of repeated clusterings."""
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        cloud, measured = _cloud(_HOSTS, kind, seed)
        row: dict[str, Any] = {"kind": kind, "seed": seed, "raw": round(paia(measured, cloud.rtt_us), 4)}
        for alpha in _ALPHAS:
            plane = embed(measured, EmbeddingConstraints(2, alpha, heights=False, relative=False), seed)
            row[f"plane, alpha {alpha:g}"] = _agreements(measured, plane, cloud, 1.0)
            if alpha in (1.0, 2.0):
                embedding = embed(measured, EmbeddingConstraints(alpha=alpha), seed)
                for elasticity in (1.0, 2.0):
                    row[f"chosen, alpha {alpha:g}, elasticity {elasticity:g}"] = _agreements(
                        measured, embedding, cloud, elasticity
                    )
        rows.append(row)
    return rows


def racks_recovered(seeds: int) -> int:
    """Return how many clouds of eight racks of eight, well apart, come out exactly as they are."""
    exact = 0
    for seed in range(seeds):
        cloud = three_tier(_HOSTS, seed, "powers", noise_sigma=0.05, sample_sigma=0.05)
        measured = cloud.sample(np.random.default_rng((seed, 1)))
        network = replace(cloud.network(np.random.default_rng(0)), latency_us=measured, details=NetworkDetails())
        exact += sorted(cluster(network, seed=seed).groups) == _members(cloud.rack_of)
    return exact


def _members(label: Labels) -> list[list[int]]:
    return sorted(np.flatnonzero(label == group).tolist() for group in np.unique(label))


def tier_rates(seeds: int) -> dict[str, float]:
    """Return how often the nearest tier is exactly the racks, with the halves of the samples and without, and how
    often there is one where there should be none."""
    counts = {"racks": 0, "racks_without_halves": 0, "false": 0, "false_without_halves": 0}
    for seed in range(seeds):
        for cloud in (three_tier(_HOSTS, seed, "powers", 0.15, 0.2), alike(32, seed, 0.85)):
            network = cloud.network(np.random.default_rng((seed, 2)))
            with_halves, without = (
                nearest_tier(network.rtt_us, halves=halves) for halves in (network.half_rtts_us, ())
            )
            for name, labels in (("", with_halves), ("_without_halves", without)):
                if cloud.rack_of.any():
                    counts[f"racks{name}"] += labels.tolist() == by_appearance(cloud.rack_of).tolist()
                else:
                    counts[f"false{name}"] += bool(labels.any())
    return {name: number / seeds for name, number in counts.items()}


def _seconds_of(hosts: int) -> tuple[float, float]:
    """Return seconds for all that `plink cluster` works out, and the process's largest size in MB, in a process of its
    own."""
    few, network = (_cloud(n, "uneven", 0)[0].network(np.random.default_rng(3)) for n in (8, hosts))
    cluster(few)
    began = time.perf_counter()
    cluster(network)
    return time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(hosts: int) -> dict[str, float]:
    """Return the same from outside."""
    command = [sys.executable, "-m", "benchmarks.grouping", "--time", str(hosts)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {
        name: round(float(value), 3) for name, value in zip(("seconds", "megabytes"), done.stdout.split(), strict=True)
    }


def main() -> int:
    """Run and record; the exit code."""
    if "--time" in sys.argv:
        print(*_seconds_of(int(sys.argv[sys.argv.index("--time") + 1])))
        return 0
    seeds = seeds_of(_SEEDS)[_HOSTS]
    rows = [row for kind in _KINDS for row in clouds_of(kind, seeds)]
    keys = [key for key in rows[0] if "alpha" in key]
    mean = {
        key: {name: round(statistics.mean(row[key][name] for row in rows), 4) for name in rows[0][key]} for key in keys
    }
    tried = min(_RACKS, 34 * seeds)
    exact = racks_recovered(tried)
    stood_out = tier_rates(tried // 5)
    times = {hosts: timed(hosts) for hosts in _SECONDS}
    raw = statistics.mean(row["raw"] for row in rows)
    bars = [
        Bar("PAIA of the raw round trips, far enough from 1", round(raw, 4), at_most=_RAW[1]),
        Bar("PAIA of the raw round trips, far enough from chance", round(raw, 4), at_least=_RAW[0]),
        *(
            Bar(f"AMI of repeated clusterings, mean, {key}", mean[key]["plink"], at_least=0.76)
            for key in keys
            if "alpha 2" in key
        ),
        Bar("racks recovered exactly, share of seeds", exact / tried, at_least=1.0),
        Bar("nearest tiers where there is noise only, share of seeds", stood_out["false"], at_most=0.05),
        *(Bar(f"seconds, {hosts} hosts", row["seconds"], at_most=_SECONDS[hosts]) for hosts, row in times.items()),
        Bar("megabytes, 1024 hosts", times[1024]["megabytes"], at_most=_MEGABYTES),
    ]
    figures = {"means": mean, "racks_exact": exact, "tiers": stood_out, "times": times, "clouds": rows}
    configuration = {
        "hosts": _HOSTS, "seeds": seeds, "kinds": _KINDS, "sample_sigma": _SIGMA, "runs": _RUNS, "own_runs": _OWN_RUNS,
        "racks_tried": tried,
    }  # fmt: skip
    return record("grouping", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
