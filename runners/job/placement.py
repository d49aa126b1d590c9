"""Placement verification: is every rank on the host that it was assigned to? Pure comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plink.model.hosts import Hosts
from plink.model.run import RankEntry
from plink.transport.addresses import canonical


def process_name(rank: int, hub: int | None) -> str:
    """Return ``rank 3``, or ``hub-0`` where it is a hub process."""
    return f"rank {rank}" if hub is None else f"hub-{hub}"


@dataclass(frozen=True)
class RankAssignment:
    """One rank, or hub process, and the host that it is assigned to.

    :param rank: hub processes have the numbers after those of all ranks.
    :param address: numeric, at which other hosts reach that host, as its kernel writes it; None if unknown.
    :param identity: of the host when it was measured (the network file: host name and addresses); None if unknown.
    """

    rank: int
    local_rank: int
    host: str
    address: str | None
    identity: dict[str, Any] | None
    hub: int | None = None

    @property
    def process(self) -> str:
        """Return what messages call it: ``rank 3`` or ``hub-0``."""
        return process_name(self.rank, self.hub)


@dataclass(frozen=True)
class RankLocation:
    """Where one rank runs, as it reported.

    :param host: that it was assigned to.
    :param problem: why it is not on that host; None if it is.
    """

    rank: int
    host: str
    hostname: str
    addresses: tuple[str, ...]
    pid: int
    problem: str | None
    hub: int | None = None

    @property
    def process(self) -> str:
        """Return what messages call it: ``rank 3`` or ``hub-0``."""
        return process_name(self.rank, self.hub)

    def entry(self) -> RankEntry:
        """Return it as an entry of ``plink.run/1``."""
        return RankEntry(
            rank=self.rank,
            host=self.host,
            hostname=self.hostname,
            addresses=self.addresses,
            pid=self.pid,
            wrong=self.problem,
        )


def assign_ranks(
    hosts: Hosts, identities: Mapping[str, dict[str, Any]], hubs: Sequence[str] = ()
) -> list[RankAssignment]:
    """Assign ranks to hosts in their order, a block of ranks for each host's slots, and then hub processes.

    :param identities: of hosts when they were measured, by name. :param hubs: as of :class:`runners.job.job.Job`.
    """
    by_name = hosts.by_name()
    ranks = [(host, local_rank, None) for host in hosts for local_rank in range(host.slots)]
    processes = [*ranks, *((by_name[name], hubs[:k].count(name), k) for k, name in enumerate(hubs))]
    return [
        RankAssignment(rank, local_rank, host.name, canonical(host.address), identities.get(host.name), hub)
        for rank, (host, local_rank, hub) in enumerate(processes)
    ]


def verify_placement(
    assignments: list[RankAssignment], reports: Mapping[int, tuple[str | None, dict[str, Any]]]
) -> list[RankLocation]:
    """Compare reports of ranks with their assignments.

    A rank is misplaced when its report came from another host's agent, when its host is not the one that was measured
    under this name, when it has another host's address and not its own, or when two hosts turn out to be the same.

    :param reports: for every rank the host whose agent sent the report (None: no agent of plink's; the report then has
        to show which host it is) and the report.
    """
    owner = {assignment.address: assignment.host for assignment in assignments if assignment.address is not None}
    first_on: dict[tuple[str, ...], RankAssignment] = {}
    locations = []
    for assignment in assignments:
        host, (agent_host, report) = assignment.host, reports[assignment.rank]
        addresses = tuple(report["addresses"])
        problem = None
        other_owners = [owner[address] for address in addresses if owner.get(address, host) != host]
        measured = (assignment.identity or {}).get("addresses", [])
        is_identified = measured or assignment.address in addresses or _same_name(report["hostname"], host)
        if agent_host is None and not is_identified:
            problem = f"nothing shows that {report['hostname']} ({', '.join(addresses)}) is this host"
        elif agent_host not in (None, host):
            problem = f"started on {agent_host}"
        elif assignment.identity and assignment.identity["hostname"] != report["hostname"]:
            problem = f"this name was measured on the machine {assignment.identity['hostname']!r}"
        elif measured and not set(measured) & set(addresses):
            problem = f"this name was measured at {', '.join(measured)}"
        elif other_owners and assignment.address not in addresses:
            problem = f"has the address of {other_owners[0]}"
        elif addresses:
            first = first_on.setdefault((report["hostname"], *addresses), assignment)
            meant = assignment.hub is not None and first.address == assignment.address  # a hub beside ranks
            if first.host != host and not meant:
                problem = f"is the same machine as {first.host}"
        locations.append(
            RankLocation(assignment.rank, host, report["hostname"], addresses, report["pid"], problem, assignment.hub)
        )
    return locations


def _same_name(hostname: str, name: str) -> bool:
    return hostname.split(".")[0] == name.split(".")[0] != ""
