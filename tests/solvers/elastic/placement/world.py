"""A job on paper: it carries out what the policy decides, and knows who really has what."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from solvers.elastic.placement import actions as act
from solvers.elastic.placement.cluster import apply
from solvers.elastic.placement.data import Shards
from solvers.elastic.placement.events import Event, HostsFailed, HostsLeft, Joined, Moved, Ready, Replicated, Warned
from solvers.elastic.placement.hosts import JobHost, Tier
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.placement.resume import MemberReport, resume
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.placement.start import start
from solvers.elastic.placement.state import Cluster


def hosts(reliable: int, transient: int, first: int = 0, **more: float) -> tuple[JobHost, ...]:
    """Some of each, numbered from ``first``, the reliable ones first."""
    tiers = [Tier.RELIABLE] * reliable + [Tier.TRANSIENT] * transient
    return tuple(JobHost(first + i, f"h{first + i}", tier, **more) for i, tier in enumerate(tiers))  # type: ignore[arg-type]


def imbalance(shards: Shards, slots: Mapping[int, int]) -> float:
    """How far the host that is farthest from its share is off it, in shards."""
    held = Counter(shard.owner for shard in shards)
    total = sum(slots.values())
    return max((abs(held[host] - len(shards) * count / total) for host, count in slots.items()), default=math.inf)


def of(kind: type, actions: Iterable[act.Action]) -> list:
    """The actions of a kind."""
    return [action for action in actions if isinstance(action, kind)]


@dataclass
class World:
    """``state``: what the policy knows. Who has what: ``holds``, hosts with the live state of each partition and its
    term; ``copies``, hosts with a replica of each and the clock it has. ``moves`` and ``loads``: under way.
    ``pushes``: the replicas that a host was told to push a partition to."""

    state: Cluster
    holds: list[dict[int, int]]
    copies: list[dict[int, int]]
    moves: list[act.HandOver | act.Drain | act.Replicate | act.RestorePartition] = field(default_factory=list)
    loads: list[act.Load] = field(default_factory=list)
    working: dict[int, set[int]] = field(default_factory=dict)
    pushes: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    actions: list[act.Action] = field(default_factory=list)
    consistent: int = 0

    @classmethod
    def of(cls, members: tuple[JobHost, ...], partitions: int, shards: int, **more: Thresholds) -> "World":
        """A job that has just started."""
        state, actions = start(members, [1e6] * partitions, shards, **more)
        world = cls(state, [{} for _ in range(partitions)], [{} for _ in range(partitions)])
        world._execute(actions)
        check(world, actions, number=0)
        return world

    def tell(self, event: Event) -> tuple[act.Action, ...]:
        """Something happened: the policy decides, everything is checked and carried out."""
        before = self.state
        if isinstance(event, HostsFailed | HostsLeft):
            self._gone(event.hosts)
        self.state, actions = apply(before, event)
        again, nothing = apply(self.state, event)
        assert not nothing, f"sent twice: {event} -> {nothing}"
        assert again == self.state
        alive = {host.number for host in self.state.hosts}
        self._gone([host.number for host in before.hosts if host.number not in alive])
        self._execute(actions)
        if not self.state.halted:
            check(self, actions, before.number)
        return actions

    def join(self, reliable: int, transient: int, *, bulk: bool = False) -> tuple[act.Action, ...]:
        """Hosts that were not there before."""
        return self.tell(Joined(hosts(reliable, transient, self.state.newest + 1), bulk))

    def arrive(self, index: int) -> None:
        """One of the moves under way is done."""
        move = self.moves.pop(index)
        p = move.partition
        if isinstance(move, act.Replicate):
            self.copies[p][move.host] = self.consistent
        elif isinstance(move, act.RestorePartition):
            self.holds[p] = {move.to: move.term}
        else:
            self.holds[p][move.to] = move.term
            if self.tier(move.to) is Tier.RELIABLE:
                # Draining adds to what the replica has; a whole copy can go back to the common clock.
                had = self.copies[p].get(move.to, 0) if isinstance(move, act.Drain) else 0
                self.copies[p][move.to] = max(had, self.consistent)
        self.tell(Moved(p, move.term))

    def loaded(self, index: int) -> None:
        """One of the orders to load is carried out."""
        load = self.loads.pop(index)
        self.tell(Ready(load.host, load.ticket))

    def push(self, index: int, clock: int) -> None:
        """A replica gets further, unless it has no copy yet."""
        item = self.state.partitions[index]
        if not item.safe:
            assert not self.tell(Replicated(index, clock, self.state.generation)), (
                "it has nothing that this could add to"
            )
        elif not item.waiting and clock > item.clock:
            self.copies[index][item.replica] = clock
            self.tell(Replicated(index, clock, self.state.generation))

    def _clocks(self, latest: int) -> tuple[int, ...]:
        """That a host of this world can go back to."""
        return tuple(range(min(self.consistent, latest), latest + 1))

    def restart(self, missing: Iterable[int]) -> tuple[act.Action, ...]:
        """The controller dies, and some hosts with it; another one takes over from what is left."""
        old = self.state
        self._gone(missing)
        reports = [
            MemberReport(
                host,
                old.number,
                old.generation,
                {p: some[host.number] for p, some in enumerate(self.holds) if host.number in some},
                {p: self._clocks(some[host.number]) for p, some in enumerate(self.copies) if host.number in some},
                frozenset(index for index, shard in enumerate(old.shards) if host.number in shard.loaded),
                frozenset(self.working.get(host.number, ())),
            )
            for host in old.hosts
            if host.number not in missing
        ]
        self.loads = []
        self.state, actions = resume(reports, old.partition_bytes, len(old.shards), old.thresholds)
        self.consistent = self.state.consistent
        self._execute(actions)
        if not self.state.halted:
            check(self, actions, old.number)
        return actions

    def converge(self) -> None:
        """All that is under way is done, and all that follows from it; what is left must be as the stage asks for."""
        for _ in range(10_000):
            if self.state.halted or not (self.moves or self.loads):
                break
            if self.moves:
                self.arrive(0)
            else:
                self.loaded(0)
        else:
            raise AssertionError("it never converges")
        if not self.state.halted:
            check_converged(self.state)

    def tier(self, host: int) -> Tier:
        """Of a member."""
        return self.state.members[host].tier

    def _gone(self, gone: Iterable[int]) -> None:
        lost = set(gone)
        self.holds = [{host: e for host, e in some.items() if host not in lost} for some in self.holds]
        self.copies = [{host: c for host, c in some.items() if host not in lost} for some in self.copies]
        self.moves = [move for move in self.moves if not lost & set(named(move))]
        self.loads = [load for load in self.loads if load.host not in lost]
        self.working = {host: which for host, which in self.working.items() if host not in lost}

    def _execute(self, actions: Iterable[act.Action]) -> None:
        for action in actions:
            self.actions.append(action)
            match action:
                case act.Serve(host, partition, term, replica):
                    self.holds[partition][host] = term
                    self.copies[partition][replica] = 0
                    self.pushes[host, partition] = {replica}
                case act.HandOver() | act.Drain() | act.Replicate():
                    assert action.source in self.holds[action.partition], f"it has nothing to send: {action}"
                    self.moves.append(action)
                    if isinstance(action, act.Replicate):
                        self.pushes.setdefault((action.source, action.partition), set()).add(action.host)
                case act.ReplicateTo(host, partition, replica):
                    self.pushes[host, partition] = {replica}
                case act.RestorePartition():
                    self.pushes[action.to, action.partition] = {action.source}
                    assert self.copies[action.partition][action.source] >= action.clock, f"too old: {action}"
                    self.moves.append(action)
                case act.CancelMove(_, partition, term):
                    self.moves = [m for m in self.moves if (m.partition, m.term) != (partition, term)]
                case act.PromoteReplica(host, partitions, term):
                    for partition in partitions:
                        assert host in self.copies[partition], f"it has no replica: {action}"
                        self.holds[partition] = {host: term}
                case act.PointWorkers(_, primaries):
                    # Whoever the map does not name has nothing any more, but one that it has not heard of yet has.
                    for index, primary in enumerate(primaries):
                        latest = self.holds[index].get(primary, self.state.partitions[index].term)
                        remaining = {host: e for host, e in self.holds[index].items() if host == primary or e > latest}
                        self.holds[index] = remaining
                case act.ForgetMoves(term):
                    self.moves = [move for move in self.moves if move.term > term]
                case act.RollBackAll(clock):
                    assert clock == self.consistent, "somebody is to go back behind what all have, or not far enough"
                    self.moves = [move for move in self.moves if not isinstance(move, act.RestorePartition)]
                    self.copies = [{host: min(c, clock) for host, c in some.items()} for some in self.copies]
                case act.Consistent(clock):
                    assert clock > self.consistent
                    self.consistent = clock
                case act.Load():
                    self.loads.append(action)
                case act.Work(host, shards):
                    self.working[host] = set(shards)
                case act.StopWork(host):
                    self.working.pop(host, None)


def named(action: act.Action) -> list[int]:
    """Hosts that an action names."""
    result: list[int] = [action.host.number] if isinstance(action, act.Welcome) else []
    for key in ("host", "source", "to", "replica"):
        value = getattr(action, key, None)
        result += [value] if isinstance(value, int) else []
    return [*result, *getattr(action, "hosts", ()), *getattr(action, "primaries", ())]


def check(world: World, actions: Iterable[act.Action], number: int) -> None:
    """What must hold after every event."""
    state = world.state
    members = state.members
    for action in actions:
        assert set(named(action)) <= set(members), f"names a host that is gone: {action}"
        assert action.reason
        assert "\n" not in action.reason
        for key in ("term", "version", "ticket", "generation"):
            new = getattr(action, key, number + 1) > number
            assert new or isinstance(action, act.CancelMove | act.PromoteReplica), f"not a new number: {action}"
    for index, partition in enumerate(state.partitions):
        check_partition(world, index, partition)
        assert not {partition.primary, partition.replica} & state.released, "it may go, and is needed"
    owned: dict[int, set[int]] = {}
    for index, shard in enumerate(state.shards):
        assert {shard.owner, *shard.near, *shard.previous} <= set(members)
        assert shard.owner in shard.near, "nobody works on it, nor will soon"
        assert shard.next_owner is None or shard.next_owner in shard.near
        assert shard.owner not in shard.previous
        assert shard.near & {host.number for host in state.hosts if host.tier is Tier.RELIABLE}, "no home"
        if shard.owner in shard.loaded:
            owned.setdefault(shard.owner, set()).add(index)
    assert world.working == owned, "which host has which work"
    maps = [action for action in world.actions if isinstance(action, act.PointWorkers)]
    assert [m.version for m in maps] == sorted({m.version for m in maps})
    assert maps[-1].primaries == tuple(partition.primary for partition in state.partitions)
    assert maps[-1].version == state.version


def check_partition(world: World, index: int, item: PartitionPlacement) -> None:
    """One primary, alive, with the state or waiting for it; a replica on a reliable host; bound for the right tier."""
    state, members = world.state, world.state.members
    assert {item.primary, item.replica} <= set(members)
    assert members[item.replica].tier is Tier.RELIABLE
    assert item.primary in world.holds[index] or item.waiting, "its primary has no state"
    assert item.replica in world.copies[index] or not item.safe, "its replica has no copy"
    assert members[item.primary].tier is Tier.TRANSIENT or item.primary == item.replica
    if item.primary != item.replica:
        assert item.replica in world.pushes[item.primary, index], "its updates go to another replica"
    under_way = {(move.partition, move.term) for move in world.moves}
    for move in (item.move, item.copy):
        assert move is None or (index, move.term) in under_way, "waits for what nobody sends"
        assert move is None or move.to in members
    assert not item.waiting or (index, item.term) in under_way, "waits for what nobody sends"
    if item.waiting or (item.move and item.move.drain and item.primary in state.leaving):
        return
    right = Tier.RELIABLE if state.stage is Stage.PARAMETER_SERVERS else Tier.TRANSIENT
    bound = item.move.to if item.move else item.primary
    assert members[bound].tier is right, f"in stage {state.stage} it belongs elsewhere"
    assert bound in state.servers


def check_converged(state: Cluster) -> None:
    """What must hold when nothing is under way any more."""
    assert not [
        partition
        for partition in state.partitions
        if partition.move or partition.copy or partition.waiting or not partition.safe
    ]
    assert not [shard for shard in state.shards if shard.next_owner or shard.loading]
    assert not set(state.joining) - set(state.leaving), "has all its data and does not take part"
    for kind, able in (("primary", state.servers), ("replica", tuple(host.number for host in state.reliable))):
        counts = [sum(getattr(partition, kind) == host for partition in state.partitions) for host in able]
        assert sum(counts) == len(state.partitions), f"{kind}s elsewhere"
        assert max(counts) - min(counts) <= 1, f"{kind}s are not balanced"
    workers = state.workers(newcomers=False)
    assert {shard.owner for shard in state.shards} <= set(workers)
    assert imbalance(state.shards, workers) < 1
    if state.stage is Stage.BACKUP_ONLY:
        assert all(state.members[shard.owner].tier is Tier.TRANSIENT for shard in state.shards)
    assert state.wanted_stage() is state.stage


def warn(world: World, *which: int, seconds: float = 30.0) -> tuple[act.Action, ...]:
    """Hosts are to be taken away."""
    return world.tell(Warned(dict.fromkeys(which, seconds)))
