"""What rebalancing is tried with: a job on paper, requests that are kept, answers when a test says so."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import method_of, params_of
from solvers.elastic import rebalancing, recovery, step
from solvers.elastic.commands import Send
from solvers.elastic.context import Context
from solvers.elastic.member import Member
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.data import Shard
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.settings import Settings
from solvers.elastic.state import GONE, Migration, Phase, Rebalancing, Replication, ShardNumbers, initial


def requests_in(commands: Iterable[object]) -> list[dict[str, Any]]:
    """Requests to hosts, plainly: method, parameters, and the number of those that want an answer."""
    return [
        {"to": command.host, "do": method_of(command.request), "id": command.id, **_plain(params_of(command.request))}
        for command in commands
        if isinstance(command, Send)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


class Table:
    """A job whose hosts, by number, have so many slots; what is put off is done when a test says so."""

    def __init__(
        self, hosts: Mapping[int, int], target: Mapping[int, ShardNumbers], *, serves: tuple[int, ...] = (0, 0),
        clock: int = -1, served: bool = True,
    ) -> None:  # fmt: skip
        self.sent: list[dict[str, Any]] = []
        shards = sum(len(theirs) for theirs in target.values())
        settings = Settings("", len(serves), shards, ((8, 8),), 0.0, 0.0)
        self.state = initial(settings, 1, 0.0)
        self.state.members = {number: self._member(number, slots) for number, slots in hosts.items()}
        self.state.placement = Cluster(
            tuple(self.state.members.values()), (1.0,) * len(serves), Thresholds(),
            Stage.PARAMETER_SERVERS, tuple(PartitionPlacement(primary, 1, primary, 0) for primary in serves),
            tuple(Shard(0) for _ in range(shards)),
        )  # fmt: skip
        self.state.migration = Migration(opening={} if served else {0: 1})
        self.set(target=dict(target))
        self.clock = clock

    def _member(self, number: int, slots: int) -> Member:
        return Member(number, f"h{number}", "reliable", slots)

    @property
    def rebalancing(self) -> Rebalancing:
        """The sub-state that is tried."""
        return self.state.rebalancing

    @property
    def turning(self) -> bool:
        """Whether shards are about to change hands."""
        return self.rebalancing.barrier.phase is not Phase.IDLE

    def set(self, **values: Any) -> None:
        """Replace some of it."""
        self.state.rebalancing = replace(self.state.rebalancing, **values)

    @property
    def hosts(self) -> list[int]:
        """Members."""
        return sorted(self.state.members)

    @property
    def clock(self) -> int:
        """That all partitions have."""
        return self.state.clock

    @clock.setter
    def clock(self, clock: int) -> None:
        self.state.replication = Replication(dict.fromkeys(range(len(self.state.cluster.partitions)), clock))

    def serve(self, *primaries: int) -> None:
        """Partitions have other primaries."""
        partitions = tuple(PartitionPlacement(primary, 1, primary, 0) for primary in primaries)
        self.state.placement = replace(self.state.cluster, partitions=partitions)

    def load(self, in_memory: Mapping[int, Iterable[int]]) -> None:
        """Hosts have these shards in memory."""
        shards = tuple(
            Shard(0, loaded=frozenset(host for host, theirs in in_memory.items() if index in theirs))
            for index in range(self.state.settings.shards)
        )
        self.state.placement = replace(self.state.cluster, shards=shards)

    def join(self, number: int, slots: int) -> None:
        """One more host."""
        self.state.members = {**self.state.members, number: self._member(number, slots)}

    def act(self, does: Callable[[Context], object]) -> None:
        """One step; the state before it is as it was."""
        before, shown = self.state, repr(self.state)
        ctx = Context(self.state, 0.0)
        does(ctx)
        assert repr(before) == shown
        self.state = ctx.state
        self.sent += requests_in(ctx.commands)

    def advance(self) -> None:
        """Something has become possible."""
        self.act(rebalancing.advance)

    def roll_back(self, clock: int, generation: int) -> None:
        """All are back at a clock."""
        self.state.placement = replace(self.state.cluster, generation=generation)
        self.act(lambda ctx: recovery.roll_back(ctx, clock, anew=False))

    def ended(self, worker: int, until: int | None = None) -> None:
        """A worker has done what was left to do."""
        self.act(lambda ctx: rebalancing.worker_ended(ctx, worker, until))

    def open(self, do: str = "") -> list[dict[str, Any]]:
        """Requests that want an answer and have none yet, of a kind."""
        return [word for word in self.sent if word["id"] in self.state.requests and word["do"].startswith(do)]

    def words(self, do: str, host: int | None = None) -> list[dict[str, Any]]:
        """All of a kind."""
        return [word for word in self.sent if word["do"] == do and host in (None, word["to"])]

    def answer(self, word: Mapping[str, Any], error: str | None = None, **result: Any) -> None:
        """One of them is answered."""
        answer = Answer(word["id"], error, "", result)
        self.act(lambda ctx: step.answered(ctx, word["to"], answer))

    def pause(self, begun: int = -1) -> None:
        """All report what has begun."""
        for word in self.open("pause"):
            self.answer(word, begun=begun)

    def part(self) -> None:
        """All primaries know who takes part."""
        for word in self.open("set_participants"):
            self.answer(word, elsewhere=[])

    def first(self) -> "Table":
        """The first barrier is over."""
        self.advance()
        self.part()
        return self

    def want(self, target: Mapping[int, ShardNumbers]) -> None:
        """Something was decided."""
        self.set(target=dict(target))
        self.advance()

    def die(self, *hosts: int, target: Mapping[int, ShardNumbers] | None = None) -> None:
        """Some are gone at once; ``target``: what is decided then."""
        self.state.members = {number: member for number, member in self.state.members.items() if number not in hosts}
        if target is not None:
            self.set(target=dict(target))
        for number, request in self.state.requests.items():
            if request.host in hosts:
                answer = Answer(number, "the host is gone", GONE)
                self.act(lambda ctx, host=request.host, answer=answer: step.answered(ctx, host, answer))  # type: ignore[misc]
        self.advance()

    def wait(self) -> None:
        """What was put off is done."""
        self.state.timers = tuple(replace(timer, at_s=0.0) for timer in self.state.timers)
        for _ in self.state.timers:
            self.act(step.run_next_timer)
