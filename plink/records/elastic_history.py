"""What the log of an elastic run amounts to: iterations that count and those that were lost, stages as stretches of
time, who was held for how long."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from plink.records.elastic_log import (
    ControllerEvent,
    End,
    Entry,
    HostEvent,
    Iteration,
    RolledBack,
    StageChange,
    Traffic,
)

Told = HostEvent | RolledBack | ControllerEvent
_GONE = ("left", "failed", "let go")


@dataclass(frozen=True)
class Step:
    """One iteration. ``lost``: a roll-back undid it later; ``again``: it had been done before, and was lost."""

    iteration: Iteration
    lost: bool = False
    again: bool = False


@dataclass(frozen=True)
class Member:
    """A host from joining to going; ``until`` is the end of the log where it never went."""

    joined: HostEvent
    until: float


@dataclass(frozen=True)
class History:
    """``steps``, ``events``: in the order of the log; ``stages``: (from, until, stage), seconds; ``seconds``: until
    when the log tells; ``traffic``: bytes (sent, received) by host."""

    steps: tuple[Step, ...]
    stages: tuple[tuple[float, float, int], ...]
    members: tuple[Member, ...]
    events: tuple[Told, ...]
    seconds: float
    end: End | None = None
    traffic: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def kept(self) -> list[Iteration]:
        """The iterations that count."""
        return [step.iteration for step in self.steps if not step.lost]


def history_of(entries: Sequence[Entry]) -> History:
    """:param entries: as :func:`plink.records.elastic_log.read_elastic_log` gives them, at least one."""
    seconds = max(entry.at for entry in entries)
    return History(
        steps=_steps(entries),
        stages=_stages([entry for entry in entries if isinstance(entry, StageChange)], seconds),
        members=members_of([entry for entry in entries if isinstance(entry, HostEvent)], seconds),
        events=tuple(entry for entry in entries if isinstance(entry, HostEvent | RolledBack | ControllerEvent)),
        seconds=seconds,
        end=next((entry for entry in reversed(entries) if isinstance(entry, End)), None),
        traffic=_traffic([entry for entry in entries if isinstance(entry, Traffic)]),
    )


def _steps(entries: Sequence[Entry]) -> tuple[Step, ...]:
    """What a roll-back undoes may be told only after it, so an iteration that is told again was lost in any case."""
    steps: list[Step] = []
    told: dict[int, int] = {}  # where each iteration was told last
    for entry in entries:
        if isinstance(entry, Iteration):
            before = told.get(entry.iteration)
            if before is not None:
                steps[before] = replace(steps[before], lost=True)
            told[entry.iteration] = len(steps)
            steps.append(Step(entry, again=before is not None))
        elif isinstance(entry, RolledBack):
            steps = [
                step if step.lost or step.iteration.clock <= entry.clock else replace(step, lost=True) for step in steps
            ]
    return tuple(steps)


def _stages(changes: Sequence[StageChange], end: float) -> tuple[tuple[float, float, int], ...]:
    found: list[tuple[float, float, int]] = []
    for place, change in enumerate(changes):
        until = changes[place + 1].at if place + 1 < len(changes) else end
        if found and found[-1][2] == change.stage:
            found[-1] = (found[-1][0], until, change.stage)
        else:
            found.append((change.at, until, change.stage))
    return tuple(found)


def members_of(events: Sequence[HostEvent], end: float) -> tuple[Member, ...]:
    """By number: a host that comes back under its old name is another one. ``end``: for those who never went."""
    found: dict[int, Member] = {}
    for event in events:
        if event.event == "joined":
            found.setdefault(event.number, Member(event, end))
        elif event.event in _GONE and event.number in found:
            member = found[event.number]
            found[event.number] = replace(member, until=min(member.until, max(event.at, member.joined.at)))
    return tuple(found.values())


def _traffic(lines: Sequence[Traffic]) -> dict[str, tuple[int, int]]:
    """Counters begin at nothing again on a host that came back: what they had told by then is added."""
    before: dict[str, tuple[int, int]] = {}
    now: dict[str, tuple[int, int]] = {}
    for line in lines:
        base, last = before.get(line.host, (0, 0)), now.get(line.host, (0, 0))
        if line.sent < last[0] or line.received < last[1]:
            before[line.host] = (base[0] + last[0], base[1] + last[1])
        now[line.host] = (line.sent, line.received)
    return {
        host: (sent + before.get(host, (0, 0))[0], received + before.get(host, (0, 0))[1])
        for host, (sent, received) in now.items()
    }
