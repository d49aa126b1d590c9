"""Plan of a job's start and aggregation (``plink.plan/1``).

An order of hosts, and for two-level aggregation the groups of ranks and the masters of each chunk; the schedule that
follows from them, and the environment that makes a library run the algorithm that was planned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, field

from plink.errors import InputError
from plink.model.codec import decode, schema_name
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.hosts import HostEntries, Hosts, hosts_of
from plink.model.order import RankOrder, check_order
from plink.model.schedule import Indices, Schedule, ScheduleFile
from plink.model.schedule_file import schedule_from
from plink.model.storage import STANDARD, JsonObject, name_of, parse_document, read_document, read_text
from plink.model.types import Count, Fingerprint, Name, NonNegative, Positive

Groups = tuple[tuple[int, ...], ...]
_Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(?!\n)$")]


class PlannedMasters(Part, frozen=True, kw_only=True):
    """Who aggregates which chunk."""

    weights: str = "sizes"
    """What masters are in proportion to: sizes or bandwidth."""
    group_weights: tuple[NonNegative, ...] = ()
    """The weight of each group: its ranks, or Gbit/s to hosts outside."""
    rank_weights: tuple[NonNegative, ...] = ()
    """The weight of each rank: 1, or Gbit/s."""
    local_masters: Annotated[list[Annotated[list[Count], Meta(min_length=1)]], Meta(min_length=1)] = field(name="local")
    """For each chunk the rank that aggregates it in each group, in the order of groups."""
    global_masters: Annotated[list[Count], Meta(min_length=1)] = field(name="global")
    """For each chunk which of its local masters adds up the groups."""


class PlanFile(Document, frozen=True, kw_only=True, tag="plink.plan/1"):
    """How a job is started and aggregates.

    Written by `plink plan`. An order of hosts and, for two-level aggregation, groups of ranks and the masters of
    each chunk; the schedule that follows from them, and the environment of the job. Ranks, chunks and groups count
    from 0.
    """

    network: Fingerprint | None = None
    """Fingerprint of the network it was made for."""
    rate_gbps: Positive | None = None
    """What a host in the middle of its hosts sends and receives, in Gbit/s; null where nobody measured rates. Pieces
    and channels of the plink backend follow from it."""
    algo: Name
    """The collective's algorithm, like 2lha."""
    options: dict[str, int | bool] = field(default_factory=dict)
    """What the algorithm was told (--set), like {"base": 4}; defaults are left out."""
    model: Name
    """The cost model that costs are by, like contention."""
    size_bytes: Positive
    """Bytes that are reduced."""
    cost_us: float | None = None
    """What an all-reduce of that size costs, in microseconds; null when unknown."""
    least_time_us: NonNegative | Unset = UNSET
    """Least possible time of any all-reduce of that size on the measured links, microseconds; absent where rates are
    unknown."""
    limited_by: str | Unset = UNSET
    """The links that the least possible time rests on."""
    baseline: dict[str, float | None] = field(default_factory=dict)
    """Costs of other ways to do the same, in microseconds; one that uses pairs which were not measured is left out."""
    order: RankOrder
    """The order of hosts, a plink.order/1 document."""
    hosts: HostEntries
    """The hosts in rank order, as in a network file: the first takes ranks 0 to slots-1, the next those that follow."""
    lab: str | Unset = UNSET
    """The emulated lab that the hosts live in; absent for real hosts."""
    groups: Annotated[tuple[Annotated[tuple[Count, ...], Meta(min_length=1)], ...], Meta(min_length=1)] | None = None
    """The ranks of each group, every rank in one; null for algorithms without masters."""
    chunks: Annotated[int, Meta(ge=1, le=1048576)] | None = None
    """Into how many chunks of equal size the vector is cut; null when only the schedule tells and it is not held."""
    masters: PlannedMasters | None = None
    """Who aggregates which chunk; null for algorithms without masters."""
    environment: dict[_Variable, str] = field(default_factory=dict)
    """Variables that every process of the job is started with, so that the library named in algo runs that algorithm:
    NCCL_ALGO, OMPI_MCA_coll_tuned_...; empty where no library has to be told."""
    schedule: ScheduleFile | None = None
    """The schedule, a plink.schedule/1 document whose transfers have rounds and leave out what they wait for, which
    follows; null above 100,000 transfers, when it follows from the rest of the plan."""


