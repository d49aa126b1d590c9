"""Environment variables of a rank.

Runs on hosts, too: standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plink.model.hosts import Hosts
    from runners.job.placement import RankAssignment


def rank_environment(assignment: RankAssignment, group: int, hosts: Hosts, master: dict[str, Any]) -> dict[str, str]:
    """Return the variables that torchrun sets for a rank (PyTorch's documentation, "torchrun").

    :param group: index of its host. :param master: ``address`` and ``port`` of the rendezvous, on rank 0's host.
    """
    slots = hosts.members[group].slots
    env = {
        "RANK": str(assignment.rank),
        "LOCAL_RANK": str(assignment.local_rank),
        "WORLD_SIZE": str(sum(host.slots for host in hosts)),
        "LOCAL_WORLD_SIZE": str(slots),
        "GROUP_RANK": str(group),
        "GROUP_WORLD_SIZE": str(sum(host.slots > 0 for host in hosts)),
        "MASTER_ADDR": master["address"],
        "MASTER_PORT": str(master["port"]),
        "PYTHONUNBUFFERED": "1",  # lines are shown when they are printed
        "PYTHONFAULTHANDLER": "1",  # a hung job is asked for its stacks by SIGABRT
    }
    if slots > 1:
        env["OMP_NUM_THREADS"] = "1"  # as torchrun does: ranks of one host would fight over its cores
    if assignment.hub is not None:
        env["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # torch warns of a store that ends with the job
    return env


def interface_environment(interface: str) -> dict[str, str]:
    """Return the variables that make Gloo and NCCL use an interface of this host (or several, ``eth0,eth1``)."""
    # "=": these very names, not every name that begins so.
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": "=" + interface}
