"""Which addresses and interfaces a host has, seen from the host itself.

Runs on the hosts: standard library only, Linux.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct

_SIOCGIFADDR = 0x8915
_INET6_SCOPE_GLOBAL = "00"


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


def source_towards(peer: str) -> str:
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


def reached_at(asked: str) -> str:
    """The numeric address at which other hosts reach this one.

    ``asked``, the address the controller used, when it is one of ours; behind a NAT or a name it is not, and then the
    address at which our sshd took the connection is.
    """
    if asked in local_addresses():
        return asked
    connection = os.environ.get("SSH_CONNECTION", "").split()  # client address, port, server address, port
    return connection[2] if len(connection) == 4 else "127.0.0.1"


def machine_identity() -> dict[str, object]:
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
