"""What the hosts of a job carry: told in its log, and measured for the thresholds of its stages (Harlap thesis, future
work 6.2.2)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plink.runtime.agileml.carried import Carried
from runners.agile.member import Member
from solvers.elastic.placement.hosts import Tier
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.placement.stages import Traffic as Measure

_EVERY_S = 5.0


@dataclass
class Traffic:
    """:param rate: bytes a second that a host carries in either direction; None where nobody said.
    :param log: takes a line of the run's log.
    """

    members: Mapping[int, Member]
    rate: float | None
    log: Callable[..., None]
    _next_s: float = 0.0
    _before: tuple[float, dict[int, Carried]] | None = None
    _stages: set[Stage | None] = field(default_factory=set)  # those seen since the last measure
    _worker: float = 0.0  # as measured last while reliable hosts had workers
    _measures: int = 0
    _told: dict[str, Carried] = field(default_factory=dict)

    def look(self, now: float, stage: Stage | None, transient: int) -> Measure | None:
        """What was measured since the last time, if it is time again and there is a rate to hold it against.

        Nothing of a time in which the stage changed, whose traffic is of neither, or in which nobody worked (``stage``
        is None), since the job had not begun yet or all were on their way back. In stage 3 reliable hosts have no
        workers; what these would carry is what they did carry, or thresholds would follow from the stage itself.
        """
        self._stages.add(stage)
        if now < self._next_s:
            return None
        self._next_s = now + _EVERY_S
        self.tell()
        before, current = self._before, {number: member.carried for number, member in self.members.items()}
        self._before = now, current
        steady, self._stages = len(self._stages) == 1, {stage}
        if before is None or self.rate is None or stage is None or not steady:
            return None
        seconds = now - before[0]
        worker = backup = 0.0
        reliable = [m.number for m in self.members.values() if m.tier == Tier.RELIABLE and m.number in before[1]]
        for number in reliable:
            old, new = before[1][number], current[number]
            asked = max(new.asked_sent - old.asked_sent, new.asked_received - old.asked_received)
            worker = max(worker, asked / seconds)
            backup += (new.served_received - old.served_received) / seconds
        if stage is Stage.BACKUP_ONLY:
            worker = self._worker
        self._worker = worker
        self._measures += 1
        backups = stage is not Stage.PARAMETER_SERVERS and transient > 0
        return Measure(worker, self.rate, backup / transient if backups else None)

    def kept(self, thresholds: Thresholds) -> dict[str, Any]:
        """For hosts to keep: what was made of the last measure, and what cannot be measured in every stage."""
        return {
            "measure": self._measures, "worker": self._worker, "active": thresholds.active,
            "backup_only": thresholds.backup_only,
        }  # fmt: skip

    def go_on(self, kept: Mapping[str, Any], now: float) -> None:
        """Where another controller left off, and not before what changed with it is over."""
        self._measures, self._worker = kept["measure"], kept["worker"]
        self._next_s = now + _EVERY_S

    def tell(self) -> None:
        """What has changed, into the log."""
        for member in self.members.values():
            if self._told.get(member.name) != member.carried:
                self._told[member.name] = member.carried
                self.log(
                    what="traffic", host=member.name, sent=member.carried.sent, received=member.carried.received
                )  # fmt: skip
