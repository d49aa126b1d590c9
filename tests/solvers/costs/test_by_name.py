"""Prices by name: what NCCL's is made of at which size, and which model a network allows."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.network_file import LibraryCostsEntry
from solvers.costs.by_name import MIXED, cost_function_for, model_for, parts_of
from solvers.costs.evaluator import MODELS
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric

NOW = "2026-01-01T00:00:00Z"


@given(st.floats(1e-3, 1e12))
@example(0.0)
@example(1e6)
@example(4e6)
@example(16e6)
def test_nccl_goes_from_tree_to_ring_by_the_logarithm(size: float) -> None:
    """A tree up to 1 MB, a ring from 16 MB; between, a quarter for each doubling."""
    parts = parts_of("nccl", size, fabric(4))
    assert sum(weight for weight, _ in parts) == pytest.approx(1.0)
    assert all(weight > 0 for weight, _ in parts)
    ring = min(1.0, max(0.0, math.log2(max(size, 1.0) / 1e6) / 4))
    assert dict.fromkeys(MIXED["nccl"], 0.0) | {name: weight for weight, name in parts} == pytest.approx(
        {"nccl-tree": 1 - ring, "nccl-ring": ring}, abs=1e-12
    )


@given(st.floats(0, 1e9), st.floats(0, 1e9))
@example(1e6, 1e6)
def test_nccl_is_one_algorithm_at_a_size_where_its_choice_was_timed(size: float, tree_up_to: float) -> None:
    entry = LibraryCostsEntry(algo="nccl", tree_up_to_bytes=tree_up_to, timings=11, error=0, measured_at=NOW)
    timed = dataclasses.replace(fabric(4), library_costs=(entry,))
    assert parts_of("nccl", size, timed) == [(1.0, "nccl-tree" if size <= tree_up_to else "nccl-ring")]


@pytest.mark.parametrize("model", MODELS)
def test_a_mixed_algorithm_s_cost_is_weighted(model: str) -> None:
    result, order = fabric(6, 4), np.random.default_rng(4).permutation(6)
    tree, ring, both = (
        cost_function_for(algo, 6, Options(), result, 2e6, model)(order) for algo in ("nccl-tree", "nccl-ring", "nccl")
    )
    assert tree != ring
    assert both == pytest.approx(0.75 * tree + 0.25 * ring)


def test_the_model_is_the_most_accurate_that_the_network_allows() -> None:
    """What groups share, before what pairs get, before round trips; whoever names one gets it."""
    shared, pairs = fabric(4), fabric(4, pairs=True)
    guessed = "inferred from the latency tiers"
    assert model_for("auto", shared) == model_for("auto", pairs) == "contention"
    assert model_for("auto", dataclasses.replace(pairs, capacities=guessed)) == "alpha-beta"
    assert model_for("auto", dataclasses.replace(shared, capacities=guessed)) == "latency"
    for name in MODELS:
        assert model_for(name, shared) == name
    with pytest.raises(UsageError, match="--model best: choose one of auto, latency, alpha-beta, contention"):
        model_for("best", shared)


def test_orders_of_contending_algorithms_infer_capacities() -> None:
    """Not where there is one group, nor where pairs' rates are known."""
    inferred = dataclasses.replace(fabric(4), capacities="inferred from the latency tiers")
    one_group = dataclasses.replace(inferred, group_out_gbps=np.full(len(inferred.group_out_gbps), np.inf))
    assert model_for("auto", inferred, algo="bcube") == "contention"
    assert model_for("auto", inferred, algo="ring") == "latency"
    assert model_for("latency", inferred, algo="bcube") == "latency"
    assert model_for("auto", one_group, algo="bcube") == "latency"
