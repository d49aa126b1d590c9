"""A barrier that cannot go on: a host is lost while workers pause, and nobody has its shards yet."""

from collections.abc import Callable
from dataclasses import replace

from plink.model.elastic import requests as r
from plink.model.elastic.reports import Answer
from solvers.elastic import rebalancing
from solvers.elastic.commands import Send
from solvers.elastic.context import Context
from solvers.elastic.member import Member
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.data import Shard
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.settings import Settings
from solvers.elastic.state import GONE, Replication, ShardNumbers, State, initial
from solvers.elastic.step import answered


def job(hosts: int) -> State:
    """A job whose host 0 serves the only partition; nobody works yet, and all are to work on a shard each."""
    state = initial(Settings("", 1, hosts, ((8, 8),), 0.0, 0.0), 1, 0.0)
    state.members = {number: Member(number, f"h{number}", "reliable", 1) for number in range(hosts)}
    state.placement = Cluster(
        tuple(state.members.values()), (1.0,), Thresholds(), Stage.PARAMETER_SERVERS,
        (PartitionPlacement(0, 1, 0, 0),), tuple(Shard(0) for _ in range(hosts)),
    )  # fmt: skip
    state.replication = Replication({0: -1})
    return wanted(state, {host: (host,) for host in range(hosts)})


def wanted(state: State, target: dict[int, ShardNumbers]) -> State:
    """The state with other wishes of who works on what."""
    state.rebalancing = replace(state.rebalancing, target=target)
    return state


def step(state: State, does: Callable[[Context], object]) -> tuple[State, list[Send]]:
    """The state after a step, and what is sent."""
    does(ctx := Context(state, 0.0))
    return ctx.state, [command for command in ctx.commands if isinstance(command, Send)]


def test_host_lost_while_workers_pause_puts_the_barrier_off() -> None:
    """Once the others have paused they go on as before; with its shards in memory elsewhere there is another one."""
    state, (first,) = step(job(3), rebalancing.advance)
    answer = Answer(first.id, None, "", {"elsewhere": []})
    state, _ = step(state, lambda ctx: answered(ctx, 0, answer))
    state, pauses = step(wanted(state, {0: (1,), 1: (0,), 2: (2,)}), rebalancing.advance)
    assert [type(sent.request) for sent in pauses] == [r.Pause] * 3
    for sent in pauses[:2]:
        paused = Answer(sent.id, None, "", {"begun": 0})
        state, nothing = step(state, lambda ctx, sent=sent, paused=paused: answered(ctx, sent.host, paused))  # type: ignore[misc]
        assert not nothing
    state.members = {number: member for number, member in state.members.items() if number != 2}
    gone = Answer(pauses[2].id, "the host is gone", GONE)
    state, sent_then = step(wanted(state, {0: (1,), 1: (0,)}), lambda ctx: answered(ctx, 2, gone))
    assert {(sent.host, type(sent.request)) for sent in sent_then} == {(0, r.Resume), (1, r.Resume)}
    _, again = step(wanted(state, {0: (1, 2), 1: (0,)}), rebalancing.advance)
    assert [type(sent.request) for sent in again] == [r.Pause] * 2
