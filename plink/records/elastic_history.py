"""Reconstruct an elastic run from its log: iterations, rolled back ones, stages over time, hosts and their periods."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from plink.model.elastic.fields import UpdateCounts
from plink.records.elastic_log import (
    ControllerEvent,
    EndLogEntry,
    Entry,
    HostEvent,
    Iteration,
    ReplicationLogEntry,
    RollBackLogEntry,
    StageChange,
    TrafficLogEntry,
)

TimelineEvent = HostEvent | RollBackLogEntry | ControllerEvent
_DEPARTURES = ("left", "failed", "released")


@dataclass(frozen=True)
class IterationRecord:
    """One iteration. ``rolled_back``: a roll-back undid it later; ``repeated``: it had run before and was rolled
    back."""

    iteration: Iteration
    rolled_back: bool = False
    repeated: bool = False


@dataclass(frozen=True)
class HostPeriod:
    """Period of a host from joining to leaving; ``until`` is the end of the log where it did not leave."""

    joined: HostEvent
    until: float


@dataclass(frozen=True)
class History:
    """History of an elastic run. ``steps``, ``events``: in the order of the log; ``stages``: (from, until, stage),
    seconds; ``seconds``: up to the last entry; ``traffic``: bytes (sent, received) by host; ``rule``, ``shares``,
    ``shards``: as the job was asked for, None where the log does not tell; ``optimisers``: whether tables have some;
    ``updates``: of asynchronous workers, of all hosts;
    ``replication``: what was pushed to replicas, in order."""

    steps: tuple[IterationRecord, ...]
    stages: tuple[tuple[float, float, int], ...]
    members: tuple[HostPeriod, ...]
    events: tuple[TimelineEvent, ...]
    seconds: float
    end: EndLogEntry | None = None
    traffic: dict[str, tuple[int, int]] = field(default_factory=dict)
    rule: str | None = None
    shares: str | None = None
    shards: int | None = None
    optimisers: bool = False
    updates: UpdateCounts = field(default_factory=UpdateCounts)
    divergence: str = ""
    replication: tuple[ReplicationLogEntry, ...] = ()

    @property
    def completed(self) -> list[Iteration]:
        """The iterations that were not rolled back."""
        return [step.iteration for step in self.steps if not step.rolled_back]


def history_of(entries: Sequence[Entry]) -> History:
    """Reconstruct the history of a run.

    :param entries: as :func:`plink.records.elastic_log.read_elastic_log` gives them, at least one.
    """
    seconds = max(entry.at for entry in entries)
    controllers = [entry for entry in entries if isinstance(entry, ControllerEvent)]
    traffic = [entry for entry in entries if isinstance(entry, TrafficLogEntry)]
    return History(
        steps=_steps(entries),
        stages=_stages([entry for entry in entries if isinstance(entry, StageChange)], seconds),
        members=members_of([entry for entry in entries if isinstance(entry, HostEvent)], seconds),
        events=tuple(entry for entry in entries if isinstance(entry, HostEvent | RollBackLogEntry | ControllerEvent)),
        seconds=seconds,
        end=next((entry for entry in reversed(entries) if isinstance(entry, EndLogEntry)), None),
        traffic=_traffic(traffic),
        updates=_updates(traffic),
        rule=controllers[0].rule if controllers else None,
        shares=controllers[0].shares if controllers else None,
        shards=controllers[0].shards if controllers else None,
        optimisers=controllers[0].optimisers if controllers else False,
        divergence=controllers[0].divergence if controllers else "",
        replication=tuple(entry for entry in entries if isinstance(entry, ReplicationLogEntry)),
    )


def _steps(entries: Sequence[Entry]) -> tuple[IterationRecord, ...]:
    """Return all iterations. A log may report a roll-back late, so an iteration that is reported again was rolled back
    in any case."""
    steps: list[IterationRecord] = []
    last_index: dict[int, int] = {}  # where each iteration was told last
    for entry in entries:
        if isinstance(entry, Iteration):
            previous = last_index.get(entry.iteration)
            if previous is not None:
                steps[previous] = replace(steps[previous], rolled_back=True)
            last_index[entry.iteration] = len(steps)
            steps.append(IterationRecord(entry, repeated=previous is not None))
        elif isinstance(entry, RollBackLogEntry):
            steps = [
                step if step.rolled_back or step.iteration.clock <= entry.clock else replace(step, rolled_back=True)
                for step in steps
            ]
    return tuple(steps)


def _stages(changes: Sequence[StageChange], end: float) -> tuple[tuple[float, float, int], ...]:
    spans: list[tuple[float, float, int]] = []
    for index, change in enumerate(changes):
        end_s = changes[index + 1].at if index + 1 < len(changes) else end
        if spans and spans[-1][2] == change.stage:
            spans[-1] = (spans[-1][0], end_s, change.stage)
        else:
            spans.append((change.at, end_s, change.stage))
    return tuple(spans)


def members_of(events: Sequence[HostEvent], end: float) -> tuple[HostPeriod, ...]:
    """Return the period of each host by its number: a host that returns under its old name has a new one. ``end``: of
    those that never left."""
    periods: dict[int, HostPeriod] = {}
    for event in events:
        if event.event == "joined":
            periods.setdefault(event.number, HostPeriod(event, end))
        elif event.event in _DEPARTURES and event.number in periods:
            member = periods[event.number]
            periods[event.number] = replace(member, until=min(member.until, max(event.at, member.joined.at)))
    return tuple(periods.values())


def _traffic(lines: Sequence[TrafficLogEntry]) -> dict[str, tuple[int, int]]:
    """Sum the counters of each host, which start at zero again when it returns."""
    earlier: dict[str, tuple[int, int]] = {}
    latest: dict[str, tuple[int, int]] = {}
    for line in lines:
        offset, last = earlier.get(line.host, (0, 0)), latest.get(line.host, (0, 0))
        if line.sent < last[0] or line.received < last[1]:
            earlier[line.host] = (offset[0] + last[0], offset[1] + last[1])
        latest[line.host] = (line.sent, line.received)
    return {
        host: (sent + earlier.get(host, (0, 0))[0], received + earlier.get(host, (0, 0))[1])
        for host, (sent, received) in latest.items()
    }


def _updates(lines: Sequence[TrafficLogEntry]) -> UpdateCounts:
    """Sum the counts of all hosts, which start at zero again when a host returns."""
    earlier = UpdateCounts()
    latest: dict[str, UpdateCounts] = {}
    for line in lines:
        last, now = latest.get(line.host, UpdateCounts()), line.updates or UpdateCounts()
        if now.applied < last.applied or now.dropped < last.dropped:
            earlier += last
        latest[line.host] = now
    return sum(latest.values(), earlier)
