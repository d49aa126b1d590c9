"""Advice by size: every cost is that of its size."""

import pytest

import plink
from benchmarks.clouds import network_of_cloud, three_tier


@pytest.mark.parametrize("model", ["contention", "simulated"])
def test_nccl_trees_have_the_segments_of_each_size(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plink.features.advise.run.search_clock", lambda: 0.0)  # no limit passes
    network = network_of_cloud(three_tier(8, 0, "powers"), 0, shared_links=True)
    advice = plink.advise(network, plink.AdviseRequest(1e6, 16e6, model, algorithms=("nccl-tree",)))
    line = next(line for line in advice.lines if line.family == "given")
    for size in (1e6, 4e6, 16e6):
        cost = plink.cost(network, None, plink.CostRequest("nccl-tree", size, model))
        assert line.at(size) == pytest.approx(cost.cost_us)
