"""The state of an elastic job for a person or a program of theirs (`plink elastic status`)."""

from typing import Any

from plink.model.elastic.fields import UpdateCounts
from solvers.elastic import progress, replication, stragglers
from solvers.elastic.state import State


def status(state: State, now: float) -> dict[str, Any]:
    """Return what the job does, and each host."""
    if state.placement is None:
        return {"stage": None, "hosts": [], "clock": -1}
    last, wait = state.checkpointing.last, stragglers.waits(state, now)
    waits = wait and {
        "clock": wait.clock, "hosts": stragglers.names_of(state, wait), "seconds": round(wait.seconds, 1)
    }  # fmt: skip
    return {
        "stage": state.cluster.stage.value, "hosts": _hosts(state), "clock": state.clock,
        "consistent": state.cluster.consistent, "generation": state.cluster.generation,
        "controller": state.term,
        "checkpoint": None if last is None else last.clock, "waits": waits,
        "replication": replication.status(state), **progress.status(state.progress),
        "updates": sum((each.updates for each in state.traffic.counters.values()), UpdateCounts()).summary(),
    }  # fmt: skip


def _hosts(state: State) -> list[dict[str, Any]]:
    """Return what each host is and does, in the order in which they joined."""
    cluster, workers = state.cluster, state.rebalancing.workers.values()
    hosts = []
    for number, member in sorted(state.members.items()):
        counters = state.traffic.counters[number]
        phase = "leaving" if number in cluster.leaving else "joining" if number in cluster.joining else "there"
        replicas = [
            index
            for index, partition in enumerate(cluster.partitions)
            if partition.replica == number != partition.primary
        ]
        hosts.append(
            {
                "name": member.name,
                "number": number,
                "tier": member.tier,
                "state": phase,
                "serves": [index for index, partition in enumerate(cluster.partitions) if partition.primary == number],
                "replicas": replicas,
                "shards": sum(len(worker.shards) for worker in workers if worker.host == number),
                "sent": counters.sent,
                "received": counters.received,
                "price": member.price,
            }
        )
    return hosts
