"""A pod of ranks: finds its ranks, joins the rendezvous, and starts its ranks when every pod is on its node.

Runs in pods: standard library only.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from runners.job.execution_environment import resolve_execution
from runners.kubernetes.inside.ranks import (
    PodRanks,
    RankLayout,
    enlist,
    find_group,
    refuse,
    report_rank,
    say_placed,
)
from runners.kubernetes.inside.rendezvous import Bootstrap, RendezvousServer, resolve_server


def main(
    bootstrap: dict[str, Any], nodes: list[str], slots: list[int], request: dict[str, Any], env: dict[str, str]
) -> None:
    """Run the pod; it ends with the ranks' exit code, or with 125 where nothing was run.

    :param bootstrap: fields of :class:`Bootstrap`; the pod of index 0 in a Job listens, or the one that
        PLINK_RENDEZVOUS_HOST says.
    :param nodes: names, in rank order. :param slots: ranks of each.
    :param request: for :func:`runners.job.execution_environment.resolve_execution`, without the program.
    :param env: of the user.
    """
    rendezvous = Bootstrap(**bootstrap)
    identity = find_group(nodes, rendezvous)
    group = identity["group"]
    listens = os.environ.get("PLINK_RENDEZVOUS_HOST", os.environ.get("JOB_COMPLETION_INDEX")) in ("0", "yes")
    server = RendezvousServer(nodes, rendezvous) if listens else None
    address = resolve_server(rendezvous)
    if address is None:
        refuse(f"the name {rendezvous.host} does not resolve within {rendezvous.wait_s:.0f} s")
    port = request["port"] if group == 0 else 0  # only rank 0's pod serves the rendezvous
    program, *args = sys.argv[1:]
    execution = resolve_execution({**request, "program": program, "args": args, "peers": [address], "port": port})
    answer = enlist(rendezvous, identity, execution, server)
    layout = RankLayout(slots)
    commands = [
        (
            rank,
            execution["argv"],
            execution["workdir"],
            {**os.environ, **layout.environment(group, rank, answer["master"], execution["interface"]), **env},
        )
        for rank in layout.ranks(group)
    ]
    ranks = PodRanks(commands, label=len(commands) > 1)
    for rank, pid in ranks.pids().items():
        report_rank(rank, nodes[group], identity, pid)
    if server is not None:
        say_placed(sum(slots), program)
    sys.exit(ranks.run())
