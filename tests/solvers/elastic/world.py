"""A job on paper: it carries out what the policy decides, and knows who really has what."""

import inspect
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from plink.model.elastic.fields import ShardMap, TrafficCounters
from plink.model.elastic.requests import Forget, HostReport
from solvers.elastic import checkpointing, joining, progress
from solvers.elastic.context import PlacementDecision
from solvers.elastic.decisions import decision_on
from solvers.elastic.events import (
    HostsGone,
    HostsJoined,
    HostsWarned,
    PartitionMoved,
    PartitionReplicated,
    PlacementEvent,
    ShardsReady,
)
from solvers.elastic.member import Member
from solvers.elastic.migration import StateTransferred
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.data import Shards, worked_on
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.resuming import resume
from solvers.elastic.start import serve, start

# Parts of decisions that are logged as something else.
_NAMES = {
    joining.welcome: "Welcome", progress.change_stage: "ChangeStage", serve: "Serve",
    checkpointing.consistent: "Consistent",
}  # fmt: skip

_SENT = ("source", "to", "partition", "term", "clock")

Seen = Any  # a part of a decision: its name, its reason, and what is done, under the names of parameters


def seen(decision: PlacementDecision) -> tuple[Seen, ...]:
    """The parts of a decision that change something on hosts, or are logged."""
    result = []
    for action in decision.actions:
        name = action.name or _NAMES.get(action.effect)  # type: ignore[arg-type]
        if name is None:
            continue
        values: dict[str, Any] = {}
        if action.effect is not None:
            values = inspect.signature(action.effect).bind(None, *action.arguments).arguments
            values = {key: value for key, value in values.items() if value is not None}
        for value in action.arguments:
            if isinstance(value, StateTransferred | Forget):
                values |= {key: getattr(value, key) for key in dir(value) if key in _SENT}
        cluster = decision.cluster
        if name == "Load":
            values["ahead"] = cluster.shards[values["shards"][0]].loading[values["host"]].ahead
        elif name == "PointWorkers":
            values["primaries"] = tuple(partition.primary for partition in cluster.partitions)
        elif name == "Serve":
            values["replica"] = cluster.partitions[values["number"]].replica
        result.append(SimpleNamespace(**{**values, "name": name, "reason": values.get("reason", action.reason)}))
    return tuple(result)


def unchanged(cluster: Cluster, event: PlacementEvent) -> bool:
    """Whether nothing follows from an event."""
    decision = decision_on(cluster, event)
    return decision.cluster == cluster and not decision.actions


def report_of(
    host: int, number: int, generation: int, everywhere: Mapping[int, Collection[int]], **more: Any
) -> HostReport:
    """What a host reports in a quiet moment. ``everywhere``: shards by host, each with one worker of its number."""
    everyone = {worker: (worker, tuple(sorted(shards)), 0) for worker, shards in everywhere.items()}
    works = {host: tuple(everywhere[host])} if host in everywhere else {}
    quiet: dict[str, Any] = {
        "serves": {}, "replicas": {}, "in_doubt": {}, "loaded": (), "map": ShardMap(0, generation, everyone, ()),
        "address": "", "workers": works, "takeovers": {}, "begun": 0, "finished": {}, "paused": False, "saved": None,
        "own": None, "traffic": TrafficCounters(), "thresholds": None,
    }  # fmt: skip
    return HostReport(number=number, generation=generation, **{**quiet, **more})


def hosts(reliable: int, transient: int, first: int = 0, **more: float) -> tuple[Member, ...]:
    """Some of each, numbered from ``first``, the reliable ones first."""
    tiers = ["reliable"] * reliable + ["transient"] * transient
    return tuple(Member(first + i, f"h{first + i}", tier, **more) for i, tier in enumerate(tiers))  # type: ignore[arg-type]


def imbalance(shards: Shards, slots: Mapping[int, int]) -> float:
    """How far the host that is farthest from its share is off it, in shards."""
    held = Counter(shard.owner for shard in shards)
    total = sum(slots.values())
    return max((abs(held[host] - len(shards) * count / total) for host, count in slots.items()), default=math.inf)


def of(name: str, actions: Iterable[Seen]) -> list[Seen]:
    """The actions of a kind."""
    return [action for action in actions if action.name == name]


