"""Who works on what, from one membership to the next (Harlap thesis, 4.2.3)."""

from collections.abc import Collection

from solvers.elastic.placement import actions as act
from solvers.elastic.placement import data
from solvers.elastic.placement.hosts import Tier
from solvers.elastic.placement.state import Step


def assign(step: Step) -> None:
    """Assign the stage, everybody's share in it, and the newcomers that have loaded theirs.

    It repeats until nothing follows any more.
    """
    while True:
        step.change(stage=step.state.wanted_stage())
        shards = data.rebalanced(
            step.state.shards, step.state.workers(newcomers=True), by_speed=bool(step.state.speeds)
        )
        step.change(shards=data.taken_over(shards, step.state.workers(newcomers=False)))
        ready = _ready_groups(step)
        if not ready:
            break
        step.change(joining={host: group for host, group in step.state.joining.items() if group not in ready})
    homes = [host.number for host in step.state.reliable]
    step.change(shards=data.with_homes(step.state.shards, homes))


def _ready_groups(step: Step) -> set[int]:
    """Return groups of newcomers none of which has to load anything more before it can do its share."""
    state = step.state
    groups = {group for host, group in state.joining.items() if host not in state.leaving}
    return groups - {
        group for host, group in state.joining.items() if host not in state.leaving and data.unready(state.shards, host)
    }


def without(step: Step, lost: Collection[int]) -> None:
    """Remove members that are gone: their work goes back to those who did it before."""
    step.change(
        hosts=tuple(host for host in step.state.hosts if host.number not in lost),
        joining={host: group for host, group in step.state.joining.items() if host not in lost},
        leaving={host: seconds for host, seconds in step.state.leaving.items() if host not in lost},
    )
    if not step.state.reliable:
        return  # there is nothing to go on with
    step.change(stage=step.state.wanted_stage())
    step.change(shards=data.without(step.state.shards, lost, step.state.workers(newcomers=False)))


def load(step: Step) -> None:
    """Order hosts to load what they own or will, and what they keep for others."""
    for (host, ahead), which in data.to_load(step.state.shards).items():
        purpose = "keeps a copy for those that may leave" if ahead else "is to work on"
        _order(step, host, which, ahead, f"{step.cause}: {step.state.name(host)} {purpose} {len(which)} shards")


def load_spares(step: Step, newcomers: Collection[int]) -> None:
    """Order newcomers to load as much again as their share, before somebody else leaves (Figure 4.4)."""
    transient = {host.number for host in step.state.hosts if host.tier is Tier.TRANSIENT}
    for host in sorted(transient & set(newcomers)):
        share = sum(host in (shard.next_owner, shard.owner) for shard in step.state.shards)
        if which := data.spares(step.state.shards, host, share, transient):
            _order(step, host, which, True, f"{step.cause}: {step.state.name(host)} can step in for others")


def _order(step: Step, host: int, which: tuple[int, ...], ahead: bool, reason: str) -> None:
    ticket = step.next()
    step.change(shards=data.ordered(step.state.shards, host, which, data.Loading(ticket, ahead)))
    step.act(act.Load(host, which, ticket, ahead, reason))


def tell(step: Step, *, notify_all: bool = False) -> None:
    """Notify members whose work has changed in this step, or all, those first that give some up."""
    had, have = data.worked_on(step.before.shards), data.worked_on(step.state.shards)
    changed = [host for host in step.state.members if notify_all or had.get(host) != have.get(host)]
    if not changed:
        return
    version = step.next()
    for host in sorted(changed, key=lambda host: (len(have.get(host, ())) - len(had.get(host, ())), host)):
        name = step.state.name(host)
        if host in have:
            reason = f"{step.cause}: {name} works on {len(have[host])} shards, {len(had.get(host, ()))} before"
            step.act(act.Work(host, have[host], version, reason))
        else:
            step.act(act.StopWork(host, version, f"{step.cause}: {name} works on nothing any more"))
