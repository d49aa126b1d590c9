"""Which node of the order a pod is on, and with that which ranks are its own.

Runs in pods: standard library only.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from plink.remote.addresses import local_addresses
from runners.job.rank_environment import environment, interface_environment

MARK = "plink-rank "
NODE, POD = "PLINK_NODE", "PLINK_POD"


class Members:
    """The nodes of the order, as far as ranks are counted: what :func:`runners.job.rank_environment.environment` asks."""

    class _Node:
        def __init__(self, slots: int) -> None:
            self.slots = slots

    class _Seat:
        def __init__(self, rank: int, local_rank: int) -> None:
            self.rank, self.local_rank = rank, local_rank

    def __init__(self, slots: list[int]) -> None:
        self.members = [self._Node(number) for number in slots]
        self._first = [sum(slots[:group]) for group in range(len(slots))]

    def __iter__(self) -> Any:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def ranks(self, group: int) -> list[int]:
        """The ranks of one node."""
        return [self._first[group] + local for local in range(self.members[group].slots)]

    def environment(self, group: int, rank: int, master: dict[str, Any], interface: str) -> dict[str, str]:
        """What that rank is started with."""
        seat: Any = self._Seat(rank, rank - self._first[group])
        nodes: Any = self
        given = {**environment(seat, group, nodes, master), **interface_environment(interface)}
        # An operator of others may number pods in its own way; torchrun, when that is the program, would follow it.
        own = {"PET_NODE_RANK": given["GROUP_RANK"], "PET_MASTER_ADDR": given["MASTER_ADDR"],
               "PET_MASTER_PORT": given["MASTER_PORT"], "PET_NNODES": given["GROUP_WORLD_SIZE"]}  # fmt: skip
        return {**given, **{name: value for name, value in own.items() if name in os.environ}}


def seat(nodes: list[str]) -> tuple[int | None, dict[str, Any]]:
    """(place in the order of the node that this pod is on, who this pod is); place None: not in the order."""
    node = os.environ.get(NODE, "")
    who = {"node": node, "pod": os.environ.get(POD, socket.gethostname())}
    return (nodes.index(node) if node in nodes else None), who


def stray(node: str, nodes: list[str]) -> str:
    """Why a pod on that node has no rank."""
    some = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
    where = f"on the node {node}, which is not" if node else f"not told its node ({NODE}): it is not known to be"
    return f"this pod is {where} among those asked for ({some})"


def tell(rank: int, asked: str, who: dict[str, Any], pid: int) -> None:
    """The proof of one rank: a line on standard output, in one write."""
    report = {"rank": rank, "host": asked, "node": who["node"], "pod": who["pod"], "hostname": socket.gethostname(),
              "addresses": local_addresses(), "pid": pid}  # fmt: skip
    os.write(1, (MARK + json.dumps(report) + "\n").encode())


def say(text: str) -> None:
    """A line for people."""
    os.write(2, f"plink: {text}\n".encode())


def say_placed(ranks: int) -> None:
    """Every rank of the job is on its node."""
    say("the rank is where it was asked to be" if ranks == 1 else f"all {ranks} ranks are where they were asked to be")