@dataclass
class World:
    """``state``: what the policy knows. Who has what: ``holds``, hosts with the live state of each partition and its
    term; ``copies``, hosts with a replica of each and the clock it has. ``moves`` and ``loads``: under way.
    ``pushes``: the replicas that a host was told to push a partition to."""

    state: Cluster
    holds: list[dict[int, int]]
    copies: list[dict[int, int]]
    moves: list[Seen] = field(default_factory=list)
    loads: list[Seen] = field(default_factory=list)
    working: dict[int, set[int]] = field(default_factory=dict)
    pushes: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    actions: list[Seen] = field(default_factory=list)
    consistent: int = -1
    warned: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, members: tuple[Member, ...], partitions: int, shards: int, **more: Thresholds) -> "World":
        """A job that has just started."""
        decision = start(members, [1e6] * partitions, shards, **more)
        world, actions = (
            cls(decision.cluster, [{} for _ in range(partitions)], [{} for _ in range(partitions)]),
            seen(decision),
        )
        world._execute(actions)
        check(world, actions, number=0)
        return world

    def tell(self, event: PlacementEvent) -> tuple[Seen, ...]:
        """Something happened: the policy decides, everything is checked and carried out."""
        before = self.state
        if isinstance(event, HostsGone):
            self._gone(event.hosts)
        if isinstance(event, HostsWarned):
            event = replace(event, others=self.warned)
            self.warned |= event.deadlines
        decision = decision_on(before, event)
        self.state, actions = decision.cluster, seen(decision)
        again = decision_on(self.state, event)
        assert not seen(again), f"sent twice: {event} -> {seen(again)}"
        assert again.cluster == self.state
        alive = {host.number for host in self.state.hosts}
        self._gone([host.number for host in before.hosts if host.number not in alive])
        self._execute(actions)
        if not self.state.halted:
            check(self, actions, before.number)
        return actions

    def join(self, reliable: int, transient: int, *, bulk: bool = False) -> tuple[Seen, ...]:
        """Hosts that were not there before."""
        return self.tell(HostsJoined(hosts(reliable, transient, self.state.newest + 1), bulk))

    def arrive(self, index: int) -> None:
        """One of the moves under way is done."""
        move = self.moves.pop(index)
        p = move.partition
        if move.name == "Replicate":
            self.copies[p][move.to] = self.consistent
        elif move.name == "RestorePartition":
            self.holds[p] = {move.to: move.term}
        else:
            self.holds[p][move.to] = move.term
            if self.reliable(move.to):
                # Draining adds to what the replica has; a whole copy can go back to the common clock.
                had = self.copies[p].get(move.to, 0) if move.name == "Drain" else 0
                self.copies[p][move.to] = max(had, self.consistent)
        self.tell(PartitionMoved(p, move.term))

    def loaded(self, index: int) -> None:
        """One of the orders to load is carried out."""
        load = self.loads.pop(index)
        self.tell(ShardsReady(load.host, load.ticket))

    def push(self, index: int, clock: int) -> None:
        """A replica gets further, unless it has no copy yet."""
        item = self.state.partitions[index]
        if not item.safe:
            assert not self.tell(PartitionReplicated(index, clock, self.state.generation)), (
                "it has nothing that this could add to"
            )
        elif not item.waiting and clock > item.clock:
            self.copies[index][item.replica] = clock
            self.tell(PartitionReplicated(index, clock, self.state.generation))

    def _clocks(self, latest: int) -> tuple[int, ...]:
        """That a host of this world can go back to."""
        return tuple(range(min(self.consistent, latest), latest + 1))

    def restart(self, missing: Iterable[int]) -> tuple[Seen, ...]:
        """The controller dies, and some hosts with it; another one takes over from what is left."""
        old = self.state
        self._gone(missing)
        left = {host.number: host for host in old.hosts if host.number not in missing}
        working = {host: which for host, which in self.working.items() if host in left}
        reports = {
            number: report_of(
                number, old.number, old.generation, working,
                serves={p: some[number] for p, some in enumerate(self.holds) if number in some},
                replicas={p: self._clocks(some[number]) for p, some in enumerate(self.copies) if number in some},
                loaded=tuple(index for index, shard in enumerate(old.shards) if number in shard.loaded),
            )
            for number in left
        }  # fmt: skip
        self.loads = []
        decision = resume(left, reports, old.partition_bytes, len(old.shards), old.thresholds)
        self.state, actions = decision.cluster, seen(decision)
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

    def reliable(self, host: int) -> bool:
        """Whether a member is."""
        return self.state.members[host].reliable

    def _gone(self, gone: Iterable[int]) -> None:
        lost = set(gone)
        self.holds = [{host: e for host, e in some.items() if host not in lost} for some in self.holds]
        self.copies = [{host: c for host, c in some.items() if host not in lost} for some in self.copies]
        self.moves = [move for move in self.moves if not lost & set(named(move))]
        self.loads = [load for load in self.loads if load.host not in lost]
        self.working = {host: which for host, which in self.working.items() if host not in lost}

    def _execute(self, actions: Iterable[Seen]) -> None:
        for action in actions:
            self.actions.append(action)
            match action.name:
                case "Serve":
                    self.holds[action.number][action.primary] = action.term
                    self.copies[action.number][action.replica] = -1
                    self.pushes[action.primary, action.number] = {action.replica}
                case "HandOver" | "Drain" | "Replicate":
                    assert action.source in self.holds[action.partition], f"it has nothing to send: {action}"
                    self.moves.append(action)
                    if action.name == "Replicate":
                        self.pushes.setdefault((action.source, action.partition), set()).add(action.to)
                case "ReplicateTo":
                    self.pushes[action.host, action.partition] = {action.replica}
                case "RestorePartition":
                    self.pushes[action.to, action.partition] = {action.source}
                    assert self.copies[action.partition][action.source] >= action.clock, f"too old: {action}"
                    self.moves.append(action)
                case "CancelMove":
                    cancelled = action.partition, action.term
                    self.moves = [move for move in self.moves if (move.partition, move.term) != cancelled]
                case "PromoteReplica":
                    for partition in action.partitions:
                        assert action.host in self.copies[partition], f"it has no replica: {action}"
                        self.holds[partition] = {action.host: action.term}
                case "PointWorkers":
                    # Whoever the map does not name has nothing any more, but one that it has not heard of yet has.
                    for index, primary in enumerate(action.primaries):
                        latest = self.holds[index].get(primary, self.state.partitions[index].term)
                        remaining = {host: e for host, e in self.holds[index].items() if host == primary or e > latest}
                        self.holds[index] = remaining
                case "ForgetMoves":
                    self.moves = [move for move in self.moves if move.term > action.term]
                case "RollBackAll":
                    assert action.clock == self.consistent, "all go back behind what all have, or not far enough"
                    self.moves = [move for move in self.moves if move.name != "RestorePartition"]
                    self.copies = [{host: min(c, action.clock) for host, c in some.items()} for some in self.copies]
                case "Consistent":
                    assert action.clock > self.consistent
                    self.consistent = action.clock
                case "Load":
                    self.loads.append(action)
        self.working = {host: set(shards) for host, shards in worked_on(self.state.shards).items()}


