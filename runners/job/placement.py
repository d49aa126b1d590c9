"""Is every rank where it was asked to be? A pure comparison of what was asked with what the ranks reported."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plink.model.hosts import Hosts
from plink.remote.addresses import canonical


@dataclass(frozen=True)
class RankAssignment:
    """What was asked for: one rank on one host. ``machine`` is what is known of that host from elsewhere (the network
    file: host name and addresses), ``address`` the numeric address other hosts reach it at, as its kernel writes it;
    None when unknown."""

    rank: int
    local_rank: int
    host: str
    address: str | None
    machine: dict[str, Any] | None


@dataclass(frozen=True)
class RankLocation:
    """What one rank reported, and whether it is where it was asked to be."""

    rank: int
    host: str
    hostname: str
    addresses: tuple[str, ...]
    pid: int
    wrong: str | None

    def to_json(self) -> dict[str, Any]:
        """As it stands in ``plink.run/1``."""
        return {
            "rank": self.rank,
            "host": self.host,
            "hostname": self.hostname,
            "addresses": list(self.addresses),
            "pid": self.pid,
            "wrong": self.wrong,
        }


def seats(hosts: Hosts, machines: Mapping[str, dict[str, Any]]) -> list[RankAssignment]:
    """Ranks dealt to hosts in order, a host's slots in a block. ``machines``: what is known of hosts, by name."""
    found: list[RankAssignment] = []
    for host in hosts:
        for local_rank in range(host.slots):
            seat = RankAssignment(len(found), local_rank, host.name, canonical(host.address), machines.get(host.name))
            found.append(seat)
    return found


def verify(asked: list[RankAssignment], reports: Mapping[int, tuple[str | None, dict[str, Any]]]) -> list[RankLocation]:
    """Compare; ``reports`` holds, by rank, the host whose agent passed the report on (None: no agent of ours did, the
    rank's own machine has to show which it is) and the report itself.

    Every asked rank must be in ``reports``. A rank is wrong when it came from another host's agent, when the machine is
    not the one that was measured under this name, when it holds another host's address and not its own, or when two
    hosts of the list turn out to be one machine.
    """
    owner = {seat.address: seat.host for seat in asked if seat.address is not None}
    first_on: dict[tuple[str, ...], str] = {}
    locations = []
    for seat in asked:
        agent_host, report = reports[seat.rank]
        addresses = tuple(report["addresses"])
        wrong = None
        others = [owner[address] for address in addresses if owner.get(address, seat.host) != seat.host]
        known = (seat.machine or {}).get("addresses", [])
        if agent_host is None and not (known or seat.address in addresses or _same_name(report["hostname"], seat.host)):
            wrong = f"nothing shows that {report['hostname']} ({', '.join(addresses)}) is this host"
        elif agent_host not in (None, seat.host):
            wrong = f"started on {agent_host}"
        elif seat.machine and seat.machine["hostname"] != report["hostname"]:
            wrong = f"this name was measured on the machine {seat.machine['hostname']!r}"
        elif known and not set(known) & set(addresses):
            wrong = f"this name was measured at {', '.join(known)}"
        elif others and seat.address not in addresses:
            wrong = f"holds the address of {others[0]}"
        elif addresses and first_on.setdefault((report["hostname"], *addresses), seat.host) != seat.host:
            wrong = f"is the same machine as {first_on[(report['hostname'], *addresses)]}"
        locations.append(RankLocation(seat.rank, seat.host, report["hostname"], addresses, report["pid"], wrong))
    return locations


def _same_name(hostname: str, name: str) -> bool:
    return hostname.split(".")[0] == name.split(".")[0] != ""
