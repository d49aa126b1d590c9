"""Traffic of the hosts of a job: logged, and measured for the stage thresholds.

See Harlap thesis, future work 6.2.2.
"""

from dataclasses import replace

from msgspec.structs import asdict

from plink.model.elastic.fields import StageThresholds, UpdateCounts
from plink.model.elastic.requests import KeepThresholds
from solvers.elastic import replication
from solvers.elastic.context import Context
from solvers.elastic.events import TrafficMeasured
from solvers.elastic.placement.stages import MeasuredTraffic, Stage, Thresholds

MEASURE_EVERY_S = 5.0


def advance(ctx: Context) -> None:
    """Measure what was carried since the last time, if it is time again and there is a rate to hold it against.

    Nothing of a time in which the stage changed, whose traffic is of neither, or in which no worker worked, since the
    job had not begun yet or all were on their way back. In stage 3 reliable hosts have no workers; what these would
    carry is what they did carry, or thresholds would follow from the stage itself.
    """
    state = ctx.state
    stage = state.cluster.stage if state.rebalancing.assigned else None
    now = state.traffic = replace(state.traffic, stages=state.traffic.stages | {stage})
    if ctx.now < now.next_s:
        return
    log_changes(ctx)
    counters = {host: state.traffic.counters[host] for host in state.members}
    before, steady = now.before, len(now.stages) == 1
    state.traffic = replace(
        state.traffic, next_s=ctx.now + MEASURE_EVERY_S, before=(ctx.now, counters), stages=frozenset({stage})
    )
    rate = state.settings.host_rate if state.settings.measured else None
    if before is None or rate is None or stage is None or not steady:
        return
    seconds = ctx.now - before[0]
    worker = replica = 0.0
    for host, member in state.members.items():
        if not member.reliable or host not in before[1]:
            continue
        old, new = before[1][host], counters[host]
        worker = max(
            worker, max(new.client_sent - old.client_sent, new.client_received - old.client_received) / seconds
        )
        replica += (new.server_received - old.server_received) / seconds
    if stage is Stage.BACKUP_ONLY:
        worker = now.worker
    state.traffic = replace(state.traffic, worker=worker, measures=now.measures + 1)
    transient = len(state.cluster.transient)
    replicas = stage is not Stage.PARAMETER_SERVERS and transient > 0
    ctx.decide(TrafficMeasured(MeasuredTraffic(worker, rate, replica / transient if replicas else None)))


def keep(ctx: Context, thresholds: Thresholds) -> None:
    """Have hosts keep what the last measure led to, and what cannot be measured in every stage."""
    traffic = ctx.state.traffic
    ctx.send_all(KeepThresholds(traffic.measures, traffic.worker, thresholds.active, thresholds.backup_only))


def resume(ctx: Context, thresholds: StageThresholds) -> None:
    """Go on where another controller left off, and not before what changed with it is over."""
    ctx.state.traffic = replace(
        ctx.state.traffic, measures=thresholds.measure, worker=thresholds.worker, next_s=ctx.now + MEASURE_EVERY_S
    )


def log_changes(ctx: Context) -> None:
    """Log the counters that have changed."""
    replication.log(ctx)
    traffic = ctx.state.traffic
    changed = {}
    for member in ctx.state.members.values():
        counters = traffic.counters[member.number]
        if traffic.logged.get(member.name) != counters:
            changed[member.name] = counters
            updates = asdict(counters.updates) if counters.updates != UpdateCounts() else None
            ctx.log(what="traffic", host=member.name, sent=counters.sent, received=counters.received, updates=updates)
    if changed:
        ctx.state.traffic = replace(traffic, logged={**traffic.logged, **changed})