def named(action: Seen) -> list[int]:
    """Hosts that an action names."""
    result = [getattr(action, key) for key in ("host", "source", "to", "replica", "primary") if hasattr(action, key)]
    if action.name in ("Welcome", "Release"):
        result.append(action.number)
    return [*result, *getattr(action, "hosts", ()), *getattr(action, "primaries", ())]


def check(world: World, actions: Iterable[Seen], number: int) -> None:
    """What must hold after every event."""
    state = world.state
    members = state.members
    for action in actions:
        assert set(named(action)) <= set(members), f"names a host that is gone: {action}"
        assert action.reason or action.name in _NAMES.values()
        assert "\n" not in action.reason
        for key in ("term", "ticket", "generation"):
            new = getattr(action, key, number + 1) > number
            assert new or action.name in ("CancelMove", "PromoteReplica"), f"not a new number: {action}"
    for index, partition in enumerate(state.partitions):
        check_partition(world, index, partition)
        assert not {partition.primary, partition.replica} & state.released, "it may go, and is needed"
    for shard in state.shards:
        assert {shard.owner, *shard.near, *shard.previous} <= set(members)
        assert shard.owner in shard.near, "nobody works on it, nor will soon"
        assert shard.next_owner is None or shard.next_owner in shard.near
        assert shard.owner not in shard.previous
        assert shard.near & {host.number for host in state.hosts if host.reliable}, "no home"
    maps = of("PointWorkers", world.actions)
    assert maps[-1].primaries == tuple(partition.primary for partition in state.partitions)


def check_partition(world: World, index: int, item: PartitionPlacement) -> None:
    """One primary, alive, with the state or waiting for it; a replica on a reliable host; bound for the right tier."""
    state, members = world.state, world.state.members
    assert {item.primary, item.replica} <= set(members)
    assert members[item.replica].reliable
    assert item.primary in world.holds[index] or item.waiting, "its primary has no state"
    assert item.replica in world.copies[index] or not item.safe, "its replica has no copy"
    assert not members[item.primary].reliable or item.primary == item.replica
    if item.primary != item.replica:
        assert item.replica in world.pushes[item.primary, index], "its updates go to another replica"
    under_way = {(move.partition, move.term) for move in world.moves}
    for move in (item.move, item.copy):
        assert move is None or (index, move.term) in under_way, "waits for what nobody sends"
        assert move is None or move.to in members
    assert not item.waiting or (index, item.term) in under_way, "waits for what nobody sends"
    if item.waiting or (item.move and item.move.drain and item.primary in state.leaving):
        return
    bound = item.move.to if item.move else item.primary
    assert members[bound].reliable is (state.stage is Stage.PARAMETER_SERVERS), (
        f"in stage {state.stage} it belongs elsewhere"
    )
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
        assert all(not state.members[shard.owner].reliable for shard in state.shards)
    assert state.next_stage() is state.stage


def warn(world: World, *which: int, seconds: float = 30.0) -> tuple[Seen, ...]:
    """Hosts are to be taken away."""
    return world.tell(HostsWarned(dict.fromkeys(which, seconds)))
