"""What delays do to learning: small networks trained by each kind of pipeline in one process, beside plain training.

Four straight stages of the thesis's depths. Every update takes in as many items, and all kinds have the same rates,
warm-up and momentum. Counted are minibatches until a target accuracy on unseen data. The rate of the comparison is the
one with which one process needs fewest; the others are recorded beside it.

All is computed by a loop of this benchmark, equal to rehearsals of plans to the bit (tests/runtime/pipeline). Naive
pipelining, whose backward pass uses newer parameters than the forward pass, is an option of this loop only.
``--only NAME``: one program; the others stay as recorded.
"""

import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.thesis_plot import ThesisPlot

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks import results  # noqa: E402
from benchmarks.learning_apps import APPS, LearningApp  # noqa: E402
from benchmarks.record import Bar, record, seeds_of  # noqa: E402
from plink.model.hosts import Host, Hosts  # noqa: E402
from plink.model.pipeline.document import PipelineStage, StageBoundary  # noqa: E402
from plink.model.pipeline.plan import PipelinePlan  # noqa: E402
from plink.model.pipeline.shape import Kind, base_depths, minibatches_of_update, update_of, version_of  # noqa: E402  # noqa: E402

STAGES, ACCUMULATE = 4, 4
_SEEDS = 5
_WITHIN = 1.2  # times the minibatches of one process
_NAIVE_LOSES = 0.05  # of accuracy at the end, against stashing
_LEARNS = 0.8  # share of seeds that reach the target at a rate at which a way is said to learn
_EVALUATE_EVERY = 10  # minibatches of full size


@dataclass(frozen=True)
class Way:
    """A way to train. ``stashing``: whether backward passes use the versions of their forward passes."""

    kind: Kind
    vertical_sync: bool = False
    stashing: bool = True


ONE_PROCESS, STASHING, VERTICAL_SYNC, TWO_VERSIONS, NAIVE = "one process", "stashing", "vertical sync", "2bw", "naive"
WAYS = {
    ONE_PROCESS: Way("data-parallel"),
    STASHING: Way("1f1b"),
    VERTICAL_SYNC: Way("1f1b", vertical_sync=True),
    TWO_VERSIONS: Way("2bw"),
    NAIVE: Way("1f1b", stashing=False),
}


