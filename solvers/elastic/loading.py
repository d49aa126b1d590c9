"""Input data in hosts' memory; hosts that cannot load a shard. Where another one can, it is the host's fault.

The others go on without such a host. The job ends where no host is left that could do its part, or a shard that no host
has in memory could not be loaded on another host either.
"""

from dataclasses import dataclass

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import LoadShards
from plink.model.elastic.results import Result
from solvers.elastic.context import Context
from solvers.elastic.dispatch import on_answer
from solvers.elastic.events import HostUnfit, ShardsReady
from solvers.elastic.finish import fail
from solvers.elastic.state import GONE


@dataclass(frozen=True)
class ShardsLoaded:
    """A host loads shards of the input data."""

    host: int
    shards: tuple[int, ...]
    ticket: int


def load(ctx: Context, host: int, shards: tuple[int, ...], ticket: int) -> None:
    """Have a host load shards into memory."""
    ctx.request(host, LoadShards(shards), ShardsLoaded(host, shards, ticket))


@on_answer(ShardsLoaded)
def loaded(ctx: Context, purpose: ShardsLoaded, answer: Answer, result: Result | None) -> None:
    """Handle loaded shards, or an error."""
    if answer.error is None:
        ctx.decide(ShardsReady(purpose.host, purpose.ticket))
    elif answer.kind != GONE:
        _could_not_load(ctx, purpose.host, purpose.shards, answer.error)


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
