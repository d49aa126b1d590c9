"""What delays do to learning: small networks trained by every kind of pipeline in one process, beside plain training.

Four straight stages of the thesis's depths, equal minibatches for all. Naive pipelining, whose backward pass uses newer
parameters than the forward pass, is a loop of this benchmark only; the others are rehearsals of plans.
"""

import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks.record import Bar, record  # noqa: E402
from examples.pipeline_mlp import CLASSES, INPUTS, Points  # noqa: E402
from plink.documents.pipeline import Kind  # noqa: E402
from plink.model.hosts import Host, Hosts  # noqa: E402
from plink.model.pipeline.plan import PipelinePlan, PipelineStage, StageBoundary  # noqa: E402
from plink.model.pipeline.shape import base_depths  # noqa: E402
from plink.model.pipeline.versions import version_of  # noqa: E402
from plink.runtime.pipeline.job import PipelineProgram  # noqa: E402
from plink.runtime.pipeline.one_process import train_in_one_process  # noqa: E402

STAGES, ITEMS, WIDTH, ACCUMULATE = 4, 32, 48, 4
_MINIBATCHES, _SEEDS = 400, 3
_LAST = 50  # minibatches whose mean loss is the result
_WITHIN = 0.2  # of plain training
_NAIVE_LOSES = 1.05  # times the loss with stashing
WAYS: dict[str, tuple[Kind, bool]] = {
    "1f1b, stashing": ("1f1b", False),
    "1f1b, vertical sync": ("1f1b", True),
    "2bw, update of 4": ("2bw", False),
    "gpipe, update of 4": ("gpipe", False),
}


class LearningApp(Points):
    """The stock example with a seed and a rate of its own. ``factor``: of the learning rate."""

    def __init__(self, minibatches: int, seed: int, factor: float = 1.0) -> None:
        super().__init__(minibatches, ITEMS, WIDTH)
        self.seed, self._factor = seed, factor

    def rate(self, number: int) -> float:
        """Return the same factor all the time."""
        return self._factor


class ConvolutionalApp(LearningApp):
    """Convolutions over the same inputs, normed: the layers whose backward pass needs their own parameters most."""

    def model(self) -> nn.Module:
        """Return nine layers."""
        return nn.Sequential(
            nn.Unflatten(1, (1, INPUTS)), nn.Conv1d(1, 8, 5, padding=2), nn.LayerNorm(INPUTS), nn.ReLU(),
            nn.Conv1d(8, 8, 5, padding=2), nn.LayerNorm(INPUTS), nn.ReLU(), nn.Flatten(),
            nn.Linear(8 * INPUTS, CLASSES),
        )  # fmt: skip


APPS: dict[str, tuple[type[LearningApp], int]] = {"mlp": (LearningApp, 7), "convolutions": (ConvolutionalApp, 9)}
"""Programs, with the layers of each."""


def plan_of(layers: int, kind: Kind, vertical_sync: bool = False) -> PipelinePlan:
    """Return a plan of four stages with the thesis's depths; of one for data parallelism, on one worker."""
    count = 1 if kind == "data-parallel" else STAGES
    bounds = [round(number * layers / count) for number in range(count + 1)]
    depths = (ACCUMULATE,) * count if kind == "gpipe" else base_depths((1,) * count)
    stages = tuple(
        PipelineStage(bounds[s], bounds[s + 1] - 1, (s,), depths[s], 1.0, {}) for s in range(count)
    )  # fmt: skip
    boundaries = tuple(StageBoundary(bound - 1, 64, 64) for bound in bounds[1:-1])
    hosts = Hosts((Host("here", "127.0.0.1", slots=count),))
    accumulate = ACCUMULATE if kind in ("2bw", "gpipe") else 1
    return PipelinePlan(kind, ITEMS, hosts, stages, boundaries, accumulate, vertical_sync)


