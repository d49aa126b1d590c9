"""``plink demo``, three times, each with another shuffle: speed-up, the share of the bound reached, seconds in all."""

import json
import statistics
import subprocess
import sys
import time

from benchmarks.record import Bar, record


def main() -> int:
    """Run and record; the exit code."""
    rows = []
    for seed in (11, 12, 13):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "plink", "demo", "--json", "--seed", str(seed)],
            capture_output=True,
            text=True,
            check=True,
        )
        row = json.loads(done.stdout)
        row["whole_demo_s"] = round(time.monotonic() - began, 1)
        rows.append({key: value for key, value in row.items() if key not in ("hosts", "schema")})
    helps = []
    for _ in range(11):
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "plink", "--help"], capture_output=True, check=True)
        helps.append(round(time.monotonic() - began, 3))
    return record(
        "demo",
        {"racks": 4, "hosts_per_rack": 4, "rate": "200mbit", "size_bytes": 8_000_000},
        {
            "speedups": [row["speedup"] for row in rows],
            "share_of_bound": [round(row["bound_s"] / row["plink_s"], 3) for row in rows],
            "racks_recovered": [row["racks_recovered"] for row in rows],
            "whole_demo_s": [row["whole_demo_s"] for row in rows],
            "help_s_median": statistics.median(helps),
            "help_s": helps,
            "runs": rows,
        },
        [
            Bar("demos that recover the racks", sum(row["racks_recovered"] for row in rows), at_least=len(rows)),
            Bar("share of the bound, worst", min(row["bound_s"] / row["plink_s"] for row in rows), at_least=0.85),
            Bar("speed-up, worst", min(row["speedup"] for row in rows), at_least=2.5),
            Bar("seconds of a whole demo, worst", max(row["whole_demo_s"] for row in rows), at_most=240.0),
            Bar("seconds of plink --help, median", statistics.median(helps), at_most=0.5),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
