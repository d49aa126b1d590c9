"""Kubernetes: what ``kubectl get nodes -o json`` prints, of which only labels, names and addresses are read.

Each provider has labels of its own, outermost first here: Amazon numbers its layers from the top
(``network-node-layer-1``), Google and Oracle name theirs (OKE's ``rdma`` labels: HPC island, network block, local
block). ``nvidia.com/gpu.clique`` is the NVLink domain a node's GPUs are in, the innermost of all.
"""

from typing import Any

from plink.model.topology.fields import list_of, object_of, text_of
from plink.model.topology.paths import Gathering, Topology, path_of

_OUTER = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_PROVIDERS: tuple[tuple[str, ...], ...] = (
    tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3, 4)),
    tuple(f"cloud.google.com/gce-topology-{level}" for level in ("block", "subblock", "host")),
    tuple(f"oci.oraclecloud.com/rdma.{level}_id" for level in ("hpc_island", "network_block", "local_block")),
    tuple(f"oci.oraclecloud.com/host.{level}_id" for level in ("hpc_island", "network_block", "rack")),
)
_CLIQUE = "nvidia.com/gpu.clique"


def from_kubernetes(nodes: list[Any], place: str, where: str) -> Topology:
    """Hosts by node name, under region, zone, their provider's levels and the NVLink domain.

    :raises InputError: naming the node that is wrong.
    """
    entries = []
    used: set[str] = set()
    for index, entry in enumerate(nodes):
        here = f"{place}[{index}]"
        node = object_of(entry, here)
        metadata = object_of(node.get("metadata"), f"{here}.metadata")
        place_of_labels = f"{here}.metadata.labels"
        labels = object_of(metadata.get("labels"), place_of_labels)
        wanted = (*_OUTER, *(label for provider in _PROVIDERS for label in provider), _CLIQUE)
        known = {label: text_of(labels.get(label), f"{place_of_labels}[{label!r}]") for label in wanted}
        used |= {label for label, name in known.items() if name is not None}
        entries.append((here, node, metadata, known))
    found = Gathering("kubernetes", where)
    for here, node, metadata, known in entries:
        outer = [known[label] for label in _OUTER]
        found.add(metadata.get("name"), path_of(outer, _inner(known, used)), here, _aliases(node, here))
    return found.topology()


def _inner(known: dict[str, str | None], used: set[str]) -> list[str | None]:
    """The levels of the provider that labelled this node; ``used``: labels that some node has."""
    levels: list[str | None] = []
    for provider in _PROVIDERS:
        levels = [known[label] for label in provider if label in used]
        while levels and levels[-1] is None:
            levels.pop()
        if levels:
            break
    if not levels and any(label in used for provider in _PROVIDERS for label in provider):
        levels = [None]
    return [*levels, known[_CLIQUE]]


def _aliases(node: dict[str, Any], here: str) -> list[str | None]:
    """Addresses, and the provider's own id: the last part of ``aws:///zone/i-0abc`` or ``gce://project/zone/name``."""
    status = object_of(node.get("status"), f"{here}.status")
    aliases: list[str | None] = []
    for index, entry in enumerate(list_of(status.get("addresses"), f"{here}.status.addresses")):
        place = f"{here}.status.addresses[{index}]"
        aliases.append(text_of(object_of(entry, place).get("address"), f"{place}.address"))
    identity = text_of(object_of(node.get("spec"), f"{here}.spec").get("providerID"), f"{here}.spec.providerID")
    return [*aliases, identity and identity.rsplit("/", 1)[-1]]
