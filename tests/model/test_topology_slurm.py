"""Topology files of Slurm: trees, blocks, several in one file, and files that include others."""

from pathlib import Path

import pytest

from plink.errors import InputError
from plink.model.topology import paths_for, read_topology
from tests.model.topologies import BLOCKS, TREE, YAML, hosts, read


def test_slurm_tree() -> None:
    topology = read(TREE)
    assert topology.kind == "slurm-tree"
    assert topology.paths == {
        "node1": ("root", "spine1", "leaf01"),
        "node2": ("root", "spine1", "leaf01"),
        "node4": ("root", "spine1", "leaf01"),
        "node08": ("root", "spine1", "leaf02"),
        "node09": ("root", "spine1", "leaf02"),
        "node10": ("root", "spine1", "leaf02"),
        "gpu0n0": ("root", "spine2", "leaf03"),
        "gpu0n1": ("root", "spine2", "leaf03"),
        "gpu1n0": ("root", "spine2", "leaf03"),
        "gpu1n1": ("root", "spine2", "leaf03"),
        "alone": ("root", "spine2", "leaf04"),
    }


def test_slurm_blocks_pair_up_in_the_order_of_the_file() -> None:
    topology = read(BLOCKS)
    assert topology.kind == "slurm-block"
    assert [topology.paths[f"n{k}"] for k in (1, 8, 9, 16, 17)] == [
        ("block of 4 #0", "block of 2 #0", "b1"),
        ("block of 4 #0", "block of 2 #0", "b2"),
        ("block of 4 #0", "block of 2 #1", "b3"),
        ("block of 4 #0", "block of 2 #1", "b4"),
        ("block of 4 #1", "block of 2 #2", "b5"),
    ]


def test_slurm_yaml_is_read_as_its_default_topology() -> None:
    blocks = read(YAML)
    assert blocks.kind == "slurm-block"
    assert blocks.paths["node04"] == ("block of 2 #0", "b1")
    assert list(blocks.paths) == [f"node{k:02d}" for k in range(1, 9)]
    tree = read(YAML.replace("True", "false").replace("default: False", "default: true", 1))
    assert tree.kind == "slurm-tree"
    assert tree.paths == {f"node0{k}": ("sw_root", f"sw{(k + 1) // 2}") for k in (1, 2, 3, 4)}


def test_names_that_yaml_takes_for_numbers_or_truth_stay_names() -> None:
    names = ("no", "1_000", "0x1f", "12", "2026-11-25", "null")
    text = slurm_yaml("\n".join(f"    - switch: s{k}\n      nodes: {name}" for k, name in enumerate(names)))
    assert list(read(text).paths) == list(names)


SEVERAL = """
- cluster_default: true
  topology: cpu
  tree: {switches: [{switch: s0, nodes: "cpu-[0-3]"}]}
- topology: gpu
  block: {block_sizes: [2, 4], blocks: [{block: b0, nodes: "gpu-[0-1]"}, {block: b1, nodes: "gpu-[2-3]"}]}
- topology: some
  tree: {switches: [{switch: s1, nodes: "gpu-[0-1],new-[0-1]"}]}
- topology: all
  flat: true
"""


@pytest.mark.parametrize(
    ("default", "job", "name", "kind"),
    [
        ("cpu", ["gpu-0", "gpu-3"], "", "slurm-block"),
        ("some", ["gpu-0", "gpu-1"], "", "slurm-tree"),
        ("all", ["gpu-0", "gpu-2"], "", "slurm-block"),
        ("cpu", [], "", "slurm-tree"),
        ("cpu", [], "#gpu", "slurm-block"),
        ("cpu", ["gpu-0", "gpu-1"], "#some", "slurm-tree"),
        ("cpu", ["gpu-0", "gpu-1"], "", None),
        ("all", [], "", None),
        ("cpu", [], "#nosuch", None),
    ],
)
def test_topology_of_several_that_has_the_hosts(
    default: str, job: list[str], name: str, kind: str | None, tmp_path: Path
) -> None:
    text = SEVERAL.replace("cluster_default: true\n  topology: cpu", "topology: cpu")
    file = tmp_path / "topology.yaml"
    file.write_text(text.replace(f"topology: {default}\n", f"topology: {default}\n  cluster_default: true\n"))
    job_hosts = hosts(*job) if job else None
    if kind is None:
        with pytest.raises(InputError, match="which topology is meant"):
            read_topology(f"{file}{name}", hosts=job_hosts)
    else:
        topology = read_topology(f"{file}{name}", hosts=job_hosts)
        assert topology.kind == kind
        assert job_hosts is None or None not in paths_for(topology, job_hosts)


def test_files_that_a_slurm_file_includes(tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "racks.conf").write_text("SwitchName = l2 Nodes = n3\ninclude more.conf # and\n")
    (tmp_path / "slurm" / "more.conf").write_text('SwitchName=l3 Nodes="n4"\n')
    (tmp_path / "t.conf").write_text("SwitchName=l1  Nodes =n[1-2]\nInclude slurm/racks.conf\n")
    assert read_topology(tmp_path / "t.conf").paths == {"n1": ("l1",), "n2": ("l1",), "n3": ("l2",), "n4": ("l3",)}
    (tmp_path / "slurm" / "more.conf").write_text("include racks.conf\n")
    with pytest.raises(InputError, match="circle"):
        read_topology(tmp_path / "t.conf")


def slurm_yaml(text: str) -> str:
    """A topology.yaml with one tree of these lines."""
    return f"- topology: t\n  tree:\n    switches:\n{text}\n"
