"""Benchmarks state their bars, and fail when one is missed."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import benchmarks.cost_models
import benchmarks.record
from benchmarks.adaptive_probing import bars_of
from benchmarks.cost_models import candidates, spread
from benchmarks.record import RESULTS, Bar, record


@pytest.mark.parametrize(
    ("bar", "met"),
    [
        (Bar("x", 2.0, at_most=2.0), True),
        (Bar("x", 2.1, at_most=2.0), False),
        (Bar("x", 2.0, at_least=2.0), True),
        (Bar("x", 1.9, at_least=2.0), False),
        (Bar("x", math.nan, at_most=2.0), False),
    ],
)
def test_a_figure_meets_its_bar_or_not(bar: Bar, met: bool) -> None:
    assert bar.met == met


def test_a_missed_bar_is_written_and_printed_and_is_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarks.record, "RESULTS", tmp_path)
    good, bad = Bar("seconds", 1.5, at_most=2.0), Bar("share", 0.5, at_least=0.9)
    assert record("x", {}, {"s": 1.5}, [good]) == 0
    assert record("x", {}, {"s": 1.5}, [good, bad, Bar("lost", math.nan, at_least=1.0)]) == 1
    assert json.loads((tmp_path / "x.json").read_text())["bars"] == [
        {"name": "seconds", "value": 1.5, "at_most": 2.0, "met": True},
        {"name": "share", "value": 0.5, "at_least": 0.9, "met": False},
        {"name": "lost", "value": None, "at_least": 1.0, "met": False},
    ]
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "met: seconds: 1.5, wanted at most 2",
        "MISSED: share: 0.5, wanted at least 0.9",
        "MISSED: lost: nan, wanted at least 1",
    ]


def test_the_bars_of_adaptive_probing_are_told_from_what_was_recorded() -> None:
    document = json.loads((RESULTS / "adaptive-probing.json").read_text())
    assert all(bar.met for bar in bars_of(document))
    document["variants"]["base"]["settled"][3]["found_nearest"] = 0.94
    document["scale"]["schedule_all"]["seconds"] = 61.0
    assert [bar.name for bar in bars_of(document) if not bar.met] == [
        "rack neighbours found, nearest",
        "schedule_all of 10000 hosts, seconds",
    ]


def test_orders_to_be_timed_reach_from_group_after_group_to_turns() -> None:
    groups = np.array([0, 1, 2, 3] * 4)
    pool = candidates(groups, np.random.default_rng(0))
    assert all((np.sort(order) == np.arange(16)).all() for order in pool)
    changes = {int((groups[order] != groups[np.roll(order, -1)]).sum()) for order in pool}
    assert min(changes) == 4
    assert max(changes) == 16


def test_orders_are_chosen_at_even_steps_of_the_cost() -> None:
    costs = np.random.default_rng(0).permutation(np.concatenate([np.linspace(1, 5, 41), np.full(1000, 5.0)]))
    chosen = spread(costs, 5, np.random.default_rng(0))
    assert costs[chosen].tolist() == pytest.approx([1, 2, 3, 4, 5])
    assert len(set(spread(np.ones(20), 12, np.random.default_rng(0)).tolist())) == 12


def test_the_bars_of_the_cost_models_are_told_from_what_was_recorded() -> None:
    figures = json.loads((RESULTS / "cost-models.json").read_text())["figures"]
    assert all(bar.met for bar in benchmarks.cost_models.bars_of(figures))
    figures["gloo"]["spearman"]["contention"] = 0.94
    assert sum(not bar.met for bar in benchmarks.cost_models.bars_of(figures)) == 1
