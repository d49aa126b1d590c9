"""Reconstruct an elastic run from its log: iterations, rolled back ones, stages over time, hosts and their periods; who
waited for whom in an iteration."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from plink.model.elastic.fields import UpdateCounts
from plink.records.elastic_log import (
    ControllerEvent,
    EndLogEntry,
    Entry,
    HostEvent,
    Iteration,
    ObjectiveLogEntry,
    ReplicationLogEntry,
    RollBackLogEntry,
    StageChange,
    TrafficLogEntry,
)

Work = Mapping[str, tuple[float, float, int]]  # by host: seconds computed and waited by a mean worker, and steps
_SLOW = 1.1  # times the median time of a step
_NAMED_HOSTS = 3
TimelineEvent = HostEvent | RollBackLogEntry | ControllerEvent
_DEPARTURES = ("left", "failed", "released")


class IterationValues:
    """Numbers by iteration; a repeated iteration replaces its earlier value.

    >>> seconds = IterationValues()
    >>> seconds.add(0, 1.5)
    >>> seconds.add(0, 2.5)
    >>> list(seconds.values)
    [2.5]
    """

    def __init__(self) -> None:
        self._iterations, self.values = array("q"), array("d")

    def __len__(self) -> int:
        return len(self._iterations)

    def add(self, iteration: int, value: float) -> None:
        """Add the value of an iteration, usually a later one than all before."""
        index = bisect_left(self._iterations, iteration)
        if index < len(self) and self._iterations[index] == iteration:
            self.values[index] = value
        else:
            self._iterations.insert(index, iteration)
            self.values.insert(index, value)

    def keep_while(self, keep: Callable[[float], bool]) -> None:
        """Remove values from the end until one is to be kept, as after a roll-back."""
        while len(self) and not keep(self.values[-1]):
            self._iterations.pop()
            self.values.pop()


@dataclass(frozen=True)
class WorkShares:
    """Shares of time in one iteration.

    ``waited``: of the time of all, 0 to 1. ``bsp``: what it would have been if all had waited after each step.
    ``by_host``: of each host. ``slowest``: hosts whose steps took a tenth longer than others', for which these waited.
    """

    waited: float
    bsp: float
    by_host: Mapping[str, float]
    slowest: tuple[str, ...]


def work_shares(work: Work) -> WorkShares | None:
    """Return shares; None where nothing was measured."""
    step_s = {host: compute_s / max(1, steps) for host, (compute_s, _, steps) in work.items() if compute_s > 0}
    if not step_s:
        return None
    computed = sum(compute_s for compute_s, _, _ in work.values())
    waited = sum(waited_s for _, waited_s, _ in work.values())
    most_s = max(step_s.values())
    median_s = sorted(step_s.values())[(len(step_s) - 1) // 2]
    return WorkShares(
        waited / (computed + waited),
        1 - sum(step_s.values()) / (len(step_s) * most_s),
        {host: waited_s / (compute_s + waited_s or 1.0) for host, (compute_s, waited_s, _) in work.items()},
        tuple(host for host, seconds in step_s.items() if seconds > _SLOW * median_s),
    )


def work_sentence(work: Work, iteration: int) -> str | None:
    """Return a line for a person; None where nobody is slow, and nobody did more steps than others."""
    shares = work_shares(work)
    if shares is None:
        return None
    steps = {host: count for host, (_, _, count) in work.items()}
    names = ", ".join(shares.slowest[:3]) + ("..." if len(shares.slowest) > 3 else "")
    if len(set(steps.values())) > 1:
        fewest, most = min(steps.values()), max(steps.values())
        slow = [host for host in steps if steps[host] == fewest]
        return (
            f"iteration {iteration}: {fewest} steps of {', '.join(slow[:3])}{'...' * (len(slow) > 3)}, up to {most} of "
            f"others; waited {shares.waited:.0%} (bsp would {shares.bsp:.0%})"
        )
    return f"iteration {iteration}: waited {shares.waited:.0%}, for {names}" if names else None


def help_sentence(moved: float, helped: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return a line for a person; None where nobody was helped.

    :param moved: share of all work that was done for others. :param helped: of each host's, by helping host.
    """
    shares = sorted(((sum(helpers.values()), host) for host, helpers in helped.items()), reverse=True)
    if not shares:
        return None
    texts = [f"{share:.1%} of {host}'s by {', '.join(sorted(helped[host]))}" for share, host in shares[:_NAMED_HOSTS]]
    return f"helpers did {moved:.1%} of the work: {'; '.join(texts)}{'; ...' * (len(shares) > _NAMED_HOSTS)}"


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
    ``rebalance``: whether workers helped each other;
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
    rebalance: bool = False
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
        rebalance=controllers[0].rebalance if controllers else False,
        replication=tuple(entry for entry in entries if isinstance(entry, ReplicationLogEntry)),
    )


def _steps(entries: Sequence[Entry]) -> tuple[IterationRecord, ...]:
    """Return all iterations, with objectives that were known later. A log may report a roll-back late, so an iteration
    that is reported again was rolled back in any case."""
    steps: list[IterationRecord] = []
    last_index: dict[int, int] = {}  # where each iteration was told last
    for entry in entries:
        if isinstance(entry, Iteration):
            previous = last_index.get(entry.iteration)
            if previous is not None:
                steps[previous] = replace(steps[previous], rolled_back=True)
            last_index[entry.iteration] = len(steps)
            steps.append(IterationRecord(entry, repeated=previous is not None))
        elif isinstance(entry, ObjectiveLogEntry):
            if (index := last_index.get(entry.iteration)) is not None:
                iteration = msgspec.structs.replace(steps[index].iteration, objective=entry.objective)
                steps[index] = replace(steps[index], iteration=iteration)
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
