"""What was measured between some of a network's hosts: a job may get a few of the hosts of a cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from plink.errors import NoAnswer, UsageError
from plink.model.document import UNSET
from plink.model.hosts import Hosts
from plink.model.network import Network, matrix_from_json
from plink.model.network_file import InterfacesEntry, SharedTierEntry

_MATRICES = ("jitter_us", "loss_forward", "loss_back", "samples", "hops", "method_used", "clock_used", "clock_steps",
             "predicted_us")  # fmt: skip


def subnetwork(network: Network, hosts: Hosts) -> Network:
    """Return what was measured between these hosts, in their order, with their slots, roles and addresses.

    Links keep their capacities, and hosts the rates that they had with any other: what is worked out of it goes by the
    whole network, as long as the program runs. A file of it has only what was measured between these hosts.

    :raises UsageError: for hosts that were not measured. :raises NoAnswer: where hosts pass on what others send:
        whether those that are left out go on doing so is not known.
    """
    check_measured(hosts.names, network)
    index = {name: k for k, name in enumerate(network.hosts.names)}
    taken, n = [index[name] for name in hosts.names], len(index)
    if taken == [*range(n)]:
        return replace(network, hosts=hosts)
    details, names = network.details, set(hosts.names)

    def part(rows: Any, key: str) -> Any:
        if rows is None or rows is UNSET:
            return rows
        matrix_from_json(rows, n, f"{network.location}: {key}")
        return [[rows[i][j] for j in taken] for i in taken]

    def between(rows: Any) -> Any:
        return [row for row in rows if {row.source, row.target} <= names] if rows else rows

    changed: dict[str, Any] = {key: part(getattr(details, key), key) for key in _MATRICES}
    if details.percentiles_us:
        changed["percentiles_us"] = {p: part(rows, f"percentiles_us.{p}") for p, rows in details.percentiles_us.items()}
    if details.halves_us:
        changed["halves_us"] = [part(half, f"halves_us[{k}]") for k, half in enumerate(details.halves_us)]
    for key in ("errors", "bandwidth_errors", "host_flows", "host_flow_errors"):
        changed[key] = between(getattr(details, key))
    if details.lost_hosts is not UNSET:
        changed["lost_hosts"] = {name: reason for name, reason in details.lost_hosts.items() if name in names}
    if details.machines:
        changed["machines"] = [network.machines[k] for k in taken]
    if details.shared_links:
        changed["shared_links"] = list(_shared_links(network, names))
    if network.interfaces is not None:
        changed["interfaces"] = _interfaces(network, network.interfaces, taken)
    root, members = network.whole or network, hosts.by_name()
    everyone = tuple(members.get(host.name, host) for host in root.hosts)  # hubs, and what they carry, as in the job
    square = (slice(None), taken)
    bandwidth = None if network.bandwidth_gbps is None else network.bandwidth_gbps[taken][square]
    return Network(
        hosts,
        network.latency_us[taken][square],
        bandwidth,
        structs.replace(details, **changed),
        network.location,
        whole=replace(root, hosts=Hosts(everyone, root.hosts.lab)),
    )


def check_measured(names: Sequence[str], network: Network) -> None:
    """Refuse hosts that a network does not have.

    :raises UsageError: naming them.
    """
    measured = set(network.hosts.names)
    if others := [name for name in names if name not in measured]:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise UsageError(
            f"{network.location} is of other hosts: it does not have {', '.join(others[:3])}{more}; probe these hosts"
        )


def _shared_links(network: Network, names: set[str]) -> Iterable[SharedTierEntry]:
    for tier in network.shared_links:
        parts = [(group, [name for name in group.members if name in names]) for group in tier.groups]
        groups = [structs.replace(group, members=members) for group, members in parts if members]
        if groups:
            yield structs.replace(tier, groups=groups)


def _interfaces(network: Network, entry: InterfacesEntry, taken: list[int]) -> InterfacesEntry:
    names, new = network.hosts.names, {host: k for k, host in enumerate(taken)}
    for i, row in enumerate(entry.relays if len(taken) < len(names) else ()):
        for relay in row:
            if relay is not None:
                reason = f"{names[int(relay)]} passes on what {names[i]} sends"
                raise NoAnswer(f"{network.location}: {reason}, so some of its hosts have to be measured by themselves")
    switches = [[(new[host], k) for host, k in ports if host in new] for ports in entry.switches]
    changed: dict[str, Any] = {
        key: rows and [rows[host] for host in taken]
        for key in ("names", "addresses", "out_gbps", "in_gbps", "errors")
        for rows in (getattr(entry, key),)
    }
    changed["used"] = [[entry.used[i][j] for j in taken] for i in taken]
    changed["relays"] = [[None if (by := entry.relays[i][j]) is None else new[int(by)] for j in taken] for i in taken]
    return structs.replace(entry, switches=[ports for ports in switches if ports], **changed)
