"""Kubernetes: what ``kubectl get nodes -o json`` prints, of which only labels, names and addresses are read.

Each provider has labels of its own, outermost first here: Amazon numbers its layers from the top
(``network-node-layer-1``), Google and Oracle name theirs (OKE's ``rdma`` labels: HPC island, network block, local
block) as CoreWeave does, Topograph 1.0 numbers its fabric tiers from the node (``tier-0``), with the accelerator domain
inside, and Nebius does (``tier-1``).
``nvidia.com/gpu.clique`` is the NVLink domain a node's GPUs are in, the innermost of all.
"""

from collections.abc import Sequence

from plink.errors import InputError
from plink.model.storage import JsonObject
from plink.model.topology.fields import Entries, list_of, object_of, text_of
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
    tuple(f"network.topology.nvidia.com/{level}" for level in ("core", "spine", "leaf", "accelerator")),
    tuple(f"backend.coreweave.cloud/{level}" for level in ("fabric", "superpod", "leafgroup")),
    tuple(f"ib.coreweave.cloud/{level}" for level in ("fabric", "superpod", "leafgroup")),
    tuple(f"topology.nebius.com/tier-{tier}" for tier in (3, 2, 1)),
)
_CLIQUE = "nvidia.com/gpu.clique"
# Of Kubernetes itself and its node feature discovery, which say nothing of the network.
_OTHER_DOMAINS = (
    *("kubernetes.io", "beta.kubernetes.io", "node.kubernetes.io", "node-role.kubernetes.io"),
    *("failure-domain.beta.kubernetes.io", "feature.node.kubernetes.io"),
)
_MAX_SHOWN_LABELS = 8
_MAX_LABEL_CHARS = 80


def from_kubernetes(nodes: Entries, location: str, own_labels: Sequence[str] = ()) -> Topology:
    """Return hosts by node name, under region, zone, their provider's levels and the NVLink domain.

    :param own_labels: read these instead, outermost first.
    :raises InputError: naming the node that is wrong, or a label that none has.
    """
    entries = []
    used: set[str] = set()
    values: dict[str, set[str]] = {}  # of every label that is there
    for entry_location, entry in nodes:
        node = object_of(entry, entry_location)
        metadata = object_of(node.get("metadata"), f"{entry_location}.metadata")
        place_of_labels = f"{entry_location}.metadata.labels"
        labels = object_of(metadata.get("labels"), place_of_labels)
        for label, value in labels.items():
            values.setdefault(label, set()).add(str(value))
        label_names = own_labels or (*_OUTER, *(label for provider in _PROVIDERS for label in provider), _CLIQUE)
        node_labels = {label: text_of(labels.get(label), f"{place_of_labels}[{label!r}]") for label in label_names}
        used |= {label for label, name in node_labels.items() if name is not None}
        entries.append((entry_location, node, metadata, node_labels))
    hint = _hint(values)
    if missing := [label for label in own_labels if label not in used]:
        raise InputError(location, f"no node has the label {missing[0]!r}{hint}")
    builder = TopologyBuilder("kubernetes", location, hint if used <= {*_OUTER} else "")
    for entry_location, node, metadata, node_labels in entries:
        if own_labels:
            path = path_of([], [*node_labels.values()])
        else:
            path = path_of([node_labels[label] for label in _OUTER], _inner(node_labels, used))
        builder.add(metadata.get("name"), path, entry_location, _aliases(node, entry_location))
    return builder.topology()


def _hint(values: dict[str, set[str]]) -> str:
    """Return which labels may be levels, those with the fewest values first, and how to name them; empty if none."""
    labels = [label for label in values if label not in _OUTER and label.split("/")[0] not in _OTHER_DOMAINS]
    labels.sort(key=lambda label: (len(values[label]), label))
    shown = ", ".join(label[:_MAX_LABEL_CHARS] for label in labels[:_MAX_SHOWN_LABELS])
    return f"; name those of its network, outermost first (--labels A,B), of {shown}" if labels else ""


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


def _aliases(node: JsonObject, entry_location: str) -> list[str | None]:
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
