"""Shares of the data by measured speed: hosts that stay slower than others get fewer shards.

The speed of a host is how many mini-batches of a shard one of its workers does in a second, without its waits. Where
other shares would make clocks shorter by a tenth, for twenty clocks in a row, shards change hands. So what is slow for
a moment changes nothing, and results stay those of BSP: who works on a shard does not matter to them.
"""

from collections import Counter
from dataclasses import replace

from plink.model.elastic.reports import ClockDone
from solvers.elastic.context import Context
from solvers.elastic.events import SpeedsMeasured
from solvers.elastic.observations import MeasuredSpeeds
from solvers.elastic.placement.data import quickest
from solvers.elastic.state import State

UNEVEN_CLOCKS = 20
MIN_GAIN = 1.1  # a clock now over one by other shares
_LATEST_SHARE = 0.2  # of the mean, exponentially weighted, that the latest clock gets
_FASTEST = 1000


def clock_done(ctx: Context, host: int, report: ClockDone) -> None:
    """Note how long a worker of a host took, and have shards change hands if that pays."""
    state = ctx.state
    if state.settings.shares != "speed" or not report.clock or not report.shards or report.compute_s <= 0:
        return
    current, seconds = state.speeds, report.compute_s / (report.shards * max(1, report.steps))
    earlier = current.seconds.get(host, seconds)
    mean_s = _LATEST_SHARE * seconds + (1 - _LATEST_SHARE) * earlier
    state.speeds = current = replace(current, seconds={**current.seconds, host: mean_s})
    if report.clock <= current.clock:  # with staleness clocks are reported out of order: each counts once
        return
    speeds = _speeds(state)
    uneven = current.uneven + 1 if _gains(state, speeds) else 0
    if uneven >= UNEVEN_CLOCKS:
        uneven = 0
        ctx.decide(SpeedsMeasured(speeds))
    state.speeds = replace(current, clock=report.clock, uneven=uneven)


def rolled_back(current: MeasuredSpeeds) -> MeasuredSpeeds:
    """Count clocks anew after a roll-back: they are reported again. What was measured stays."""
    return replace(current, clock=0, uneven=0)


def _speeds(state: State) -> dict[int, int]:
    """Return the speeds of a slot of each host, the fastest as :data:`_FASTEST`."""
    seconds = {host: mean_s for host, mean_s in state.speeds.seconds.items() if host in state.members}
    least_s = min(seconds.values(), default=1.0)
    return {host: max(1, round(_FASTEST * least_s / mean_s)) for host, mean_s in seconds.items()}


def _gains(state: State, speeds: dict[int, int]) -> bool:
    """Return whether clocks would be shorter, if shares went by these speeds."""
    cluster = state.cluster
    weights = replace(cluster, speeds=speeds).workers(newcomers=False)
    held = Counter(shard.owner for shard in cluster.shards)
    if not weights or not set(held) <= set(weights) or any(shard.next_owner is not None for shard in cluster.shards):
        return False  # shards are changing hands as it is
    due = quickest(len(cluster.shards), weights, held)
    now, then = (max(shares[host] / weights[host] for host in weights) for shares in (held, due))
    return now > MIN_GAIN * then
