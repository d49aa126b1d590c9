"""Kubernetes (unverified): which node the pod of each index belongs on, ``index node`` a line, a pod a rank.

An Indexed Job numbers its pods and lets the scheduler put them anywhere, so the map has to be applied: pods that wait
behind a scheduling gate are given their node and released (docs/launchers.md; Kueue's ungater does the same).
"""

import re

from plink.errors import UsageError
from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from runners.hostfiles.format import Format

_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")  # RFC 1123


def _pod_index_map(hosts: Hosts, order: RankOrder) -> str:
    for host in hosts:
        if not _NODE.fullmatch(host.name):
            raise UsageError(
                f"--format kubernetes: {host.name} cannot be a node's name (lower-case letters, digits, '.', '-'): "
                f"write `NODE address={host.address}` in the hosts file"
            )
    names = [host.name for host in hosts for _ in range(host.slots)]
    return "".join(f"{index} {name}\n" for index, name in enumerate(names))


POD_INDEX_MAP = Format(
    "kubernetes",
    "Indexed Job: the node of each pod index",
    _pod_index_map,
    "see docs/launchers.md: gated pods are given the node of their index in {file}",
)