@dataclass(frozen=True)
class Training:
    """The loss of each minibatch, and the accuracy on unseen data after every ``_EVALUATE_EVERY`` full minibatches."""

    losses: list[float]
    accuracies: list[float]

    def minibatches_to(self, target: float) -> float:
        """Return after how many minibatches of full size the target was reached first; infinite: never."""
        reached = (k for k, accuracy in enumerate(self.accuracies, 1) if accuracy >= target)
        return next((k * _EVALUATE_EVERY for k in reached), math.inf)

    @property
    def final(self) -> float:
        """Return the mean accuracy of the last fifth of the evaluations."""
        return statistics.fmean(self.accuracies[-max(1, len(self.accuracies) // 5) :])


def plan_of(way: Way, items: int) -> PipelinePlan:
    """Return a plan of four stages, a layer each, with the thesis's depths; of one stage for data parallelism."""
    count = 1 if way.kind == "data-parallel" else STAGES
    bounds = [number * STAGES // count for number in range(count + 1)]
    depths = base_depths((1,) * count)
    stages = tuple(
        PipelineStage(layers=(bounds[s], bounds[s + 1] - 1), ranks=(s,), depth=depths[s]) for s in range(count)
    )
    boundaries = tuple(StageBoundary(bound - 1, 64, 64) for bound in bounds[1:-1])
    hosts = Hosts((Host("here", "127.0.0.1", slots=count),))
    accumulate = ACCUMULATE if way.kind == "2bw" else 1
    return PipelinePlan(
        kind=way.kind,
        minibatch=items,
        host_entries=hosts.entries(),
        stages=stages,
        boundaries=boundaries,
        accumulate=accumulate,
        vertical_sync=way.vertical_sync,
    )


def app_of(name: str, way: Way, seed: int, rate: float) -> LearningApp:
    """Return a program; 2bw has minibatches of a quarter of the size, so its updates take in as many items."""
    return APPS[name](seed, rate, ACCUMULATE if way.kind == "2bw" else 1)


def trained(app: LearningApp, way: Way) -> Training:
    """Train with the versions of a plan; without stashing, backward passes use the newest parameters beside the
    activations of their forward passes."""
    shape = plan_of(way, app.items).shape
    torch.manual_seed(app.seed)
    model = app.model()
    size = STAGES // shape.stages
    parts = [list(model[stage * size : (stage + 1) * size].parameters()) for stage in range(shape.stages)]
    optimisers = [app.optimiser(own, 1.0) for own in parts]
    first_lr = optimisers[0].param_groups[0]["lr"]
    versions = [{0: _copied(own)} for own in parts]
    done = [0] * shape.stages  # updates
    losses: list[float] = []
    accuracies: list[float] = []
    for number in range(app.minibatches):
        used = [version_of(shape, stage, number) for stage in range(shape.stages)]
        stale = [stage for stage in range(shape.stages) if used[stage] != done[stage]]
        for stage in stale:
            _write(parts[stage], versions[stage][used[stage]])
        inputs, target = app.batch(number)
        loss = app.loss(model(*inputs), target)
        losses.append(float(loss.detach()))
        if not way.stashing:
            _restore(parts, versions, done, stale)
        update = minibatches_of_update(shape, 0, update_of(shape, 0, number), app.minibatches)
        (loss / len(update)).backward()  # type: ignore[no-untyped-call]
        _restore(parts, versions, done, stale)
        if number == update[-1]:
            for stage, optimiser in enumerate(optimisers):
                optimiser.param_groups[0]["lr"] = first_lr * app.rate(update[0])
                optimiser.step()
                optimiser.zero_grad()
                done[stage] += 1
                needed = version_of(shape, stage, number + 1)
                versions[stage] = {version: old for version, old in versions[stage].items() if version >= needed}
                versions[stage][done[stage]] = _copied(parts[stage])
        if (number + 1) % (_EVALUATE_EVERY * app.split) == 0:
            accuracies.append(app.accuracy(model))
    return Training(losses, accuracies)


def _copied(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


def _write(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    """Overwrite parameters where they are, unseen by autograd."""
    for parameter, value in zip(parameters, values, strict=True):
        parameter.data.copy_(value)


def _restore(
    parts: list[list[nn.Parameter]], versions: list[dict[int, list[Tensor]]], done: list[int], stages: list[int]
) -> None:
    """Write the newest version of these stages."""
    for stage in stages:
        _write(parts[stage], versions[stage][done[stage]])


def trainings_of(name: str, way: str, rate: float, seeds: int) -> list[Training]:
    """Return one training for each seed."""
    options = WAYS[way]
    return [trained(app_of(name, options, seed, rate), options) for seed in range(seeds)]


def row_of(trainings: Sequence[Training], target: float) -> dict[str, Any]:
    """Return what is recorded of a way's trainings; null: the target was never reached."""
    counts = [training.minibatches_to(target) for training in trainings]
    curves = zip(*(training.accuracies for training in trainings), strict=True)
    return {
        "minibatches": [count if math.isfinite(count) else None for count in counts],
        "final": [round(training.final, 4) for training in trainings],
        "accuracy": [round(statistics.fmean(values), 4) for values in curves],
    }


def minibatches_of(row: dict[str, Any]) -> float:
    """Return the median count of minibatches to the target; infinite where most seeds never reach it."""
    return statistics.median(math.inf if count is None else count for count in row["minibatches"])


def final_of(row: dict[str, Any]) -> float:
    """Return the mean accuracy at the end."""
    return statistics.fmean(row["final"])


def figures_of(name: str, seeds: int) -> dict[str, Any]:
    """Return the trainings of a program by rate and way, its best rate, and the highest with which stashing learns."""
    app = APPS[name]
    rates: dict[float, dict[str, Any]] = {}
    for rate in app.rates:
        rates[rate] = {}
        for way in (ONE_PROCESS, STASHING, NAIVE):
            row = rates[rate][way] = row_of(trainings_of(name, way, rate, seeds), app.target)
            print(name, rate, way, minibatches_of(row), round(final_of(row), 3), flush=True)
    best = max(app.rates, key=lambda rate: final_of(rates[rate][ONE_PROCESS]))
    for way in (VERTICAL_SYNC, TWO_VERSIONS):
        rates[best][way] = row_of(trainings_of(name, way, best, seeds), app.target)
    learning = [rate for rate in app.rates if learns(rates[rate][STASHING])]
    return {
        "target": app.target,
        "best_rate": best,
        "highest_rate": max(learning, default=None),
        "rates": {f"{rate:g}": rows for rate, rows in rates.items()},
    }


def learns(row: dict[str, Any]) -> bool:
    """Return whether four of five seeds reach the target."""
    counts = row["minibatches"]
    return sum(count is not None for count in counts) >= _LEARNS * len(counts)


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is required of each program."""
    bars = []
    for name, entry in figures.items():
        best = entry["rates"][f"{entry['best_rate']:g}"]
        plain = minibatches_of(best[ONE_PROCESS])
        for way in (STASHING, VERTICAL_SYNC, TWO_VERSIONS):
            bars.append(Bar(f"{name}, {way}: minibatches over one process", minibatches_of(best[way]) / plain, _WITHIN))
        loses = final_of(best[STASHING]) - final_of(best[NAIVE])
        bars.append(Bar(f"{name}, naive: accuracy below stashing's", loses, at_least=_NAIVE_LOSES))
        if entry["highest_rate"] is not None:
            rows = entry["rates"][f"{entry['highest_rate']:g}"]
            loses = final_of(rows[STASHING]) - final_of(rows[NAIVE])
            text = f"{name}, naive at the highest rate that stashing learns with: accuracy below stashing's"
            bars.append(Bar(text, loses, at_least=_NAIVE_LOSES))
    return bars


def thesis_plots(figures: dict[str, Any]) -> "dict[str, ThesisPlot]":
    """For docs/results/theses.md: figures 5.12 (accuracy by minibatches) and 5.14 (without stashing)."""
    from benchmarks.drawing import strips
    from benchmarks.thesis_plot import ThesisPlot

    best = {name: entry["rates"][f"{entry['best_rate']:g}"] for name, entry in figures.items()}
    ratios = {
        f"{name}, {way}": minibatches_of(rows[way]) / minibatches_of(rows[ONE_PROCESS])
        for name, rows in best.items()
        for way in (STASHING, VERTICAL_SYNC, TWO_VERSIONS)
    }
    reached = {label: [ratio] for label, ratio in ratios.items() if math.isfinite(ratio)}
    lost = {
        f"{name}, rate {rate}": [a - b for a, b in zip(rows[STASHING]["final"], rows[NAIVE]["final"], strict=True)]
        for name, entry in figures.items()
        for rate, rows in entry["rates"].items()
        if learns(rows[STASHING])
    }
    text = ", ".join(
        f"{label} {ratio:.2f}" if math.isfinite(ratio) else f"{label} never" for label, ratio in ratios.items()
    )
    return {
        "harlap-5-12": ThesisPlot(
            f"minibatches to the target over those of one process: {text}",
            strips("harlap-5-12", "Minibatches to a target accuracy over one process", "medians of five seeds",
                   reached, "times as many"),
        ),
        "harlap-5-14": ThesisPlot(
            "accuracy at the end, stashing less naive: "
            + ", ".join(f"{100 * statistics.fmean(values):+.0f} points ({label})" for label, values in lost.items()),
            strips("harlap-5-14", "Accuracy at the end: stashing less naive pipelining",
                   "rates with which stashing learns; five seeds", lost, "share of unseen items"),
        ),
    }  # fmt: skip


def main() -> int:
    """Run and record; the exit code."""
    torch.set_num_threads(1)
    seeds = seeds_of({0: _SEEDS})[0]
    names = [sys.argv[sys.argv.index("--only") + 1]] if "--only" in sys.argv else list(APPS)
    path = results.RECORDS / "pipeline-learning.json"
    recorded = json.loads(path.read_text())["figures"] if "--only" in sys.argv else {}
    began = time.process_time()
    measured = {name: figures_of(name, seeds) for name in names}
    print(f"{time.process_time() - began:.0f} s of computing")
    figures = {name: measured.get(name) or recorded[name] for name in APPS if name in measured or name in recorded}
    configuration = {
        "stages": STAGES, "accumulate": ACCUMULATE, "seeds": seeds, "evaluate_every": _EVALUATE_EVERY,
        "apps": {name: {"items": app.full, "minibatches": app.full_minibatches} for name, app in APPS.items()},
    }  # fmt: skip
    return record("pipeline-learning", configuration, figures, bars_of(figures), measured=names)


if __name__ == "__main__":
    sys.exit(main())
