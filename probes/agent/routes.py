"""The kernel's routes to addresses: which interface packets leave by, and which host or router passes them on.

Runs on the hosts: standard library only, Linux (rtnetlink(7)); asks the kernel and sends nothing on the network.
"""

from __future__ import annotations

import socket
import struct

_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26
_NLM_F_REQUEST = 1
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_VIA = 1, 4, 5, 18
_RTN_UNICAST = 1  # other kinds: local, unreachable, ...
_HEADER, _ROUTE, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBBBBBBBI"), struct.Struct("=HH")
_REPLY_TIMEOUT_S = 2.0
MAX_ADDRESSES = 8192
# What rides on other interfaces: other kinds than Ethernet and InfiniBand (if_arp.h), and these.
_ETHERNET, _INFINIBAND = "1", "32"
_TUNNELS = ("vxlan", "geneve", "wireguard")


def routes_to(addresses: list[str]) -> list[tuple[str | None, str | None]]:
    """Return (interface, gateway) of the route to each numeric address; no gateway where the address is on the link.

    (None, None) where there is no route, or one into a tunnel, for this host's own addresses, and for what is none.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(_REPLY_TIMEOUT_S)
        names = dict(socket.if_nameindex())
        return [_route(netlink, address, names) for address in addresses[:MAX_ADDRESSES]]


def _is_tunnel(interface: str) -> bool:
    """Return whether an interface rides on another one (VPNs, overlays of containers)."""
    try:
        with open(f"/sys/class/net/{interface}/type") as file:
            kind = file.read().strip()
        with open(f"/sys/class/net/{interface}/uevent") as file:
            described = file.read()
    except OSError:
        return False
    return kind not in (_ETHERNET, _INFINIBAND) or any(f"DEVTYPE={tunnel}\n" in described for tunnel in _TUNNELS)


def _route(netlink: socket.socket, address: str, names: dict[int, str]) -> tuple[str | None, str | None]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        packed = socket.inet_pton(family, address)
        body = _ROUTE.pack(family, 8 * len(packed), 0, 0, 0, 0, 0, 0, 0)
        body += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _RTA_DST) + packed
        netlink.send(_HEADER.pack(_HEADER.size + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 0, 0) + body)
        answer = netlink.recv(8192)
    except OSError:
        return None, None
    length, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind != _RTM_NEWROUTE or _ROUTE.unpack_from(answer, _HEADER.size)[7] != _RTN_UNICAST:
        return None, None
    interface = gateway = None
    at = _HEADER.size + _ROUTE.size
    while at + _ATTRIBUTE.size <= length:
        size, attribute = _ATTRIBUTE.unpack_from(answer, at)
        value = answer[at + _ATTRIBUTE.size : at + size]
        if attribute == _RTA_OIF:
            interface = names.get(struct.unpack("=I", value)[0])
            if interface is not None and _is_tunnel(interface):
                return None, None
        elif attribute == _RTA_GATEWAY:
            gateway = socket.inet_ntop(family, value)
        elif attribute == _RTA_VIA:  # a gateway of the other family
            other = struct.unpack_from("=H", value)[0]
            gateway = socket.inet_ntop(other, value[2:])
        at += (max(size, _ATTRIBUTE.size) + 3) & ~3
    return interface, gateway
