"""Hosts with several interfaces: the switches of a BCube, or of rails, as bridges; hosts pass packets on in a BCube.

A BCube(n, k) has n^k hosts of k interfaces (Guo et al., SIGCOMM 2009, section 3). A host has one address, whatever
the number of its interfaces: the kernel's route to a neighbour leads through the switch that both are on, and that to
any other host through a neighbour that shares one more digit with it. On rails a host has an address an interface.
All bridges are in one namespace, not connected with each other. The controller reaches hosts by a bridge of its own,
so that what it does takes nothing from the links.
"""

from runners.lab.blueprint import Blueprint, Place
from runners.lab.kernel import ip, tc
from runners.lab.links import NO_LIMIT, Cable, make_namespaces, shape, tcp_segment_bytes

_FABRIC = "fabric"
_MANAGEMENT = "mgmt"


def _switches(blueprint: Blueprint) -> dict[str, list[tuple[int, int]]]:
    """Return what is on each switch: (index of the host, its interface)."""
    members: dict[str, list[tuple[int, int]]] = {}
    for index, place in enumerate(blueprint.places):
        for level, switch in enumerate(blueprint.switches_of(place)):
            members.setdefault(switch, []).append((index, level))
    return dict(sorted(members.items()))


def _port(index: int, level: int) -> str:
    return f"h{index}-{level}"


def cables(blueprint: Blueprint) -> dict[str, list[Cable]]:
    """Return the cables of each switch, host, and interface of a host (``node-03/eth1``), by its name."""
    fabric, rate = blueprint.namespace(_FABRIC), blueprint.settings.host_rate
    by_port = {
        (index, level): Cable((blueprint.namespace(place.name), f"eth{level}"), (fabric, _port(index, level)), rate)
        for index, place in enumerate(blueprint.places)
        for level in range(blueprint.settings.interfaces)
    }
    by_target = {name: [by_port[port] for port in ports] for name, ports in _switches(blueprint).items()}
    for (index, level), cable in by_port.items():
        name = blueprint.places[index].name
        by_target.setdefault(name, []).append(cable)
        by_target[f"{name}/eth{level}"] = [cable]
    for index, place in enumerate(blueprint.places):
        near, far = (blueprint.namespace(place.name), "mgmt0"), (fabric, f"m{index}")
        by_target[f"{place.name}/mgmt0"] = [Cable(near, far, NO_LIMIT)]
    return by_target


def lay(blueprint: Blueprint) -> None:
    """Make all namespaces and links of a BCube, or of rails.

    :raises PlinkError: when the kernel or iproute2 refuses a step; what stands by then is for the caller to take down.
    """
    settings, ns = blueprint.settings, blueprint.namespace
    fabric, ctl = ns(_FABRIC), ns("ctl")
    hosts = [ns(place.name) for place in blueprint.places]
    make_namespaces([fabric, ctl, *hosts], {fabric, *(hosts if settings.topology == "bcube" else ())})
    mtu = f"mtu {settings.mtu}"
    switches = _switches(blueprint)
    ip([f"link add {name} {mtu} type bridge" for name in (_MANAGEMENT, *switches)], fabric)
    ip([f"link add up0 {mtu} netns {ctl} type veth peer name ctl {mtu} netns {fabric}"])
    on_bridges = [("ctl", _MANAGEMENT)]
    on_bridges += [(_port(index, level), name) for name, ports in switches.items() for index, level in ports]
    segment = tcp_segment_bytes(settings.host_rate)
    for index, host in enumerate(hosts):
        ip(
            [f"link add mgmt0 {mtu} netns {host} type veth peer name m{index} {mtu} netns {fabric}"]
            + [
                f"link add eth{level} {mtu} gso_max_size {segment} netns {host} type veth "
                f"peer name {_port(index, level)} {mtu} netns {fabric}"
                for level in range(settings.interfaces)
            ]
        )
        on_bridges.append((f"m{index}", _MANAGEMENT))
    ip(
        [f"link set {name} up" for name in (_MANAGEMENT, *switches)]
        + [line for port, name in on_bridges for line in (f"link set {port} master {name}", f"link set {port} up")],
        fabric,
    )
    ports = [_port(index, level) for index in range(len(hosts)) for level in range(settings.interfaces)]
    tc([line for port in ports for line in shape(port, settings.host_rate)], fabric)
    controller, _ = blueprint.uplink(0)
    ip(
        [f"addr add {controller}/32 dev up0", "link set up0 up"]
        + [f"route add {place.address}/32 dev up0 scope link" for place in blueprint.places],
        ctl,
    )
    for place in blueprint.places:
        _lay_host(blueprint, place, controller)


def _lay_host(blueprint: Blueprint, place: Place, controller: str) -> None:
    host, interfaces = blueprint.namespace(place.name), range(blueprint.settings.interfaces)
    up = [f"link set {device} up" for device in ("mgmt0", *(f"eth{level}" for level in interfaces))]
    if blueprint.settings.topology == "bcube":
        # On an interface of its own, for it belongs to none of the links. (The kernel may have no `dummy`.)
        own = ["link add host0 type veth peer name host0-peer", "link set host0 up", "link set host0-peer up"]
        own.append(f"addr add {place.address}/32 dev host0")
        routes = _bcube_routes(blueprint, place)
    else:
        own = [f"addr add {place.on_rail(level)}/32 dev eth{level}" for level in interfaces]
        routes = [
            f"route add {peer.on_rail(level)}/32 dev eth{level} scope link src {place.on_rail(level)}"
            for peer in blueprint.places
            if peer is not place
            for level in interfaces
        ]
    ip([*own, *up, *routes, f"route add {controller}/32 dev mgmt0 scope link src {place.address}"], host)
    tc([line for level in interfaces for line in shape(f"eth{level}", blueprint.settings.host_rate)], host)


def _bcube_routes(blueprint: Blueprint, place: Place) -> list[str]:
    """Return the routes of a host, by way of neighbours where digits differ in two levels or more, lowest first."""
    by_digits = {peer.digits: peer for peer in blueprint.places}
    routes = []
    for peer in blueprint.places:
        differing = [level for level, digit in enumerate(peer.digits) if digit != place.digits[level]]
        if not differing:
            continue
        level = differing[0]
        neighbour = by_digits[(*place.digits[:level], peer.digits[level], *place.digits[level + 1 :])]
        by = "scope link" if neighbour is peer else f"via {neighbour.address} onlink"
        routes.append(f"route add {peer.address}/32 {by} dev eth{level} src {place.address}")
    return sorted(routes, key=lambda route: " via " in route)
