"""Google Cloud: what ``gcloud compute instances list --format=json`` (or ``describe``) prints.

``resourceStatus.physicalHostTopology`` names cluster, block, subblock and host; ``resourceStatus.physicalHost`` says
the last three as one text, ``/block/subblock/host``. Both are missing for most machine types (Compute Engine, "View
the topology of instances").
"""

from typing import Any

from plink.errors import InputError
from plink.model.topology.fields import Entries, list_of, object_of, text_of
from plink.model.topology.paths import Path, Topology, TopologyBuilder, path_of

_LEVELS = ("cluster", "block", "subblock", "host")


def from_gcp(instances: Entries, location: str) -> Topology:
    """Return hosts by instance name, under zone, cluster, block, subblock and physical host; ids and addresses are
    aliases.

    :raises InputError: naming the entry that is wrong.
    """
    entries = [(entry_location, object_of(entry, entry_location)) for entry_location, entry in instances]
    levels = [_levels(entry, entry_location) for entry_location, entry in entries]
    clusters = any(names[0] is not None for names in levels)
    builder = TopologyBuilder("gcp", location)
    for (entry_location, entry), names in zip(entries, levels, strict=True):
        zone = text_of(entry.get("zone"), f"{entry_location}.zone")
        # A cluster that no entry has is a level there is not; one that some have is unknown of the others.
        path: Path = path_of([zone and zone.rsplit("/", 1)[-1]], names if clusters else names[1:])
        builder.add(entry.get("name"), path, entry_location, _aliases(entry, entry_location))
    return builder.topology()


def _levels(entry: dict[str, Any], entry_location: str) -> list[str | None]:
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


def _aliases(entry: dict[str, Any], entry_location: str) -> list[str | None]:
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
