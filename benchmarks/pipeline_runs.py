"""Jobs on a lab's hosts whose computing is emulated (:mod:`benchmarks.timing.emulated_training`): pipelines, and data
parallelism by PyTorch's DistributedDataParallel."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = str(ROOT / "benchmarks/timing/emulated_training.py")
ENV = ("--env", "OMP_NUM_THREADS=1")


def plink_output(folder: Path, *words: str) -> str:
    """Run the command line in a folder, and return what it prints.

    :raises SystemExit: when it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "plink", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"plink {' '.join(words)}: {done.stderr[-3000:]}")
    return done.stdout


def pipeline_s(folder: Path, plan: str, hosts: tuple[str, ...], *program: str) -> float:
    """Return the seconds of a minibatch in steady state: the median over ranks."""
    words = ("launch", *ENV, *hosts, "--json", "--pipeline", plan, PROGRAM, *program)
    reports = json.loads(plink_output(folder, *words))["pipeline"]
    return float(statistics.median(report["minibatch_s"] for report in reports))


def data_parallel_s(folder: Path, options: tuple[str, ...], *program: str) -> float:
    """Return the seconds of a minibatch of DistributedDataParallel. ``options``: of ``plink launch``."""
    output = plink_output(folder, "launch", *ENV, *options, PROGRAM, *program)
    rows = [json.loads(line.partition("] ")[2]) for line in output.splitlines() if "minibatch_s" in line]
    return float(rows[0]["minibatch_s"])
