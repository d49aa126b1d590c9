"""PAIA by the kind of probe (PLink thesis, 6.2.5): every way plink has to measure a pair, raw and after an embedding.

A lab of 4 racks of 3 hosts; the true distance of two hosts is the routers between them. A bandwidth stands for a
distance by its inverse.
"""

import sys
from typing import Any

import numpy as np

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from benchmarks.thesis_plot import ThesisPlot
from plink.model.network import Matrix, symmetrised
from solvers.affinity import paia, triplets
from solvers.embedding.embed import embed

_HOSTS = 3  # of a rack
_METHODS = {  # what is asked for; some minutes in all
    "STAMP, kernel's stamps": ("--method", "stamp", "--count", "10000"),
    "ICMP echo (fping)": ("--method", "icmp", "--count", "200"),
    "TCP handshake": ("--method", "tcp", "--count", "200"),
    "bandwidth (iperf3)": ("--method", "iperf3", "--bandwidth-time", "0.5s"),
}


def _distances(bench: BenchLab, name: str, file: str) -> Matrix:
    """Return what was measured as a distance, shape (N, N), the same both ways."""
    network = bench.network(file)
    if "bandwidth" not in name:
        return symmetrised(network.latency_us)
    assert network.bandwidth_gbps is not None
    with np.errstate(divide="ignore"):
        distances = symmetrised(1 / network.bandwidth_gbps)
    np.fill_diagonal(distances, 0.0)
    return distances


def _measured(bench: BenchLab, name: str, words: tuple[str, ...]) -> dict[str, Any]:
    """Return one probe of all pairs: PAIA raw and of an embedding's fitted distances (null where a pair is missing)."""
    done = bench.plink("probe", bench.hosts_file, "--no-shared-links", *words, "-o", "probed.json")
    if done.code:
        raise SystemExit(f"{name}: exit code {done.code}\n{done.stderr[-2000:]}")
    distances = _distances(bench, name, "probed.json")
    whole = bool(np.isfinite(distances).all())
    fitted = paia(embed(distances).fitted_us, bench.router_hops) if whole else None
    row = {
        "seconds": round(done.seconds, 1),
        "paia": round(paia(distances, bench.router_hops), 4),
        "paia_embedded": None if fitted is None else round(fitted, 4),
        "distances": np.round(distances, 4).tolist() if whole else None,
    }
    print(name, {key: value for key, value in row.items() if key != "distances"}, flush=True)
    return row


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    from benchmarks.drawing import strips

    methods = figures["methods"]
    text = "; ".join(
        f"{name} {100 * row['paia']:.1f} %"
        + (f" (embedded {100 * row['paia_embedded']:.1f} %)" if row["paia_embedded"] is not None else "")
        for name, row in methods.items()
    )  # fmt: skip
    picture = strips(
        "probe-methods", "PAIA by the kind of probe",
        f"{4 * _HOSTS} hosts in 4 racks, {figures['triplets']} triplets; crosses: the thesis",
        {
            f"{name}{', embedded' if key == 'paia_embedded' else ''}": [row[key]]
            for name, row in methods.items() for key in ("paia", "paia_embedded")
            if row[key] is not None
        },
        "PAIA", marks={"STAMP, kernel's stamps": 0.956, "bandwidth (iperf3)": 0.774},
    )  # fmt: skip
    return {"probe-methods": ThesisPlot(text, picture)}


def main() -> int:
    """Run and record; the exit code. ``--quick``: four hosts, few probes, to see that it works; nothing is recorded."""
    quick = "--quick" in sys.argv
    size = ("--racks", "2", "--hosts-per-rack", "2") if quick else ("--hosts-per-rack", str(_HOSTS))
    with lab("--seed", "1", *size) as bench:
        methods = {
            name: _measured(bench, name, (*words[:3], "40") if quick and "--count" in words else words)
            for name, words in _METHODS.items()
        }
        figures = {"methods": methods, "triplets": triplets(bench.router_hops), "hops": bench.router_hops.tolist()}
    if quick:
        return 0
    stamp, iperf3 = (methods[name]["paia"] for name in ("STAMP, kernel's stamps", "bandwidth (iperf3)"))
    bars = [
        Bar("PAIA by STAMP", stamp, at_least=0.956),
        Bar("the same less that by bandwidth", stamp - iperf3, at_least=0.1),
    ]
    return record("probe-methods", {"racks": 4, "hosts_per_rack": _HOSTS, "methods": _METHODS}, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
