"""Membership of a rendezvous: which nodes have registered, and whether the job can start with them. Pure, no sockets.

One node decides and tells all, so that every node ends with the same line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from plink.errors import InputError
from plink.model.hosts import Host
from plink.runtime.roster import is_loopback
from plink.transport.addresses import canonical

_MAX_NAMED_HOSTS = 6


@dataclass(frozen=True)
class Registration:
    """What one torchrun reports of itself.

    :param name: of the host in the order; None when it is none of them.
    :param digest: of the order that it read.
    :param nodes: ``--nnodes``.
    :param processes: ``--nproc-per-node``; None when unknown.
    :param error: why it cannot take part.
    """

    name: str | None
    hostname: str
    addresses: tuple[str, ...]
    pid: int
    digest: str
    nodes: int
    processes: int | None
    error: str | None = None

    @property
    def label(self) -> str:
        """Name of the node for errors."""
        return self.name or self.machine

    @property
    def machine(self) -> str:
        """Name and addresses of the machine it runs on."""
        return f"{self.hostname} ({', '.join(self.addresses[:3]) or 'no address'})"

    def to_json(self) -> dict[str, Any]:
        """Return the document that is written to the store."""
        return asdict(self)


def registration_from(text: bytes) -> Registration:
    """Parse a registration from the store, to which any process that reaches it may have written.

    :raises InputError: when it is invalid.
    """
    try:
        document = json.loads(text)
        node = Registration(**{**document, "addresses": tuple(document["addresses"])})
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError("the rendezvous", "received a malformed registration") from None
    named = [name for name in (node.name, node.error) if name is not None]
    names = (*named, node.hostname, node.digest, *node.addresses)
    if not all(isinstance(name, str) and name for name in names) or not all(
        type(number) is int
        for number in (
            node.pid,
            node.nodes,
            0 if node.processes is None else node.processes,
        )
    ):
        raise InputError("the rendezvous", "received a malformed registration")
    return node


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
