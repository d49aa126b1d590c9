"""Topology files: one of each format as its tool writes it, what is refused and where, and whose path is whose."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from plink.errors import InputError
from plink.model.hosts import Host, Hosts
from plink.model.topology import Topology, parse_topology, paths_for, read_topology

AWS = """
{
    "Instances": [
        {
            "InstanceId": "i-1111111111example",
            "InstanceType": "p4d.24xlarge",
            "GroupName": "my-ml-cpg",
            "NetworkNodes": ["nn-1111111111example", "nn-2222222222example", "nn-3333333333example"],
            "ZoneId": "usw2-az2",
            "AvailabilityZone": "us-west-2a"
        },
        {
            "InstanceId": "i-2222222222example",
            "InstanceType": "p6e-gb200.36xlarge",
            "NetworkNodes": ["nn-1111111111example", "nn-2222222222example", "nn-4343434343example", "nn-5example"],
            "ZoneId": "usw2-az2",
            "AvailabilityZone": "us-west-2a",
            "CapacityBlockId": "cb-0123456789example"
        },
        {
            "InstanceId": "i-3333333333example",
            "InstanceType": "c5.large",
            "NetworkNodes": null,
            "ZoneId": "usw2-az2",
            "AvailabilityZone": "us-west-2a",
            "CapacityBlockId": null
        },
        {"InstanceId": "i-4444444444example", "NetworkNodes": [], "AvailabilityZone": "us-west-2b"}
    ],
    "NextToken": "SomeEncryptedToken"
}
"""

GCP = """
[
  {
    "id": "3141592653589793238",
    "name": "vm-1",
    "networkInterfaces": [{"networkIP": "10.128.0.5", "accessConfigs": [{"natIP": "203.0.113.7"}]}],
    "resourceStatus": {
      "physicalHost": "/b1/s1/h1",
      "physicalHostTopology": {"cluster": "us-central1-cluster-1", "block": "b1", "subblock": "s1", "host": "h1"}
    },
    "zone": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a"
  },
  {
    "id": "2718281828459045235",
    "name": "vm-2",
    "resourceStatus": {"physicalHost": "/b1/s2/h9"},
    "zone": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a"
  },
  {"name": "vm-3", "resourceStatus": {"scheduling": {}}, "zone": "projects/p/zones/us-central1-a"}
]
"""

TOPOGRAPH = """
{
  "instances": [
    {"id": "I21", "network_layers": ["leaf-a", "spine-a"], "labels": {"accelerator.topograph.run/domain": "nvl-1"}},
    {"id": "I22", "type": "H100", "network_layers": ["leaf-b", "spine-a"], "attributes": {"nvlink": "nvl-1"}},
    {"id": "I23", "network_layers": []}
  ]
}
"""


def node(name: str, labels: dict[str, str], **more: Any) -> dict[str, Any]:
    """A node as `kubectl get nodes -o json` has it."""
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name} | labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata} | more


REGION = {"topology.kubernetes.io/region": "us-west-2", "topology.kubernetes.io/zone": "us-west-2a"}
KUBERNETES = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        node(
            "ip-10-0-5-152.us-west-2.compute.internal",
            REGION
            | {f"topology.k8s.aws/network-node-layer-{k}": f"nn-{k}" for k in (3, 1, 2)}
            | {"nvidia.com/gpu.clique": "7b968a6d.32766"},
            spec={"providerID": "aws:///us-west-2a/i-0abc"},
            status={"addresses": [{"type": "InternalIP", "address": "10.0.5.152"}]},
        ),
        node("gke-1", {f"cloud.google.com/gce-topology-{k}": f"{k}-1" for k in ("block", "subblock", "host")}),
        node("gke-2", {"cloud.google.com/gce-topology-block": "block-1", "cloud.google.com/gce-topology-host": "h-2"}),
        node("oke-1", {f"oci.oraclecloud.com/rdma.{k}_id": k for k in ("local_block", "hpc_island", "network_block")}),
        node("oke-2", {f"oci.oraclecloud.com/host.{k}_id": k for k in ("rack", "network_block")}),
        node("control-plane", REGION),
    ],
}

TREE = """
# topology/tree, by hand
SwitchName=root switches=spine[1-2]   # above all
SWITCHNAME=spine1 Switches=leaf[01-02] LinkSpeed=100
SwitchName=spine2 Switches=leaf03,\\
  leaf04
SwitchName=leaf01 Nodes=node[1-2,4]
SwitchName=leaf02 Nodes="node[08-10]"
SwitchName=leaf03 Nodes=gpu[0-1]n[0-1]
SwitchName=leaf04 Nodes=alone
"""

BLOCKS = """
BlockName=b1 Nodes=n[1-4]
BlockName=b2 Nodes=n[5-8]
BlockName=b3 Nodes=n[9-12]
BlockName=b4 Nodes=n[13-16]
BlockName=b5 Nodes=n[17-20]
BlockSizes=4,8,16
"""

YAML = """
---
- topology: topo1
  cluster_default: False
  tree:
    switches:
    - switch: sw_root
      children: sw[1-2]
    - switch: sw1
      nodes: node[01-02]   # a comment
    - switch: sw2
      nodes: "node[03-04]"
