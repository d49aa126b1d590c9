"""Topology files: one of each format as its tool writes it; Slurm's are in test_topology_slurm.py."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from plink.errors import InputError
from plink.model.topology import paths_for, read_topology
from tests.model.topologies import AWS, GCP, KUBERNETES, REGION, TOPOGRAPH, TREE, hosts, node, read


def test_amazon_names_the_top_first_and_may_name_nothing() -> None:
    topology = read(AWS)
    assert topology.kind == "aws"
    zone, above = "usw2-az2", ("nn-1111111111example", "nn-2222222222example")
    assert topology.paths == {
        "i-1111111111example": (zone, *above, "nn-3333333333example"),
        "i-2222222222example": (zone, *above, "nn-4343434343example", "nn-5example", "cb-0123456789example"),
        "i-3333333333example": (zone, None),
        "i-4444444444example": ("us-west-2b", None),
    }


def test_google_says_it_in_two_ways_or_not_at_all() -> None:
    topology = read(GCP)
    assert topology.kind == "gcp"
    zone = "us-central1-a"
    assert topology.paths == {
        "vm-1": (zone, "us-central1-cluster-1", "b1", "s1", "h1"),
        "vm-2": (zone, None, "b1", "s2", "h9"),
        "vm-3": (zone, None),
    }
    assert topology.aliases["vm-1"] == ("3141592653589793238", "10.128.0.5", "203.0.113.7")


def test_google_name_in_two_zones_has_its_zone() -> None:
    listed = [{"name": "vm", "id": k, "zone": f"z/{k}", "resourceStatus": {}} for k in "ab"]
    topology = read(json.dumps([*listed, *json.loads(GCP)]))
    assert list(topology.paths) == ["vm.a", "vm.b", "vm-1", "vm-2", "vm-3"]
    assert paths_for(topology, hosts("vm.b", "vm", x="a")) == [("b", None), None, ("a", None)]


def test_amazon_names_of_instances_stand_in_another_file() -> None:
    names = {"PrivateDnsName": "ip-10-0-0-5.ec2.internal", "PrivateIpAddress": "10.0.0.5", "PublicDnsName": ""}
    described = {"Reservations": [{"Instances": [{"InstanceId": "i-1111111111example", **names}]}]}
    topology = read(AWS + json.dumps(described))
    assert topology.paths == read(AWS).paths
    assert None not in paths_for(topology, hosts("ip-10-0-0-5", x="10.0.0.5"))


def test_google_topology_without_a_cluster_and_of_one_instance() -> None:
    instance = {"name": "vm-1", "zone": "z", "resourceStatus": {"physicalHost": "/b/s/h"}}
    assert read(json.dumps(instance)).paths == {"vm-1": ("z", "b", "s", "h")}
    assert read(json.dumps([instance])) == read(json.dumps({"kind": "compute#instanceList", "items": [instance]}))


def test_topograph_names_the_nearest_first() -> None:
    topology = read(TOPOGRAPH)
    assert topology.kind == "topograph"
    assert topology.paths == {
        "I21": ("spine-a", "leaf-a", "nvl-1"),
        "I22": ("spine-a", "leaf-b", "nvl-1"),
        "I23": (None,),
    }


def test_kubernetes_labels_of_each_provider_are_read_outermost_first() -> None:
    topology = read(json.dumps(KUBERNETES))
    assert topology.kind == "kubernetes"
    assert list(topology.paths.values()) == [
        ("us-west-2", "us-west-2a", "nn-1", "nn-2", "nn-3", "7b968a6d.32766"),
        ("block-1", "subblock-1", "host-1"),
        ("block-1", None, "h-2"),
        ("hpc_island", "network_block", "local_block"),
        ("network_block", "rack"),
        ("us-west-2", "us-west-2a", None),
    ]
    assert topology.aliases["ip-10-0-5-152.us-west-2.compute.internal"] == ("10.0.5.152", "i-0abc")


def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    file = tmp_path / "cluster.conf"
    file.write_text("\ufeff" + TREE)
    assert read_topology(file).location == str(file)
    with pytest.raises(InputError, match="no such file"):
        read_topology(tmp_path / "other")


PAGES = [json.loads(AWS), {"Instances": [{"InstanceId": "i-5", "NetworkNodes": ["nn-1"], "ZoneId": "usw2-az2"}]}]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(json.dumps(page, indent=1) for page in PAGES),
        "".join(json.dumps(page) for page in PAGES),
        json.dumps(PAGES),
        json.dumps(PAGES[0]["Instances"] + PAGES[1]["Instances"]),
        "\n".join(json.dumps(entry) for page in PAGES for entry in page["Instances"]),
    ],
    ids=["documents", "without space", "list of pages", "query", "lines"],
)
def test_pages_of_one_file(text: str, caplog: pytest.LogCaptureFixture) -> None:
    paths = read(text).paths
    assert not caplog.records
    assert paths == read(AWS).paths | {"i-5": ("usw2-az2", "nn-1")}


def test_pages_of_several_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number, page in enumerate([*PAGES, PAGES[1]]):
        (tmp_path / f"{number}").write_text(json.dumps(page))
    topology = read_topology(*(tmp_path / name for name in "012"))
    assert topology.paths == read(json.dumps(PAGES)).paths
    assert not caplog.records
    (tmp_path / "a").write_text("SwitchName=s1 Nodes=n1")
    (tmp_path / "b").write_text("SwitchName=s2 Nodes=n2")
    assert read_topology(tmp_path / "a", tmp_path / "b").paths == {"n1": ("s1",), "n2": ("s2",)}
    with pytest.raises(InputError, match=r"slurm-tree.*aws|aws.*slurm-tree"):
        read_topology(tmp_path / "0", tmp_path / "a")


@pytest.mark.parametrize(
    "document",
    [
        PAGES[0],
        [PAGES[1], PAGES[0]],
        {"items": KUBERNETES["items"], "metadata": {"continue": "abc"}},
        {"items": json.loads(GCP), "nextPageToken": "abc"},
    ],
)
def test_listing_that_is_cut_off_is_said(document: Any, caplog: pytest.LogCaptureFixture) -> None:
    read(json.dumps(document))
    (record,) = caplog.records
    assert "is cut off" in record.getMessage()


def test_metadata_of_google_instances_does_not_make_them_kubernetes_nodes() -> None:
    listed = [entry | {"metadata": {"fingerprint": "x", "items": []}} for entry in json.loads(GCP)]
    assert read(json.dumps(listed)) == read(GCP)


@pytest.mark.parametrize(
    "labels",
    [
        [f"network.topology.nvidia.com/{level}" for level in ("core", "spine", "leaf")],
        [f"backend.coreweave.cloud/{level}" for level in ("fabric", "superpod", "leafgroup")],
        [f"topology.nebius.com/tier-{tier}" for tier in (3, 2, 1)],
    ],
)
def test_labels_of_further_providers(labels: list[str]) -> None:
    nodes = [node("n1", dict(zip(labels, "abc", strict=True))), node("n2", dict(zip(labels, "abd", strict=True)))]
    assert read(json.dumps(nodes)).paths == {"n1": ("a", "b", "c"), "n2": ("a", "b", "d")}


def test_labels_of_ones_own(tmp_path: Path) -> None:
    file, labels = tmp_path / "nodes.json", ["x.org/block", "x.org/rack"]
    nodes = [node("n1", dict(zip(labels, "ab", strict=True)) | REGION), node("n2", {labels[0]: "a"}), node("n3", {})]
    file.write_text(json.dumps(nodes))
    assert read_topology(file, labels=labels).paths == {"n1": ("a", "b"), "n2": ("a",), "n3": (None,)}
    racks = [
        node(f"n{k}", {"topology.kubernetes.io/rack": f"r{k}", "kubernetes.io/os": "linux"} | REGION) for k in "12"
    ]
    (tmp_path / "racks.json").write_text(json.dumps(racks))
    with pytest.raises(InputError, match=r"outermost first \(--labels A,B\), of topology.kubernetes.io/rack$"):
        read_topology(tmp_path / "racks.json", labels=["rack"])
    with pytest.raises(InputError, match=r"'x.org/row'.*x.org/block, x.org/rack"):
        read_topology(file, labels=["x.org/row", *labels])
    file.write_text(json.dumps(nodes[1:]))
    with pytest.raises(InputError, match=r"without their positions.*--labels.*x.org/block"):
        read_topology(file)
    file.write_text(TREE)
    with pytest.raises(InputError, match="--labels"):
        read_topology(file, labels=labels)


@pytest.mark.parametrize(
    "text",
    [
        '{"n1": "/dc/r1", "n2": "/dc/r2"}',
        "n1 /dc/r1\nn2 /dc/r2\n",
        "# ours\nn1\t/dc/r1\n\nn2\t/dc/r2 # new\n",
        "n1,/dc/r1\nn2, /dc/r2\n",
        "host;rack\nn1;/dc/r1\nn2;/dc/r2\n",
        "n1: /dc/r1\nn2: /dc/r2\n",
        '{"/dc/r1": ["n1"], "/dc/r2": ["n2"]}',
        '[{"host": "n1", "rack": "r1", "zone": "dc"}, {"zone": "dc", "host": "n2", "rack": "r2"}]',
        '{"node": "n1", "zone": "dc", "rack": "r1"}\n{"node": "n2", "zone": "dc", "rack": "r2"}\n',
        "Rack,Serial,Host Name,Datacenter\nr1,7,n1,dc\nr2,8,n2,dc\n",
        '{"schema": "plink.truth/1", "positions": {"n1": ["dc", "r1"], "n2": ["dc", "r2"]}}',
    ],
)
def test_lists_of_hosts_and_racks(text: str) -> None:
    assert read(text).paths == {"n1": ("dc", "r1"), "n2": ("dc", "r2")}


def test_racks_of_one_level_are_names_or_numbers() -> None:
    for text in ('{"10.0.0.1": "psw a", "::1": 7}', '{"10.0.0.1": "psw a"}\n{"::1": 7}', "10.0.0.1,psw a\n::1,7"):
        assert read(text).paths == {"10.0.0.1": ("psw a",), "::1": ("7",)}


def test_every_example_in_the_documentation_is_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "topology.md").read_text()
    examples = re.findall(r"^```(?:json|conf|yaml)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    kinds = [read(example).kind for example in examples]
    assert kinds == ["aws", "gcp", "topograph", "slurm-tree", "slurm-block", "slurm-tree", "kubernetes"]