PLAN = schema_name(PlanFile)
MAX_TRANSFERS = 100_000  # of a schedule that a plan's file holds: 8 MB


@dataclass(frozen=True)
class Masters:
    """Ranks that aggregate each of C chunks in G groups.

    ``local_masters``, shape (C, G): the rank that does in each group; ``global_masters``, shape (C,): which of these
    does for all. ``weights``: what they are in proportion to (``sizes``, ``bandwidth``,
    ``least-time``); ``group_weights``, G numbers, and ``rank_weights``, N numbers: these, empty where a file does not
    tell.
    """

    local_masters: Indices
    global_masters: Indices
    weights: str = "sizes"
    group_weights: tuple[float, ...] = ()
    rank_weights: tuple[float, ...] = ()

    def entry(self) -> PlannedMasters:
        """Return it as it stands in a plan."""
        return PlannedMasters(
            weights=self.weights,
            group_weights=self.group_weights,
            rank_weights=self.rank_weights,
            local_masters=self.local_masters.tolist(),
            global_masters=self.global_masters.tolist(),
        )


@dataclass(frozen=True)
class Plan:
    """Plan of how a job of N ranks all-reduces ``size_bytes``.

    ``hosts`` stand in rank order, as in ``order``: the first takes ranks 0 to slots-1. ``options``: of the algorithm.
    ``groups``, of ranks, and ``masters`` are there for two-level aggregation. ``schedule`` None: too large for a file;
    it follows from the rest (:func:`solvers.planning.schedule_of`). ``chunks``: into how many of equal size
    the vector is cut, None where only that schedule would tell. ``environment``: what every process is started with.
    ``limited_by``: the links that ``least_time_us`` rests on. That, ``cost_us`` and ``baseline`` (other ways to do the
    same) are microseconds by ``model``; ``network`` is the fingerprint of the network it was made for, ``rate_gbps``
    what a host in its middle sends, None where nobody measured it.
    """

    algo: str
    model: str
    size_bytes: float
    order: RankOrder
    hosts: Hosts
    chunks: int | None
    cost_us: float | None = None
    least_time_us: float | None = None
    baseline: Mapping[str, float] = dataclass_field(default_factory=dict)
    options: Mapping[str, Any] = dataclass_field(default_factory=dict)
    groups: Groups | None = None
    masters: Masters | None = None
    schedule: Schedule | None = None
    environment: Mapping[str, str] = dataclass_field(default_factory=dict)
    network: str | None = None
    rate_gbps: float | None = None
    limited_by: str | None = None

    @property
    def ranks(self) -> int:
        """How many take part."""
        return sum(host.slots for host in self.hosts)

    def file(self) -> PlanFile:
        """Return the document as written to disk."""
        return PlanFile(
            network=self.network,
            rate_gbps=self.rate_gbps,
            algo=self.algo,
            options=dict(self.options),
            model=self.model,
            size_bytes=self.size_bytes,
            cost_us=self.cost_us,
            least_time_us=UNSET if self.least_time_us is None else self.least_time_us,
            limited_by=UNSET if self.limited_by is None else self.limited_by,
            baseline=dict(self.baseline),
            order=self.order,
            hosts=self.hosts.entries(),
            lab=self.hosts.lab or UNSET,
            groups=self.groups,
            chunks=self.chunks,
            masters=None if self.masters is None else self.masters.entry(),
            environment=dict(self.environment),
            schedule=None if self.schedule is None else self.schedule.file(with_waits=False),
        )

    def to_json(self) -> JsonObject:
        """Return the document as JSON."""
        return self.file().to_json()

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        self.file().write(path)


def plan_from_json(document: JsonObject, location: str) -> Plan:
    """Return a plan from its JSON document, anybody's; ``location`` names the file in errors.

    :raises InputError: naming the key that is wrong.
    """
    file = decode(PlanFile, document, location)
    check_order(file.order, f"{location}: order")
    hosts = hosts_of(file.hosts, file.lab, location)
    if tuple(hosts.names) != file.order.hosts:
        raise InputError(f"{location}: hosts", "these are not the hosts of the order, in its order")
    ranks = sum(host.slots for host in hosts)
    groups = _groups(file.groups, ranks, location)
    return Plan(
        algo=file.algo,
        model=file.model,
        size_bytes=file.size_bytes,
        order=file.order,
        hosts=hosts,
        chunks=file.chunks,
        cost_us=file.cost_us,
        least_time_us=file.least_time_us or None,
        limited_by=file.limited_by or None,
        baseline={key: cost for key, cost in file.baseline.items() if cost is not None},
        options=file.options,
        groups=groups,
        masters=_masters(file.masters, groups, file.chunks, ranks, location),
        schedule=_schedule(file.schedule, ranks, file.chunks, location),
        environment=file.environment,
        network=file.network,
        rate_gbps=file.rate_gbps,
    )


