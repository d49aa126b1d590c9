"""A pod of ranks: finds its place in the order, meets the others, and starts its ranks when all are where they belong.

Runs in pods: standard library only.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from runners.job.execution_environment import workplace
from runners.kubernetes.inside.rendezvous import Bootstrap, RendezvousServer, address_towards, report_to
from runners.kubernetes.inside.ranks import REFUSED, Ranks
from runners.kubernetes.inside.assignment import Members, say, say_placed, seat, stray, tell

_STRAY_S = 10.0  # to tell the others why they need not wait


def main(
    bootstrap: dict[str, Any], nodes: list[str], slots: list[int], ask: dict[str, Any], env: dict[str, str]
) -> None:
    """Ends with the ranks' exit code, or with 125 where nothing was run.

    :param bootstrap: fields of :class:`Bootstrap`; the pod of index 0 in a Job listens, or that told so by PLINK_RENDEZVOUS_HOST.
    :param nodes: names, in rank order. :param slots: of each, ranks.
    :param ask: for :func:`runners.job.execution_environment.workplace`, without the program. :param env: given by the user.
    """
    rendezvous = Bootstrap(**bootstrap)
    group, who = seat(nodes)
    if group is None:
        why = stray(who["node"], nodes)
        say(f"{why}; nothing was run")
        report_to(rendezvous, {**who, "group": None, "problems": [why]}, _STRAY_S)
        sys.exit(REFUSED)
    meets = os.environ.get("PLINK_RENDEZVOUS_HOST", os.environ.get("JOB_COMPLETION_INDEX")) in ("0", "yes")
    here = RendezvousServer(nodes, rendezvous) if meets else None
    address = address_towards(rendezvous)
    if address is None:
        say(f"the name {rendezvous.host} does not resolve within {rendezvous.wait_s:.0f} s; nothing was run")
        sys.exit(REFUSED)
    port = ask["port"] if group == 0 else 0  # only there is the rendezvous served
    work = workplace({**ask, "program": sys.argv[1], "args": sys.argv[2:], "peers": [address], "port": port})
    report = {**who, "group": group, "address": work["address"], "port": work["port"],
              "versions": work["versions"], "problems": work["problems"]}  # fmt: skip
    answer = report_to(rendezvous, report, _STRAY_S if work["problems"] else rendezvous.wait_s)
    if here is not None:
        here.end()
    if work["problems"]:
        say(f"{who['node']}: {'; '.join(work['problems'])}; nothing was run")
        sys.exit(REFUSED)
    if "refused" in answer:
        say(f"{answer['refused']}; nothing was run")
        sys.exit(REFUSED)
    members = Members(slots)
    start = [
        (rank, work["argv"], work["workdir"],
         {**os.environ, **members.environment(group, rank, answer["master"], work["interface"]), **env})
        for rank in members.ranks(group)
    ]  # fmt: skip
    ranks = Ranks(start, label=len(start) > 1)
    for rank, pid in ranks.pids().items():
        tell(rank, nodes[group], who, pid)
    if here is not None:
        say_placed(sum(slots))
    sys.exit(ranks.run())
