"""Intervals of predicted times: measured over predicted times of libraries' all-reduces on labs.

``solvers/costs/accuracy.py`` is calibrated on one half of the labs; the other half says how many measured times are
inside. ``--quick``: one lab and size of each half; nothing is recorded.
"""

import json
import statistics
import sys
from typing import Any

import numpy as np

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from solvers.costs.accuracy import CONFIDENCE, OTHERS, RINGS, ModelError, model_error, prediction_interval
from solvers.costs.fabric import fabric_of

_SIZES = ("64KB", "1MB", "8MB")
_ORDERS, _REPEATS = "5", "3"
_LONG_US = 0.3e6  # what hosts take for messages is little beside it
_ALGORITHMS = ("gloo", "openmpi-ring", "openmpi-rabenseifner")
_FOUR_RACKS = ("--racks", "4", "--hosts-per-rack", "4")
CALIBRATED = {
    "4 racks of 4, 200 and 200 Mbit/s": (*_FOUR_RACKS, "--host-rate", "200mbit", "--uplink-rate", "200mbit"),
    "2 racks of 4, 100 and 200 Mbit/s": (
        "--racks", "2", "--hosts-per-rack", "4", "--host-rate", "100mbit", "--uplink-rate", "200mbit",
    ),
}  # fmt: skip
HELD_OUT = {
    "3 racks of 4, 100 and 100 Mbit/s": (
        "--racks", "3", "--hosts-per-rack", "4", "--host-rate", "100mbit", "--uplink-rate", "100mbit",
    ),
    "2 pods of 2 racks of 4, 200, 400 and 200 Mbit/s": (
        *_FOUR_RACKS, "--host-rate", "200mbit", "--uplink-rate", "400mbit", "--pods", "2", "--pod-rate", "200mbit",
    ),
}  # fmt: skip


def on_lab(bench: BenchLab, sizes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the predicted and measured time of each order."""
    run = bench.plink("probe", bench.hosts_file, "--count", "1000", "-o", "network.json")
    if run.code:
        raise SystemExit(run.stderr)
    fabric = fabric_of(bench.network("network.json"))
    rows = []
    for size in sizes:
        words = [word for algo in _ALGORITHMS for word in ("--algo", algo)]
        more = ("--size", size, "--orders", _ORDERS, "--repeats", _REPEATS, "-o", "check.json")
        run = bench.plink("check", "network.json", "--measure", *words, *more)
        if run.code:
            raise SystemExit(run.stderr)
        for check in json.loads((bench.folder / "check.json").read_text())["checks"]:
            algo, model = check["algo"], check["model"]
            for timing in check["runs"]:
                rows.append(
                    {
                        "algo": algo, "size": size, "predicted_us": timing["predicted_us"],
                        "interval_us": prediction_interval(timing["predicted_us"], algo, model, fabric),
                        "measured_us": round(1e6 * statistics.median(timing["achieved_s"]), 1),
                    }
                )  # fmt: skip
    return rows


def calibrated(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return what leaves 5 % of the measured times below and 5 % above: the lower ratio, of long predicted times the
    higher one, and what is to be added to it."""
    outside = (1 - CONFIDENCE) / 2
    ratios = np.array([row["measured_us"] / row["predicted_us"] for row in rows])
    is_long = np.array([row["predicted_us"] >= _LONG_US for row in rows])
    low, high = float(np.quantile(ratios, outside)), float(np.quantile(ratios[is_long], 1 - outside))
    above = [row["measured_us"] - high * row["predicted_us"] for row in rows]
    error = ModelError(low, high, max(0.0, float(np.quantile(above, 1 - outside))))
    return {name: round(value, 3) for name, value in error._asdict().items()}


def main() -> int:
    """Run and record; the exit code."""
    quick = "--quick" in sys.argv
    samples: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for half, labs in (("calibrated", CALIBRATED), ("held out", HELD_OUT)):
        samples[half] = {}
        for name, options in list(labs.items())[: 1 if quick else None]:
            with lab("--seed", "5", *options) as bench:
                samples[half][name] = on_lab(bench, _SIZES[1:2] if quick else _SIZES)
            ratios = [row["measured_us"] / row["predicted_us"] for row in samples[half][name]]
            print(f"{name}: {min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.2f}", flush=True)
    rows = {half: [row for part in labs.values() for row in part] for half, labs in samples.items()}
    inside = {
        half: statistics.fmean(
            row["interval_us"][0] <= row["measured_us"] <= row["interval_us"][1] for row in part if row["interval_us"]
        )
        for half, part in rows.items()
    }
    figures = {
        "calibrated": {
            name: calibrated([row for row in rows["calibrated"] if model_error(row["algo"]) is error])
            for name, error in (("rings", RINGS), ("others", OTHERS))
        },
        "inside": inside,
        "samples": samples,
    }
    print(figures["calibrated"], inside)
    if quick:
        return 0
    configuration = {
        "sizes": _SIZES,
        "orders": _ORDERS,
        "repeats": _REPEATS,
        "confidence": CONFIDENCE,
        "used": {"rings": RINGS._asdict(), "others": OTHERS._asdict()},
    }
    bars = [Bar("measured times inside their interval, labs held out", round(inside["held out"], 3), at_least=0.9)]
    return record("prediction-intervals", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
