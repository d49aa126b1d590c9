"""Advice by size: every cost is that of its size."""

import re
from dataclasses import replace

import pytest

import plink
from benchmarks.clouds import network_of_cloud, three_tier
from tests.networks import details_from, keys_of


@pytest.mark.parametrize("model", ["contention", "simulated"])
def test_nccl_trees_have_the_segments_of_each_size(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plink.features.advise.run.search_clock", lambda: 0.0)  # no limit passes
    network = network_of_cloud(three_tier(8, 0, "powers"), 0, shared_links=True)
    advice = plink.advise(network, plink.AdviseRequest(1e6, 16e6, model, algorithms=("nccl-tree",)))
    line = next(line for line in advice.lines if line.family == "given")
    for size in (1e6, 4e6, 16e6):
        cost = plink.cost(network, None, plink.CostRequest("nccl-tree", size, model))
        assert line.at(size) == pytest.approx(cost.cost_us)


def test_messages_that_take_no_time_are_said_where_they_decide(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("plink.features.advise.run.search_clock", lambda: 0.0)
    network = network_of_cloud(three_tier(32, 0, "powers"), 0, shared_links=True)
    request = plink.AdviseRequest(1e3, 1e3, algorithms=("flat", "recursive-doubling"))
    taken = {"overhead_us": 5.0, "overhead_interval_us": None, "byte_ns": 0.0, "byte_interval_ns": None}
    measured = {"algorithms": ["ring"], "timings": 4, "error": 0.0, "measured_at": "2026-11-29T00:00:00Z"}
    details = details_from(keys_of(network) | {"host_costs": taken | measured})
    with caplog.at_level("INFO", "plink.advise"):
        advice = plink.advise(network, request)
        assert advice.best(1e3).algo == "flat"
        messages = [line for line in caplog.messages if "calibrate" in line]
        caplog.clear()
        timed = plink.advise(replace(network, details=details), request)
    assert timed.best(1e3).algo == "recursive-doubling"
    assert not [line for line in caplog.messages if "calibrate" in line]
    for algo in ("flat", "recursive-doubling"):  # what it says is what a network with that overhead has
        [stated_us] = re.findall(rf"{algo} (?:would take )?([\d.]+) us", messages[0])
        assert float(stated_us) == pytest.approx(timed.best(1e3, algo).at(1e3), rel=0.05)


def test_a_slow_machine_gives_the_advice_of_a_quick_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be the fastest is simulated first; by rounds hubs take twice what they do."""
    made = network_of_cloud(three_tier(24, 1), 1, shared_links=True)
    flows = [
        {"from": f"host{a}", "to": f"host{b}", "gbps": 2.5 if 0 in (a, b) else 10.0, "both_ways": False}
        for a, b in zip(range(24), [*range(1, 24), 0], strict=True)
    ]
    network = replace(made, details=details_from(keys_of(made) | {"host_flows": flows}))
    advised = []
    monkeypatch.setattr("plink.features.advise.run.search_clock", lambda: 0.0)
    for limit_s in (5.0, -1.0):
        monkeypatch.setattr("plink.features.advise.run._CONTENTION_S", limit_s)
        advised.append(plink.advise(network, plink.AdviseRequest(1e3, 256e6)))
    quick, slow = advised
    assert not any(line.is_by_rounds() for line in quick.lines)
    assert any(line.is_by_rounds() for line in slow.lines)  # which cannot be the fastest
    assert not any(slow.best(size).is_by_rounds(size) for size in slow.sizes)
    stated = [line.by_rounds is True for line in slow.stated().lines]
    assert stated == [line.is_by_rounds() for line in slow.lines]
    assert quick.best(256e6).algo == "hubs"
    assert [(each.line.algo, each.to_bytes) for each in slow.stretches] == [
        (each.line.algo, pytest.approx(each.to_bytes)) for each in quick.stretches
    ]
    cost_us = plink.cost(network, None, plink.CostRequest("hubs", 256e6, "contention")).cost_us
    assert slow.best(256e6).at(256e6) == pytest.approx(cost_us)


def test_algorithms_that_other_orders_may_make_the_fastest_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Not where their bounds, or the least possible time, are near the fastest of all."""
    network = network_of_cloud(three_tier(48, 0), 0, shared_links=True)
    for algorithms, named in ((("tree",), True), (("tree", "double-binary-tree"), False), (("tree", "hubs"), False)):
        caplog.clear()
        with caplog.at_level("INFO", "plink.advise"):
            plink.advise(network, plink.AdviseRequest(256e6, 256e6, algorithms=algorithms))
        assert any("plink reorder" in line for line in caplog.messages) == named
