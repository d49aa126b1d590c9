"""Which addresses and interfaces a host has, seen from the host itself.

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
_MOST_UNKNOWN = 3  # names that do not resolve, each of which may take seconds, before the way is given up


def local_addresses() -> list[str]:
    """Every IPv4 address, and every global IPv6 address, of this host (of its network namespace), loopback left out."""
    found = set()
    try:
        with open("/proc/net/fib_trie") as file:
            previous = ""
            for line in file:
                if "/32 host LOCAL" in line:
                    found.add(previous.split()[-1])
                previous = line
    except OSError:
        pass
    found.update(address for address, _, scope in _inet6() if scope == _INET6_SCOPE_GLOBAL)
    return sorted(address for address in found if not address.startswith("127."))


def _inet6() -> list[tuple[str, str, str]]:
    """(address, interface, scope) of every IPv6 address."""
    try:
        with open("/proc/net/if_inet6") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    return [(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])), row[5], row[3]) for row in rows]


def family_of(address: str) -> int:
    """AF_INET or AF_INET6 for a numeric address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def source_address_for(peer: str) -> str:
    """The local address that packets to ``peer`` (numeric) leave with; nothing is sent.

    :raises OSError: when there is no route to it.
    """
    with socket.socket(family_of(peer), socket.SOCK_DGRAM) as sock:
        sock.connect((peer, 9))
        return str(sock.getsockname()[0])


def interface_of(address: str) -> str | None:
    """The interface that holds a local address, None when it cannot be told."""
    if ":" in address:
        return next((interface for known, interface, _ in _inet6() if known == address), None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = array.array("B", struct.pack("256s", name[:15].encode()))
            try:
                fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, request, True)
            except OSError:
                continue
            if socket.inet_ntoa(bytes(request[20:24])) == address:
                return name
    return None


def towards(peers: Sequence[str]) -> tuple[str, str | None]:
    """(this host's address on the way to the first of ``peers`` that is another host, why no way is known).

    A host may stand among its own peers, under a name that it takes for a loopback address (Debian writes
    ``127.0.1.1 NAME`` into /etc/hosts). Where all are this host, the address that others would know it by.
    """
    own, here, unknown = local_addresses(), "127.0.0.1", []
    for peer in peers:
        try:
            address = _numeric(peer)
            if address in own:
                here = address
            elif not _is_loopback(address):
                return source_address_for(address), None
        except OSError as error:
            unknown.append(f"no way to {peer}: {error.strerror}")
            if len(unknown) == _MOST_UNKNOWN:
                break
    return here, unknown[0] if unknown else None


def reachable_address(asked: str, peers: Sequence[str] = ()) -> str:
    """The numeric address at which other hosts reach this one.

    The address that the controller used (``asked``) or, behind a NAT or a name, the one at which our sshd took the
    connection, or the one that the name stands for here: the first of these that is ours. A controller on this very
    host may have come over loopback, and other launchers than SSH do not tell: then the address on the way to
    ``peers``, the other hosts, or the only one there is. Loopback where all of them are on this host.

    :raises OSError: where there are several, and nothing says which.
    """
    own = local_addresses()
    links = [f"{address}%{interface}" for address, interface, scope in _inet6() if scope == _INET6_SCOPE_LINK]
    looping = []
    for address in _told(asked):
        if address in own or address in links:
            return address
        looping += [address] if _is_loopback(address) else []
    address, unknown = towards(peers)
    if not _is_loopback(address):
        return address
    if not own or (looping and unknown is None):
        return [*looping, address][0]
    likely = [address for address in own if ":" not in address] or own
    if len(likely) > 1:
        raise OSError(
            0, f"which of {', '.join(likely)} do others reach this host at? Say address=... in the hosts file"
        )
    return likely[0]


def _told(asked: str) -> Iterator[str]:
    """The addresses that the controller may have used, as numbers: the surest first, a name that has to be looked up
    last."""
    numeric = canonical(asked)
    if numeric is not None:
        yield numeric
    connection = os.environ.get("SSH_CONNECTION", "").split()  # client address, port, server address, port
    if len(connection) == 4 and (by_ssh := canonical(connection[2])) is not None:
        yield by_ssh
    if numeric is None:
        with contextlib.suppress(OSError):
            yield _numeric(asked)


def canonical(address: str) -> str | None:
    """A numeric address as the kernel writes it, None for a name."""
    plain, _, interface = address.partition("%")
    try:
        known = str(ipaddress.ip_address(plain))
    except ValueError:
        return None
    return f"{known}%{interface}" if interface else known


def _numeric(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)[0][4][0])
    except UnicodeError:  # "a..b", or a part of more than 63 characters
        raise OSError(0, "no name that can be looked up") from None


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def host_identity() -> dict[str, object]:
    """What tells this host from others: ``hostname``, ``boot_id`` (shared by containers of one kernel), ``cores``."""
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
