"""The benchmark's own loop, which has naive pipelining, beside the rehearsal of a plan."""

import pytest

from benchmarks.pipeline_learning import APPS, losses_of_loop, losses_of_plan, plan_of


@pytest.mark.parametrize("name", APPS)
def test_loop_with_stashing_equals_the_dry_run(name: str) -> None:
    """To the bit; without stashing gradients, and so losses, are others."""
    make, layers = APPS[name]
    stashed = losses_of_loop(make(12, 0), layers, stashing=True)
    assert stashed == losses_of_plan(make(12, 0), plan_of(layers, "1f1b"))
    assert losses_of_loop(make(12, 0), layers, stashing=False) != stashed
