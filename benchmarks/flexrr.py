"""Stragglers that are helped, with real servers: FlexRR and what it is made of (Harlap thesis, Figures 3.6 to 3.10).

Eight workers with real servers and connections, on the loopback; ``--lab``: ``plink elastic run`` on eight lab hosts. A
grain is a wait (:mod:`benchmarks.timing.hindered_app`). Figures are times over the ideal of the drawn schedule.
``--only NAME``: one pattern. :mod:`benchmarks.helping_courses` has more in virtual time.
"""

import json
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from benchmarks.results import RECORDS
from benchmarks.stragglers import ideal, uneven_costs
from benchmarks.timing.hindered_app import (
    GRAINS,
    ITERATIONS,
    LAB_ITERATION_S,
    PATTERNS,
    SEED,
    WORKERS,
    Hindered,
)
from plink.elastic import Rebalance, train
from plink.model.consistency import Rule, parse_rule
from plink.model.hosts import read_hosts, render_hosts
from plink.records.elastic_log import Iteration, read_elastic_log

ITERATION_S = 0.45
_RULES = {"BSP": "bsp", "SSP": "ssp:1", "BSP RR": "bsp", "FlexRR": "ssp:1"}
MODES: dict[str, tuple[Rule, Rebalance | None]] = {
    mode: (parse_rule(rule), Rebalance() if mode.endswith("RR") else None) for mode, rule in _RULES.items()
}
_LAB = ("--racks", "4", "--hosts-per-rack", "2", "--host-rate", "100mbit")
_ON_LAB = " on lab hosts"


def _row(name: str, seconds: float, iteration_s: float, moved: float) -> dict[str, float]:
    best_s = ideal(PATTERNS[name], WORKERS, WORKERS * ITERATIONS) * iteration_s
    return {"seconds": round(seconds, 3), "over_ideal": round(seconds / best_s, 4), "moved": round(moved, 4)}


def measured(name: str) -> dict[str, Any]:
    """Return seconds, time over ideal, and the share of the work that helpers did, of each mode, on the loopback."""
    # Shards are assigned in turns: heavy is what the first half of the workers has.
    heavy = [shard for shard in range(Hindered.shards) if shard % WORKERS < WORKERS // 2]
    costs = uneven_costs(Hindered.shards, heavy) if name == "uneven" else None
    rows = {}
    for mode, (rule, rebalance) in MODES.items():
        app = Hindered(PATTERNS[name], ITERATION_S, _thread_number, costs)
        trained = train(app, workers=WORKERS, servers=2, rule=rule, rebalance=rebalance)
        assert app.is_exact(trained.tables["n"]), "a grain was lost, or counts twice"
        rows[mode] = _row(name, app.ended - app.began, ITERATION_S, trained.moved)
    return rows


def _thread_number() -> int:
    return int(threading.current_thread().name.rsplit("-", 1)[1])


def measured_on_lab(bench: BenchLab, name: str) -> dict[str, Any]:
    """Return the same of jobs of ``plink elastic run`` on the hosts of a lab."""
    return {mode: _job_on_lab(bench, name, mode) for mode in MODES}


def _job_on_lab(bench: BenchLab, name: str, mode: str) -> dict[str, float]:
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory(dir=bench.folder) as job:
        hosts = read_hosts(bench.hosts_file)
        members = tuple(replace(host, tier="reliable") for host in hosts.members)
        (Path(job) / "hosts.txt").write_text(render_hosts(replace(hosts, members=members)))
        command = [
            sys.executable, "-m", "plink", "elastic", "run", "--hosts", "hosts.txt", "--rule", _RULES[mode],
            *(["--rebalance"] if MODES[mode][1] else []), "--heartbeat-timeout", "6s", "--timeout", "300s",
            "--env", "OMP_NUM_THREADS=1", "--env", f"PYTHONPATH={root}",
            str(root / "benchmarks/timing/hindered_app.py"), "--pattern", name,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=job, capture_output=True, text=True, check=False)
        if done.returncode or not re.search(r'"exact": true', done.stdout):
            raise SystemExit(f"{name}, {mode}: {done.stdout[-500:]} {done.stderr[-2500:]}")
        (log,) = Path(job).glob(".plink/runs/*/elastic.jsonl")
        iterations = [entry for entry in read_elastic_log(log) if isinstance(entry, Iteration)]
        moved = sum(entry.moved for entry in iterations) / len(iterations)
        # Without what a worker waits for helpers in the first iteration: up to 2 % too low.
        first_s = max(computed + waited for computed, waited, _ in iterations[0].work.values())
        seconds = iterations[-1].at - iterations[0].at + first_s
        return _row(name, seconds, LAB_ITERATION_S, moved)


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return the bars of all parts that are there."""
    bars = []
    limits = {
        "slow worker 0 %": 1.10, "slow worker 100 %": 1.10, "slow worker 400 %": 1.20,
        "disrupted machine 200 %": 1.12, "power-law 11": 1.10, "uneven": 1.12,
    }  # fmt: skip
    beside = {"slow worker 0 %": 1.02, "slow worker 100 %": 0.8, "slow worker 400 %": 0.6,
              "disrupted machine 200 %": 0.6}  # fmt: skip
    for part, row in figures.items():
        name = part.removesuffix(_ON_LAB)
        if name in limits:
            bars.append(Bar(f"{part}: FlexRR over ideal", row["FlexRR"]["over_ideal"], limits[name]))
        if name in beside:
            ratio = row["FlexRR"]["seconds"] / row["BSP"]["seconds"]
            bars.append(Bar(f"{part}: FlexRR over BSP", round(ratio, 4), beside[name]))
        if name in limits and name != "slow worker 0 %":
            others = min(row[mode]["seconds"] for mode in ("SSP", "BSP RR"))
            bars.append(Bar(f"{part}: FlexRR over SSP and BSP RR", round(row["FlexRR"]["seconds"] / others, 4), 1.0))
        if name == "slow worker 400 %":
            bars.append(Bar(f"{part}: share moved", row["FlexRR"]["moved"], at_least=0.12, at_most=0.3))
    return bars


def main() -> int:
    """Measure and record; the exit code."""
    file, on_lab = RECORDS / "flexrr.json", "--lab" in sys.argv
    order = [*PATTERNS, *(name + _ON_LAB for name in PATTERNS)]
    names = [sys.argv[sys.argv.index("--only") + 1]] if "--only" in sys.argv else list(PATTERNS)
    figures: dict[str, Any] = json.loads(file.read_text())["figures"] if file.exists() else {}
    if on_lab:
        with lab(*_LAB) as bench:
            figures |= {name + _ON_LAB: measured_on_lab(bench, name) for name in names}
    else:
        figures |= {name: measured(name) for name in names}
    figures = {name: figures[name] for name in order if name in figures}
    configuration = {
        "workers": WORKERS, "grains": GRAINS, "iterations": ITERATIONS, "iteration_s": ITERATION_S, "seed": SEED,
        "lab": _LAB, "lab_iteration_s": LAB_ITERATION_S,
    }  # fmt: skip
    parts = [name + _ON_LAB if on_lab else name for name in names]
    return record("flexrr", configuration, figures, bars_of(figures), parts)


if __name__ == "__main__":
    sys.exit(main())
