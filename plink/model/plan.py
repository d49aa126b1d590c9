"""Plan of a job's start and aggregation (``plink.plan/1``).

An order of hosts, and for two-level aggregation the groups of ranks and the masters of each chunk; the schedule that
follows from them, and the environment that makes a library run the algorithm that was planned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from plink.model.schedule import Indices, Schedule
from plink.model.storage import write_document

SCHEMA = "plink.plan/1"

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Masters:
    """Ranks that aggregate each of C chunks in G groups.

    ``local_masters``, shape (C, G): the rank that does in each group; ``global_masters``, shape (C,): which of these
    does for all. ``weights``: what they are in proportion to (``sizes``, ``bandwidth``); ``group_weights``, G numbers,
    and ``rank_weights``, N numbers: these, empty where a file does not tell.
    """

    local_masters: Indices
    global_masters: Indices
    weights: str = "sizes"
    group_weights: tuple[float, ...] = ()
    rank_weights: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As it stands in a plan."""
        return {
            "weights": self.weights,
            "group_weights": list(self.group_weights),
            "rank_weights": list(self.rank_weights),
            "local": self.local_masters.tolist(),
            "global": self.global_masters.tolist(),
        }


@dataclass(frozen=True)
class Plan:
    """Plan of how a job of N ranks all-reduces ``size_bytes``.

    ``hosts`` stand in rank order, as in ``order``: the first takes ranks 0 to slots-1. ``options``: of the algorithm.
    ``groups``, of ranks, and ``masters`` are there for two-level aggregation. ``schedule`` None: too large for a file;
    it follows from the rest (:func:`solvers.planning.schedule_of`). ``chunks``: into how many of equal size
    the vector is cut, None where only that schedule would tell. ``environment``: what every process is started with.
    ``cost_us``, ``lower_bound`` and ``baseline`` (other ways to do the same) are microseconds by ``model``; ``network``
    is the fingerprint of the network it was made for, ``rate_gbps`` what a host in its middle sends, None where nobody
    measured it.
    """

    algo: str
    model: str
    size_bytes: float
    order: RankOrder
    hosts: Hosts
    chunks: int | None
    cost_us: float | None = None
    lower_bound: float | None = None
    baseline: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    groups: Groups | None = None
    masters: Masters | None = None
    schedule: Schedule | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    network: str | None = None
    rate_gbps: float | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """How many take part."""
        return sum(host.slots for host in self.hosts)

    def to_json(self) -> dict[str, Any]:
        """Return the document as written to disk."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "network": self.network,
            "rate_gbps": self.rate_gbps,
            "algo": self.algo,
            "options": dict(self.options),
            "model": self.model,
            "size_bytes": self.size_bytes,
            "cost_us": self.cost_us,
            "lower_bound": self.lower_bound,
            "baseline": dict(self.baseline),
            "order": self.order.to_json(),
            "hosts": [host.to_json() for host in self.hosts],
            **({} if self.hosts.lab is None else {"lab": self.hosts.lab}),
            "groups": None if self.groups is None else [list(group) for group in self.groups],
            "chunks": self.chunks,
            "masters": None if self.masters is None else self.masters.to_json(),
            "environment": dict(self.environment),
            "schedule": None if self.schedule is None else _schedule_to_json(self.schedule),
        }
        return document | self.details

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_document(path, self.to_json())


def _schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """Return the schedule without what its transfers wait for where that follows from the rounds: half of the bytes."""
    if schedule.after is not None:
        return schedule.to_json()
    no_dependencies = (np.zeros(len(schedule) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32))
    document = replace(schedule, after=no_dependencies).to_json()  # working out what they wait for would take seconds
    for row in document["transfers"]:
        del row["after"]
    return document
