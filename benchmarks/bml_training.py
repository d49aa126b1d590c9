"""How much of a training's time BML saves over servers on one interface (Wang et al., NeurIPS 2018, section 5).

9 hosts in a BCube(3,2), and as many on a star with one interface of the same rate. A step waits for its computing, then
all-reduces each layer: LeNet-5 (13.1 MB; the paper's 3.27 M parameters), and VGG-19 scaled to 25 MB. The time of
computing is a share of the star's exchange, as a sub-batch decides it. If computing takes c and the star's exchange g,
BML saves at most ``1 - (c + g/2) / (c + g)``.
"""

import contextlib
import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record

if TYPE_CHECKING:
    from benchmarks.thesis_plot import ThesisPlot

_PROGRAM = str(Path(__file__).parent / "timing" / "waiting_training.py")
_RATE = "100mbit"
_REPEATS = 2
_SHARES = (0.1, 0.25, 0.5, 1.0, 2.0)  # of the star's exchange
_VGG_BYTES = 25e6


def _convolution(inputs: int, outputs: int, width: int = 3) -> int:
    return width * width * inputs * outputs + outputs


def _full(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _vgg19() -> list[int]:
    channels = [3, *[64] * 2, *[128] * 2, *[256] * 4, *[512] * 8]
    layers = [_convolution(a, b) for a, b in itertools.pairwise(channels)]
    layers += [_full(512 * 7 * 7, 4096), _full(4096, 4096), _full(4096, 1000)]
    scale = _VGG_BYTES / 4 / sum(layers)
    return [max(1, round(scale * size)) for size in layers]


MODELS = {
    "LeNet-5": [_convolution(1, 32, 5), _convolution(32, 64, 5), _full(64 * 7 * 7, 1024), _full(1024, 10)],
    "VGG-19": _vgg19(),
}


def _steps(bench: BenchLab, algo: str, order: str, layers: list[int], waits: list[float]) -> list[float]:
    """Return the median seconds of a step for each time of computing."""
    words = ["--order", order, "--hosts", bench.hosts_file, "--backend", algo, "--env", "OMP_NUM_THREADS=1", _PROGRAM]
    arguments = [str(_REPEATS), ",".join(map(str, layers)), ",".join(f"{wait:.4f}" for wait in waits)]
    done = subprocess.run(
        [sys.executable, "-m", "plink", "launch", *words, *arguments],
        cwd=bench.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    return [statistics.median(json.loads(line)["seconds"]) for line in lines if line.startswith("{")]


def _measure() -> dict[str, list[dict[str, float]]]:
    results: dict[str, list[dict[str, float]]] = {}
    with contextlib.ExitStack() as labs:
        shape = ("--topology", "bcube", "--base", "3", "--levels", "2", "--host-rate", _RATE)
        bcube = labs.enter_context(lab("--seed", "3", *shape, suffix="bcube"))
        star = labs.enter_context(
            lab("--seed", "3", "--racks", "1", "--hosts-per-rack", "9", "--host-rate", _RATE, suffix="star")
        )
        for words in (("probe", bcube.hosts_file, "--no-shared-links"), ("reorder", "--algo", "bml")):
            if (run := bcube.plink(*words)).code:
                raise SystemExit(run.stderr)
        for model, layers in MODELS.items():
            (exchange_s,) = _steps(star, "flat", "given", layers, [0.0])
            waits = [share * exchange_s for share in _SHARES]
            flat = _steps(star, "flat", "given", layers, waits)
            bml = _steps(bcube, "bml", ".plink/order.json", layers, waits)
            results[model] = [
                {"share": share, "exchange_s": exchange_s, "flat_s": slow, "bml_s": fast,
                 "saved": 1 - fast / slow, "formula": 1 - (share + 0.5) / (share + 1)}
                for share, slow, fast in zip(_SHARES, flat, bml, strict=True)
            ]  # fmt: skip
            print(model, results[model], flush=True)
    return results


def thesis_plots(figures: dict[str, Any]) -> "dict[str, ThesisPlot]":
    """For docs/results/theses.md: what is saved, by model and share of computing."""
    from benchmarks.drawing import spreads
    from benchmarks.thesis_plot import ThesisPlot

    plots = {}
    for model, rows in figures.items():
        saved = [100 * row["saved"] for row in rows]
        text = (
            f"{min(saved):.1f} to {max(saved):.1f} % less for computing of {_SHARES[-1]:g} to {_SHARES[0]:g} exchanges"
        )
        name = f"bml-{model.lower()}"
        picture = spreads(
            name, f"{model}: time of a step that BML saves", "a bar for each share of computing",
            {"measured": saved, "formula": [100 * row["formula"] for row in rows]}, "%", 0.0,
        )  # fmt: skip
        table = ["| computing over the star's exchange | saved | formula |", "|---" * 3 + "|"]
        table += [f"| {row['share']:g} | {100 * row['saved']:.1f} % | {100 * row['formula']:.1f} % |" for row in rows]
        plots[name] = ThesisPlot(text, picture, "\n".join(table))
    return plots


def main() -> int:
    """Return the exit code: 1 when a bar is missed."""
    figures, bars = _measure(), []
    for model, rows in figures.items():
        saved = [row["saved"] for row in rows]
        worst = max(abs(row["saved"] - row["formula"]) for row in rows)
        bars.append(Bar(f"{model}: farthest from the formula, points", 100 * worst, at_most=5))
        bars.append(Bar(f"{model}: saved at the smallest sub-batch", saved[0], at_least=0.45))
        falls = all(more > less for more, less in itertools.pairwise(saved))
        bars.append(Bar(f"{model}: saved falls with the sub-batch (1: yes)", float(falls), at_least=1))
    return record("bml-training", {"shares": _SHARES, "repeats": _REPEATS, "rate": _RATE}, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
