"""Intervals of predicted times: measured over predicted times of libraries' all-reduces on labs.

Some labs calibrate ``solvers/costs/by_name.py``; others, which nobody has measured before, say how many measured times
are inside the intervals so calibrated. ``--quick``: one lab and size of each half; nothing is recorded.
"""

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from solvers.costs.by_name import CONFIDENCE, OTHERS, RINGS, ModelError, calibrated_interval, model_error
from solvers.costs.fabric import fabric_of

Row = dict[str, Any]
_SIZES = ("64KB", "1MB", "8MB")
_ORDERS, _REPEATS = "5", "3"
_LONG_US = 0.3e6  # what hosts take for messages is little beside it
_ALGORITHMS = ("gloo", "openmpi-ring", "openmpi-rabenseifner")
LABS = {
    "calibrate": {
        "4 racks of 4, 200 and 200 Mbit/s": "--racks 4 --hosts-per-rack 4 --host-rate 200mbit --uplink-rate 200mbit",
        "2 racks of 4, 100 and 200 Mbit/s": "--racks 2 --hosts-per-rack 4 --host-rate 100mbit --uplink-rate 200mbit",
        "3 racks of 3, 150 and 100 Mbit/s": "--racks 3 --hosts-per-rack 3 --host-rate 150mbit --uplink-rate 100mbit",
        "2 pods of 2 racks of 3, 200, 400 and 200 Mbit/s": "--racks 4 --hosts-per-rack 3 --host-rate 200mbit"
        " --uplink-rate 400mbit --pods 2 --pod-rate 200mbit",
    },
    "validate": {
        "3 racks of 5, 150 and 300 Mbit/s": "--racks 3 --hosts-per-rack 5 --host-rate 150mbit --uplink-rate 300mbit",
        "5 racks of 2, 100 and 100 Mbit/s": "--racks 5 --hosts-per-rack 2 --host-rate 100mbit --uplink-rate 100mbit",
        "2 pods of 3 racks of 2, 100, 150 and 200 Mbit/s": "--racks 6 --hosts-per-rack 2 --host-rate 100mbit"
        " --uplink-rate 150mbit --pods 2 --pod-rate 200mbit",
        "2 racks of 7, 250 and 300 Mbit/s": "--racks 2 --hosts-per-rack 7 --host-rate 250mbit --uplink-rate 300mbit",
    },
}
_SEEDS = {"calibrate": "11", "validate": "12"}


def on_lab(bench: BenchLab, sizes: tuple[str, ...]) -> list[Row]:
    """Return the predicted and measured time of each order."""
    run = bench.plink("probe", bench.hosts_file, "--count", "1000", "-o", "network.json")
    if run.code:
        raise SystemExit(run.stderr)
    sigma = fabric_of(bench.network("network.json")).rate_sigma
    rows = []
    for size in sizes:
        words = [word for algo in _ALGORITHMS for word in ("--algo", algo)]
        more = ("--size", size, "--orders", _ORDERS, "--repeats", _REPEATS, "-o", "check.json")
        run = bench.plink("check", "network.json", "--measure", *words, *more)
        if run.code:
            raise SystemExit(run.stderr)
        for check in json.loads((bench.folder / "check.json").read_text())["checks"]:
            for timing in check["runs"]:
                row = {"algo": check["algo"], "size": size, "predicted_us": timing["predicted_us"], "rate_sigma": sigma}
                rows.append(row | {"measured_us": round(1e6 * statistics.median(timing["achieved_s"]), 1)})
    return rows


def calibrated(labs: Sequence[list[Row]]) -> ModelError:
    """Return what leaves 5 % of each lab's measured times below and 5 % above, for the lab where that is widest.

    The lower ratio, of long predicted times the higher one, and what is to be added to it.
    """
    outside = (1 - CONFIDENCE) / 2

    def of_labs(ratio: Callable[[Row], float], quantile: float, rows: Sequence[list[Row]]) -> list[float]:
        return [float(np.quantile([ratio(row) for row in part], quantile)) for part in rows if part]

    def over_predicted(row: Row) -> float:
        return float(row["measured_us"] / row["predicted_us"])

    long = [[row for row in part if row["predicted_us"] >= _LONG_US] for part in labs]
    low, high = min(of_labs(over_predicted, outside, labs)), max(of_labs(over_predicted, 1 - outside, long))
    above = of_labs(lambda row: row["measured_us"] - high * row["predicted_us"], 1 - outside, labs)
    return ModelError(round(low, 2), round(high, 2), round(max(0.0, *above), -3))


def with_interval(row: Row, errors: dict[str, ModelError]) -> Row:
    """Return the row with its interval, null for a time too short to have one."""
    error = errors[_class_of(row)]
    is_short = row["predicted_us"] < error.host_us
    return row | {
        "interval_us": None if is_short else calibrated_interval(row["predicted_us"], error, row["rate_sigma"])
    }


def inside(labs: dict[str, list[Row]], name: str) -> dict[str, int]:
    """Return how many measured times of a class are inside their interval, of how many that have one, and without."""
    rows = [row for part in labs.values() for row in part if _class_of(row) == name]
    stated = [row for row in rows if row["interval_us"]]
    hits = sum(row["interval_us"][0] <= row["measured_us"] <= row["interval_us"][1] for row in stated)
    return {"inside": hits, "of": len(stated), "too short": len(rows) - len(stated)}


def _class_of(row: Row) -> str:
    return "rings" if model_error(row["algo"]) is RINGS else "others"


def main() -> int:
    """Run and record; the exit code."""
    quick = "--quick" in sys.argv
    samples: dict[str, dict[str, list[Row]]] = {}
    for half, labs in LABS.items():
        samples[half] = {}
        for name, options in list(labs.items())[: 1 if quick else None]:
            with lab("--seed", _SEEDS[half], *options.split()) as bench:
                samples[half][name] = on_lab(bench, _SIZES[1:] if quick else _SIZES)
            ratios = [row["measured_us"] / row["predicted_us"] for row in samples[half][name]]
            print(f"{name}: {min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.2f}", flush=True)
    errors = {
        name: calibrated([[row for row in part if _class_of(row) == name] for part in samples["calibrate"].values()])
        for name in ("rings", "others")
    }
    samples = {
        half: {name: [with_interval(row, errors) for row in part] for name, part in labs.items()}
        for half, labs in samples.items()
    }
    figures: dict[str, Any] = {
        "calibrated": {name: error._asdict() for name, error in errors.items()},
        "inside": {half: {name: inside(labs, name) for name in errors} for half, labs in samples.items()},
        "samples": samples,
    }
    print(figures["calibrated"], figures["inside"])
    if quick:
        return 0
    counts = figures["inside"]["validate"].values()
    share = sum(count["inside"] for count in counts) / sum(count["of"] for count in counts)
    used = {"rings": RINGS._asdict(), "others": OTHERS._asdict()}
    configuration = {"sizes": _SIZES, "orders": _ORDERS, "repeats": _REPEATS, "confidence": CONFIDENCE, "used": used}
    bars = [Bar("measured times inside their interval, labs that validate", round(share, 3), at_least=0.9)]
    return record("prediction-intervals", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
