"""Racks of hosts behind routers, under pods or the core: veth pairs, bridges, routes and rate limits."""

from runners.lab.blueprint import NETWORK, Blueprint, Place
from runners.lab.kernel import ip, tc
from runners.lab.links import Cable, make_namespaces, shape, tcp_segment_bytes


def _host_port(place: Place) -> str:
    """The interface of a host's rack router that leads to the host."""
    return f"h{place.port}"


def _routes_down(blueprint: Blueprint, rack: int) -> list[str]:
    """Routes into one rack, of the router above it (they go when the uplink is cut, and come back with it)."""
    outer, _ = blueprint.uplink(rack)
    return [f"route replace {address}/32 via {outer} dev r{rack}" for address in _addresses(blueprint, rack)]


def _routes_to_pod(blueprint: Blueprint, pod: int) -> list[str]:
    """Routes of the core router into one pod."""
    outer, _ = blueprint.uplink(blueprint.settings.racks + 1 + pod)
    racks = [rack for rack in range(blueprint.settings.racks) if blueprint.pod_of(rack) == pod]
    addresses = [address for rack in racks for address in _addresses(blueprint, rack)]
    return [f"route replace {address}/32 via {outer} dev p{pod}" for address in addresses]


def _addresses(blueprint: Blueprint, rack: int) -> list[str]:
    return [place.address for place in blueprint.in_rack(rack)] + [blueprint.gateway(rack)]


def cables(blueprint: Blueprint) -> dict[str, list[Cable]]:
    """Return the cable of each rack, pod and host, by its name."""
    settings, ns, core = blueprint.settings, blueprint.namespace, blueprint.namespace("core")
    uplinks = {
        name: Cable(
            (ns(name), "up0"), (ns(blueprint.above(rack)), f"r{rack}"),
            settings.uplink_rate, settings.uplink_delay_us, tuple(_routes_down(blueprint, rack)),
        )
        for rack, name in enumerate(blueprint.racks)
    } | {
        name: Cable(
            (ns(name), "up0"), (core, f"p{pod}"), settings.pod_rate, routes=tuple(_routes_to_pod(blueprint, pod))
        )
        for pod, name in enumerate(blueprint.pods)
    }  # fmt: skip
    hosts = {
        place.name: Cable((ns(place.name), "eth0"), (ns(f"rack{place.rack}"), _host_port(place)), settings.host_rate)
        for place in blueprint.places
    }
    return {name: [cable] for name, cable in (uplinks | hosts).items()}


def lay(blueprint: Blueprint) -> None:
    """Make all namespaces and links of a lab of racks.

    :raises PlinkError: when the kernel or iproute2 refuses a step; what stands by then is for the caller to take down.
    """
    settings, ns = blueprint.settings, blueprint.namespace
    core, ctl = ns("core"), ns("ctl")
    routers = ["core", *blueprint.pods, *blueprint.racks]
    parts = [*routers, "ctl", *(place.name for place in blueprint.places)]
    make_namespaces([ns(part) for part in parts], {ns(part) for part in routers})
    mtu = f"mtu {settings.mtu}"
    ip([f"link add up0 {mtu} netns {ctl} type veth peer name ctl {mtu} netns {core}"])
    outer, inner = blueprint.uplink(settings.racks)
    ip([f"addr add {inner}/31 dev ctl", "link set ctl up"], core)
    ip([f"addr add {outer}/31 dev up0", "link set up0 up", f"route add {NETWORK} via {inner}"], ctl)
    for pod, part in enumerate(blueprint.pods):
        _lay_pod(blueprint, pod, ns(part))
    for rack, part in enumerate(blueprint.racks):
        _lay_rack(blueprint, rack, ns(part))


def _lay_pod(blueprint: Blueprint, pod: int, router: str) -> None:
    settings, core = blueprint.settings, blueprint.namespace("core")
    mtu = f"mtu {settings.mtu}"
    outer, inner = blueprint.uplink(settings.racks + 1 + pod)
    ip([f"link add up0 {mtu} netns {router} type veth peer name p{pod} {mtu} netns {core}"])
    ip([f"addr add {inner}/31 dev p{pod}", f"link set p{pod} up", *_routes_to_pod(blueprint, pod)], core)
    ip([f"addr add {outer}/31 dev up0", "link set up0 up", f"route add {NETWORK} via {inner}"], router)
    tc(shape("up0", settings.pod_rate), router)
    tc(shape(f"p{pod}", settings.pod_rate), core)


def _lay_rack(blueprint: Blueprint, rack: int, router: str) -> None:
    settings, above = blueprint.settings, blueprint.namespace(blueprint.above(rack))
    mtu = f"mtu {settings.mtu}"
    outer, inner = blueprint.uplink(rack)
    gateway, places = blueprint.gateway(rack), blueprint.in_rack(rack)
    rates = [settings.host_rate, settings.uplink_rate, *([settings.pod_rate] if settings.pods else [])]
    whole = tcp_segment_bytes(min(rates))
    ip(
        [f"link add up0 {mtu} netns {router} type veth peer name r{rack} {mtu} netns {above}"]
        + [
            f"link add eth0 {mtu} gso_max_size {whole} netns {blueprint.namespace(place.name)} type veth "
            f"peer name {_host_port(place)} {mtu} netns {router}"
            for place in places
        ]
    )
    ip([f"addr add {inner}/31 dev r{rack}", f"link set r{rack} up", *_routes_down(blueprint, rack)], above)
    ip(
        [f"link add br0 {mtu} type bridge", f"addr add {gateway}/32 dev br0", "link set br0 up"]
        + [f"addr add {outer}/31 dev up0", "link set up0 up", f"route add {NETWORK} via {inner}"]
        + [
            line
            for place in places
            for line in (f"link set {_host_port(place)} master br0", f"link set {_host_port(place)} up")
        ]
        + [f"route add {place.address}/32 dev br0 src {gateway}" for place in places],
        router,
    )
    tc(
        shape("up0", settings.uplink_rate, settings.uplink_delay_us)
        + [line for place in places for line in shape(_host_port(place), settings.host_rate)],
        router,
    )
    tc(shape(f"r{rack}", settings.uplink_rate, settings.uplink_delay_us), above)
    for place in places:
        # Every address is a /32 so that no prefix tells the rack; neighbours in the rack are reached over the bridge.
        mates = [mate.address for mate in places if mate is not place]
        ip(
            [f"addr add {place.address}/32 dev eth0", "link set eth0 up"]
            + [f"route add {address}/32 dev eth0 scope link" for address in [gateway, *mates]]
            + [f"route add {NETWORK} via {gateway} dev eth0"],
            blueprint.namespace(place.name),
        )
        tc(shape("eth0", settings.host_rate), blueprint.namespace(place.name))
