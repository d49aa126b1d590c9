"""Placement verification: is every rank on the host that it was assigned to? Pure comparisons."""

import re
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from plink.errors import PlinkError
from plink.model.document import UNSET
from plink.model.hosts import Hosts
from plink.model.run import RankEntry, RunFailure, RunRecord, VerifiedPlacement
from plink.transport.addresses import canonical

TIMED_OUT = 124  # as timeout(1) has it
_MAX_NAMED = 4
# "torch.distributed.DistStoreError: ...", as the traceback module writes it; PyTorch puts "[rank3]: " before it.
_EXCEPTION = re.compile(r"(?:\[rank\d+\]: )?(?P<text>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception)(?:: .*\S|$))")


def _exit_code(code: int) -> str:
    """Return an exit code, and the signal that it stands for."""
    try:
        return f"exit code {code} ({signal.Signals(code - 128).name})"
    except ValueError:
        return f"exit code {code}"


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
            hub=UNSET if self.hub is None else self.hub,
        )


class Located(Protocol):
    """Report of a process on where it runs."""

    @property
    def pid(self) -> int: ...
    @property
    def hostname(self) -> str: ...
    @property
    def addresses(self) -> Sequence[str]: ...


def assign_ranks(
    hosts: Hosts, identities: Mapping[str, dict[str, Any]], hubs: Sequence[str] = ()
) -> list[RankAssignment]:
    """Assign ranks to hosts in their order, a block of ranks for each host's slots, and then hub processes.

    :param identities: of hosts when they were measured, by name. :param hubs: as of :class:`runners.job.runner.Job`.
    """
    by_name = hosts.by_name()
    ranks = [(host, local_rank, None) for host in hosts for local_rank in range(host.slots)]
    processes = [*ranks, *((by_name[name], hubs[:k].count(name), k) for k, name in enumerate(hubs))]
    return [
        RankAssignment(rank, local_rank, host.name, canonical(host.address), identities.get(host.name), hub)
        for rank, (host, local_rank, hub) in enumerate(processes)
    ]


