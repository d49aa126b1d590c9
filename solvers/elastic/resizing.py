"""Tells the user when more workers do the work, or fewer, and that the steps stay the same (strong scaling).

What takes several barriers is one change: it is told when the last of them is over.
"""

from collections.abc import Mapping

from solvers.elastic.context import Context
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.data import worked_on
from solvers.elastic.state import ShardNumbers, WorkerAssignment


def sizes_of(workers: Mapping[int, WorkerAssignment]) -> tuple[int, int]:
    """Return the number of workers, and of hosts that have some."""
    return len(workers), len({worker.host for worker in workers.values()})


def reassigned(ctx: Context, clock: int) -> None:
    """Tell the user when the number of workers has changed, from this clock on."""
    state = ctx.state
    before, workers = state.sizes, state.rebalancing.workers
    if before is not None and not _is_stable(workers, state.cluster):
        return
    now = state.sizes = sizes_of(workers)
    if before is None or before == now:
        return
    who = f"{now[0]} worker{'s' * (now[0] != 1)} on {now[1]} host{'s' * (now[1] != 1)}"
    do, shards = "does" if now[0] == 1 else "do", len(state.cluster.shards)
    ctx.say(
        f"from clock {clock} on {who} {do} the work, before {before[0]} on {before[1]}; the global batch stays the "
        f"same: one mini-batch of each of the {shards} shards (strong scaling)"
    )


def _is_stable(workers: Mapping[int, WorkerAssignment], cluster: Cluster) -> bool:
    """Return whether no other barrier is due, but for hosts that are still loading."""
    have: dict[int, ShardNumbers] = {}
    for worker in workers.values():
        have[worker.host] = tuple(sorted((*have.get(worker.host, ()), *worker.shards)))
    due = any(shard.next_owner is not None and shard.next_owner not in cluster.joining for shard in cluster.shards)
    return not due and have == worked_on(cluster.shards)
