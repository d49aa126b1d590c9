"""The placement of a job: its hosts, who serves which partition, and who works on which shard."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from solvers.elastic.member import Member
from solvers.elastic.placement.data import Shards
from solvers.elastic.placement.partitions import PartitionPlacement, serving, share_rack
from solvers.elastic.placement.stages import Stage, Thresholds, stage_for


@dataclass(frozen=True)
class Cluster:
    """State of a job's placement. Hosts by their number everywhere.

    ``hosts``: members, who has been running longest first. ``joining``: transient members that have not loaded their
    share yet, with the number of their group, which takes over together. ``leaving``: members that were warned.
    ``number``: the last of those that terms, tickets and generations take, so that the larger one is the later one
    whatever it counts; ``generation``: of the last roll-back. ``newest``: the last host's number. ``consistent``: the
    clock that all replicas have, -1: none yet. ``released``: warned members that were told that they may go.
    ``halted``: state was lost, nothing changes any more. ``speeds``: of a slot of each host, as measured, where shares
    go by them; else empty.
    """

    hosts: tuple[Member, ...]
    partition_bytes: tuple[float, ...]
    thresholds: Thresholds
    stage: Stage
    partitions: tuple[PartitionPlacement, ...]
    shards: Shards
    joining: Mapping[int, int] = field(default_factory=dict)
    leaving: frozenset[int] = frozenset()
    number: int = 0
    newest: int = -1
    generation: int = 0
    consistent: int = -1
    released: frozenset[int] = frozenset()
    halted: bool = False
    speeds: Mapping[int, int] = field(default_factory=dict)

    @property
    def members(self) -> dict[int, Member]:
        """Return hosts by their number."""
        return {host.number: host for host in self.hosts}

    @property
    def staying(self) -> tuple[Member, ...]:
        """Return members that are part of the job and are not about to be taken away."""
        return tuple(host for host in self.hosts if host.number not in self.joining and host.number not in self.leaving)

    @property
    def reliable(self) -> tuple[Member, ...]:
        """Return reliable hosts that stay; where none does those that still have something, since somebody must."""
        if staying := tuple(host for host in self.staying if host.reliable):
            return staying
        needed = {partition.replica for partition in self.partitions}
        every = tuple(host for host in self.hosts if host.reliable)
        return tuple(host for host in every if host.number in needed) or every

    @property
    def transient(self) -> tuple[Member, ...]:
        """Return transient hosts that are at work and stay."""
        return tuple(host for host in self.staying if not host.reliable)

    @property
    def servers(self) -> tuple[int, ...]:
        """Return who is to serve partitions in this stage."""
        return serving(self.stage, (*self.reliable, *self.transient), len(self.partitions))

    def next_stage(self) -> Stage:
        """Return the stage for the members that are at work, with what holds them (:func:`stage_for`)."""
        return stage_for(len(self.reliable), len(self.transient), self.thresholds, self.stage)

    def workers(self, *, newcomers: bool) -> dict[int, int]:
        """Return the slots of the hosts that work on data in this stage; times their speeds, where shares go by them.

        ``newcomers``: and of those that will, once ready.
        """
        hosts: Iterable[Member] = self.transient
        if self.stage is not Stage.BACKUP_ONLY:
            hosts = (*self.reliable, *self.transient)
        if newcomers:
            new = tuple(h for h in self.hosts if h.number in self.joining and h.number not in self.leaving)
            hosts = (*hosts, *new)
        usual = statistics.median_high(self.speeds.values()) if self.speeds else 1  # of a newcomer
        return {
            host.number: host.slots * self.speeds.get(host.number, usual)
            for host in sorted(hosts, key=lambda host: host.number)
        }

    def serves(self, partition: int, term: int) -> bool:
        """Return whether the primary of a partition in a term is the present one."""
        return not self.halted and self.partitions[partition].term == term

    def name(self, host: int) -> str:
        """Return a host's name."""
        return self.members[host].name

    def racks_at_risk(self) -> list[list[str]]:
        """Return the hosts of each rack that has primaries and their only replicas: state is lost with it.

        Empty in stage 1, where there are no replicas at all.
        """
        if self.stage is Stage.PARAMETER_SERVERS:
            return []
        hosts = self.members
        ends = [(hosts[partition.primary], hosts[partition.replica]) for partition in self.partitions]
        racks = sorted({primary.rack for primary, replica in ends if share_rack(primary, replica)})
        return [[host.name for host in self.hosts if host.rack == rack] for rack in racks]