- topology: topo2
  cluster_default: True
  block:
    block_sizes:
      - 4
      - 8
    blocks:
      - block: b1
        nodes: node[01-04]
      - block: b2
        nodes: node[05-08]
- topology: topo3
  cluster_default: False
  flat: True
"""


def read(text: str) -> Topology:
    """As a file called ``t``."""
    return parse_topology(text, "t")


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


def test_hosts_that_a_file_lacks_are_named(caplog: pytest.LogCaptureFixture) -> None:
    assert paths_for(read("n1 r1\nn2 r2"), hosts("n1", "gone-1", "gone-2")) == [("r1",), None, None]
    assert "lacks 2 of the 3 hosts" in caplog.text
    assert "gone-1, gone-2" in caplog.text


def test_every_example_in_the_documentation_is_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "topology.md").read_text()
    examples = re.findall(r"^```(?:json|conf|yaml)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    kinds = [read(example).kind for example in examples]
    assert kinds == ["aws", "gcp", "topograph", "slurm-tree", "slurm-block", "slurm-tree", "kubernetes"]


def instance(**fields: Any) -> str:
    """An AWS answer of one instance."""
    return json.dumps({"Instances": [{"InstanceId": "i-1", "NetworkNodes": ["nn-1"]} | fields]})


def gcp(**status: Any) -> str:
    """A Google answer of one instance."""
    return json.dumps([{"name": "vm-1", "resourceStatus": status}])


def slurm_yaml(text: str) -> str:
    """A topology.yaml with one tree of these lines."""
    return f"- topology: t\n  tree:\n    switches:\n{text}\n"


BAD = [
    ("", "t", "not a topology that plink reads"),
    ("[" * 100_000, "t", "nested too deeply"),
    ("[1, null]", "t", "not a topology that plink reads"),
    ('{"schema": "plink.network/1", "hosts": []}', "t", "not a topology that plink reads"),
    ('{"Instances": {"InstanceId": "i-1"}}', "t: Instances", "a list was expected, this is a dict"),
    (instance(InstanceId="-oProxyCommand=x"), "t: Instances[0]", "cannot be a host name"),
    (instance(NetworkNodes="nn-1"), "t: Instances[0].NetworkNodes", "a list was expected, this is a str"),
    (instance(NetworkNodes=["a" * 600]), "t: Instances[0].NetworkNodes[0]", "600 characters"),
    (instance(NetworkNodes=None), "t", "without their positions"),
    (
        json.dumps({"Instances": [{"InstanceId": "i-1", "ZoneId": zone, "NetworkNodes": [zone]} for zone in "zy"]}),
        "t: Instances[1]",
        "listed twice, below 'z/z' and 'y/y'",
    ),
    ('{"n1": "r1"} {"n1": "r2"}', "t (document 2)", "'n1' is listed twice, below 'r1' and 'r2'"),
    ('{"n1": "r1"}\n{"n1": NaN}', "t", "NaN"),
    ('{"n1": "r1"} {"n1"', "t:1", "not JSON"),
    ("n1 r1\nn1 r2", "t:2", "'n1' is listed twice, below"),
    ("n1 r1\nn2", "t", "not a topology that plink reads"),
    ("n1 r1\n= :\n", "t", "not a topology that plink reads"),
    ("host,rack\nn1", "t:2", "a host and where it is were expected"),
    ("include missing.conf", "missing.conf", "no such file"),
    (gcp(physicalHost="/a/b"), "t[0].resourceStatus.physicalHost", "not of the form /block/subblock/host"),
    (
        json.dumps([{"name": "a", "networkInterfaces": [{"accessConfigs": 1}]}]),
        "t[0].networkInterfaces[0].accessConfigs",
        "a list was expected",
    ),
    ('{"instances": [{"id": "a", "network_layers": {}}]}', "t: instances[0].network_layers", "a list was expected"),
    ('{"items": [{"metadata": {"name": "a", "labels": []}}]}', "t: items[0].metadata.labels", "an object was"),
    ("SwitchName=a Nodes=node[1-999999999]", "t:1", "makes more than 65536 hosts"),
    ("SwitchName=a Nodes=n[4-1]", "t:1", "ends before it begins"),
    ("SwitchName=a Nodes=n[[1]]", "t:1", "is not a list of hosts"),
    ("SwitchName=a Nodes=n[a-c]", "t:1", "neither a number nor a range"),
    ("SwitchName=a Nodes=$(reboot)", "t:1", "cannot be a host name"),
    ("SwitchName=a Nodes=n1\n\nSwitchName=b Nodes=n1", "t:3", "'n1' is listed twice, below 'a' and 'b'"),
    ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "t:2", "defined twice"),
    ("SwitchName=a Switches=b", "t:1", "'b' is not defined"),
    ("SwitchName=b Nodes=n2\nSwitchName=a Switches=b Nodes=n1", "t:2", "both switches and nodes"),
    ("n1 slots=2\nn2 slots=2", "t:1", "'slots=2' is no host and no rack"),
    ("n1 10.0.0.1:22\nn2 10.0.0.2:22", "t:1", "'10.0.0.1:22' is no host and no rack"),
    ("127.0.0.1 localhost\n10.0.0.1 n1", "t", "as in /etc/hosts"),
    (
        json.dumps({"Reservations": [{"Instances": [{"InstanceId": "i-1", "PrivateIpAddress": "10.0.0.1"}]}]}),
        "t",
        "names of instances only",
    ),
    ("SwitchName=a Nodes=n\nSwitchName=b Switches=a,c\nSwitchName=c Switches=b", "t:1", "more than 16 switches above"),
    ("SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n", "t:2", "is below 'a' and 'b'"),
    ("SwitchName=a Hosts=n1", "t:1", "unknown key 'Hosts'"),
    ("RingName=r Nodes=n1", "t:1", "topology/ring is not read"),
    ("SwitchName=a Nodes=n1\nNodes=n2", "t:2", "neither SwitchName, BlockName nor BlockSizes"),
    ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2", "t", "both switches and blocks"),
    ("BlockName=b Nodes=n1\nBlockSizes=4,4", "t:2", "4 is not a larger power of two of 4"),
    ("BlockName=b Nodes=n1\nBlockName=b Nodes=n2", "t:2", "defined twice"),
    (slurm_yaml("    - nodes: n1"), "t: [0].tree.switches[0]", "it has no switch"),
    (slurm_yaml("    - switch: &x a"), "t:4", "aliases"),
    (slurm_yaml("    - switch: a\n        nodes: n1"), "t:5", "YAML"),
    (slurm_yaml("    - switch: a\n\tnodes: n1"), "t:5", "YAML"),
    (slurm_yaml("    - switch: a\n      nodes: [1-2]"), "t: [0].tree.switches[0].nodes", "a text was expected"),
    (slurm_yaml("    - switch: a\n      nodes: n1\n      nodes: n2"), "t:4", "comes twice"),
    (slurm_yaml("    - switch: !!python/name:os.system a"), "t:4", "tags"),
    (slurm_yaml("    - switch: " + 40 * "[" + 40 * "]"), "t:4", "nested too deeply"),
    (slurm_yaml("    - switch: \0"), "t", "YAML"),
    ("- topology: a\n  flat: true\n", "t", "none of its topologies is a tree"),
    (
        slurm_yaml("    - switch: a\n      nodes: n1")
        + slurm_yaml("    - switch: a\n      nodes: n1").replace("t\n", "u\n", 1),
        "t",
        "name one of t, u",
    ),
]


@pytest.mark.parametrize(("text", "location", "reason"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_is_refused_with_its_place_on_one_line(text: str, location: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert caught.value.location == location
    assert reason in caught.value.reason
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def hosts(*names: str, **addresses: str) -> Hosts:
    """Hosts by name, and by name and address."""
    return Hosts(tuple(Host(n, n) for n in names) + tuple(Host(n, a) for n, a in addresses.items()))


def test_a_host_is_found_by_name_address_alias_or_first_label() -> None:
    topology = Topology(
        {"node-1.cluster.local": ("a",), "i-2": ("b",), "node-3": ("c",), "node-4": ("d",), "node-5": ("e",)},
        "aws",
        {"i-2": ("10.0.0.2", "ip-10-0-0-2.ec2.internal")},
    )
    job_hosts = hosts(
        "node-1", "node-3.elsewhere", "ip-10-0-0-2", "node-4.x", "10.0.0.9", two="10.0.0.2", five="node-5"
    )
    assert paths_for(topology, job_hosts) == [("a",), ("c",), ("b",), ("d",), None, ("b",), ("e",)]


def test_a_first_label_that_two_share_is_nobodys() -> None:
    topology = Topology({"a.x": ("1",), "a.y": ("2",), "b": ("3",), "c": ("4",)}, "aws")
    assert paths_for(topology, hosts("a", "a.x", "b.x", "b.y", "c")) == [None, ("1",), None, None, ("4",)]


def test_ipv6_addresses_have_several_spellings() -> None:
    topology = Topology({"fd00:0:0::1": ("1",), "b": ("2",)}, "list", {"b": ("fd00::2",)})
    assert paths_for(topology, hosts("fd00::1", b2="FD00:0::2")) == [("1",), ("2",)]


def test_an_alias_that_two_machines_share_is_nobodys_but_a_name_stays_a_name() -> None:
    topology = Topology({"a": ("1",), "b": ("2",)}, "aws", {"a": ("10.0.0.1", "b"), "b": ("10.0.0.1",)})
    assert paths_for(topology, hosts("a", "10.0.0.1", "b")) == [("1",), None, ("2",)]


def test_when_no_host_is_found_a_name_of_each_side_is_shown() -> None:
    with pytest.raises(InputError, match=r"t: it has none of the hosts: .*'node-1'.*'i-1111111111example'"):
        paths_for(read(AWS), hosts("node-1", "node-2"))
