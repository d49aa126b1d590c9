"""Barriers that cannot go on, that a roll-back ends, and that follow one another."""

from collections.abc import Callable
from dataclasses import replace

import pytest

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
from solvers.elastic.step import answered, run_next_timer


def job(hosts: int) -> State:
    """A job whose host 0 serves the only partition; nobody works yet, and all are to work on a shard each."""
    state = initial(Settings("", 1, hosts, ((8, 8),), 0.0, 0.0), 1, 0.0)
    state.members = {number: Member(number, f"h{number}", "reliable", 1) for number in range(hosts)}
    state.placement = Cluster(
        tuple(state.members.values()), (1.0,), Thresholds(), Stage.PARAMETER_SERVERS,
        (PartitionPlacement(0, 1, 0, 0),), tuple(Shard(0) for _ in range(hosts)),
    )  # fmt: skip
    state.replication = Replication({0: -1})
    return with_target(state, {host: (host,) for host in range(hosts)})


def with_target(state: State, target: dict[int, ShardNumbers]) -> State:
    """The state with another target of who works on what."""
    state.rebalancing = replace(state.rebalancing, target=target)
    return state


def step(state: State, does: Callable[[Context], object], now: float = 0.0) -> tuple[State, list[Send]]:
    """The state after a step, and what is sent."""
    does(ctx := Context(state, now))
    return ctx.state, [command for command in ctx.commands if isinstance(command, Send)]


def answer(request: Send, **result: object) -> Callable[[Context], None]:
    """The step in which the answer to a request comes."""
    return lambda ctx: answered(ctx, request.host, Answer(request.id, None, "", result))


def pass_barrier(state: State, begun: int = 0) -> tuple[State, list[Send]]:
    """The state after a whole barrier, before which hosts have begun a clock; and what they are to do."""
    state, sent = step(state, rebalancing.advance)
    while not isinstance(sent[0].request, r.AssignShards):
        requests, sent = sent, []
        for request in requests:
            if isinstance(request.request, r.Pause):
                state, more = step(state, answer(request, begun=begun))
            else:
                state, more = step(state, answer(request, elsewhere=[]))
            sent += [each for each in more if not isinstance(each.request, r.Resume)]
    return state, sent


def test_host_lost_while_workers_pause_puts_the_barrier_off() -> None:
    """Once the others have paused they go on as before; with its shards in memory elsewhere there is another one."""
    state, _ = pass_barrier(job(3))
    state, pauses = step(with_target(state, {0: (1,), 1: (0,), 2: (2,)}), rebalancing.advance)
    assert [type(sent.request) for sent in pauses] == [r.Pause] * 3
    for sent in pauses[:2]:
        state, nothing = step(state, answer(sent, begun=0))
        assert not nothing
    state.members = {number: member for number, member in state.members.items() if number != 2}
    gone = Answer(pauses[2].id, "the host is gone", GONE)
    state, sent_then = step(with_target(state, {0: (1,), 1: (0,)}), lambda ctx: answered(ctx, 2, gone))
    assert {(sent.host, type(sent.request)) for sent in sent_then} == {(0, r.Resume), (1, r.Resume)}
    _, again = step(with_target(state, {0: (1, 2), 1: (0,)}), rebalancing.advance)
    assert [type(sent.request) for sent in again] == [r.Pause] * 2


SWAPPED: dict[int, ShardNumbers] = {0: (1,), 1: (0,)}


@pytest.mark.parametrize("late", ["pause", "participants", "retry"])
def test_what_a_barrier_before_a_roll_back_waited_for_changes_nothing(late: str) -> None:
    """It comes while participants are set anew, or while workers pause before another barrier."""
    state, _ = pass_barrier(job(2))
    state, (pause, other) = step(with_target(state, SWAPPED), rebalancing.advance)
    state, _ = step(state, answer(pause, begun=0))
    comes = answer(other, begun=0)
    if late != "pause":
        state, (participants,) = step(state, comes)
        comes = answer(participants, elsewhere=[])
    if late == "retry":
        state, _ = step(state, answer(participants, elsewhere=[(0, "moved")]))
        comes = run_next_timer
    state, _ = step(state, lambda ctx: rebalancing.rolled_back(ctx, 0))
    anew, _ = step(state, rebalancing.advance)
    again, _ = pass_barrier(state)
    again, _ = step(with_target(again, {0: (0,), 1: (1,)}), rebalancing.advance)
    for before in anew, again:
        after, sent = step(before, comes, now=1.0)
        assert not sent
        assert after.rebalancing == before.rebalancing


def test_hosts_of_workers_that_were_leaving_get_assignments_after_a_roll_back() -> None:
    """Or they would wait for ever for what they do in the new generation."""
    state, _ = pass_barrier(job(3))
    state, _ = pass_barrier(with_target(state, {0: (0, 1), 1: (2,)}))
    state, _ = step(state, lambda ctx: rebalancing.rolled_back(ctx, 0))
    _, assigned = pass_barrier(state)
    assert {sent.host for sent in assigned} == {0, 1, 2}


def test_a_barrier_is_after_the_one_before_however_far_off_that_was() -> None:
    """Workers were faster than the pause, so that the clock was chosen anew."""
    state, _ = pass_barrier(job(2))
    state, (assigned, _) = pass_barrier(with_target(state, SWAPPED), begun=20)
    assert isinstance(assigned.request, r.AssignShards)
    state, (pause, _) = step(with_target(state, {0: (0,), 1: (1,)}), rebalancing.advance)
    assert isinstance(pause.request, r.Pause)
    assert pause.request.clock > assigned.request.clock > 20
