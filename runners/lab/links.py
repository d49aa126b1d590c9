"""Network of a lab: racks of hosts behind routers, or hosts with several interfaces on switches.

Racks are bridges behind routers, under pods or the core. A BCube(n, k) has n^k hosts of k interfaces (Guo et al.,
SIGCOMM 2009, section 3). A host has one address there, whatever the number of its interfaces: the kernel's route to a
neighbour leads through the switch that both are on, and that to any other host through a neighbour that shares one more
digit with it. On rails a host has an address an interface. All bridges of switches are in one namespace, not connected
with each other; the controller reaches such hosts by a bridge of its own, so that what it does takes nothing from the
links.
"""

import contextlib
from dataclasses import dataclass

from plink.errors import PlinkError
from runners.lab.blueprint import NETWORK, Blueprint, Place
from runners.lab.kernel import ip, sysctl, tc

# Deep enough that TCP fills the link, small enough that a queue is not seconds long; facts from trying it.
_BURST_BYTES, _LIMIT = 32_000, "4mb"
_TCP_BYTES = 65_536  # that TCP hands a veth at once, unless told to hand over less
# Of a host's device; the last is where IP's header has the address.
_HOST_DEVICE, _QUEUES, _NO_RATE, _DESTINATION = "eth", 16, "rate 100gbit burst 1mb cburst 1mb", 16
# Bridged packets are no business of iptables' here, whose look at each costs time.
_ROUTER = {"ipv4/ip_forward": "1", "bridge/bridge-nf-call-iptables": "0"}
_QUIET = {"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"}
# Before there are devices, which take the default: with several, answers go out another way than packets came in.
_ANY_WAY = {"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0"}
NO_LIMIT = 0
_FABRIC, _MANAGEMENT = "fabric", "mgmt"


@dataclass(frozen=True)
class Cable:
    """A cable that faults act on: each end is a (namespace, device).

    ``near`` is the end of the host, or of the router further from the core. ``far`` is set down to unplug the cable;
    ``routes`` are the routes that its namespace then loses. ``rate`` in bits per second, or ``NO_LIMIT``; ``delay_us``
    one way.
    """

    near: tuple[str, str]
    far: tuple[str, str]
    rate: int
    delay_us: int = 0
    routes: tuple[str, ...] = ()


def shape(namespace: str, device: str, rate: int, delay_us: int = 0) -> None:
    """Limit what leaves by a device to ``rate`` bit/s, and delay it (needs netem). A host's device has a queue for each
    part of its peers, and they take turns, as flows do in Linux's default on real hosts (fq_codel): what is short does
    not wait behind what is long. Ports of routers have one queue for all."""
    lines = [f"qdisc add dev {device} root handle 1: {_bucket(rate)}"]
    if delay_us:
        lines.append(f"qdisc add dev {device} parent 1:1 handle 10: netem delay {delay_us}us limit 10000")
    tc(lines, namespace)
    if device.startswith(_HOST_DEVICE) and not delay_us:
        with contextlib.suppress(PlinkError):  # a kernel without HTB or u32: one queue for all
            tc(_queues(device), namespace)


def limit(cable: Cable, rate: int) -> None:
    """Change what may go over a cable, in both directions."""
    for namespace, device in (cable.near, cable.far):
        tc([f"qdisc change dev {device} root handle 1: {_bucket(rate)}"], namespace)


def _bucket(rate: int) -> str:
    return f"tbf rate {rate}bit burst {_burst(rate)} limit {_LIMIT}"


def _queues(device: str) -> list[str]:
    """Return ``tc`` lines for queues by the last bits of the destination, below the limit: their own rates are none."""
    lines = [f"qdisc add dev {device} parent 1:1 handle 20: htb default 1"]
    for k in range(_QUEUES):
        queue = f"20:{k + 1:x}"
        lines.append(f"class add dev {device} parent 20: classid {queue} htb {_NO_RATE} quantum {_TCP_BYTES}")
        match = f"u32 match u32 {k} {_QUEUES - 1:#x} at {_DESTINATION}"
        lines.append(f"filter add dev {device} parent 20: protocol ip prio 1 {match} flowid {queue}")
    return lines


