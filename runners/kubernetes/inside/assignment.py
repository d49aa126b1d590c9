"""Assignment of ranks to a pod by the node that it is on.

Runs in pods: standard library only.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from plink.transport.addresses import local_addresses
from runners.job.rank_environment import interface_environment, rank_environment
from runners.kubernetes.inside.rendezvous import name_some

MARK = "plink-rank "
NODE, POD = "PLINK_NODE", "PLINK_POD"


class RankLayout:
    """Nodes and their ranks, with the attributes that :func:`runners.job.rank_environment.rank_environment` reads."""

    class _Node:
        def __init__(self, slots: int) -> None:
            self.slots = slots

    class _Assignment:
        def __init__(self, rank: int, local_rank: int) -> None:
            self.rank, self.local_rank, self.hub = rank, local_rank, None

    def __init__(self, slots: list[int]) -> None:
        self.members = [self._Node(count) for count in slots]
        self._first = [sum(slots[:group]) for group in range(len(slots))]

    def __iter__(self) -> Any:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def ranks(self, group: int) -> list[int]:
        """Return the ranks of one node."""
        return [self._first[group] + local for local in range(self.members[group].slots)]

    def environment(self, group: int, rank: int, master: dict[str, Any], interface: str) -> dict[str, str]:
        """Return what that rank's environment gets."""
        assignment: Any = self._Assignment(rank, rank - self._first[group])
        nodes: Any = self
        env = {**rank_environment(assignment, group, nodes, master), **interface_environment(interface)}
        # The operator may number pods in its own way; torchrun, when that is the program, would follow it.
        operator_env = {"PET_NODE_RANK": env["GROUP_RANK"], "PET_MASTER_ADDR": env["MASTER_ADDR"],
                        "PET_MASTER_PORT": env["MASTER_PORT"], "PET_NNODES": env["GROUP_WORLD_SIZE"]}  # fmt: skip
        return {**env, **{name: value for name, value in operator_env.items() if name in os.environ}}


def find_group(nodes: list[str]) -> tuple[int | None, dict[str, Any]]:
    """Return (index of this pod's node in the order, name of the node and of the pod); None: it is not in the order."""
    node = os.environ.get(NODE, "")
    identity = {"node": node, "pod": os.environ.get(POD, socket.gethostname())}
    return (nodes.index(node) if node in nodes else None), identity


def unexpected_node(node: str, nodes: list[str]) -> str:
    """Return why a pod on that node has no rank."""
    subject = f"is on the node {node}, which" if node else f"does not know its node ({NODE} is not set), which"
    return f"this pod {subject} is not one of the job's nodes ({name_some(nodes)})"


def report_rank(rank: int, host: str, identity: dict[str, Any], pid: int) -> None:
    """Write one rank's location to standard output, one line in one write, for placement verification."""
    report = {"rank": rank, "host": host, "node": identity["node"], "pod": identity["pod"],
              "hostname": socket.gethostname(), "addresses": local_addresses(), "pid": pid}  # fmt: skip
    os.write(1, (MARK + json.dumps(report) + "\n").encode())


def say(text: str) -> None:
    """Write a line to standard error."""
    os.write(2, f"plink: {text}\n".encode())


def say_placed(ranks: int, program: str) -> None:
    """Write that every rank of the job is on its node."""
    say(f"{ranks}/{ranks} ranks placed; starting {program}")
