"""Find out which interface each host uses towards each other one, and what is on the same switch.

Hosts are asked for their kernels' routes (:mod:`probes.agent.routes`); nothing is sent between them.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import structs
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from plink.model.network_file import InterfacesEntry
from probes.agent.routes import MAX_ADDRESSES
from probes.scheduler import AgentBody, AgentRequest, ProbeTask, RequestBatches, TaskFailed
from probes.session import ProbeSession

_LIMIT_S = 30.0
_MAX_ADDRESSES_PER_HOST = 8
_log = logging.getLogger("plink.probe")
_Routes = dict[str, tuple[str | None, str | None]]  # by address: interface and gateway


def find_interfaces(session: ProbeSession) -> InterfacesEntry | None:
    """Return the interfaces that hosts use, None where no host uses more than one."""
    answers: dict[int, AgentBody] = {}
    targets = _addresses(session.agents, session.context.address)
    tasks = [ProbeTask((host,), _ask(host, list(targets), answers)) for host in session.agents]
    session.scheduler.run(tasks, cores_per_task=1)
    routes, own = {}, {}
    for host, answer in answers.items():
        if _is_valid(answer, len(targets)):
            routes[host] = {
                address: (pair[0], pair[1]) for address, pair in zip(targets, answer["routes"], strict=True)
            }
            own[host] = answer["own"]
    main = {host: session.context.address(host) for host in session.agents}
    entry = interfaces_from_routes(len(session.measurements.hosts), main, targets, routes, own)
    if entry is None and use_one_of_several(targets, routes, own):
        _log.info("hosts have several interfaces, but reach each other's addresses by one of them: there are no rails")
    return entry


def _addresses(agents: Mapping[int, Mapping[str, Any]], main: Any) -> dict[str, int]:
    """Return the host of each address by which another may reach it, its main one first.

    Addresses that several hosts have (containers' bridges) are left out, and what one host has in excess.
    """
    candidates = {
        host: list(dict.fromkeys([main(host), *map(str, report["addresses"])])) for host, report in agents.items()
    }
    owners = Counter(address for addresses in candidates.values() for address in addresses)
    limit = min(_MAX_ADDRESSES_PER_HOST, max(1, MAX_ADDRESSES // len(candidates))) if candidates else 0
    unique = {host: [address for address in own if owners[address] == 1] for host, own in candidates.items()}
    if dropped := sum(max(0, len(addresses) - limit) for addresses in unique.values()):
        _log.info("%d addresses are not asked for: %d a host at most", dropped, limit)
    return {address: host for host, addresses in unique.items() for address in addresses[:limit]}


def _ask(host: int, addresses: list[str], answers: dict[int, AgentBody]) -> RequestBatches:
    try:
        (answer,) = yield [AgentRequest(host, {"method": "routes", "addresses": addresses}, _LIMIT_S)]
    except TaskFailed:
        return
    answers[host] = answer


def _is_valid(answer: Mapping[str, Any], count: int) -> bool:
    routes, own = answer.get("routes"), answer.get("own")
    return (
        isinstance(routes, list)
        and len(routes) == count
        and all(isinstance(row, list) and len(row) == 2 for row in routes)
        and all(item is None or isinstance(item, str) for row in routes for item in row)
        and isinstance(own, dict)
        and all(item is None or isinstance(item, str) for item in own.values())
    )


def interfaces_from_routes(
    n_hosts: int,
    main: Mapping[int, str],
    owners: Mapping[str, int],
    routes: Mapping[int, _Routes],
    own: Mapping[int, Mapping[str, str | None]],
) -> InterfacesEntry | None:
    """Return what routes tell of interfaces; None where no host uses more than one.

    :param main: by host, the address at which the others reach it.
    :param owners: by address, its host.
    :param routes: by host, its routes to these addresses.
    :param own: by host, the interface that has each of its addresses.
    """
    used: dict[int, list[str]] = {}
    for host, table in routes.items():
        names = {interface for address, (interface, _) in table.items() if interface and owners[address] != host}
        used[host] = sorted(names)
    if max((len(names) for names in used.values()), default=0) < 2:
        return None
    by: list[list[int | None]] = [[None] * n_hosts for _ in range(n_hosts)]
    relays: list[list[int | None]] = [[None] * n_hosts for _ in range(n_hosts)]
    for host, table in routes.items():
        for peer, address in main.items():
            interface, gateway = table.get(address, (None, None))
            if interface is not None and peer != host:
                by[host][peer] = used[host].index(interface)
                relays[host][peer] = owners.get(gateway) if gateway else None
    return InterfacesEntry(
        names=[used.get(host, []) for host in range(n_hosts)],
        used=by,
        relays=relays,
        switches=_switches(main, owners, routes, own, used),
        addresses=[
            [
                next((address for address, name in own.get(host, {}).items() if name == interface), None)
                for interface in used.get(host, [])
            ]
            for host in range(n_hosts)
        ],
    )


def with_rates_of(previous: InterfacesEntry | None, entry: InterfacesEntry) -> InterfacesEntry:
    """Return the entry with the rates of an earlier run that is resumed, and why others have none, if it found the same
    interfaces."""
    if previous is None or (previous.names, previous.switches) != (entry.names, entry.switches):
        return entry
    return structs.replace(entry, out_gbps=previous.out_gbps, in_gbps=previous.in_gbps, errors=previous.errors)


def use_one_of_several(
    owners: Mapping[str, int], routes: Mapping[int, _Routes], own: Mapping[int, Mapping[str, str | None]]
) -> bool:
    """Return whether two hosts or more have addresses on several interfaces, and others reach all of these by one.

    :param owners, routes, own: as of :func:`interfaces_from_routes`.
    """
    reached = {
        address
        for host, table in routes.items()
        for address, (interface, _) in table.items()
        if interface is not None and owners[address] != host
    }
    interfaces = [{name for address, name in table.items() if name and address in reached} for table in own.values()]
    return sum(len(names) > 1 for names in interfaces) > 1


def _switches(
    main: Mapping[int, str],
    owners: Mapping[str, int],
    routes: Mapping[int, _Routes],
    own: Mapping[int, Mapping[str, str | None]],
    used: Mapping[int, list[str]],
) -> list[list[tuple[int, int]]]:
    """Return classes of (host, interface) that reach each other without a router or relay."""
    ports = [(host, name) for host, names in sorted(used.items()) for name in names]
    index = {port: k for k, port in enumerate(ports)}
    edges = []
    for host, table in routes.items():
        for address, (interface, gateway) in table.items():
            peer = owners[address]
            if interface is None or gateway is not None or peer == host or peer not in routes:
                continue
            receiver = own[peer].get(address)
            if receiver not in used[peer]:  # an address of no link: the peer answers by the link that it knows us on
                back, router = routes[peer].get(main[host], (None, None))
                receiver = back if router is None else None
            if receiver is not None:
                edges.append((index[host, interface], index[peer, receiver]))
    if not edges:
        return []
    rows, columns = np.array(edges).T
    graph = coo_array((np.ones(len(edges)), (rows, columns)), shape=(len(ports), len(ports)))
    _, label = connected_components(graph, directed=False)
    classes: dict[int, list[tuple[int, int]]] = {}
    for (host, name), component in zip(ports, label.tolist(), strict=True):
        classes.setdefault(component, []).append((host, used[host].index(name)))
    return [ports for ports in classes.values() if len(ports) > 1]
