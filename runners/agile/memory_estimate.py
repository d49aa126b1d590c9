"""What an elastic job takes of its hosts' memory.

*Certain* is what servers and replicas keep of every vector: itself, and with staleness what is ahead of it. What is
needed *at most*, by a program that reads and adds to whole tables at every clock, comes on top: at servers and replicas
all vectors as they were before the last step; at a server all workers' updates that wait for the first one's, what
optimisers make of them, and a push on its way, with ``--divergence`` what replicas have, what they may have, and the
way back to it; at every worker what it was given, what it adds, and a copy of the tables that is on its way, one that
was read, and one in the program's hands; and arrays that are kept to be used again.

Peaks of nodes in such a job, in sizes of the tables (300 MB): a replica alone 3.3, a worker alone 5.1, one with a
server that pushes 8.8. A program that touches few rows, but all over the tables, still takes 2 for a worker: the system
gives 2 MB at a time.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from plink.model.consistency import parse_rule
from plink.runtime.agileml.arrays.array_pool import MAX_POOLED_BYTES
from plink.runtime.agileml.partition.divergence import MAX_UNDO_COPIES
from solvers.elastic.member import Member
from solvers.elastic.placement.start import start
from solvers.elastic.settings import Settings

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
    hosts = [member.host for member in members]
    state, _ = start(hosts, settings.partition_bytes, settings.shards, settings.thresholds)
    shards = Counter(shard.owner for shard in state.shards)
    workers = {member.number: min(member.slots, shards[member.number]) for member in members}
    worker = (_WORKER_COPIES + _HELP_COPIES * settings.rebalance) * settings.bytes + _WORKER_ROW_BYTES * settings.rows
    needs = {number: MemoryNeed(workers=count * worker) for number, count in workers.items()}
    rule = parse_rule(settings.rule)
    copies = 1 + rule.sees_ahead
    waiting = sum(workers.values()) * (1 + rule.apart) + _OPTIMISER_COPIES * settings.optimisers
    for partition, size in zip(state.partitions, settings.partition_bytes, strict=True):
        pushes = partition.primary != partition.replica
        bounded = bool(settings.divergence) and pushes
        undo = MAX_UNDO_COPIES if bounded else _UNDO_COPIES
        needs[partition.primary] += MemoryNeed((copies + bounded) * size, (undo + waiting + pushes + bounded) * size)
        if pushes:
            needs[partition.replica] += MemoryNeed(copies * size, (_UNDO_COPIES + 1) * size)
    return {
        number: replace(need, pooled=min(MAX_POOLED_BYTES, need.more + need.workers)) for number, need in needs.items()
    }
