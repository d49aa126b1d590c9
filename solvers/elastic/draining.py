"""Hosts on their way out: those that are warned, until when they may stay, and when one of them is released."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from plink.model.elastic.requests import Bye
from solvers.elastic.context import Context
from solvers.elastic.events import HostsWarned
from solvers.elastic.state import omit

_GRACE_S = 1.0  # after its deadline a host that was warned is released, whatever it still has
_RETRY_S = 0.05


def warn(ctx: Context, seconds: Mapping[int, float], reason: str) -> None:
    """Warn hosts that will be taken away, each after so many seconds.

    Warnings of hosts that have not joined yet are remembered.
    """
    joined = () if ctx.state.placement is None else ctx.state.cluster.members
    members, draining = [], ctx.state.draining
    for number, remaining_s in seconds.items():
        if number not in joined:
            draining = replace(draining, early={**draining.early, number: (ctx.now + remaining_s, reason)})
        elif number in ctx.state.members:
            members.append(number)
            draining = replace(draining, deadlines={**draining.deadlines, number: ctx.now + remaining_s})
            ctx.log(**ctx.state.members[number].line("warned", reason, remaining_s))
    ctx.state.draining = draining
    if members:
        decide(ctx, members)


def decide(ctx: Context, hosts: Collection[int]) -> None:
    """Decide on hosts that are to be taken away, once every replica has something.

    For a host without time left, all would go back to what replicas have.
    """
    if ctx.state.placement is not None and ctx.state.migration.opening:
        ctx.later(_RETRY_S, decide, tuple(hosts))
        return
    remaining_s = {number: max(0.0, at - ctx.now) for number, at in ctx.state.draining.deadlines.items()}
    if deadlines := {
        number: remaining_s[number] for number in hosts if number in remaining_s and number in ctx.state.members
    }:
        ctx.decide(HostsWarned(deadlines, others=remaining_s))


def apply_early_warnings(ctx: Context) -> None:
    """Warn those that were warned on their way in, once they have joined."""
    if not ctx.state.draining.early:
        return
    for number, (until, reason) in ctx.state.draining.early.items():
        if number in ctx.state.cluster.members:
            ctx.state.draining = replace(ctx.state.draining, early=omit(ctx.state.draining.early, number))
            warn(ctx, {number: max(0.0, until - ctx.now)}, reason)


def free(ctx: Context, number: int) -> None:
    """Have a host go as soon as it has ended what it does."""
    ctx.state.draining = replace(ctx.state.draining, free=ctx.state.draining.free | {number})


def release_overdue(ctx: Context) -> None:
    """Release those whose time is over."""
    for number, at in ctx.state.draining.deadlines.items():
        if ctx.now > at + _GRACE_S and number in ctx.state.members:
            release(ctx, number, "its time is over")


def release_free(ctx: Context) -> None:
    """Release those that are free to go and have ended what they did."""
    state = ctx.state
    for number in sorted(state.draining.free):
        is_lost = number not in state.members
        if is_lost or not (state.rebalancing.works(number) or state.migration.sends(number)):
            state.draining = replace(state.draining, free=state.draining.free - {number})
        if not is_lost and number not in state.draining.free:
            release(ctx, number, "it has nothing left that anybody needs")


def release(ctx: Context, number: int, reason: str) -> None:
    """Let a host go."""
    draining = ctx.state.draining
    if number not in draining.released:
        ctx.state.draining = replace(draining, released=draining.released | {number})
        ctx.log(**ctx.state.members[number].line("released", reason))
        ctx.send(number, Bye())


def was_leaving(ctx: Context, number: int) -> bool:
    """Return whether a member that is no longer there was released before."""
    draining = ctx.state.draining
    ctx.state.draining = replace(draining, deadlines=omit(draining.deadlines, number))
    return number in draining.released
