"""plink's simulator against SimGrid, another flow-level simulator: made-up clouds of racks in pods, six algorithms.

Needs SimGrid's Python bindings (Debian: python3-simgrid). ``--seeds N`` takes N clouds instead of 10.
"""

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.clouds import Order, fabric_of_cloud, options_for, orders_of, three_tier
from benchmarks.record import Bar, record, seeds_of
from solvers.costs.fabric import Fabric
from solvers.schedules.catalogue import schedule_for
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.simgrid import OPTIONS, platform_xml

HOSTS, CLOUDS, ORDERS = 32, 10, 8
SIZE_BYTES = 100e6
ALGORITHMS = ("ring", "halving-doubling", "recursive-doubling", "bcube", "2lha", "double-binary-tree")
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
_RUNNER = Path(__file__).parent / "timing" / "simgrid_jobs.py"
_TIMEOUT_S = 1800


def has_simgrid() -> bool:
    """Return whether SimGrid's Python bindings are installed."""
    return PYTHON is not None and not subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True).returncode


def simgrid_us(
    folder: Path, fabric: Fabric, collective: PreparedCollective, orders: Sequence[Order], size_bytes: float
) -> list[float]:
    """Return the time that a collective takes by SimGrid in each order, microseconds."""
    return run_simgrid(folder, fabric, [_job(fabric, collective, order, size_bytes) for order in orders])


def run_simgrid(folder: Path, fabric: Fabric, jobs: list[dict[str, Any]]) -> list[float]:
    """Return the microseconds that each job takes by SimGrid.

    SimGrid gives flows shares of a link by one over their latencies, as TCP does and plink's simulator does not. So the
    platform has no latencies, with which all flows get equal shares, and the job adds them when a transfer has ended.

    :param jobs: of transfers, or that ranks play; see ``timing/simgrid_jobs.py``.
    """
    platform = replace(fabric, rtt_us=np.zeros_like(fabric.rtt_us))
    (folder / "platform.xml").write_text(platform_xml(platform))
    (folder / "jobs.json").write_text(json.dumps(jobs))
    argv = [str(PYTHON), str(_RUNNER), str(folder / "platform.xml"), str(folder / "jobs.json"), *OPTIONS]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"SimGrid: {done.stderr}")
    return [1e6 * seconds for seconds in json.loads(done.stdout)]


def _job(fabric: Fabric, collective: PreparedCollective, order: Order, size_bytes: float) -> dict[str, Any]:
    _, tasks = collective.job(fabric, order, size_bytes)
    offsets, needed = tasks.after
    schedule = collective.schedule
    return {
        "source": [fabric.names[order[rank]] for rank in schedule.source],
        "target": [fabric.names[order[rank]] for rank in schedule.target],
        "bytes": tasks.amount.tolist(),
        "lag_s": (tasks.lag_us / 1e6).tolist(),
        "after": [needed[a:b].tolist() for a, b in itertools.pairwise(offsets)],
        "queue": tasks.queue.tolist(),
        "priority": tasks.priority.tolist(),
    }


def compare(algo: str, clouds: int) -> dict[str, Any]:
    """Return plink's time over SimGrid's, least and most, and the rank correlation on each cloud."""
    ratios: list[float] = []
    correlations: list[float] = []
    for seed in range(clouds):
        cloud = three_tier(HOSTS, seed, ("powers", "uneven")[seed % 2])
        fabric = fabric_of_cloud(cloud, seed)
        orders = orders_of(cloud, ORDERS, np.random.default_rng((seed, 3)), disturbed=ORDERS // 2)
        collective = PreparedCollective.of(
            schedule_for(algo, HOSTS, options_for(algo, cloud, orders[0])), lockstep=False
        )
        ours = [collective.run(fabric, order, SIZE_BYTES).makespan_us for order in orders]
        with tempfile.TemporaryDirectory() as folder:
            theirs = simgrid_us(Path(folder), fabric, collective, orders, SIZE_BYTES)
        ratios += [a / b for a, b in zip(ours, theirs, strict=True)]
        correlations.append(round(float(spearmanr(ours, theirs).statistic), 4))
    row = {"plink_over_simgrid": [round(min(ratios), 5), round(max(ratios), 5)], "spearman": correlations}
    print(f"{algo}: {row}", flush=True)
    return row


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted: of every order of every cloud."""
    bars = []
    for algo, row in figures.items():
        off = max(abs(ratio - 1) for ratio in row["plink_over_simgrid"])
        bars.append(Bar(f"{algo}, largest difference from SimGrid's time", round(off, 5), at_most=0.05))
        bars.append(Bar(f"{algo}, rank correlation, least of the clouds", min(row["spearman"]), at_least=0.98))
    return bars


def main() -> int:
    """Run and record; the exit code."""
    if not has_simgrid():
        print("needs SimGrid's Python bindings: apt-get install python3-simgrid", file=sys.stderr)
        return 1
    clouds = seeds_of({HOSTS: CLOUDS})[HOSTS]
    figures = {algo: compare(algo, clouds) for algo in ALGORITHMS}
    configuration = {
        "hosts": HOSTS, "clouds": clouds, "orders": ORDERS, "size_bytes": SIZE_BYTES, "simgrid_options": OPTIONS,
    }  # fmt: skip
    return record("simgrid", configuration, figures, bars_of(figures))


if __name__ == "__main__":
    sys.exit(main())
