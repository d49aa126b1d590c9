"""Files of plans (``plink.plan/1``); every key is validated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from plink.documents.codec import decode, undeclared
from plink.documents.network import HostEntry
from plink.documents.schedule import ScheduleDocument
from plink.documents.types import Count, Fingerprint, Name, Positive
from plink.errors import InputError
from plink.model.hosts import hosts_from_json
from plink.model.order import RankOrder, order_from_json
from plink.model.plan import SCHEMA, Groups, Masters, Plan
from plink.model.schedule import Schedule
from plink.model.schedule_file import schedule_from_json
from plink.model.storage import STANDARD, name_of, parse_document, read_document, read_text

MastersEntry = TypedDict(
    "MastersEntry",
    {
        "weights": NotRequired[
            Annotated[str, Meta(description="What masters are in proportion to: sizes or bandwidth.")]
        ],
        "group_weights": NotRequired[
            Annotated[
                list[Positive], Meta(description="The weight of each group: its ranks, or Gbit/s to hosts outside.")
            ]
        ],
        "rank_weights": NotRequired[
            Annotated[list[Positive], Meta(description="The weight of each rank: 1, or Gbit/s.")]
        ],
        "local": Annotated[
            Annotated[list[Annotated[list[Count], Meta(min_length=1)]], Meta(min_length=1)],
            Meta(description="For each chunk the rank that aggregates it in each group, in the order of groups."),
        ],
        "global": Annotated[
            Annotated[list[Count], Meta(min_length=1)],
            Meta(description="For each chunk which of its local masters adds up the groups."),
        ],
    },
)


class PlanDocument(TypedDict):
    """How a job is started and aggregates.

    Written by `plink plan`. An order of hosts and, for two-level aggregation, groups of ranks and the masters of
    each chunk; the schedule that follows from them, and the environment of the job. Ranks, chunks and groups count
    from 0.
    """

    schema: Literal["plink.plan/1"]
    """Kind and version of this file."""
    network: NotRequired[Fingerprint | None]
    """Fingerprint of the network it was made for."""
    rate_gbps: NotRequired[Positive | None]
    """What a host in the middle of its hosts sends and receives, in Gbit/s; null where nobody measured rates. Pieces
    and channels of the plink backend follow from it."""
    algo: Name
    """The collective's algorithm, like 2lha."""
    options: NotRequired[dict[str, int | bool]]
    """What the algorithm was told (--set), like {"base": 4}; defaults are left out."""
    model: Name
    """The cost model that costs are by, like contention."""
    size_bytes: Positive
    """Bytes that are reduced."""
    cost_us: NotRequired[float | None]
    """What an all-reduce of that size costs, in microseconds; null when unknown."""
    lower_bound: NotRequired[float | None]
    """No plan costs less, in microseconds; null when no bound is known."""
    baseline: NotRequired[dict[str, float | None]]
    """Costs of other ways to do the same, in microseconds; one that uses pairs which were not measured is left out."""
    order: RankOrder
    """The order of hosts, a plink.order/1 document."""
    hosts: Annotated[list[HostEntry], Meta(min_length=1)]
    """The hosts in rank order, as in a network file: the first takes ranks 0 to slots-1, the next those that follow."""
    lab: NotRequired[str]
    """The emulated lab that the hosts live in; absent for real hosts."""
    groups: NotRequired[Annotated[list[Annotated[list[Count], Meta(min_length=1)]], Meta(min_length=1)] | None]
    """The ranks of each group, every rank in one; null for algorithms without masters."""
    chunks: NotRequired[Annotated[int, Meta(ge=1, le=1048576)] | None]
    """Into how many chunks of equal size the vector is cut; null when only the schedule tells and it is not held."""
    masters: NotRequired[MastersEntry | None]
    """Who aggregates which chunk; null for algorithms without masters."""
    environment: NotRequired[dict[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(?!\n)$")], str]]
    """Variables that every process of the job is started with, so that the library named in algo runs that algorithm:
    NCCL_ALGO, OMPI_MCA_coll_tuned_...; empty where no library has to be told."""
    schedule: NotRequired[ScheduleDocument | None]
    """The schedule, a plink.schedule/1 document whose transfers have rounds and leave out what they wait for, which
    follows; null above 100,000 transfers, when it follows from the rest of the plan."""


def plan_from_json(document: dict[str, Any], location: str) -> Plan:
    """Return a plan from its JSON document, anybody's; ``location`` names the file in errors.

    :raises InputError: naming the key that is wrong.
    """
    checked = decode(PlanDocument, document, location)
    order = order_from_json(document["order"], f"{location}: order")
    hosts = hosts_from_json(checked["hosts"], checked.get("lab"), location)
    if tuple(hosts.names) != order.hosts:
        raise InputError(f"{location}: hosts", "these are not the hosts of the order, in its order")
    ranks = sum(host.slots for host in hosts)
    chunks = checked.get("chunks")
    groups = _groups(checked.get("groups"), ranks, location)
    return Plan(
        algo=checked["algo"],
        model=checked["model"],
        size_bytes=checked["size_bytes"],
        order=order,
        hosts=hosts,
        chunks=chunks,
        cost_us=checked.get("cost_us"),
        lower_bound=checked.get("lower_bound"),
        baseline={key: cost for key, cost in checked.get("baseline", {}).items() if cost is not None},
        options=checked.get("options", {}),
        groups=groups,
        masters=_masters(checked.get("masters"), groups, chunks, ranks, location),
        schedule=_schedule(document.get("schedule"), ranks, chunks, location),
        environment=checked.get("environment", {}),
        network=checked.get("network"),
        rate_gbps=checked.get("rate_gbps"),
        details=undeclared(PlanDocument, document),
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
    return looks_like_json and parse_document(text, location).get("schema") == SCHEMA


def _groups(groups: list[list[int]] | None, ranks: int, location: str) -> Groups | None:
    if groups is None:
        return None
    members = [rank for group in groups for rank in group]
    # The number first: hosts may say that they have more ranks than there is memory for a list of.
    if len(members) != ranks or sorted(members) != list(range(ranks)):
        raise InputError(f"{location}: groups", f"every rank from 0 to {ranks - 1} belongs to exactly one group")
    return tuple(map(tuple, groups))


def _masters(
    masters: MastersEntry | None, groups: Groups | None, chunks: int | None, ranks: int, location: str
) -> Masters | None:
    if (masters is None) != (groups is None):
        raise InputError(f"{location}: masters", "groups and masters go together: give both or null for both")
    if masters is None or groups is None:
        return None
    key_location = f"{location}: masters"
    if chunks is None:
        raise InputError(f"{location}: chunks", "masters need the number of chunks")
    _check_length(masters["local"], chunks, "for each chunk", f"{key_location}.local")
    _check_length(masters["global"], chunks, "for each chunk", f"{key_location}.global")
    group_of = {rank: number for number, group in enumerate(groups) for rank in group}
    for c, (row, master) in enumerate(zip(masters["local"], masters["global"], strict=True)):
        _check_length(row, len(groups), "for each group", f"{key_location}.local[{c}]")
        for g, rank in enumerate(row):
            if group_of.get(rank) != g:
                raise InputError(f"{key_location}.local[{c}][{g}]", f"{str(rank)[:40]} is not a rank of group {g}")
        if master not in row:
            raise InputError(f"{key_location}.global[{c}]", f"{str(master)[:40]} is none of the chunk's local masters")
    group_weights, rank_weights = masters.get("group_weights", []), masters.get("rank_weights", [])
    if group_weights:
        _check_length(group_weights, len(groups), "for each group", f"{key_location}.group_weights")
    if rank_weights:
        _check_length(rank_weights, ranks, "for each rank", f"{key_location}.rank_weights")
    return Masters(
        np.array(masters["local"], dtype=np.int32),
        np.array(masters["global"], dtype=np.int32),
        masters.get("weights", "sizes"),
        tuple(group_weights),
        tuple(rank_weights),
    )


def _check_length(values: Sequence[object], number: int, unit: str, location: str) -> None:
    if len(values) != number:
        raise InputError(location, f"expected {number} entries, one {unit}; got {len(values)}")


def _schedule(value: Any, ranks: int, chunks: int | None, location: str) -> Schedule | None:
    if value is None:
        return None
    key_location = f"{location}: schedule"
    schedule = schedule_from_json(value, key_location)
    for key, actual, expected in (("ranks", schedule.ranks, ranks), ("chunks", schedule.chunks, chunks)):
        if actual != expected:
            raise InputError(f"{key_location}: {key}", f"it has {actual}, the plan {expected}")
    if schedule.collective != "all-reduce":
        raise InputError(f"{key_location}: collective", f"{schedule.collective} was found, a plan is of an all-reduce")
    return schedule
