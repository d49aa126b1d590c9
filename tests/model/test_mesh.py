"""Meshes: groups against plain loops, the texts of axes and traffic, and what follows from a model's shape."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import InputError, UsageError
from plink.model.mesh import (
    DEFAULT_KINDS,
    Mesh,
    ModelShape,
    in_megatron_order,
    make_mesh,
    parse_axes,
    parse_traffic,
    read_mesh,
)

NAMES = ("pp", "dp", "cp", "ep", "tp")
MESH = "pp=2,dp=4,tp=2"
AXES = parse_axes(MESH)


@st.composite
def meshes(draw: st.DrawFn) -> tuple[Mesh, tuple[str, ...]]:
    """A mesh without traffic, and some of its axes."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    names = NAMES[: len(sizes)]
    chosen = draw(st.sets(st.sampled_from(names), min_size=1))
    return Mesh(tuple(zip(names, sizes, strict=True)), ()), tuple(chosen)


@given(meshes())
def test_groups_are_those_of_equal_other_coordinates(case: tuple[Mesh, tuple[str, ...]]) -> None:
    mesh, chosen = case
    groups: dict[tuple[int, ...], list[int]] = {}
    coordinates = itertools.product(*(range(size) for _, size in mesh.axes))  # row-major, as a DeviceMesh's ranks
    for rank, place in enumerate(coordinates):
        others = tuple(at for (name, _), at in zip(mesh.axes, place, strict=True) if name not in chosen)
        groups.setdefault(others, []).append(rank)
    assert mesh.groups(chosen).tolist() == list(groups.values())


@given(meshes())
def test_groups_hold_every_rank_once(case: tuple[Mesh, tuple[str, ...]]) -> None:
    mesh, chosen = case
    groups = mesh.groups(chosen)
    assert sorted(groups.ravel().tolist()) == list(range(mesh.ranks))
    assert (np.diff(groups, axis=1) > 0).all()


@given(
    st.sampled_from(("all-reduce", "all-reduce/tree", "all-gather", "all-to-all", "p2p", "ring")),
    st.integers(1, 10**14),
    st.floats(0.5, 1e4),
    st.floats(0, 1),
)
def test_traffic_reads_what_it_writes(kind: str, size: int, times: float, overlap: float) -> None:
    (traffic,) = parse_traffic(f"dp+tp={kind}:{size}B*{times:.6g}@{overlap:.6g}", AXES)
    assert parse_traffic(traffic.text, AXES) == [traffic]


@pytest.mark.parametrize("axis", DEFAULT_KINDS)
def test_axes_without_a_kind_have_the_usual_ones(axis: str) -> None:
    parsed = parse_traffic(f"{axis}=1MB", ((axis, 4),))
    assert [each.kind for each in parsed for _ in range(int(each.times))] == list(DEFAULT_KINDS[axis])


@pytest.mark.parametrize("text", ["pp", "pp=", "pp=0", "pp=-2", "pp=2.5", "PP=2", "pp=2,,dp=2", "2=pp"])
def test_bad_axes_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="write axes and sizes"):
        parse_axes(text)


def test_axes_twice_too_many_or_too_large_are_refused() -> None:
    with pytest.raises(UsageError, match="axis pp is there twice"):
        parse_axes("pp=2,pp=2")
    with pytest.raises(UsageError, match="9 axes"):
        parse_axes(",".join(f"a{k}=1" for k in range(9)))
    with pytest.raises(UsageError, match="ranks"):
        parse_axes("a=9999999,b=9999999")


