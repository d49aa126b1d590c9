"""Addresses and interfaces of this host.

Runs on the hosts: standard library only, Linux.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator, Sequence

_SIOCGIFADDR = 0x8915
_INET6_SCOPE_GLOBAL, _INET6_SCOPE_LINK = "00", "20"
_MAX_FAILED_LOOKUPS = 3  # each may take seconds


def local_addresses() -> list[str]:
    """Return every IPv4 address and every global IPv6 address of this network namespace, but loopback."""
    addresses = set()
    try:
        with open("/proc/net/fib_trie") as file:
            previous = ""
            for line in file:
                if "/32 host LOCAL" in line:
                    addresses.add(previous.split()[-1])
                previous = line
    except OSError:
        pass
    addresses.update(address for address, _, scope in _inet6() if scope == _INET6_SCOPE_GLOBAL)
    return sorted(address for address in addresses if not address.startswith("127."))


def _inet6() -> list[tuple[str, str, str]]:
    """Return (address, interface, scope) of every IPv6 address."""
    try:
        with open("/proc/net/if_inet6") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    return [(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])), row[5], row[3]) for row in rows]


def family_of(address: str) -> int:
    """Return AF_INET or AF_INET6 for a numeric address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def source_address_for(peer: str) -> str:
    """Return the source address of packets to ``peer`` (numeric); sends nothing.

    :raises OSError: when there is no route to it.
    """
    with socket.socket(family_of(peer), socket.SOCK_DGRAM) as sock:
        sock.connect((peer, 9))
        return str(sock.getsockname()[0])


def interface_of(address: str) -> str | None:
    """Return the interface that has a local address, None if none is found."""
    if ":" in address:
        return next((interface for candidate, interface, _ in _inet6() if candidate == address), None)
    return next((name for _, name in socket.if_nameindex() if address_of(name) == address), None)


def address_of(interface: str) -> str | None:
    """Return the IPv4 address of an interface, None where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = array.array("B", struct.pack("256s", interface[:15].encode()))
        try:
            fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, request, True)
        except OSError:
            return None
    return socket.inet_ntoa(bytes(request[20:24]))


def own_address_towards(peers: Sequence[str]) -> tuple[str, str | None]:
    """Return (this host's address on the way to the first of ``peers`` that is another host, an error if none is).

    A host may be among its own peers, under a name that it resolves to a loopback address (Debian writes
    ``127.0.1.1 NAME`` into /etc/hosts). Where all peers are this host, the address is one by which others know it.
    """
    own_addresses, fallback, errors = local_addresses(), "127.0.0.1", []
    for peer in peers:
        try:
            address = _numeric(peer)
            if address in own_addresses:
                fallback = address
            elif not _is_loopback(address):
                return source_address_for(address), None
        except OSError as error:
            errors.append(f"no route to {peer}: {error.strerror}")
            if len(errors) == _MAX_FAILED_LOOKUPS:
                break
    return fallback, errors[0] if errors else None


def reachable_address(requested: str, peers: Sequence[str] = ()) -> str:
    """Return the numeric address at which other hosts reach this one.

    The address that the controller used (``requested``) or, behind a NAT or a name, the one at which our sshd took the
    connection, or the one that the name stands for here: the first of these that is ours. A controller on this very
    host may have come over loopback, and other launchers than SSH do not tell: then the address on the way to
    ``peers``, the other hosts, or the only one there is. Loopback where all of them are on this host.

    :raises OSError: where there are several, and nothing says which.
    """
    own_addresses = local_addresses()
    links = [f"{address}%{interface}" for address, interface, scope in _inet6() if scope == _INET6_SCOPE_LINK]
    loopbacks = []
    for address in _candidates(requested):
        if address in own_addresses or address in links:
            return address
        loopbacks += [address] if _is_loopback(address) else []
    address, error = own_address_towards(peers)
    if not _is_loopback(address):
        return address
    if not own_addresses or (loopbacks and error is None):
        return [*loopbacks, address][0]
    candidates = [address for address in own_addresses if ":" not in address] or own_addresses
    if len(candidates) > 1:
        raise OSError(
            0, f"which of {', '.join(candidates)} do others reach this host at? Set address=... in the hosts file"
        )
    return candidates[0]


def _candidates(requested: str) -> Iterator[str]:
    """Yield numeric addresses that the controller may have used: the surest first, a name that needs a lookup last."""
    numeric = canonical(requested)
    if numeric is not None:
        yield numeric
    connection = os.environ.get("SSH_CONNECTION", "").split()  # client address, port, server address, port
    if len(connection) == 4 and (by_ssh := canonical(connection[2])) is not None:
        yield by_ssh
    if numeric is None:
        with contextlib.suppress(OSError):
            yield _numeric(requested)


def canonical(address: str) -> str | None:
    """Return a numeric address as the kernel writes it, None for a name."""
    plain, _, interface = address.partition("%")
    try:
        numeric = str(ipaddress.ip_address(plain))
    except ValueError:
        return None
    return f"{numeric}%{interface}" if interface else numeric


def _numeric(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)[0][4][0])
    except UnicodeError:  # "a..b", or a part of more than 63 characters
        raise OSError(0, "no name that can be looked up") from None


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def host_identity() -> dict[str, object]:
    """Return what identifies this host: ``hostname``, ``boot_id`` (shared by containers of one kernel), ``cores``."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    return {
        "hostname": socket.gethostname(),
        "boot_id": boot,
        "cores": len(os.sched_getaffinity(0)),
        "addresses": local_addresses(),
    }
