"""Assignment of work from one membership to the next (Harlap thesis, 4.2.3), and hosts that cannot load a shard.

Where another one can load it, it is the host's fault, and the others go on without it. The job ends where no host is
left that could do its part, or a shard that no host has in memory could not be loaded on another host either.
"""

from collections.abc import Collection

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import LoadShards, Result
from solvers.elastic.context import Context, PlacementDecision
from solvers.elastic.ending import fail
from solvers.elastic.events import HostUnfit, ShardsReady
from solvers.elastic.placement import data
from solvers.elastic.state import GONE


def assign(decision: PlacementDecision) -> None:
    """Assign the stage, everybody's share in it, and the newcomers that have loaded theirs.

    It repeats until nothing follows any more.
    """
    while True:
        decision.change(stage=decision.cluster.next_stage())
        shards = data.rebalanced(
            decision.cluster.shards, decision.cluster.workers(newcomers=True), by_speed=bool(decision.cluster.speeds)
        )
        decision.change(shards=data.taken_over(shards, decision.cluster.workers(newcomers=False)))
        ready = _ready_groups(decision)
        if not ready:
            break
        decision.change(joining={host: group for host, group in decision.cluster.joining.items() if group not in ready})
    homes = [host.number for host in decision.cluster.reliable]
    decision.change(shards=data.with_homes(decision.cluster.shards, homes))


def _ready_groups(decision: PlacementDecision) -> set[int]:
    """Return groups of newcomers none of which has to load anything more before it can do its share."""
    state = decision.cluster
    groups = {group for host, group in state.joining.items() if host not in state.leaving}
    return groups - {
        group for host, group in state.joining.items() if host not in state.leaving and data.unready(state.shards, host)
    }


def without(decision: PlacementDecision, lost: Collection[int]) -> None:
    """Remove members that are gone: their work goes back to those who did it before."""
    decision.change(
        hosts=tuple(host for host in decision.cluster.hosts if host.number not in lost),
        joining={host: group for host, group in decision.cluster.joining.items() if host not in lost},
        leaving=decision.cluster.leaving - frozenset(lost),
    )
    if not decision.cluster.reliable:
        return  # there is nothing to go on with
    decision.change(stage=decision.cluster.next_stage())
    decision.change(shards=data.without(decision.cluster.shards, lost, decision.cluster.workers(newcomers=False)))


def load(decision: PlacementDecision) -> None:
    """Order hosts to load what they own or will, and what they keep for others."""
    for (host, ahead), which in data.to_load(decision.cluster.shards).items():
        purpose = "keeps a copy for those that may leave" if ahead else "is to work on"
        _order(decision, host, which, ahead, f"{purpose} {len(which)} shards")


def load_spares(decision: PlacementDecision, newcomers: Collection[int]) -> None:
    """Order newcomers to load as much again as their share, before somebody else leaves (Figure 4.4)."""
    transient = {host.number for host in decision.cluster.hosts if not host.reliable}
    for host in sorted(transient & set(newcomers)):
        share = sum(host in (shard.next_owner, shard.owner) for shard in decision.cluster.shards)
        if which := data.spares(decision.cluster.shards, host, share, transient):
            _order(decision, host, which, True, "can step in for others")


def _order(decision: PlacementDecision, host: int, which: tuple[int, ...], ahead: bool, purpose: str) -> None:
    ticket = decision.next()
    decision.change(shards=data.ordered(decision.cluster.shards, host, which, data.Loading(ticket, ahead)))
    reason = f"{decision.cause}: {decision.cluster.name(host)} {purpose}"
    decision.act("Load", reason, _request, host, which, ticket)


def tell(decision: PlacementDecision, *, notify_all: bool = False) -> None:
    """Notify members whose work has changed by this decision, or all, those first that give some up."""
    had, have = data.worked_on(decision.before.shards), data.worked_on(decision.cluster.shards)
    changed = [host for host in decision.cluster.members if notify_all or had.get(host) != have.get(host)]
    if not changed:
        return
    for host in sorted(changed, key=lambda host: (len(have.get(host, ())) - len(had.get(host, ())), host)):
        name = decision.cluster.name(host)
        if host in have:
            reason = f"{decision.cause}: {name} works on {len(have[host])} shards, {len(had.get(host, ()))} before"
            decision.note("Work", reason)
        else:
            decision.note("StopWork", f"{decision.cause}: {name} works on nothing any more")


def _request(ctx: Context, host: int, shards: tuple[int, ...], ticket: int) -> None:
    """Have a host load shards into memory."""
    ctx.request(host, LoadShards(shards), loaded, host, shards, ticket)


def loaded(
    ctx: Context, host: int, shards: tuple[int, ...], ticket: int, answer: Answer, result: Result | None
) -> None:
    """Handle loaded shards, or an error."""
    if answer.error is None:
        ctx.decide(ShardsReady(host, ticket))
    elif answer.kind != GONE:
        _could_not_load(ctx, host, shards, answer.error)


def _could_not_load(ctx: Context, host: int, shards: tuple[int, ...], reason: str) -> None:
    cluster, member = ctx.state.cluster, ctx.state.members[host]
    if host in cluster.leaving:
        return
    text = f"{member.name}: {reason}"
    others = [other for other in cluster.hosts if other.number != host and other.number not in cluster.leaving]
    tried = [
        ctx.state.unloadable[shard]
        for shard in shards
        if shard in ctx.state.unloadable and not cluster.shards[shard].loaded - {host}
    ]
    if not others:
        fail(ctx, f"{text}, and there is no other host")
    elif member.reliable and not any(other.reliable for other in others):
        fail(ctx, f"{text}, and there is no other reliable host")
    elif tried:
        fail(ctx, f"{text} ({tried[0]} could not load it either)")
    else:
        ctx.state.unloadable = {**ctx.state.unloadable, **dict.fromkeys(shards, member.name)}
        ctx.emit(HostUnfit(host, reason))
