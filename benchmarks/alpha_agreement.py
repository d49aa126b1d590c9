"""Figure 4.4 of the PLink thesis: the alpha of an embedding, how far 100 clusterings of it agree, and what is true.

As the thesis has it: a plane, no heights, errors in microseconds, constrained k-means from 100 seeds. The clouds are
those of :mod:`benchmarks.embedding`, whose raw round trips have about 0.81 of the triplets right. Beside the agreement
(AMI, mean of all pairs of runs) stand the accuracy of the fitted distances (PAIA) and the true mean round trip within
groups: that clusterings agree does not make them right. plink's own clusterings are in :mod:`benchmarks.grouping`.
"""

import statistics
import sys
from typing import Any

import numpy as np

from benchmarks.embedding import _HOSTS, _KINDS, _RAW, _SIGMA, _cloud
from benchmarks.record import Bar, record, seeds_of
from benchmarks.thesis_plot import ThesisPlot
from plink.model.network import Matrix
from solvers.affinity import paia
from solvers.embedding.embed import embed
from solvers.embedding.pairs import EmbeddingConstraints
from solvers.grouping.balanced import Labels, agreement, k_means
from solvers.grouping.sizes import sizes_for

_SEEDS = {_HOSTS: 3}  # of each kind of racks
_RUNS = 100
_ALPHAS = (1.0, 1.5, 2.0)


def _within(label: Labels, rtt_us: Matrix) -> float:
    """Return the true mean round trip within groups."""
    return float(rtt_us[(label[:, None] == label) & ~np.eye(len(label), dtype=bool)].mean())


def rows_of(kind: str, seed: int) -> list[dict[str, Any]]:
    """Return one cloud: a row for each alpha."""
    cloud, measured = _cloud(_HOSTS, kind, seed)
    sizes, rows = sizes_for(_HOSTS, None, 1.0), []
    for alpha in _ALPHAS:
        plane = embed(measured, EmbeddingConstraints(2, alpha, heights=False, relative=False), seed)
        runs = [k_means(plane.coordinates, sizes, run) for run in range(_RUNS)]
        rows.append(
            {
                "kind": kind, "seed": seed, "alpha": alpha, "raw": round(paia(measured, cloud.rtt_us), 4),
                "paia": round(paia(plane.fitted_us, cloud.rtt_us), 4), "ami": round(agreement(runs), 4),
                "within_us": round(statistics.mean(_within(label, cloud.rtt_us) for label in runs), 2),
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    from benchmarks.drawing import curves

    means = {float(alpha): row for alpha, row in figures["means"].items()}
    alpha_1, alpha_2 = means[1.0], means[2.0]
    clouds = {(row["kind"], row["seed"]) for row in figures["clouds"]}
    text = (
        f"{alpha_1['ami']:.2f} at alpha 1, {alpha_2['ami']:.2f} at alpha 2 ({len(clouds)} clouds); PAIA of the fitted "
        f"distances {100 * alpha_1['paia']:.1f} % and {100 * alpha_2['paia']:.1f} %, true round trip "
        f"within groups {alpha_1['within_us']:.1f} and "
        f"{alpha_2['within_us']:.1f} µs"
    )
    alphas = list(means)
    picture = curves(
        "figure-4-4", "Alpha: agreement of 100 clusterings, and accuracy",
        f"a plane, constrained k-means; mean of {len(clouds)} clouds",
        {
            "agreement (AMI)": (alphas, [row["ami"] for row in means.values()]),
            "accuracy (PAIA) of fitted distances": (alphas, [row["paia"] for row in means.values()]),
            "the thesis's AMI": ([1.0, 2.0], [0.59, 0.76]),
        },
        "alpha", "share",
    )  # fmt: skip
    table = ["| alpha | AMI | by cloud | PAIA | within groups, µs |", "|---" * 5 + "|"]
    for alpha, row in means.items():
        each = ", ".join(f"{row['ami']:.2f}" for row in figures["clouds"] if row["alpha"] == alpha)
        table.append(f"| {alpha:g} | {row['ami']:.3f} | {each} | {row['paia']:.3f} | {row['within_us']:.1f} |")
    return {"figure-4-4": ThesisPlot(text, picture, "\n".join(table))}


def main() -> int:
    """Run and record; the exit code."""
    seeds = seeds_of(_SEEDS)[_HOSTS]
    rows = [row for kind in _KINDS for seed in range(seeds) for row in rows_of(kind, seed)]
    means = {
        alpha: {
            key: round(statistics.mean(row[key] for row in rows if row["alpha"] == alpha), 4)
            for key in ("raw", "paia", "ami", "within_us")
        }
        for alpha in _ALPHAS
    }
    raw = statistics.mean(row["raw"] for row in rows)
    bars = [
        Bar("PAIA of the raw round trips, far enough from 1", round(raw, 4), at_most=_RAW[1]),
        Bar("PAIA of the raw round trips, far enough from chance", round(raw, 4), at_least=_RAW[0]),
        Bar("AMI at alpha 2 less that at alpha 1", round(means[2.0]["ami"] - means[1.0]["ami"], 4), at_least=0.05),
    ]
    configuration = {"hosts": _HOSTS, "seeds": seeds, "kinds": _KINDS, "sample_sigma": _SIGMA, "runs": _RUNS}
    return record("alpha-agreement", configuration, {"means": means, "clouds": rows}, bars)


if __name__ == "__main__":
    sys.exit(main())
