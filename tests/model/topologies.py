"""Topologies as tools write them, one of each format, and what is read of a text."""

from typing import Any

from plink.model.hosts import Host, Hosts
from plink.model.topology import Topology, parse_topology

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


def hosts(*names: str, **addresses: str) -> Hosts:
    """Hosts by name, and by name and address."""
    return Hosts(tuple(Host(n, n) for n in names) + tuple(Host(n, a) for n, a in addresses.items()))