def read_plan(path: str | Path) -> Plan:
    """Return a plan from a file (``-``: standard input, ``.gz``: compressed).

    :raises InputError: as :func:`plan_from_json`, and when the file cannot be read.
    """
    return plan_from_json(read_document(path), name_of(path))


def is_plan(path: str | Path) -> bool:
    """Return whether the file is a plan; standard input, which can be read only once, never is.

    :raises InputError: when the file cannot be read, or looks like JSON and is none.
    """
    if str(path) == STANDARD:
        return False
    location, text = name_of(path), read_text(path)
    looks_like_json = location.endswith((".json", ".json.gz")) or text.lstrip().startswith("{")
    return looks_like_json and parse_document(text, location).get("schema") == PLAN


def _groups(groups: Groups | None, ranks: int, location: str) -> Groups | None:
    if groups is None:
        return None
    members = [rank for group in groups for rank in group]
    # The number first: hosts may say that they have more ranks than there is memory for a list of.
    if len(members) != ranks or sorted(members) != list(range(ranks)):
        raise InputError(f"{location}: groups", f"every rank from 0 to {ranks - 1} belongs to exactly one group")
    return groups


def _masters(
    masters: PlannedMasters | None, groups: Groups | None, chunks: int | None, ranks: int, location: str
) -> Masters | None:
    if (masters is None) != (groups is None):
        raise InputError(f"{location}: masters", "groups and masters go together: give both or null for both")
    if masters is None or groups is None:
        return None
    key_location = f"{location}: masters"
    if chunks is None:
        raise InputError(f"{location}: chunks", "masters need the number of chunks")
    _check_length(masters.local_masters, chunks, "for each chunk", f"{key_location}.local")
    _check_length(masters.global_masters, chunks, "for each chunk", f"{key_location}.global")
    group_of = {rank: number for number, group in enumerate(groups) for rank in group}
    for c, (row, master) in enumerate(zip(masters.local_masters, masters.global_masters, strict=True)):
        _check_length(row, len(groups), "for each group", f"{key_location}.local[{c}]")
        for g, rank in enumerate(row):
            if group_of.get(rank) != g:
                raise InputError(f"{key_location}.local[{c}][{g}]", f"{str(rank)[:40]} is not a rank of group {g}")
        if master not in row:
            raise InputError(f"{key_location}.global[{c}]", f"{str(master)[:40]} is none of the chunk's local masters")
    if masters.group_weights:
        _check_length(masters.group_weights, len(groups), "for each group", f"{key_location}.group_weights")
    if masters.rank_weights:
        _check_length(masters.rank_weights, ranks, "for each rank", f"{key_location}.rank_weights")
    return Masters(
        np.array(masters.local_masters, dtype=np.int32),
        np.array(masters.global_masters, dtype=np.int32),
        masters.weights,
        masters.group_weights,
        masters.rank_weights,
    )


def _check_length(values: Sequence[object], number: int, unit: str, location: str) -> None:
    if len(values) != number:
        raise InputError(location, f"expected {number} entries, one {unit}; got {len(values)}")


def _schedule(file: ScheduleFile | None, ranks: int, chunks: int | None, location: str) -> Schedule | None:
    if file is None:
        return None
    key_location = f"{location}: schedule"
    schedule = schedule_from(file, key_location)
    for key, actual, expected in (("ranks", schedule.ranks, ranks), ("chunks", schedule.chunks, chunks)):
        if actual != expected:
            raise InputError(f"{key_location}: {key}", f"it has {actual}, the plan {expected}")
    if schedule.collective != "all-reduce":
        raise InputError(f"{key_location}: collective", f"{schedule.collective} was found, a plan is of an all-reduce")
    return schedule
