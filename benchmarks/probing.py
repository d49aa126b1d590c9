"""The probe on the lab: time, separation of racks with idle and busy cores beside fping, 64 hosts, shared links."""

import multiprocessing
import statistics
import sys
import time
from typing import Any

import numpy as np

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from plink.model.network import Matrix, symmetrised
from solvers.affinity import paia

_IDLE_RUNS = 3


def _latency(bench: BenchLab, name: str) -> Matrix:
    return symmetrised(bench.network(name).latency_us)


def _sixteen() -> dict[str, Any]:
    """4 x 4 hosts, all pairs, 10,000 probes: idle, with every core kept busy, and fping."""
    with lab("--seed", "1") as bench:
        words = ("probe", bench.hosts_file, "--no-shared-links")
        runs = [bench.plink(*words, "-o", "idle.json") for _ in range(_IDLE_RUNS)]
        idle = _latency(bench, "idle.json")
        # As slow as it is: an echo takes fping 10 ms or so, and its median is settled long before.
        fping = bench.plink(*words, "--method", "icmp", "--count", "1000", "-o", "fping.json")
        busy = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(multiprocessing.cpu_count())]
        for process in busy:
            process.start()
        loaded = bench.plink(*words, "-o", "busy.json")
        for process in busy:
            process.kill()
            process.join()
        off = ~np.eye(len(idle), dtype=bool)
        change = np.abs(_latency(bench, "busy.json")[off] / idle[off] - 1)
        raw = np.abs(bench.network("busy.json").latency_us[off] / bench.network("idle.json").latency_us[off] - 1)
        return {
            "seconds": [round(run.seconds, 1) for run in runs],
            "seconds_median": round(statistics.median(run.seconds for run in runs), 1),
            "paia": round(paia(idle, bench.router_hops), 4),
            "paia_busy": round(paia(_latency(bench, "busy.json"), bench.router_hops), 4),
            "paia_fping": round(paia(_latency(bench, "fping.json"), bench.router_hops), 4),
            "fping_seconds": round(fping.seconds, 1),
            "busy_seconds": round(loaded.seconds, 1),
            "busy_change_p10_max": round(float(raw.max()), 3),
            "busy_change_symmetrised_max": round(float(change.max()), 3),
            "busy_change_median": round(float(np.median(raw)), 3),
            "exit_codes": [run.code for run in (*runs, fping, loaded)],
        }


def _spin() -> None:
    ends = time.monotonic() + 300
    while time.monotonic() < ends:
        sum(range(10_000))


def _sixty_four() -> dict[str, Any]:
    """64 agents in 64 namespaces, all pairs, 2,000 probes."""
    with lab("--racks", "16", "--seed", "2") as bench:
        run = bench.plink("probe", bench.hosts_file, "--count", "2000", "--no-shared-links", "-o", "64.json")
        return {
            "seconds": round(run.seconds, 1),
            "controller_peak_mb": round(run.peak_mb),
            "paia": round(paia(_latency(bench, "64.json"), bench.router_hops), 4),
            "exit_code": run.code,
        }


def _shared(uplink_mbit: int) -> dict[str, Any]:
    """Shared links of 4 hosts of 200 Mbit/s behind one uplink against the uplink's rate."""
    with lab("--uplink-rate", f"{uplink_mbit}mbit", "--seed", "3") as bench:
        run = bench.plink("probe", bench.hosts_file, "--count", "1000", "-o", "shared.json")
        rows = [row for tier in bench.network("shared.json").shared_links for row in tier["groups"]]
        rates = [1000 * row[key] for row in rows for key in ("out_gbps", "in_gbps")]
        return {
            "truth_mbit": uplink_mbit,
            "measured_mbit": [round(rate, 1) for rate in rates],
            "worst_error": round(max((abs(rate / uplink_mbit - 1) for rate in rates), default=1.0), 4),
            "limited_by": sorted({row[key] for row in rows for key in ("out_limited_by", "in_limited_by")}),
            "seconds": round(run.seconds, 1),
            "exit_code": run.code,
        }


def main() -> int:
    """Run and record; the exit code."""
    figures = {
        "sixteen_hosts": _sixteen(),
        "sixty_four_hosts": _sixty_four(),
        "shared_links": {name: _shared(rate) for name, rate in (("1:1", 800), ("2:1", 400), ("4:1", 200))},
    }
    return record("probing", {"host_rate": "200mbit", "hosts_per_rack": 4}, figures, bars_of(figures))


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted."""
    sixteen, many = figures["sixteen_hosts"], figures["sixty_four_hosts"]
    return [
        Bar("16 hosts, 10,000 probes a pair, seconds (median)", sixteen["seconds_median"], at_most=25.0),
        Bar("PAIA", sixteen["paia"], at_least=0.99),
        Bar("PAIA, busy cores", sixteen["paia_busy"], at_least=0.97),
        Bar("largest change of a 10th percentile, busy", sixteen["busy_change_p10_max"], at_most=0.25),
        Bar("64 hosts, 2,000 probes a pair, seconds", many["seconds"], at_most=180.0),
        Bar("64 hosts, controller's MB", many["controller_peak_mb"], at_most=400.0),
        *(
            Bar(f"shared links at {name}, worst error", row["worst_error"], at_most=0.15)
            for name, row in figures["shared_links"].items()
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