@pytest.mark.parametrize(
    "text",
    [
        "dp", "dp=", "ep=all-to-all:1MB", "dp+dp=1MB", "dp=gossip:1MB", "dp+tp=1MB", "dp=ring/tree:1MB", "dp=1XB",
        "dp=0B", "dp=1MB*0", "dp=1MB*-1", "dp=1MB*inf", "dp=1MB*x", "dp=1MB@1.5", "dp=1MB@-0.1", "dp=1MB@nan",
        "dp=all-reduce:", "dp=1MB*nan",
    ],
)  # fmt: skip
def test_bad_traffic_is_named(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        make_mesh(MESH, [text])
    assert f"--traffic {text}" in str(refusal.value)


def test_sizes_are_one_or_one_each() -> None:
    assert len(make_mesh(MESH, ["dp=all-reduce:1MB/2MB/3MB/4MB"]).traffic[0].sizes) == 4
    for text, what in (("dp=all-reduce:1MB/2MB", "4 groups"), ("dp=p2p:1MB/2MB", "3 hops")):
        with pytest.raises(UsageError, match=f"2 sizes for {what}"):
            make_mesh(MESH, [text])


def test_mesh_without_traffic_is_refused() -> None:
    with pytest.raises(UsageError, match="what do its groups send"):
        make_mesh(MESH, [])


def test_megatron_order_has_the_fastest_axis_first() -> None:
    axes = parse_axes("dp=2,ep=2,pp=4")
    assert in_megatron_order(axes, "ep-dp-pp") == (("pp", 4), ("dp", 2), ("ep", 2))
    for order in ("pp-ep-dp", "ep-pp", "ep-dp-pp-tp"):
        with pytest.raises(UsageError, match=order):
            in_megatron_order(axes, order)


def test_bytes_follow_from_the_model() -> None:
    model = ModelShape(parameters=8e9, layers=32, hidden=4096, tokens=8192, microbatches=32)
    mesh = make_mesh("pp=4,dp=8,tp=2", [], model)
    by_axis = {each.axes[0]: each for each in mesh.traffic}
    assert by_axis["dp"].sizes == (2 * 8e9 / 8,)
    assert (by_axis["pp"].sizes, by_axis["pp"].times) == ((2.0 * 8192 * 4096,), 32)
    assert by_axis["tp"].times == 4 * 32 / 4 * 32
    with pytest.raises(UsageError, match="along strange"):
        make_mesh("strange=2", [], model)


@pytest.mark.parametrize(
    ("axes", "gradients"),
    [
        ("dp=2,cp=2", ["dp+cp=all-reduce:16GB"]),
        ("cp=4", ["cp=all-reduce:16GB"]),
        (
            "dp_replicate=2,dp_shard=4,cp=2",
            [
                "dp_replicate=all-reduce:2GB",
                "dp_shard+cp=reduce-scatter:16GB",
                "dp_shard+cp=all-gather:16GB*2",
            ],
        ),
        (
            "dp_replicate=2,cp=2",
            ["dp_replicate=all-reduce:8GB", "cp=reduce-scatter:16GB", "cp=all-gather:16GB*2"],
        ),
    ],
)
def test_context_ranks_share_gradients(axes: str, gradients: list[str]) -> None:
    model = ModelShape(parameters=8e9, layers=32, hidden=4096, tokens=8192, microbatches=8)
    traffic = make_mesh(axes, [], model).traffic
    assert [each.text for each in traffic if each.kind != "ring"] == gradients


def test_mesh_file_is_read_as_json_and_toml(tmp_path: Path) -> None:
    mesh = make_mesh(MESH, ["dp=all-reduce:1.6GB@0.5", "pp=p2p:64MB*32"])
    json_file, toml = tmp_path / "mesh.json", tmp_path / "mesh.toml"
    json_file.write_text(
        '{"schema": "plink.mesh/1", "mesh": "pp=2,dp=4,tp=2", "traffic": ["dp=1.6GB@0.5", "pp=64MB*32"]}'
    )
    toml.write_text('schema = "plink.mesh/1"\nmesh = "pp=2,dp=4,tp=2"\ntraffic = ["dp=1.6GB@0.5", "pp=64MB*32"]\n')
    assert read_mesh(json_file) == read_mesh(toml) == mesh
    toml.write_text('schema = "plink.mesh/1"\nmesh = "pp=2"\ntraffic = ["dp=1GB"]\n')
    with pytest.raises(InputError, match=r"mesh\.toml.*dp"):
        read_mesh(toml)
    toml.write_text('schema = "plink.mesh/1"\nmesh = "pp=2"\ntrafic = ["pp=1GB"]\ntraffic = ["pp=1MB"]\n')
    with pytest.raises(InputError, match=r"mesh\.toml.*trafic"):
        read_mesh(toml)
    for text in ("mesh = [", f"mesh = {'9' * 5000}", f"mesh = {'[' * 5000}"):
        toml.write_text(text)
        with pytest.raises(InputError, match=r"mesh\.toml: not TOML"):
            read_mesh(toml)
