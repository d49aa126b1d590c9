"""The benchmark's own loop, which has naive pipelining, beside the rehearsal of a plan."""

import pytest

from benchmarks.learning_apps import APPS
from benchmarks.pipeline_learning import NAIVE, STASHING, WAYS, app_of, plan_of, trained
from plink.runtime.pipeline.job import PipelineProgram
from plink.runtime.pipeline.one_process import train_in_one_process

_MINIBATCHES = 16


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.extended] * (name == "lstm")) for name in APPS])
@pytest.mark.parametrize("way", [way for way, options in WAYS.items() if options.stashing])
def test_loop_with_stashing_equals_the_dry_run(name: str, way: str) -> None:
    """To the bit."""
    dry_run_losses: list[float] = []
    app = app_of(name, WAYS[way], seed=1, rate=0.02)
    app.minibatches = _MINIBATCHES
    plan = plan_of(WAYS[way], app.items)
    train_in_one_process(PipelineProgram(app), plan, "plan", lambda _, loss: dry_run_losses.append(loss))
    assert trained(app, WAYS[way]).losses == dry_run_losses


@pytest.mark.parametrize("name", APPS)
def test_naive_gradients_differ(name: str) -> None:
    losses = {}
    for way in (STASHING, NAIVE):
        app = app_of(name, WAYS[way], seed=1, rate=1.0)
        app.minibatches = _MINIBATCHES
        losses[way] = trained(app, WAYS[way]).losses
    assert losses[NAIVE] != losses[STASHING]
