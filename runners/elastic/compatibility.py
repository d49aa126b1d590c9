"""Check whether hosts can do a job together, by their first messages."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from plink import __version__
from plink.errors import PlinkError
from plink.model.consistency import check_optimisers, parse_rule
from plink.model.divergence import check_divergence
from plink.model.elastic.codec import VERSION
from plink.model.elastic.reports import OtherVersion
from plink.model.units import format_bytes
from plink.runtime.elastic.arrays.array_pool import MAX_POOLED_BYTES
from plink.runtime.elastic.partition.divergence import MAX_UNDO_COPIES
from solvers.elastic.member import Member
from solvers.elastic.settings import Settings
from solvers.elastic.start import start

_LAYOUT = {
    "tables": "tables",
    "shards": "shards",
    "batches": "mini-batches",
    "grains": "grains of a mini-batch",
    "optimisers": "tables with an optimiser",
}


def refuse(members: Sequence[Member], rule: str = "bsp", divergence: str = "") -> str | None:
    """Return why these hosts cannot do the job; None if they can.

    :raises UsageError: the program has optimisers, which the rule does not go with, or no floats to bound.
    """
    for member in members:
        if isinstance(member.hello, OtherVersion):
            return (
                f"{member.name} has plink {member.hello.plink} (protocol {member.hello.protocol}), here it is "
                f"{__version__} (protocol {VERSION}): install the same on all hosts"
            )
    first = members[0].program
    for other in members[1:]:
        for key, what in _LAYOUT.items():
            if getattr(other.program, key) != getattr(first, key):
                return (
                    f"{other.name} has other {what} than {members[0].name}: the program must be the same on all hosts "
                    f"(--sync copies it), and must not depend on the host"
                )
    check_optimisers(parse_rule(rule), first.optimisers)
    check_divergence(divergence, first.float_tables)
    return None


_UNDO_COPIES = 1  # of every vector that a step has changed: it, as it was before
_OPTIMISER_COPIES = 2  # of what a server has: the sum of a clock, and what optimisers make of it
_WORKER_COPIES = 5  # times the tables: given, added, on its way, read, and the program's own
_HELP_COPIES = 4  # with --rebalance: given and added for others, a result on its way, and one that arrives
_WORKER_ROW_BYTES = 11  # what a worker notes of every row


@dataclass(frozen=True)
class MemoryNeed:
    """Memory that one host needs, or several together, bytes. ``state``: certain. At most beside that: ``more`` for
    servers, ``workers`` for these, and ``pooled`` arrays."""

    state: float = 0.0
    more: float = 0.0
    workers: float = 0.0
    pooled: float = 0.0

    def __add__(self, other: "MemoryNeed") -> "MemoryNeed":
        return MemoryNeed(*(first + second for first, second in zip(astuple(self), astuple(other), strict=True)))

    @property
    def most(self) -> float:
        """Return the sum of all parts."""
        return self.state + self.more + self.workers + self.pooled


def memory_needs(members: Sequence[Member], settings: Settings) -> dict[int, MemoryNeed]:
    """Return what each host needs, by number, if the job begins with these. :raises UsageError: it cannot."""
    cluster = start(members, settings.partition_bytes, settings.shards, settings.thresholds).cluster
    shards = Counter(shard.owner for shard in cluster.shards)
    workers = {member.number: min(member.slots, shards[member.number]) for member in members}
    worker = (_WORKER_COPIES + _HELP_COPIES * settings.rebalance) * settings.bytes + _WORKER_ROW_BYTES * settings.rows
    needs = {number: MemoryNeed(workers=count * worker) for number, count in workers.items()}
    rule = parse_rule(settings.rule)
    copies = 1 + rule.sees_ahead
    waiting = sum(workers.values()) * (1 + rule.apart) + _OPTIMISER_COPIES * settings.optimisers
    for partition, size in zip(cluster.partitions, settings.partition_bytes, strict=True):
        pushes = partition.primary != partition.replica
        bounded = bool(settings.divergence) and pushes
        undo = MAX_UNDO_COPIES if bounded else _UNDO_COPIES
        needs[partition.primary] += MemoryNeed((copies + bounded) * size, (undo + waiting + pushes + bounded) * size)
        if pushes:
            needs[partition.replica] += MemoryNeed(copies * size, (_UNDO_COPIES + 1) * size)
    return {
        number: replace(need, pooled=min(MAX_POOLED_BYTES, need.more + need.workers)) for number, need in needs.items()
    }


@dataclass(frozen=True)
class _Pool:
    """Hosts that share one memory: as a rule one, on a machine of its own. ``needs``: of each."""

    members: tuple[Member, ...]
    needs: tuple[MemoryNeed, ...]

    @property
    def need(self) -> MemoryNeed:
        return sum(self.needs, MemoryNeed())

    @property
    def room(self) -> float:
        """Return the memory that is available: each host found what the others had not taken yet."""
        return min(float(member.program.memory or 0) for member in self.members)

    def have(self, members: Sequence[Member]) -> str:
        """Return the end of a sentence about the memory of some of them."""
        room = f"{format_bytes(self.room)} of memory"
        if len(self.members) == 1:
            return f"has {room}"
        return f"{'they' if len(members) == len(self.members) else _names(self.members)} have {room} together"

    @property
    def stateful(self) -> list[Member]:
        """Return those that have some of the state."""
        return [member for member, need in zip(self.members, self.needs, strict=True) if need.state]


def warning(subjects: Sequence[Member], members: Sequence[Member], settings: Settings) -> str | None:
    """Return a warning where some of these hosts may have too little memory in a job of ``members``, the worst case, or
    where others of these would certainly have; None where none may.

    :raises PlinkError: some of those that are judged cannot do without more than they have.
    """
    need = memory_needs(members, settings)
    pools = _pools(subjects, need)
    for pool in pools:
        if pool.need.state > pool.room:
            raise PlinkError(_refusal(pool))
    others = _pools([member for member in members if member not in subjects], need)
    short = [pool for pool in others if pool.need.state > pool.room]
    tight = [pool for pool in pools if pool.need.most > pool.room]
    texts = [f"memory will run short once they have come: {_refusal(pool)}" for pool in short[:1]]
    return "; ".join(texts + ([_warned(tight)] if tight else [])) or None


def _refusal(pool: _Pool) -> str:
    """Return the message about memory that is certainly too small."""
    stateful = pool.stateful
    reliable = stateful[0].reliable
    instead = "more reliable hosts" if reliable else "hosts with more memory"
    return (
        f"{_names(stateful)} would keep {format_bytes(pool.need.state)} of parameters, and "
        f"{pool.have(stateful)}: use smaller tables, or {instead if len(pool.members) == 1 else 'more machines'}"
    )


def _warned(tight: Sequence[_Pool]) -> str:
    worst = max(tight, key=lambda pool: pool.need.most / max(1.0, pool.room))
    need, others = worst.need, sum(len(pool.members) for pool in tight) - len(worst.members)
    also = f" (and so {others} more host{'s' * (others > 1)})" if others else ""
    sizes = {"parameters": need.state + need.more, "workers": need.workers}
    parts = ", ".join(f"{what} {format_bytes(size)}" for what, size in sizes.items() if size)
    return (
        f"memory may run short: {_names(worst.members)} may need up to {format_bytes(need.most)}{also} where the "
        f"program reads and adds to whole tables ({parts}), and {worst.have(worst.members)}; fewer slots=, "
        "smaller tables, or a program that touches fewer rows need less"
    )


def _pools(subjects: Sequence[Member], need: Mapping[int, MemoryNeed]) -> list[_Pool]:
    """Return the pools of hosts that know what they have."""
    together: dict[str | int, list[Member]] = {}
    for member in subjects:
        if member.program.memory is not None:
            together.setdefault(member.program.pool or member.number, []).append(member)
    return [_Pool(tuple(members), tuple(need[member.number] for member in members)) for members in together.values()]


def _names(members: Sequence[Member]) -> str:
    """Return the first names, and how many more."""
    names = [member.name for member in members]
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