def verify_placement(
    assignments: Sequence[RankAssignment], reports: Mapping[int, tuple[str | None, Located]]
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
        addresses = tuple(report.addresses)
        problem = None
        other_owners = [owner[address] for address in addresses if owner.get(address, host) != host]
        measured = (assignment.identity or {}).get("addresses", [])
        is_identified = measured or assignment.address in addresses or _same_name(report.hostname, host)
        if agent_host is None and not is_identified:
            problem = f"nothing shows that {report.hostname} ({', '.join(addresses)}) is this host"
        elif agent_host not in (None, host):
            problem = f"started on {agent_host}"
        elif assignment.identity and assignment.identity["hostname"] != report.hostname:
            problem = f"this name was measured on the machine {assignment.identity['hostname']!r}"
        elif measured and not set(measured) & set(addresses):
            problem = f"this name was measured at {', '.join(measured)}"
        elif other_owners and assignment.address not in addresses:
            problem = f"has the address of {other_owners[0]}"
        elif addresses:
            first = first_on.setdefault((report.hostname, *addresses), assignment)
            meant = assignment.hub is not None and first.address == assignment.address  # a hub beside ranks
            if first.host != host and not meant:
                problem = f"is the same machine as {first.host}"
        locations.append(
            RankLocation(assignment.rank, host, report.hostname, addresses, report.pid, problem, assignment.hub)
        )
    return locations


def _same_name(hostname: str, name: str) -> bool:
    return hostname.split(".")[0] == name.split(".")[0] != ""


@dataclass(frozen=True)
class Failure:
    """The rank that failed first.

    :param rank: None, as ``host``: the launcher failed, and does not say which rank did.
    :param cause: root cause, where another one is known. :param hub: number of the hub process that failed, None for a
        rank. :param ended: ranks that had ended before, with exit code 0: others may have failed for their absence.
    """

    rank: int | None
    host: str | None
    code: int
    last_lines: tuple[str, ...]
    cause: str | None = None
    hub: int | None = None
    ended: tuple[int, ...] = ()

    @property
    def process(self) -> str:
        """Return what messages call the rank, or the hub process that failed."""
        return process_name(self.rank or 0, self.hub)

    @property
    def exception(self) -> str | None:
        """Return the last line of the last Python traceback, without a rank before it; None if there is none."""
        texts = [match["text"] for line in self.last_lines if (match := _EXCEPTION.match(line))]
        return texts[-1] if texts else None


def stated(locations: Sequence[RankLocation]) -> VerifiedPlacement:
    """Return where ranks are, as documents have it."""
    return VerifiedPlacement(
        held=not any(location.problem for location in locations),
        ranks=tuple(location.entry() for location in locations),
    )


@dataclass(frozen=True)
class RunResult:
    """How a job ended.

    :param locations: of all ranks, as they reported.
    :param seconds: from the opening of the start barrier to the last exit.
    :param timed_out: whether it was ended because it took longer than it may.
    :param exits: exit codes of the ranks that ended by themselves, by rank, where the runner knows them.
    """

    id: str
    exit_code: int
    locations: tuple[RankLocation, ...]
    seconds: float
    failure: Failure | None
    timed_out: bool = False
    exits: Mapping[int, int] = field(default_factory=dict)

    @property
    def reason(self) -> str | None:
        """Why the job failed, in a sentence; None when it did not."""
        failure = self.failure
        if failure is None:
            return None
        if failure.cause is not None:
            return failure.cause
        if failure.rank is None:
            return f"the launcher ended with exit code {failure.code}"
        if self.timed_out:
            return "the job ran longer than its --timeout, and was ended"
        text = f"{failure.process} on {failure.host} was the first to fail, with {_exit_code(failure.code)}"
        if failure.exception is not None:
            text += f": {failure.exception}"
        if failure.ended:
            more = f" and {len(failure.ended) - _MAX_NAMED} more" if len(failure.ended) > _MAX_NAMED else ""
            ranks = f"rank{'s' * (len(failure.ended) > 1)} {', '.join(map(str, failure.ended[:_MAX_NAMED]))}"
            text += f"; {ranks}{more} had ended before, with exit code 0"
        return text

    def record(self) -> RunRecord:
        """Return the document that is printed, and kept."""
        failure = self.failure
        return RunRecord(
            id=self.id,
            exit_code=self.exit_code,
            seconds=round(self.seconds, 3),
            proof=stated(self.locations),
            timed_out=self.timed_out,
            exits={str(rank): code for rank, code in sorted(self.exits.items())},
            failure=None
            if failure is None
            else RunFailure(
                rank=failure.rank,
                host=failure.host,
                hub=UNSET if failure.hub is None else failure.hub,
                code=failure.code,
                last_lines=failure.last_lines,
                cause=failure.cause,
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the document ``plink.run/1``."""
        return self.record().to_json()


def new_id() -> str:
    """Return a new name for a run."""
    return secrets.token_hex(4)


class PlacementError(PlinkError):
    """Ranks are not on the hosts that they were assigned to.

    :param consequence: what happened to the job; usually no program ran.
    :ivar result: the run that was stopped.
    """

    def __init__(self, locations: list[RankLocation], consequence: str = "nothing was run") -> None:
        misplaced = [location for location in locations if location.problem]
        first = misplaced[0]
        noun = "ranks" if all(location.hub is None for location in locations) else "ranks and hubs"
        super().__init__(
            f"wrong placement: {len(misplaced)} of {len(locations)} {noun} are not on their hosts "
            f"({first.process}, assigned to {first.host}, is on {first.hostname}: {first.problem}); {consequence}"
        )
        self.locations = locations
        self.result = RunResult(new_id(), self.exit_code, tuple(locations), 0.0, None)


def check_placement(locations: list[RankLocation]) -> list[RankLocation]:
    """Return the same locations if every rank is on its host.

    :raises PlacementError: when one is not.
    """
    if any(location.problem for location in locations):
        raise PlacementError(locations)
    return locations
