"""Kubernetes: what ``kubectl get nodes -o json`` prints, of which only labels, names and addresses are read.

Each provider has labels of its own, outermost first here: Amazon numbers its layers from the top
(``network-node-layer-1``), Google and Oracle name theirs (OKE's ``rdma`` labels: HPC island, network block, local
block), Topograph 1.0 numbers its fabric tiers from the node (``tier-0``), with the accelerator domain inside.
``nvidia.com/gpu.clique`` is the NVLink domain a node's GPUs are in, the innermost of all.
"""

from typing import Any

from plink.model.topology.fields import list_of, object_of, text_of
from plink.model.topology.paths import Topology, TopologyBuilder, path_of

_OUTER = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_MAX_FABRIC_TIERS = 10  # Topograph has no limit; this and the other levels stay below MAX_LEVELS
_TOPOGRAPH = (
    *(f"fabric.topograph.run/tier-{tier}" for tier in reversed(range(_MAX_FABRIC_TIERS))),
    "accelerator.topograph.run/domain",
    "accelerator.topograph.run/sub-domain",
)
_PROVIDERS: tuple[tuple[str, ...], ...] = (
    tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3, 4)),
    tuple(f"cloud.google.com/gce-topology-{level}" for level in ("block", "subblock", "host")),
    tuple(f"oci.oraclecloud.com/rdma.{level}_id" for level in ("hpc_island", "network_block", "local_block")),
    tuple(f"oci.oraclecloud.com/host.{level}_id" for level in ("hpc_island", "network_block", "rack")),
    _TOPOGRAPH,
)
_CLIQUE = "nvidia.com/gpu.clique"


def from_kubernetes(nodes: list[Any], place: str, location: str) -> Topology:
    """Return hosts by node name, under region, zone, their provider's levels and the NVLink domain.

    :raises InputError: naming the node that is wrong.
    """
    entries = []
    used: set[str] = set()
    for index, entry in enumerate(nodes):
        entry_location = f"{place}[{index}]"
        node = object_of(entry, entry_location)
        metadata = object_of(node.get("metadata"), f"{entry_location}.metadata")
        place_of_labels = f"{entry_location}.metadata.labels"
        labels = object_of(metadata.get("labels"), place_of_labels)
        label_names = (*_OUTER, *(label for provider in _PROVIDERS for label in provider), _CLIQUE)
        node_labels = {label: text_of(labels.get(label), f"{place_of_labels}[{label!r}]") for label in label_names}
        used |= {label for label, name in node_labels.items() if name is not None}
        entries.append((entry_location, node, metadata, node_labels))
    builder = TopologyBuilder("kubernetes", location)
    for entry_location, node, metadata, node_labels in entries:
        outer = [node_labels[label] for label in _OUTER]
        builder.add(
            metadata.get("name"),
            path_of(outer, _inner(node_labels, used)),
            entry_location,
            _aliases(node, entry_location),
        )
    return builder.topology()


def _inner(node_labels: dict[str, str | None], used: set[str]) -> list[str | None]:
    """Return the levels of the provider that labelled this node; ``used``: labels that some node has."""
    levels: list[str | None] = []
    for provider in _PROVIDERS:
        levels = [node_labels[label] for label in provider if label in used]
        while levels and levels[-1] is None:
            levels.pop()
        while provider is _TOPOGRAPH and levels and levels[0] is None:
            del levels[0]  # its tiers are numbered from the node: there are fewer above this one
        if levels:
            break
    if not levels and any(label in used for provider in _PROVIDERS for label in provider):
        levels = [None]
    return [*levels, node_labels[_CLIQUE]]


def _aliases(node: dict[str, Any], entry_location: str) -> list[str | None]:
    """Addresses, and the provider's own id: the last part of ``aws:///zone/i-0abc`` or ``gce://project/zone/name``."""
    status = object_of(node.get("status"), f"{entry_location}.status")
    aliases: list[str | None] = []
    for index, entry in enumerate(list_of(status.get("addresses"), f"{entry_location}.status.addresses")):
        place = f"{entry_location}.status.addresses[{index}]"
        aliases.append(text_of(object_of(entry, place).get("address"), f"{place}.address"))
    identity = text_of(
        object_of(node.get("spec"), f"{entry_location}.spec").get("providerID"), f"{entry_location}.spec.providerID"
    )
    return [*aliases, identity and identity.rsplit("/", 1)[-1]]
