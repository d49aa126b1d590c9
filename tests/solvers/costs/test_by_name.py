"""Prices by name: what NCCL's is made of at which size, and which model a network allows."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import UsageError
from solvers.costs.by_name import MIXED, NAMES, model_for, parts_of, pricing_for
from solvers.costs.evaluator import MODELS
from solvers.schedules.catalogue import ALGORITHMS, Options
from tests.solvers.costs.test_cost_models import fabric


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_an_algorithm_is_its_own_whole(algo: str) -> None:
    for size in (1.0, 1e6, 4e6, 1e12):
        assert parts_of(algo, size) == [(1.0, algo)]


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 5e5, 1e6])
def test_nccl_is_a_tree_up_to_a_megabyte(size: float) -> None:
    """Of no bytes too."""
    assert parts_of("nccl", size) == [(1.0, "nccl-tree")]


@pytest.mark.parametrize("size", [16e6, 17e6, 1e12])
def test_nccl_is_a_ring_from_sixteen_megabytes(size: float) -> None:
    assert parts_of("nccl", size) == [(1.0, "nccl-ring")]


@pytest.mark.parametrize(("size", "ring"), [(2e6, 0.25), (4e6, 0.5), (8e6, 0.75), (1e6 * 2**0.5, 0.125)])
def test_between_it_is_both_by_the_logarithm(size: float, ring: float) -> None:
    """Four doublings from 1 MB to 16 MB, a quarter each."""
    parts = {name: weight for weight, name in parts_of("nccl", size)}
    assert parts == {"nccl-tree": pytest.approx(1 - ring), "nccl-ring": pytest.approx(ring)}


@given(st.floats(1e-3, 1e12))
def test_the_parts_are_a_whole(size: float) -> None:
    parts = parts_of("nccl", size)
    assert sum(weight for weight, _ in parts) == pytest.approx(1.0)
    assert all(weight > 0 for weight, _ in parts)
    ring = min(1.0, max(0.0, math.log2(size / 1e6) / 4))
    assert dict.fromkeys(MIXED["nccl"], 0.0) | {name: weight for weight, name in parts} == pytest.approx(
        {"nccl-tree": 1 - ring, "nccl-ring": ring}, abs=1e-12
    )


@pytest.mark.parametrize("model", MODELS)
def test_a_blend_of_prices_is_weighed(model: str) -> None:
    found, order = fabric(6, 4), np.random.default_rng(4).permutation(6)
    tree, ring, both = (
        pricing_for(algo, 6, Options(), found, 2e6, model)(order) for algo in ("nccl-tree", "nccl-ring", "nccl")
    )
    assert tree != ring
    assert both == pytest.approx(0.75 * tree + 0.25 * ring)


def test_names_are_those_of_the_catalogue_and_of_what_libraries_mix() -> None:
    assert set(NAMES) == {*ALGORITHMS, "nccl"}
    with pytest.raises(UsageError, match=r"--algo rong: there are ring, .*, nccl$"):
        parts_of("rong", 1e6)


def test_the_model_is_the_most_telling_that_the_network_allows() -> None:
    """What groups share, before what pairs get, before round trips; whoever names one gets it."""
    shared, pairs = fabric(4), fabric(4, pairs=True)
    guessed = "inferred from the latency tiers"
    assert model_for("auto", shared) == model_for("auto", pairs) == "contention"
    assert model_for("auto", dataclasses.replace(pairs, capacities=guessed)) == "alpha-beta"
    assert model_for("auto", dataclasses.replace(shared, capacities=guessed)) == "latency"
    for name in MODELS:
        assert model_for(name, shared) == name
    with pytest.raises(UsageError, match="--model best: there are auto, latency, alpha-beta, contention"):
        model_for("best", shared)
