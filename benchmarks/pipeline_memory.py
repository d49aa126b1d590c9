"""Memory of pipelines: bytes of tensors that ranks hold, counted, beside what plans predict (Harlap thesis, Figures
5.16 and 5.18). Real networks, four processes on this machine; with ``--device cuda`` they share its GPU."""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.pipeline_runs import ENV, ROOT, plink_output
from benchmarks.record import Bar, record
from plink.model.pipeline.plan import read_pipeline

if TYPE_CHECKING:
    from benchmarks.thesis_plot import ThesisPlot

_PROGRAM = str(ROOT / "benchmarks/timing/counted_training.py")
_MODELS = {"cpu": ("vgg", "lstm", "mlp"), "cuda": ("lstm", "mlp", "vgg16")}
_WORKERS = 4
# cuBLAS takes 64 MiB of each process otherwise, whatever the model.
_SMALL_WORKSPACES = ("--env", "CUBLAS_WORKSPACE_CONFIG=:16:8")
_DEPTHS = range(4, 8)


def _counted(folder: Path, plan: str, program: tuple[str, ...]) -> dict[int, int]:
    """Return the most bytes of each stage's first replica, by its rank."""
    words = ("launch", "--runner", "local", *ENV, *_SMALL_WORKSPACES, "--pipeline", plan, *program)
    done = subprocess.run(
        [sys.executable, "-m", "plink", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    lines = (line.partition("] ")[2] for line in (done.stdout + done.stderr).splitlines() if "counted_rank" in line)
    return {row["counted_rank"]: row["bytes"] for row in map(json.loads, lines)}


def _stages(folder: Path, program: tuple[str, ...], *options: str) -> dict[str, list[float]]:
    """Plan, run, and return predicted and counted bytes of each stage's first replica."""
    words = ("pipeline", "plan", "profile.json", "--hosts", str(_WORKERS), "--gbps", "1", "--all-workers")
    plink_output(folder, *words, *options, "-o", "plan.json")
    plan = read_pipeline(folder / "plan.json")
    counted = _counted(folder, "plan.json", program)
    return {
        "predicted": [stage.memory_bytes.all for stage in plan.stages],
        "counted": [float(counted[stage.ranks[0]]) for stage in plan.stages],
    }


def thesis_plots(figures: dict[str, Any]) -> "dict[str, ThesisPlot]":
    """For docs/results/theses.md."""
    from benchmarks.pipeline_thesis_plots import memory_plots

    return memory_plots(figures)


def main() -> int:
    """Run and record; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=tuple(_MODELS), default="cpu")
    device = parser.parse_args().device
    figures: dict[str, Any] = {}
    bars = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in _MODELS[device]:
            program = (_PROGRAM, "--model", model, "--device", device)
            plink_output(folder, "pipeline", "profile", "--minibatches", "3", "-o", "profile.json", *program)
            straight = _stages(folder, program, "--straight", "--depth", "noam")
            parallel = _stages(folder, program, "--kind", "data-parallel")
            depths = [_stages(folder, program, "--straight", "--depth", f"{depth},3,2,1") for depth in _DEPTHS]
            first = [row["counted"][0] for row in depths]
            errors = [
                abs(predicted / counted - 1)
                for row in (straight, parallel, *depths)
                for predicted, counted in zip(row["predicted"], row["counted"], strict=True)
            ]
            steps = [after - before for before, after in itertools.pairwise(first)]
            figures[model] = {"straight": straight, "data_parallel": parallel, "first_stage_by_depth": first}
            bars += [
                Bar(f"{model}: prediction of a stage's bytes off, worst", max(errors), at_most=0.1),
                Bar(
                    f"{model}: worst stage over data parallelism", max(straight["counted"]) / max(parallel["counted"]),
                    at_most=1.1,
                ),
                Bar(f"{model}: largest over smallest step by depth", max(steps) / min(steps), at_most=1.1),
            ]  # fmt: skip
            print(model, json.dumps(figures[model]), flush=True)
    name = "pipeline-memory" if device == "cpu" else "pipeline-memory-gpu"
    return record(name, {"workers": _WORKERS, "depths": list(_DEPTHS), "device": device}, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
