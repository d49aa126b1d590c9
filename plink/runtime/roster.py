"""Roster of a job: its hosts in rank order, and which of them this machine is."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from plink.errors import HostError, InputError
from plink.model.hosts import Host, hosts_from_json, parse_hosts
from plink.model.order import order_from_json
from plink.model.storage import name_of, parse_document, read_text
from plink.transport.addresses import canonical


def read_roster(order: str | Path, hosts: str | Path | None) -> tuple[Host, ...]:
    """Read the hosts in rank order.

    :param order: ``plink.order/1``, or a hosts file or list of names, one a line, in rank order.
    :param hosts: a hosts file or a file with ``hosts`` (a network), for the addresses and slots that ``order`` lacks.
    :raises InputError: when one cannot be read, or a host of the order is not among the hosts.
    """
    location, text = name_of(order), read_text(order)
    if _is_json(location, text):
        members = tuple(Host(name, name) for name in order_from_json(parse_document(text, location), location).hosts)
    else:
        members = parse_hosts(text, location).members
    if hosts is None:
        return members
    hosts_location, text = name_of(hosts), read_text(hosts)
    if _is_json(hosts_location, text):
        by_name = hosts_from_json(parse_document(text, hosts_location).get("hosts"), None, hosts_location).by_name()
    else:
        by_name = parse_hosts(text, hosts_location).by_name()
    for host in members:
        if host.name not in by_name:
            raise InputError(hosts_location, f"no host {host.name!r}, which is in {location}")
    return tuple(replace(host, address=by_name[host.name].address, slots=by_name[host.name].slots) for host in members)


def _is_json(location: str, text: str) -> bool:
    return location.endswith((".json", ".json.gz")) or text.lstrip().startswith("{")


def _names(host: Host) -> list[str]:
    """Return a host's names: also its address where that is a name (10.0.0.1 is no host of the domain 0.0.1)."""
    return [host.name, *([host.address] if canonical(host.address) is None else [])]


def digest(roster: Sequence[Host]) -> str:
    """Return a digest of names, their order and slots."""
    text = json.dumps([(host.name, host.slots) for host in roster])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def numeric(name: str) -> list[str]:
    """Return the addresses that a name (or an address) resolves to here, as the kernel writes them; none if unknown."""
    if name.isdecimal():  # a host named 101, which the resolver takes for the address 0.0.0.101
        return []
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def is_loopback(address: str) -> bool:
    """Return whether it is an address that every machine holds; no name is."""
    numeric_address = canonical(address)
    return numeric_address is not None and ipaddress.ip_address(numeric_address.partition("%")[0]).is_loopback


def find_self(
    roster: Sequence[Host],
    hostname: str,
    addresses: Sequence[str],
    resolve: Callable[[str], list[str]] = numeric,
) -> Host:
    """Return the host that this machine is: by its addresses, else by its host name, else by what other names resolve
    to.

    Names are resolved last: thousands of names resolved by as many machines take long.

    :param addresses: of this machine, as its kernel writes them.
    :raises HostError: when it is none of them, or may be several.
    """
    own_addresses = set(addresses)
    by_address = [host for host in roster if canonical(host.address) in own_addresses or is_loopback(host.address)]
    short_name = hostname.split(".")[0]
    named = [host for host in roster if hostname in (host.name, host.address)] or [
        host for host in roster if short_name in (name.split(".")[0] for name in _names(host))
    ]
    by_both = [host for host in by_address if host in named]
    candidates = by_both or by_address or named
    if not candidates:
        names = [host for host in roster if canonical(host.address) is None]
        candidates = [host for host in names if own_addresses & set(resolve(host.address))]
    if not candidates:
        own = ", ".join(addresses[:3]) or "no address"
        raise HostError(f"{hostname} ({own})", "not in the order; name its host by PLINK_NODE=NAME")
    if len(candidates) > 1:
        choices = " or ".join(host.name for host in candidates[:4])
        raise HostError(hostname, f"may be {choices} of the order; name it by PLINK_NODE=NAME")
    return candidates[0]