def cables(blueprint: Blueprint) -> dict[str, list[Cable]]:
    """Return the cables of each target of a fault by name: of hosts, and of racks and pods, or of switches and
    interfaces of hosts (``node-03/eth1``)."""
    if blueprint.settings.topology == "racks":
        hosts = {place.name: _cable_of_host(blueprint, place) for place in blueprint.places}
        return {name: [cable] for name, cable in (_uplinks(blueprint) | hosts).items()}
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
    """Make all namespaces and links of a lab.

    :raises PlinkError: when the kernel or iproute2 refuses a step; what stands by then is for the caller to take down.
    """
    if blueprint.settings.topology == "racks":
        _lay_racks(blueprint)
    else:
        _lay_switches(blueprint)


def _burst(rate: int) -> int:
    return max(_BURST_BYTES, rate // 8 // 1000)


def _tcp_segment_bytes(rate: int) -> int:
    """Return what TCP may hand over at once so that a limit lets it through whole, headers of all frames included.

    What is larger than the burst is cut into frames, three times the work for the kernel.
    """
    return min(_TCP_BYTES, _burst(rate) * 15 // 16)


def _make_namespaces(blueprint: Blueprint, parts: list[str], forwarding: set[str]) -> None:
    """Make namespaces with loopback only; those in ``forwarding`` pass packets on."""
    ip([f"netns add {blueprint.namespace(part)}" for part in parts])
    for part in parts:
        namespace = blueprint.namespace(part)
        sysctl(namespace, _QUIET | _ANY_WAY | (_ROUTER if part in forwarding else {}))
        ip(["link set lo up"], namespace)


def _veth(blueprint: Blueprint, near: tuple[str, str], far: tuple[str, str], segment_bytes: int = 0) -> str:
    """Return the ``ip`` line for a pair of devices, each a (namespace, device)."""
    mtu, segment = f"mtu {blueprint.settings.mtu}", f" gso_max_size {segment_bytes}" if segment_bytes else ""
    return f"link add {near[1]} {mtu}{segment} netns {near[0]} type veth peer name {far[1]} {mtu} netns {far[0]}"


def _cable_of_host(blueprint: Blueprint, place: Place) -> Cable:
    """Return the cable from a host to its rack's router."""
    namespaces = blueprint.namespace(place.name), blueprint.namespace(f"rack{place.rack}")
    return Cable((namespaces[0], "eth0"), (namespaces[1], f"h{place.port}"), blueprint.settings.host_rate)


def _uplinks(blueprint: Blueprint) -> dict[str, Cable]:
    """Return the uplink of each rack and pod; its routes are those of the router above, into what is below."""
    settings, ns = blueprint.settings, blueprint.namespace
    addresses = {
        rack: [*(place.address for place in blueprint.in_rack(rack)), blueprint.gateway(rack)]
        for rack in range(settings.racks)
    }

    def uplink(name: str, above: str, device: str, racks: list[int], rate: int, delay_us: int) -> Cable:
        outer, _ = _ends(blueprint, name)
        below = [address for rack in racks for address in addresses[rack]]
        routes = tuple(f"route replace {address}/32 via {outer} dev {device}" for address in below)
        return Cable((ns(name), "up0"), (ns(above), device), rate, delay_us, routes)

    of_racks = {
        name: uplink(name, blueprint.above(rack), f"r{rack}", [rack], settings.uplink_rate, settings.uplink_delay_us)
        for rack, name in enumerate(blueprint.racks)
    }
    of_pods = {
        name: uplink(
            name, "core", f"p{pod}", [rack for rack in addresses if blueprint.pod_of(rack) == pod], settings.pod_rate, 0
        )
        for pod, name in enumerate(blueprint.pods)
    }
    return of_racks | of_pods


def _ends(blueprint: Blueprint, part: str) -> tuple[str, str]:
    """Return the (lower, upper) addresses of the uplink of a rack, the controller or a pod."""
    return blueprint.uplink([*blueprint.racks, "ctl", *blueprint.pods].index(part))


def _lay_racks(blueprint: Blueprint) -> None:
    settings, core, ctl = blueprint.settings, blueprint.namespace("core"), blueprint.namespace("ctl")
    routers = ["core", *blueprint.pods, *blueprint.racks]
    _make_namespaces(blueprint, [*routers, "ctl", *(place.name for place in blueprint.places)], set(routers))
    _lay_uplink(blueprint, "ctl", Cable((ctl, "up0"), (core, "ctl"), NO_LIMIT))
    uplinks = _uplinks(blueprint)
    for name in (*blueprint.pods, *blueprint.racks):
        _lay_uplink(blueprint, name, uplinks[name])
    rates = [settings.host_rate, settings.uplink_rate, *([settings.pod_rate] if settings.pods else [])]
    for rack, name in enumerate(blueprint.racks):
        _lay_rack(blueprint, rack, blueprint.namespace(name), _tcp_segment_bytes(min(rates)))


def _lay_uplink(blueprint: Blueprint, name: str, cable: Cable) -> None:
    """Lay the link of a rack, the controller or a pod to the router above it."""
    (lower, _), (upper, device), (outer, inner) = cable.near, cable.far, _ends(blueprint, name)
    ip([_veth(blueprint, cable.near, cable.far)])
    ip([f"addr add {inner}/31 dev {device}", f"link set {device} up", *cable.routes], upper)
    ip([f"addr add {outer}/31 dev up0", "link set up0 up", f"route add {NETWORK} via {inner}"], lower)
    if cable.rate != NO_LIMIT:
        _shape_ends(cable)


def _shape_ends(cable: Cable) -> None:
    for namespace, device in (cable.near, cable.far):
        shape(namespace, device, cable.rate, cable.delay_us)


def _lay_rack(blueprint: Blueprint, rack: int, router: str, segment_bytes: int) -> None:
    """Lay a rack's bridge and hosts."""
    gateway, places = blueprint.gateway(rack), blueprint.in_rack(rack)
    hosts = [_cable_of_host(blueprint, place) for place in places]
    ip([_veth(blueprint, cable.near, cable.far, segment_bytes) for cable in hosts])
    bridge = [f"link add br0 mtu {blueprint.settings.mtu} type bridge", f"addr add {gateway}/32 dev br0"]
    ports = [
        line
        for _, device in (cable.far for cable in hosts)
        for line in (f"link set {device} master br0", f"link set {device} up")
    ]
    routes = [f"route add {place.address}/32 dev br0 src {gateway}" for place in places]
    ip([*bridge, "link set br0 up", *ports, *routes], router)
    for place, cable in zip(places, hosts, strict=True):
        # Every address is a /32 so that no prefix tells the rack; neighbours in the rack are reached over the bridge.
        near = [gateway, *(mate.address for mate in places if mate is not place)]
        routes = [f"route add {address}/32 dev eth0 scope link" for address in near]
        routes.append(f"route add {NETWORK} via {gateway} dev eth0")
        ip([f"addr add {place.address}/32 dev eth0", "link set eth0 up", *routes], cable.near[0])
        _shape_ends(cable)


def _switches(blueprint: Blueprint) -> dict[str, list[tuple[int, int]]]:
    """Return what is on each switch: (index of the host, its interface)."""
    members: dict[str, list[tuple[int, int]]] = {}
    for index, place in enumerate(blueprint.places):
        for level, switch in enumerate(blueprint.switches_of(place)):
            members.setdefault(switch, []).append((index, level))
    return dict(sorted(members.items()))


def _port(index: int, level: int) -> str:
    return f"h{index}-{level}"


def _lay_switches(blueprint: Blueprint) -> None:
    settings, ns = blueprint.settings, blueprint.namespace
    fabric, ctl, names = ns(_FABRIC), ns("ctl"), [place.name for place in blueprint.places]
    relays = names if settings.topology == "bcube" else []
    _make_namespaces(blueprint, [_FABRIC, "ctl", *names], {_FABRIC, *relays})
    switches, all_cables = _switches(blueprint), cables(blueprint)
    bridges = (_MANAGEMENT, *switches)
    ip([f"link add {name} mtu {settings.mtu} type bridge" for name in bridges], fabric)
    segment_bytes = _tcp_segment_bytes(settings.host_rate)
    ip([_veth(blueprint, (ctl, "up0"), (fabric, "ctl"))])
    for name in names:
        (management,) = all_cables[f"{name}/mgmt0"]
        interfaces = [_veth(blueprint, cable.near, cable.far, segment_bytes) for cable in all_cables[name]]
        ip([_veth(blueprint, management.near, management.far), *interfaces])
    on_bridges = [("ctl", _MANAGEMENT), *((f"m{index}", _MANAGEMENT) for index in range(len(names)))]
    on_bridges += [(_port(index, level), name) for name, ports in switches.items() for index, level in ports]
    ip(
        [f"link set {name} up" for name in bridges]
        + [line for port, name in on_bridges for line in (f"link set {port} master {name}", f"link set {port} up")],
        fabric,
    )
    for cable in (cable for name in names for cable in all_cables[name]):
        _shape_ends(cable)
    controller, _ = blueprint.uplink(0)
    routes = [f"route add {place.address}/32 dev up0 scope link" for place in blueprint.places]
    ip([f"addr add {controller}/32 dev up0", "link set up0 up", *routes], ctl)
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
