"""Plan of a job's start and aggregation (``plink.plan/1``).

An order of hosts, and for two-level aggregation the groups of ranks and the masters of each chunk; the schedule that
follows from them, and the environment that makes a library run the algorithm that was planned.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta, field, to_builtins

from plink.errors import InputError
from plink.model.codec import decode, schema_name
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.hosts import Host, HostEntries, Hosts, hosts_of
from plink.model.order import RankOrder
from plink.model.schedule import Indices, Schedule, ScheduleFile
from plink.model.schedule_file import schedule_from
from plink.model.storage import STANDARD, JsonObject, name_of, parse_document, read_document, read_text
from plink.model.types import Count, Fingerprint, Name, NonNegative, Positive

Groups = tuple[tuple[int, ...], ...]
_Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(?!\n)$")]


class PlannedMasters(Part, frozen=True, kw_only=True, dict=True):
    """Who aggregates which chunk."""

    weights: str = "sizes"
    """What masters are in proportion to: sizes or bandwidth."""
    group_weights: tuple[NonNegative, ...] = ()
    """The weight of each group: its ranks, or Gbit/s to hosts outside."""
    rank_weights: tuple[NonNegative, ...] = ()
    """The weight of each rank: 1, or Gbit/s."""
    local_ranks: Annotated[list[Annotated[list[Count], Meta(min_length=1)]], Meta(min_length=1)] = field(name="local")
    """For each chunk the rank that aggregates it in each group, in the order of groups."""
    global_ranks: Annotated[list[Count], Meta(min_length=1)] = field(name="global")
    """For each chunk which of its local masters adds up the groups."""

    @cached_property
    def local_masters(self) -> Indices:
        """Ranks that aggregate each of C chunks in each of G groups, shape (C, G)."""
        return np.array(self.local_ranks, dtype=np.int32)

    @cached_property
    def global_masters(self) -> Indices:
        """Which of these does for all, shape (C,)."""
        return np.array(self.global_ranks, dtype=np.int32)


class Plan(Document, frozen=True, kw_only=True, tag="plink.plan/1", dict=True):
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
    baseline_us: dict[str, float | None] = field(name="baseline", default_factory=dict)
    """Costs of other ways to do the same, in microseconds; one that uses pairs which were not measured is left out."""
    order: RankOrder
    """The order of hosts, a plink.order/1 document."""
    host_entries: HostEntries = field(name="hosts")
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
    schedule_file: ScheduleFile | None = field(name="schedule", default=None)
    """The schedule, a plink.schedule/1 document whose transfers have rounds and leave out what they wait for, which
    follows; null above 100,000 transfers, when it follows from the rest of the plan."""

    @cached_property
    def hosts(self) -> Hosts:
        """Its hosts, in rank order."""
        members = (Host(**{"address": entry.name, **to_builtins(entry)}) for entry in self.host_entries)
        return Hosts(tuple(members), self.lab or None)

    @cached_property
    def schedule(self) -> Schedule | None:
        """The schedule; None: too large for a file (:func:`solvers.planning.schedule_of` makes it)."""
        return None if self.schedule_file is None else schedule_from(self.schedule_file, "schedule of the plan")

    @property
    def baseline(self) -> dict[str, float]:
        """Costs of other ways to do the same that are known, microseconds."""
        return {name: cost for name, cost in self.baseline_us.items() if cost is not None}

    @property
    def ranks(self) -> int:
        """How many take part."""
        return sum(host.slots for host in self.hosts)


PLAN = schema_name(Plan)
MAX_TRANSFERS = 100_000  # of a schedule that a plan's file holds: 8 MB


def plan_from_json(document: JsonObject, location: str) -> Plan:
    """Return a plan from its JSON document, anybody's; ``location`` names the file in errors.

    :raises InputError: naming the key that is wrong.
    """
    plan = decode(Plan, document, location)
    hosts = hosts_of(plan.host_entries, plan.lab, location)
    if tuple(hosts.names) != plan.order.hosts:
        raise InputError(f"{location}: hosts", "these are not the hosts of the order, in its order")
    _check_groups(plan.groups, plan.ranks, location)
    _check_masters(plan, location)
    if plan.schedule_file is not None:
        _check_schedule(schedule_from(plan.schedule_file, f"{location}: schedule"), plan, f"{location}: schedule")
    return plan


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


def _check_groups(groups: Groups | None, ranks: int, location: str) -> None:
    if groups is None:
        return
    members = [rank for group in groups for rank in group]
    # The number first: hosts may say that they have more ranks than there is memory for a list of.
    if len(members) != ranks or sorted(members) != list(range(ranks)):
        raise InputError(f"{location}: groups", f"every rank from 0 to {ranks - 1} belongs to exactly one group")


def _check_masters(plan: Plan, location: str) -> None:
    masters, groups, chunks = plan.masters, plan.groups, plan.chunks
    if (masters is None) != (groups is None):
        raise InputError(f"{location}: masters", "groups and masters go together: give both or null for both")
    if masters is None or groups is None:
        return
    key_location = f"{location}: masters"
    if chunks is None:
        raise InputError(f"{location}: chunks", "masters need the number of chunks")
    _check_length(masters.local_ranks, chunks, "for each chunk", f"{key_location}.local")
    _check_length(masters.global_ranks, chunks, "for each chunk", f"{key_location}.global")
    group_of = {rank: number for number, group in enumerate(groups) for rank in group}
    for c, (row, master) in enumerate(zip(masters.local_ranks, masters.global_ranks, strict=True)):
        _check_length(row, len(groups), "for each group", f"{key_location}.local[{c}]")
        for g, rank in enumerate(row):
            if group_of.get(rank) != g:
                raise InputError(f"{key_location}.local[{c}][{g}]", f"{str(rank)[:40]} is not a rank of group {g}")
        if master not in row:
            raise InputError(f"{key_location}.global[{c}]", f"{str(master)[:40]} is none of the chunk's local masters")
    if masters.group_weights:
        _check_length(masters.group_weights, len(groups), "for each group", f"{key_location}.group_weights")
    if masters.rank_weights:
        _check_length(masters.rank_weights, plan.ranks, "for each rank", f"{key_location}.rank_weights")


def _check_length(values: Sequence[object], number: int, unit: str, location: str) -> None:
    if len(values) != number:
        raise InputError(location, f"expected {number} entries, one {unit}; got {len(values)}")


def _check_schedule(schedule: Schedule, plan: Plan, location: str) -> None:
    for key, actual, expected in (("ranks", schedule.ranks, plan.ranks), ("chunks", schedule.chunks, plan.chunks)):
        if actual != expected:
            raise InputError(f"{location}: {key}", f"it has {actual}, the plan {expected}")
    if schedule.collective != "all-reduce":
        raise InputError(f"{location}: collective", f"{schedule.collective} was found, a plan is of an all-reduce")
