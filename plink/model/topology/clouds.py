"""Topologies of AWS, Google Cloud and NVIDIA Topograph.

AWS (``aws ec2 describe-instance-topology``): ``NetworkNodes`` is read top first, as the EC2 User Guide has it ("a
top-down view of the network hierarchy, with the bottom node connected to an instance"; "How Amazon EC2 topology
works"). Topograph's documentation says the opposite, its code (pkg/providers/aws, ``convert``) does as Amazon says.
Instance types have three nodes or four.

Google Cloud (``gcloud compute instances list --format=json``, or ``describe``):
``resourceStatus.physicalHostTopology`` names cluster, block, subblock and host; ``resourceStatus.physicalHost`` says
the last three as one text, ``/block/subblock/host``. Both are missing for most machine types (Compute Engine, "View
the topology of instances").

Topograph's ``graph`` engine: ``network_layers`` is closest first and of any depth, ``labels`` name the accelerator
(NVLink) domain and its part (Topograph documentation, "Graph Engine", v1.0.0; before that ``attributes.nvlink``).
"""

from plink.errors import InputError
from plink.model.storage import JsonObject
from plink.model.topology.fields import Entries, list_of, object_of, text_of
from plink.model.topology.paths import Path, Topology, TopologyBuilder, path_of

_DOMAIN = "accelerator.topograph.run/domain"
_PART = "accelerator.topograph.run/sub-domain"
_NAME_KEYS = {"PrivateDnsName", "PrivateIpAddress", "PublicDnsName", "PublicIpAddress"}  # of describe-instances
_LEVELS = ("cluster", "block", "subblock", "host")


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


def from_aws(instances: Entries, location: str) -> Topology:
    """Return hosts by instance id, under zone, network nodes, and the UltraServer (``CapacityBlockId``) where there is
    one. Entries of ``aws ec2 describe-instances`` beside them give their names and addresses.

    :raises InputError: naming the entry that is wrong.
    """
    builder = TopologyBuilder("aws", location)
    aliases: dict[str, list[str | None]] = {}
    topologies: list[tuple[str, JsonObject]] = []
    for entry_location, entry in instances:
        instance = object_of(entry, entry_location)
        if "NetworkNodes" in instance or _NAME_KEYS.isdisjoint(instance):
            topologies.append((entry_location, instance))
        else:
            names = [text_of(instance.get(key), f"{entry_location}.{key}") for key in sorted(_NAME_KEYS)]
            aliases[str(instance.get("InstanceId"))] = names
    if not topologies:
        raise InputError(location, "it has names of instances only: add `aws ec2 describe-instance-topology`'s JSON")
    for entry_location, instance in topologies:
        zone = text_of(instance.get("ZoneId"), f"{entry_location}.ZoneId")
        named_zone = text_of(instance.get("AvailabilityZone"), f"{entry_location}.AvailabilityZone")
        nodes = list_of(instance.get("NetworkNodes"), f"{entry_location}.NetworkNodes")
        levels = [text_of(node, f"{entry_location}.NetworkNodes[{level}]") for level, node in enumerate(nodes)]
        block = text_of(instance.get("CapacityBlockId"), f"{entry_location}.CapacityBlockId")
        identity, path = instance.get("InstanceId"), path_of([zone or named_zone], [*(levels or [None]), block])
        builder.add(identity, path, entry_location, aliases.get(str(identity), ()))
    return builder.topology()


def from_gcp(instances: Entries, location: str) -> Topology:
    """Return hosts by instance name, under zone, cluster, block, subblock and physical host; ids and addresses are
    aliases. Names that are in several zones get their zone behind a dot.

    :raises InputError: naming the entry that is wrong.
    """
    entries = [(entry_location, object_of(entry, entry_location)) for entry_location, entry in instances]
    levels = [_levels(entry, entry_location) for entry_location, entry in entries]
    clusters = any(names[0] is not None for names in levels)
    builder = TopologyBuilder("gcp", location)
    zones = [text_of(entry.get("zone"), f"{entry_location}.zone") for entry_location, entry in entries]
    zones = [zone and zone.rsplit("/", 1)[-1] for zone in zones]
    places: dict[object, set[str | None]] = {}
    for (_, entry), zone in zip(entries, zones, strict=True):
        places.setdefault(str(entry.get("name")), set()).add(zone)
    for (entry_location, entry), zone, names in zip(entries, zones, levels, strict=True):
        # A cluster that no entry has is a level there is not; one that some have is unknown of the others.
        path: Path = path_of([zone], names if clusters else names[1:])
        name = entry.get("name")
        full_name = f"{name}.{zone}" if zone and len(places[str(name)]) > 1 else name
        aliases = [*_aliases(entry, entry_location), *([str(name)] if full_name != name else [])]
        builder.add(full_name, path, entry_location, aliases)
    return builder.topology()


def _levels(entry: JsonObject, entry_location: str) -> list[str | None]:
    status = object_of(entry.get("resourceStatus"), f"{entry_location}.resourceStatus")
    place = f"{entry_location}.resourceStatus.physicalHostTopology"
    topology = object_of(status.get("physicalHostTopology"), place)
    names = [text_of(topology.get(level), f"{place}.{level}") for level in _LEVELS]
    place = f"{entry_location}.resourceStatus.physicalHost"
    host = text_of(status.get("physicalHost"), place)
    if host is not None and None in names[1:]:
        parts = host.strip("/").split("/")
        if len(parts) != 3 or not all(parts):
            raise InputError(place, f"{host[:80]!r} is not of the form /block/subblock/host")
        names[1:] = [name or part for name, part in zip(names[1:], parts, strict=True)]
    return names


def _aliases(entry: JsonObject, entry_location: str) -> list[str | None]:
    number = entry.get("id")
    aliases = [str(number) if isinstance(number, int) else text_of(number, f"{entry_location}.id")]
    aliases.append(text_of(entry.get("hostname"), f"{entry_location}.hostname"))
    for index, value in enumerate(list_of(entry.get("networkInterfaces"), f"{entry_location}.networkInterfaces")):
        place = f"{entry_location}.networkInterfaces[{index}]"
        interface = object_of(value, place)
        aliases.append(text_of(interface.get("networkIP"), f"{place}.networkIP"))
        for k, outside in enumerate(list_of(interface.get("accessConfigs"), f"{place}.accessConfigs")):
            spot = f"{place}.accessConfigs[{k}]"
            aliases.append(text_of(object_of(outside, spot).get("natIP"), f"{spot}.natIP"))
    return aliases