def losses_of_plan(app: LearningApp, plan: PipelinePlan) -> list[float]:
    """Return the loss of each minibatch of a rehearsal."""
    losses: list[float] = []
    train_in_one_process(PipelineProgram(app), plan, "plan", lambda _, loss: losses.append(loss))
    return losses


def losses_of_loop(app: LearningApp, layers: int, stashing: bool) -> list[float]:
    """Return the loss of each minibatch of 1f1b with a loop of its own; without ``stashing``, backward passes use the
    newest parameters beside what forward passes saved."""
    shape = plan_of(layers, "1f1b").shape
    stage_of = [s for s in range(STAGES) for _ in range(round((s + 1) * layers / STAGES) - round(s * layers / STAGES))]
    torch.manual_seed(app.seed)
    model = app.model()
    assert isinstance(model, nn.Sequential)
    parts = [list(layer.parameters()) for layer in model]
    optimisers = [app.optimiser(own, 1.0) for own in parts if own]
    history = [[[p.detach().clone() for p in own]] for own in parts]
    losses = []
    for number in range(app.minibatches):
        newest = [values[-1] for values in history]
        used = [history[k][version_of(shape, stage_of[k], number)] for k in range(layers)]
        _write(parts, used)
        inputs, target = app.batch(number)
        loss = app.loss(model(*inputs), target)
        losses.append(float(loss.detach()))
        if not stashing:
            _write(parts, newest)
        loss.backward()  # type: ignore[no-untyped-call]
        _write(parts, newest)
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group.setdefault("first_lr", group["lr"]) * app.rate(number)
            optimiser.step()
            optimiser.zero_grad()
        for values, own in zip(history, parts, strict=True):
            values.append([p.detach().clone() for p in own])
    return losses


def _write(parts: list[list[nn.Parameter]], values: list[list[Tensor]]) -> None:
    """Overwrite parameters where they are, unseen by autograd."""
    for own, new in zip(parts, values, strict=True):
        for parameter, value in zip(own, new, strict=True):
            parameter.data.copy_(value)


def _mean_of_last(losses: list[float]) -> float:
    """Return what a training ends with; not a number where it has diverged."""
    return statistics.fmean(losses[-_LAST:])


def _trained(name: str, factor: float, minibatches: int, seeds: int) -> dict[str, list[float]]:
    """Return the loss at the end by way, for every seed."""
    make, layers = APPS[name]
    ended: dict[str, list[float]] = {}
    for seed in range(seeds):

        def app(seed: int = seed) -> LearningApp:
            return make(minibatches, seed, factor)

        rows = {"one process": losses_of_plan(app(), plan_of(layers, "data-parallel"))}
        rows |= {way: losses_of_plan(app(), plan_of(layers, *options)) for way, options in WAYS.items()}
        rows["1f1b, naive"] = losses_of_loop(app(), layers, stashing=False)
        for way, losses in rows.items():
            ended.setdefault(way, []).append(_mean_of_last(losses))
    return ended


def main() -> int:
    """Run and record; the exit code."""
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    bars = []
    for name in APPS:
        rows = _trained(name, 1.0, _MINIBATCHES, _SEEDS)
        figures[name] = {"losses": rows}
        medians = {way: statistics.median(values) for way, values in rows.items()}
        print(name, {way: round(value, 4) for way, value in medians.items()}, flush=True)
        plain = medians["one process"]
        for way in ("1f1b, stashing", "1f1b, vertical sync"):
            bars.append(Bar(f"{name}, {way}: loss over one process", medians[way] / plain, at_most=1 + _WITHIN))
        naive = medians["1f1b, naive"] / medians["1f1b, stashing"]
        bars.append(Bar(f"{name}, naive: loss over stashing's", naive, at_least=_NAIVE_LOSES))
    configuration = {"stages": STAGES, "items": ITEMS, "minibatches": _MINIBATCHES, "seeds": _SEEDS, "last": _LAST}
    return record("pipeline-learning", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
