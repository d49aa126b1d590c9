"""Traffic of a mesh between real processes over loopback."""

import json

from plink.model.mesh import make_mesh
from plink.runtime.mesh_traffic import groups_along, main, pack_config
from tests.runtime.ranks import results_of, run_ranks

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "p2p", "ring")


def test_every_kind_runs_in_every_group() -> None:
    """Four ranks in a mesh of two by two, whose groups of both axes send in turn."""
    traffic = [
        {"along": along, "kind": kind, "bytes": [4000], "weight": 2} for kind in KINDS for along in ([0], [1], [0, 1])
    ]
    first, *others = ended = run_ranks(main, 4, pack_config({"shape": [2, 2], "traffic": traffic, "repeats": 2}))
    results_of(ended)
    rows = [json.loads(line) for line in first.out.splitlines()]
    assert len(rows) == 2
    for row in rows:
        assert len(row["traffic_s"]) == len(traffic)
        assert min(row["traffic_s"]) > 0
        assert abs(sum(row["traffic_s"]) - row["step_s"]) < 1e-9
    assert [rank.out for rank in others] == ["", "", ""]


def test_groups_are_those_that_were_priced() -> None:
    mesh = make_mesh("pp=2,dp=3,tp=4", ["tp=1MB"])
    names = [name for name, _ in mesh.axes]
    for axes in (["pp"], ["dp"], ["tp"], ["pp", "tp"], ["dp", "tp"], names):
        along = [names.index(axis) for axis in axes]
        assert groups_along([2, 3, 4], along) == mesh.groups(axes).tolist()
