"""Read the topology of NVIDIA Topograph's ``graph`` engine.

``network_layers`` is closest first and of any depth, ``labels`` name the accelerator (NVLink) domain and its part
(Topograph documentation, "Graph Engine", v1.0.0; before that ``attributes.nvlink``).
"""

from plink.model.topology.fields import Entries, list_of, object_of, text_of
from plink.model.topology.paths import Topology, TopologyBuilder, path_of

_DOMAIN = "accelerator.topograph.run/domain"
_PART = "accelerator.topograph.run/sub-domain"


def from_topograph(instances: Entries, location: str) -> Topology:
    """Return hosts by instance id, under their network layers, the accelerator domain innermost.

    :raises InputError: naming the entry that is wrong.
    """
    entries = [(entry_location, object_of(entry, entry_location)) for entry_location, entry in instances]
    layered = any(instance.get("network_layers") for _, instance in entries)
    builder = TopologyBuilder("topograph", location)
    for entry_location, instance in entries:
        layers = list_of(instance.get("network_layers"), f"{entry_location}.network_layers") or [None] * layered
        levels = [text_of(layer, f"{entry_location}.network_layers[{level}]") for level, layer in enumerate(layers)]
        labels = object_of(instance.get("labels"), f"{entry_location}.labels")
        attributes = object_of(instance.get("attributes"), f"{entry_location}.attributes")
        domain = text_of(labels.get(_DOMAIN), f"{entry_location}.labels.{_DOMAIN}")
        domain = domain or text_of(attributes.get("nvlink"), f"{entry_location}.attributes.nvlink")
        part = text_of(labels.get(_PART), f"{entry_location}.labels.{_PART}")
        builder.add(instance.get("id"), path_of([], [*reversed(levels), domain, part]), entry_location)
    return builder.topology()
