"""Patterns and simulations of meshes: bytes of each pair against plain loops, and plain collectives as meshes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.mesh import Mesh, make_mesh
from solvers.costs.by_name import cost_function_for, pattern_for
from solvers.costs.mesh_patterns import axis_sequences, check_mesh, mesh_pattern, traffic_pattern
from solvers.costs.patterns import Pattern
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import SimulatedCost
from solvers.simulation.mesh_job import PreparedTraffic
from tests.solvers.ordering.test_mesh_bounds import fabric_of_racks

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "p2p", "ring")


def sent_by_loops(mesh: Mesh, kind: str, size: float, blocks: int) -> np.ndarray:
    """Bytes that each block sends each other one in one operation, from the definition of the kind."""
    (traffic,) = mesh.traffic
    sent, slots = np.zeros((blocks, blocks)), mesh.ranks // blocks
    for group in mesh.groups(traffic.axes).tolist():
        n = len(group)
        for i, rank in enumerate(group):
            following = group[(i + 1) % n]
            hops = {
                "all-reduce": [(following, 2 * (n - 1) * size / n)],
                "reduce-scatter": [(following, (n - 1) * size / n)],
                "all-gather": [(following, (n - 1) * size / n)],
                "ring": [(following, (n - 1) * size)],
                "all-to-all": [(other, size / n) for other in group if other != rank],
                "p2p": [(group[k], size) for k in (i - 1, i + 1) if 0 <= k < n],
            }[kind]
            for other, moved in hops:
                if rank // slots != other // slots:
                    sent[rank // slots, other // slots] += moved
    return sent


def sent_by(pattern: Pattern) -> np.ndarray:
    """Bytes that each block sends each other one by a pattern."""
    sent = np.zeros((pattern.ranks, pattern.ranks))
    np.add.at(sent, (pattern.source, pattern.target), pattern.share * pattern.repeat[pattern.round])
    return sent


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", ["dp", "pp", "tp", "dp+tp", "pp+tp"])
@pytest.mark.parametrize("blocks", [12, 6, 4])
def test_bytes_of_each_pair_are_those_of_plain_loops(kind: str, axes: str, blocks: int) -> None:
    mesh = make_mesh("pp=2,dp=3,tp=2", [f"{axes}={kind}:12MB"])
    pattern = traffic_pattern(mesh, mesh.traffic[0], blocks)
    expected = sent_by_loops(mesh, kind, 12e6, blocks)
    assert sent_by(pattern) == pytest.approx(expected)
    if expected.any():
        prepared = PreparedTraffic.of_traffic(mesh, mesh.traffic[0], blocks)
        simulated, moved = np.zeros((blocks, blocks)), prepared.bytes_moved(1.0)
        np.add.at(simulated, (prepared.schedule.source, prepared.schedule.target), moved)
        np.fill_diagonal(simulated, 0.0)
        assert simulated == pytest.approx(expected)


def test_sizes_of_each_group_and_hop() -> None:
    mesh = make_mesh("pp=3,dp=2", ["dp=all-to-all:1MB/2MB/4MB", "pp=p2p:8MB/16MB"])
    groups, hops = (sent_by(traffic_pattern(mesh, each, 6)) for each in mesh.traffic)
    assert [groups[a, a + 1] for a in (0, 2, 4)] == [0.5e6, 1e6, 2e6]
    assert [hops[a, a + 2] for a in range(4)] == [8e6, 8e6, 16e6, 16e6]
    assert np.array_equal(hops, hops.T)


# By rounds of a mesh nothing overlaps, but hops of a pipelined ring and of a tree do: these are alike elsewhere.
@pytest.mark.parametrize(
    ("algo", "model"),
    [
        *itertools.product(("halving-doubling", "flat"), ("contention", "alpha-beta", "simulated")),
        *itertools.product(("ring", "tree"), ("alpha-beta", "simulated")),
    ],
)
def test_one_axis_of_all_ranks_is_the_plain_collective(algo: str, model: str) -> None:
    fabric, order = fabric_of_racks((3, 5), 1), np.random.default_rng(0).permutation(8)
    options = Options(mesh=make_mesh("dp=8", [f"dp=all-reduce/{algo}:8MB"]))
    if model == "simulated":
        costs = [
            replace(SimulatedCost.of(*each, fabric, size), options=Options(segments=1))  # a mesh has whole messages
            for *each, size in (("mesh", 8, options, 1.0), (algo, 8, Options(), 8e6))
        ]
    else:
        costs = [
            cost_function_for(*each, fabric, size, model)
            for *each, size in (("mesh", 8, options, 1.0), (algo, 8, Options(), 8e6))
        ]
    ours, plain = (cost(order) for cost in costs)
    assert ours == pytest.approx(plain, rel=1e-6)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.sampled_from(("contention", "alpha-beta")))
def test_ranks_of_a_host_are_a_block(seed: int, model: str) -> None:
    traffic = ["pp=p2p:8MB*4", "dp=all-reduce:16MB", "tp=all-reduce:4MB*8", "dp+tp=all-to-all:6MB"]
    options = Options(mesh=make_mesh("pp=2,dp=3,tp=2", traffic))
    fabric, hosts = fabric_of_racks((2, 4), seed), np.random.default_rng(seed).permutation(6)
    blocks, ranks = (cost_function_for("mesh", n, options, fabric, 1.0, model) for n in (6, 12))
    assert blocks(hosts) == pytest.approx(ranks(np.repeat(hosts, 2)))


def test_hidden_share_and_times_weigh_a_traffic() -> None:
    fabric, order = fabric_of_racks((4, 4), 2), np.arange(8)
    costs = []
    for text in ("dp=all-reduce:16MB", "dp=all-reduce:16MB*8@0.75"):
        options = Options(mesh=make_mesh("pp=2,dp=4", [text]))
        costs.append([
            cost_function_for("mesh", 8, options, fabric, 1.0, "contention")(order),
            SimulatedCost.of("mesh", 8, options, fabric, 1.0)(order),
        ])  # fmt: skip
    assert costs[1] == pytest.approx([2 * cost for cost in costs[0]])


def test_axis_inside_blocks_costs_nothing() -> None:
    mesh = make_mesh("dp=4,tp=2", ["tp=all-reduce:1GB"])
    assert not len(mesh_pattern(mesh, 4).repeat)
    assert len(pattern_for("mesh", 8, Options(mesh=mesh)).repeat)


def test_algorithm_that_does_not_fit_is_named() -> None:
    for text in ("dp=all-reduce/bcube:1MB", "dp=all-reduce/gossip:1MB"):
        with pytest.raises(UsageError) as refusal:
            check_mesh(make_mesh("dp=6", [text]))
        assert "--traffic dp=all-reduce/" in str(refusal.value)


def test_sequences_have_each_block_once() -> None:
    mesh = make_mesh("pp=2,dp=3,tp=2", ["dp=all-reduce:1MB"])
    for blocks in (12, 6, 3):
        sequences = axis_sequences(mesh, blocks)
        assert all(sorted(sequence.tolist()) == list(range(blocks)) for sequence in sequences)
        assert len({sequence.tobytes() for sequence in sequences}) == len(sequences)
