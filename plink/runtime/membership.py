"""Who has come to a rendezvous, and whether the job can start with them: pure, no sockets.

One node judges and tells all, so that every node ends with the same line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from plink.errors import InputError
from plink.model.hosts import Host
from plink.remote.addresses import canonical
from plink.runtime.roster import is_loopback

_SHOWN = 6


@dataclass(frozen=True)
class Registration:
    """What one torchrun says of itself.

    :param name: of the order's host that it takes itself for; None when it is none of them.
    :param digest: of the order that it was given.
    :param nodes: ``--nnodes``.
    :param processes: ``--nproc-per-node``; None when that is not known.
    :param trouble: why it cannot take part.
    """

    name: str | None
    hostname: str
    addresses: tuple[str, ...]
    pid: int
    digest: str
    nodes: int
    processes: int | None
    trouble: str | None = None

    @property
    def label(self) -> str:
        """What to call it in an error."""
        return self.name or self.machine

    @property
    def machine(self) -> str:
        """The machine that it runs on."""
        return f"{self.hostname} ({', '.join(self.addresses[:3]) or 'no address'})"

    def to_json(self) -> dict[str, Any]:
        """As it stands in the store."""
        return asdict(self)


def registration_from(text: bytes) -> Registration:
    """Back from the store, in which anybody who reaches it may have written.

    :raises InputError: when it is none.
    """
    try:
        document = json.loads(text)
        found = Registration(**{**document, "addresses": tuple(document["addresses"])})
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError("the rendezvous", "what came there is no torchrun of this job") from None
    named = [name for name in (found.name, found.trouble) if name is not None]
    names = (*named, found.hostname, found.digest, *found.addresses)
    if not all(isinstance(name, str) and name for name in names) or not all(
        type(number) is int for number in (found.pid, found.nodes, 0 if found.processes is None else found.processes)
    ):
        raise InputError("the rendezvous", "what came there is no torchrun of this job")
    return found


def refusal(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    """Why a job cannot start with those who have come so far, whoever comes next; None: nothing is wrong yet."""
    for one in registrations:
        if one.trouble is not None:
            return one.trouble if one.trouble.startswith(one.hostname) else f"{one.label}: {one.trouble}"
    for check in (_different_orders, _strangers, _twice, _elsewhere, _counts, _slots):
        if wrong := check(roster, registrations):
            return wrong
    return None


def missing(roster: Sequence[Host], registrations: Sequence[Registration]) -> list[str]:
    """Hosts of the order that have not come."""
    there = {one.name for one in registrations}
    return [host.name for host in roster if host.name not in there]


def folded(names: Sequence[str]) -> str:
    """Names for an error: not a thousand of them."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _different_orders(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    by_digest: dict[str, list[str]] = {}
    for one in registrations:
        by_digest.setdefault(one.digest, []).append(one.label)
    if len(by_digest) < 2:
        return None
    said = "; ".join(f"{digest} on {folded(names)}" for digest, names in by_digest.items())
    return f"the nodes were given different orders: {said} (PLINK_ORDER, PLINK_HOSTS)"


def _strangers(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    names = {host.name for host in roster}
    strangers = [one.label for one in registrations if one.name not in names]
    return f"{folded(strangers)}: not in the order" if strangers else None


def _twice(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    first: dict[str, Registration] = {}
    for one in registrations:
        other = first.setdefault(one.label, one)
        if other is not one:
            return (
                f"{one.label} came twice: process {other.pid} on {other.machine} and process {one.pid} on {one.machine}"
            )
    return None


def _elsewhere(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    """One that says it is a host of the order, and holds the address that the order gives another: PLINK_NODE is wrong
    there, or the addresses are."""
    listed = {host.name: canonical(host.address) for host in roster}
    owner = {address: name for name, address in listed.items() if address is not None and not is_loopback(address)}
    for one in registrations:
        others = [owner[address] for address in one.addresses if owner.get(address, one.name) != one.name]
        if others and listed.get(one.name or "") not in one.addresses:
            return f"{one.label} is {one.machine}: the order gives that address to {others[0]}"
    return None


def _counts(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    wrong = [one for one in registrations if one.nodes != len(roster)]
    if not wrong:
        return None
    return f"--nnodes={wrong[0].nodes} on {folded([one.label for one in wrong])}, but the order has {len(roster)} hosts"


def _slots(roster: Sequence[Host], registrations: Sequence[Registration]) -> str | None:
    told = [one for one in registrations if one.processes is not None]
    slots = {host.name: host.slots for host in roster}
    if set(slots.values()) == {1}:  # a list of names: it says nothing of slots
        if len({one.processes for one in told}) < 2:
            return None
        said = ", ".join(f"{one.processes} on {one.label}" for one in told[:_SHOWN])
        return f"--nproc-per-node differs and the order has no slots: {said}"
    wrong = [one for one in told if one.processes != slots[one.label]]
    if not wrong:
        return None
    said = "; ".join(f"{one.label} has slots={slots[one.label]}, not {one.processes}" for one in wrong[:_SHOWN])
    return f"--nproc-per-node is not what the order's hosts have: {said}"
