"""Measured tiers as Slurm's switches, which plink reads back as they were."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from plink.errors import InputError, NoAnswer
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from plink.model.topology import parse_topology
from plink.model.topology.export import Switch, kubectl_commands, slurm_conf, slurm_yaml, switches_of, topograph_json
from tests.cli.files import refusal, write
from tests.conftest import typed
from tests.networks import details_from

NAMES = [f"node{k:02}" for k in range(1, 10)]
RACKS = [NAMES[0:2], NAMES[4:6], NAMES[2:4], NAMES[6:8]]
PODS = [NAMES[0:4], NAMES[4:8]]


def network(*tiers: list[list[str]]) -> Network:
    """Nine hosts, with groups of each tier."""
    links = [{"groups": [{"members": group} for group in tier]} for tier in tiers]
    hosts = Hosts(tuple(Host(name, name) for name in NAMES))
    return Network(hosts, np.zeros((9, 9)), None, details_from({"shared_links": links} if tiers else {}))


def test_racks_are_leaves_below_pods_below_a_root() -> None:
    """A host in no rack is a leaf by itself."""
    assert slurm_conf(switches_of(network(RACKS, PODS))) == (
        "SwitchName=leaf1 Nodes=node[01-02]\n"
        "SwitchName=leaf2 Nodes=node[03-04]\n"
        "SwitchName=leaf3 Nodes=node[05-06]\n"
        "SwitchName=leaf4 Nodes=node[07-08]\n"
        "SwitchName=leaf5 Nodes=node09\n"
        "SwitchName=tier2-1 Switches=leaf[1-2]\n"
        "SwitchName=tier2-2 Switches=leaf[3-4]\n"
        "SwitchName=root Switches=leaf5,tier2-[1-2]\n"
    )


@pytest.mark.parametrize("writer", [slurm_conf, slurm_yaml, topograph_json])
def test_topology_export_round_trip(writer: Any) -> None:
    paths = parse_topology(writer(switches_of(network(RACKS, PODS))), "a file").paths
    assert paths["node03"] == ("root", "tier2-1", "leaf2")
    assert paths["node09"] == ("root", "leaf5")
    assert len(paths) == 9


@pytest.mark.parametrize("writer", [slurm_conf, slurm_yaml])
def test_ranges_are_at_the_end_of_names(writer: Any) -> None:
    """Slurm reads no others; and topology.yaml has no numbers."""
    names = ["gpu1-ib", "gpu2-ib", "n1", "n2"]
    text = writer([Switch("leaf1", (), tuple(names)), Switch("leaf2", (), ("7",))])
    assert "gpu1-ib,gpu2-ib,n[1-2]" in text
    assert list(parse_topology(text, "a file").paths) == [*names, "7"]
    assert writer is slurm_conf or yaml.safe_load(text)[0]["tree"]["switches"][1]["nodes"] == "7"


@pytest.mark.parametrize(
    ("kind", "name"), [("slurm-conf", "10.0.0.1"), ("slurm-yaml", "10.0.0.1"), ("kubectl", "Node_3")]
)
def test_names_that_no_node_has_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    hosts, links = Hosts((Host(name, name), Host("b", "b"))), [{"groups": [{"members": [name, "b"]}]}]
    named = Network(hosts, 1 - np.eye(2), None, details_from({"shared_links": links}))
    write(tmp_path / "n.json", named.to_json())
    refused = refusal(typed("topology", "export", "n.json", "--format", kind, cwd=tmp_path))
    assert refused.startswith(f"--format {kind}: {name} ")


def test_kubernetes_labels_round_trip() -> None:
    """Of each node those that its command gives it."""
    items = []
    for line in kubectl_commands(switches_of(network(RACKS, PODS))).splitlines():
        *command, name = line.split()[:5]
        assert command == ["kubectl", "label", "--overwrite", "node"]
        labels = dict(word.split("=") for word in line.split()[5:])
        items.append({"kind": "Node", "metadata": {"name": name, "labels": labels}})
    paths = parse_topology(json.dumps({"items": items}), "a file").paths
    assert paths["node03"] == ("root", "tier2-1", "leaf2")
    assert paths["node09"] == ("root", "leaf5")
    assert len(paths) == 9


def test_a_pod_of_one_rack_is_no_switch() -> None:
    switches = switches_of(network(RACKS, [PODS[0], RACKS[1]]))
    assert [switch.name for switch in switches][5:] == ["tier2-1", "root"]
    assert switches[-1].children == ("leaf3", "leaf4", "leaf5", "tier2-1")


def test_one_group_of_all_is_the_only_switch() -> None:
    assert switches_of(network([NAMES])) == [Switch("leaf1", (), tuple(NAMES))]


@pytest.mark.parametrize(("group", "name"), [(["node01", "node09"], "node01"), (["who"], "who")])
def test_groups_that_overlap_or_have_other_hosts_are_refused(group: list[str], name: str) -> None:
    with pytest.raises(InputError, match=name):
        switches_of(network([*RACKS, group]))


def test_without_shared_links_there_is_no_answer() -> None:
    with pytest.raises(NoAnswer, match="no tiers of shared links; `plink probe HOSTS` measures them"):
        switches_of(network())


def test_the_command_writes_a_file_or_to_standard_output(tmp_path: Path) -> None:
    write(tmp_path / "n.json", network(RACKS, PODS).to_json())
    shown = typed("topology", "export", "n.json", cwd=tmp_path)
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (0, "SwitchName=leaf1 Nodes=node[01-02]")
    done = typed("topology", "export", "n.json", "--format", "slurm-yaml", "-o", "topology.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "8 switches -> topology.yaml" in done.stderr
    assert (tmp_path / "topology.yaml").read_text() == slurm_yaml(switches_of(network(RACKS, PODS)))
    write(tmp_path / "bare.json", network().to_json())
    assert typed("topology", "export", "bare.json", cwd=tmp_path).returncode == 4
    assert "n.json" in refusal(typed("topology", "export", "n.json", "-o", "n.json", cwd=tmp_path))
