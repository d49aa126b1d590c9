"""Requests to the planner: how to train, on which hosts, and in which stages (``0-30x15,31-39x1``)."""

import itertools
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plink.errors import UsageError
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import Kind, ReduceMode
from solvers.costs.fabric import Fabric, TierLinks
from solvers.pipeline.thesis import NetworkLevel

BYTES_PER_S_OF_GBPS = 1e9 / 8
_STAGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?(?:x(\d{1,6}))?", re.ASCII)


@dataclass(frozen=True)
class StageRange:
    """The layers ``first`` to ``last`` on ``replicas`` workers."""

    first: int
    last: int
    replicas: int


@dataclass(frozen=True)
class JointRequest:
    """``kind`` None leaves 1f1b or data parallelism to the planner. ``depths`` None: what helps; ``noam``: the
    thesis's. ``model``: ``thesis`` for the stages of its dynamic programme, of hosts that nobody measured.
    ``accumulate``: minibatches that an update averages, of kinds that accumulate. ``memory``: bytes of each host,
    infinite where nobody says. ``compare``: also plan data parallelism, straight stages and other kinds, and price the
    given order. ``moves`` None: 60,000, fewer on more than 64 workers of an even network."""

    kind: Kind | None = None
    model: Literal["contention", "thesis"] = "contention"
    stages: tuple[StageRange, ...] | None = None
    depths: tuple[int, ...] | str | None = None
    accumulate: int = 1
    recompute: bool = False
    vertical_sync: bool = False
    reduce: ReduceMode = "wait"
    straight: bool = False
    all_workers: bool = False
    memory: tuple[float, ...] | None = None
    compare: bool = False
    seed: int = 0
    moves: int | None = None


@dataclass(frozen=True)
class MeasuredHosts:
    """The hosts of a network, in its order, as ``fabric`` has them. ``usable``: names of those that may be used; None:
    all. ``levels``: of hosts that nobody measured, innermost first; empty for others. ``by_slot``: the fabric has each
    slot by itself, under its host's name."""

    hosts: Hosts
    fabric: Fabric
    usable: frozenset[str] | None = None
    levels: tuple[NetworkLevel, ...] = ()
    by_slot: bool = False

    @classmethod
    def even(
        cls, hosts: Hosts, levels: tuple[NetworkLevel, ...], rtt_s: float = 0.0, by_slot: bool = False
    ) -> "MeasuredHosts":
        """Return hosts that nobody measured: the components of each level share its link with all outside.

        :param levels: over all slots; without ``by_slot`` the outermost one is that of hosts, whose slots exchange
            without a limit. :param rtt_s: seconds of a round trip between hosts.
        """
        names = [host.name for host in hosts for _ in range(host.slots if by_slot else 1)]
        count, linked, size = len(names), levels if by_slot else levels[-1:], 1
        tiers = []
        for inner, outer in itertools.pairwise(linked):
            size *= inner.components
            links = np.full(-(-count // size), outer.bandwidth / BYTES_PER_S_OF_GBPS)
            tiers.append(TierLinks(np.arange(count) // size, links, links))
        unlimited = TierLinks(np.zeros(count, dtype=np.intp), np.full(1, np.inf), np.full(1, np.inf))
        group, *outer_tiers = tiers or [unlimited]
        gbps = linked[0].bandwidth / BYTES_PER_S_OF_GBPS
        _, numbers = np.unique(names, return_inverse=True)
        apart = numbers[:, None] != numbers[None]
        rates = np.full(count, gbps)
        fabric = Fabric(
            tuple(names),
            rtt_s * 1e6 * apart,
            None,
            rates,
            rates,
            group.group_of,
            group.out_gbps,
            group.in_gbps,
            f"assumed: {gbps:g} Gbit/s a host, {'links of levels' if tiers else 'no shared links'}",
            outer_tiers=tuple(outer_tiers),
        )
        return cls(hosts, fabric, levels=levels, by_slot=by_slot)

    @property
    def workers(self) -> tuple[int, ...]:
        """Return the host, in the fabric, of each slot that may be used."""
        if self.by_slot:
            return tuple(range(len(self.fabric.names)))
        return tuple(number for number, host in enumerate(self.hosts) if self.may_use(host) for _ in range(host.slots))

    def may_use(self, host: Host) -> bool:
        """Whether a host may be used."""
        return self.usable is None or host.name in self.usable


def requested_stages(text: str, profile: ModelProfile, workers: int) -> tuple[StageRange, ...]:
    """Return the stages of a text.

    :raises UsageError: when they leave a layer out, have none, part layers that share a parameter, or take more
        replicas than there are workers.
    """
    stages: list[StageRange] = []
    layers = len(profile.layers)
    for part in text.split(","):
        matched = _STAGE.fullmatch(part.strip())
        if matched is None:
            raise UsageError(f"--stages {text[:60]}: expected stages like 0-30x15,31-39x1, got {part[:40]!r}")
        first = int(matched[1])
        stage = StageRange(first, int(matched[2] or first), int(matched[3] or 1))
        expected = stages[-1].last + 1 if stages else 0
        if stage.first != expected:
            raise UsageError(f"--stages: layer {expected} comes next, but {part.strip()} begins with {stage.first}")
        if stage.last < stage.first:
            raise UsageError(f"--stages: {part.strip()} ends before it begins")
        if stage.replicas < 1:
            raise UsageError(f"--stages: {part.strip()} has no replicas; each stage has one or more")
        if stage.last >= layers:
            raise UsageError(f"--stages: the profile has layers 0 to {layers - 1}, there is no layer {stage.last}")
        stages.append(stage)
    if stages[-1].last != layers - 1:
        raise UsageError(f"--stages leave out layers {stages[-1].last + 1} to {layers - 1}")
    if (total := sum(stage.replicas for stage in stages)) > workers:
        raise UsageError(f"--stages take {total} replicas, but there are {workers} workers")
    for first, last, parameter in profile.tied_spans():
        for stage in stages[1:]:
            if first < stage.first <= last:
                raise UsageError(
                    f"--stages: layers {first} and {last} share the parameter {parameter}, so they belong in one "
                    f"stage; a stage begins with layer {stage.first} between them"
                )
    return tuple(stages)
