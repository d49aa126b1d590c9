"""Membership of a rendezvous: which nodes have registered, and whether the job can start with them. Pure, no sockets.

One node decides and tells all, so that every node ends with the same line.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import Struct

from plink.errors import HostError, InputError
from plink.model.hosts import Host, hosts_from_json, parse_hosts
from plink.model.order import order_from_json
from plink.model.storage import name_of, parse_document, read_text
from plink.model.types import Name
from plink.transport.addresses import canonical

_MAX_NAMED_HOSTS = 6


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
    roster: Sequence[Host], hostname: str, addresses: Sequence[str], resolve: Callable[[str], list[str]] = numeric
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


class Registration(Struct, frozen=True, forbid_unknown_fields=True):
    """What one torchrun reports of itself.

    :param name: of the host in the order; None when it is none of them.
    :param digest: of the order that it read.
    :param nodes: ``--nnodes``.
    :param processes: ``--nproc-per-node``; None when unknown.
    :param error: why it cannot take part.
    """

    name: Name | None
    hostname: Name
    addresses: tuple[Name, ...]
    pid: int
    digest: Name
    nodes: int
    processes: int | None
    error: Name | None = None

    @property
    def label(self) -> str:
        """Name of the node for errors."""
        return self.name or self.machine

    @property
    def machine(self) -> str:
        """Name and addresses of the machine it runs on."""
        return f"{self.hostname} ({', '.join(self.addresses[:3]) or 'no address'})"

    def encode(self) -> str:
        """Return it as text of ASCII for the store: names may be no UTF-8."""
        return json.dumps(msgspec.to_builtins(self))


def registration_from(text: str | bytes) -> Registration:
    """Parse a registration from the store, to which any process that reaches it may have written.

    :raises InputError: when it is invalid.
    """
    try:
        return msgspec.convert(json.loads(text), Registration)
    except (ValueError, RecursionError):  # msgspec's errors are of the former
        raise InputError("the rendezvous", "received a malformed registration") from None


def refusal(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    """Return why a job cannot start with these registrations, whoever registers next; None: no reason so far."""
    for node in registrations:
        if node.error is not None:
            return node.error if node.error.startswith(node.hostname) else f"{node.label}: {node.error}"
    for check in (
        _different_orders,
        _unknown_hosts,
        _duplicates,
        _wrong_addresses,
        _wrong_node_counts,
        _wrong_process_counts,
    ):
        if reason := check(roster, registrations):
            return reason
    return None


def missing(roster: Sequence[Host], registrations: Sequence[Registration]) -> list[str]:
    """Return the hosts of the order that have not registered."""
    present = {node.name for node in registrations}
    return [host.name for host in roster if host.name not in present]


def folded(names: Sequence[str]) -> str:
    """Return names for an error, at most a few of them."""
    more = f" and {len(names) - _MAX_NAMED_HOSTS} more" if len(names) > _MAX_NAMED_HOSTS else ""
    return ", ".join(names[:_MAX_NAMED_HOSTS]) + more


def _different_orders(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    by_digest: dict[str, list[str]] = {}
    for node in registrations:
        by_digest.setdefault(node.digest, []).append(node.label)
    if len(by_digest) < 2:
        return None
    orders = "; ".join(f"{digest} on {folded(names)}" for digest, names in by_digest.items())
    return f"the nodes have different orders: {orders} (PLINK_ORDER, PLINK_HOSTS)"


def _unknown_hosts(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    names = {host.name for host in roster}
    unknown = [node.label for node in registrations if node.name not in names]
    return f"{folded(unknown)}: not in the order" if unknown else None


def _duplicates(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    first: dict[str, Registration] = {}
    for node in registrations:
        other = first.setdefault(node.label, node)
        if other is not node:
            first_process, second_process = (f"process {each.pid} on {each.machine}" for each in (other, node))
            return f"{node.label} registered twice: {first_process} and {second_process}"
    return None


def _wrong_addresses(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    """Report a node that claims the name of a host whose address belongs to another: PLINK_NODE or the addresses are
    wrong.
    """
    listed = {host.name: canonical(host.address) for host in roster}
    owner = {address: name for name, address in listed.items() if address is not None and not is_loopback(address)}
    for node in registrations:
        owners = [owner[address] for address in node.addresses if owner.get(address, node.name) != node.name]
        if owners and listed.get(node.name or "") not in node.addresses:
            return f"{node.label} is {node.machine}: the order gives that address to {owners[0]}"
    return None


def _wrong_node_counts(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    mismatched = [node for node in registrations if node.nodes != len(roster)]
    if not mismatched:
        return None
    labels = folded([node.label for node in mismatched])
    return f"--nnodes={mismatched[0].nodes} on {labels}, but the order has {len(roster)} hosts"


def _wrong_process_counts(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    reporting = [node for node in registrations if node.processes is not None]
    slots = {host.name: host.slots for host in roster}
    if set(slots.values()) == {1}:  # a list of names has no slots
        if len({node.processes for node in reporting}) < 2:
            return None
        counts = ", ".join(f"{node.processes} on {node.label}" for node in reporting[:_MAX_NAMED_HOSTS])
        return f"--nproc-per-node differs and the order has no slots: {counts}"
    mismatched = [node for node in reporting if node.processes != slots[node.label]]
    if not mismatched:
        return None
    counts = "; ".join(
        f"{node.label} has slots={slots[node.label]}, not {node.processes}" for node in mismatched[:_MAX_NAMED_HOSTS]
    )
    return f"--nproc-per-node differs from the order's slots: {counts}"
