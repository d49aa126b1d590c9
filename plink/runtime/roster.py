"""Which hosts take part in a job, in which order, and which of them this machine is."""

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
from plink.remote.addresses import canonical


def read_roster(order: str | Path, hosts: str | Path | None) -> tuple[Host, ...]:
    """The hosts in rank order.

    :param order: ``plink.order/1``, or a hosts file or list of names, one a line, in rank order.
    :param hosts: a hosts file or a file with ``hosts`` (a network), for the addresses and slots that ``order`` lacks.
    :raises InputError: when one cannot be read, or a host of the order is not among the hosts.
    """
    where, text = name_of(order), read_text(order)
    if _is_json(where, text):
        members = tuple(Host(name, name) for name in order_from_json(parse_document(text, where), where).hosts)
    else:
        members = parse_hosts(text, where).members
    if hosts is None:
        return members
    place, text = name_of(hosts), read_text(hosts)
    if _is_json(place, text):
        known = hosts_from_json(parse_document(text, place).get("hosts"), None, place).by_name()
    else:
        known = parse_hosts(text, place).by_name()
    for host in members:
        if host.name not in known:
            raise InputError(place, f"there is no {host.name!r}, which stands in {where}")
    return tuple(replace(host, address=known[host.name].address, slots=known[host.name].slots) for host in members)


def _is_json(where: str, text: str) -> bool:
    return where.endswith((".json", ".json.gz")) or text.lstrip().startswith("{")


def _names(host: Host) -> list[str]:
    """What it is called, its address where that is a name: 10.0.0.1 is no host of the domain 0.0.1."""
    return [host.name, *([host.address] if canonical(host.address) is None else [])]


def digest(roster: Sequence[Host]) -> str:
    """The same where names, their order and slots are."""
    said = json.dumps([(host.name, host.slots) for host in roster])
    return hashlib.sha256(said.encode()).hexdigest()[:8]


def numeric(name: str) -> list[str]:
    """The addresses that a name (or an address) stands for here, as the kernel writes them; none when not known."""
    if name.isdecimal():  # a host called 101, which the resolver takes for the address 0.0.0.101
        return []
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_loopback(address: str) -> bool:
    """Whether it is an address that every machine holds; no name is."""
    known = canonical(address)
    return known is not None and ipaddress.ip_address(known.partition("%")[0]).is_loopback


def find_self(
    roster: Sequence[Host],
    hostname: str,
    addresses: Sequence[str],
    resolve: Callable[[str], list[str]] = numeric,
) -> Host:
    """The host that this machine is: by its addresses, else by its host name, else by what other names resolve to.

    Names are resolved last: a resolver asked for each of thousands of names by each of as many machines is slow.

    :param addresses: of this machine, as its kernel writes them.
    :raises HostError: when it is none of them, or may be several.
    """
    mine = set(addresses)
    by_address = [host for host in roster if canonical(host.address) in mine or is_loopback(host.address)]
    first = hostname.split(".")[0]
    named = [host for host in roster if hostname in (host.name, host.address)] or [
        host for host in roster if first in (name.split(".")[0] for name in _names(host))
    ]
    both = [host for host in by_address if host in named]
    found = both or by_address or named
    if not found:
        names = [host for host in roster if canonical(host.address) is None]
        found = [host for host in names if mine & set(resolve(host.address))]
    if not found:
        held = ", ".join(addresses[:3]) or "no address"
        raise HostError(f"{hostname} ({held})", "not in the order (PLINK_NODE=NAME says which host of it this is)")
    if len(found) > 1:
        several = " or ".join(host.name for host in found[:4])
        raise HostError(hostname, f"may be {several} of the order: PLINK_NODE=NAME says which")
    return found[0]
