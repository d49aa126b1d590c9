"""Match the hosts of a job to the machines of a topology file, whose names often differ."""

import ipaddress
import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from plink.errors import InputError
from plink.model.hosts import Hosts
from plink.model.topology.paths import Path, Topology

_log = logging.getLogger("plink.topology")


def paths_for(topology: Topology, hosts: Hosts) -> list[Path | None]:
    """Return the path of each host, in their order; None for hosts the file does not have.

    A host is found by its name or address, which may be the name or an alias of a machine, or else by the first label
    of its name (``node-1`` for ``node-1.cluster.local``) where no other host or machine has the same.

    :raises InputError: when not one host is found, showing a name of each side.
    """
    paths = find_paths(topology, hosts)
    unknown = [name for name, path in zip(hosts.names, paths, strict=True) if path is None]
    if len(unknown) == len(hosts):
        example = next(iter(topology.paths))
        advice = "; add the JSON of `aws ec2 describe-instances`, or name hosts by instance id"
        raise InputError(
            topology.location,
            f"it has none of the hosts: they are called like {hosts.names[0]!r}, there like {example!r}"
            + advice * (topology.kind == "aws"),
        )
    warn_of_missing(topology.location, unknown, len(hosts))
    return paths


def warn_of_missing(location: str, unknown: list[str], host_count: int) -> None:
    """Warn of hosts that a file does not have, if there are any."""
    if unknown:
        shown = f"{', '.join(unknown[:3])}{', ...' if len(unknown) > 3 else ''}"
        _log.warning(f"{location} lacks {len(unknown)} of the {host_count} hosts; their places are unknown: {shown}")


def find_paths(topology: Topology, hosts: Hosts) -> list[Path | None]:
    """Return the path of each host, None for hosts the file does not have, as :func:`paths_for`."""
    names = {machine: (machine, *topology.aliases.get(machine, ())) for machine in topology.paths}
    exact = _unshared({machine: map(_spelling, aliases) for machine, aliases in names.items()})
    exact |= {_spelling(machine): machine for machine in names}
    short = _unshared({machine: [_short(name) for name in aliases] for machine, aliases in names.items()})
    label_counts = Counter(_short(host.name) for host in hosts)
    paths: list[Path | None] = []
    for host in hosts:
        label = _short(host.name)
        aliases = exact.get(_spelling(host.name)) or exact.get(_spelling(host.address))
        if aliases is None and label is not None and label_counts[label] == 1:
            aliases = short.get(label)
        paths.append(None if aliases is None else topology.paths[aliases])
    return paths


def _unshared(names: Mapping[str, Iterable[str | None]]) -> dict[str, str]:
    """Return the machine behind each name; a name that two machines share is left out."""
    machines_of: dict[str, set[str]] = {}
    for machine, aliases in names.items():
        for name in aliases:
            if name is not None:
                machines_of.setdefault(name, set()).add(machine)
    return {name: min(machines) for name, machines in machines_of.items() if len(machines) == 1}


def _spelling(name: str) -> str:
    """Return a name, or an address in its usual spelling: IPv6 has several (RFC 5952)."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _short(name: str) -> str | None:
    """Return the first label of a host name; None for an address."""
    try:
        ipaddress.ip_address(name.split("%")[0])
    except ValueError:
        return name.split(".", 1)[0]
    return None
