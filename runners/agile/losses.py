"""Hosts that a job loses: what becomes of it then, and when it ends because its program ends one host after another."""

from typing import TYPE_CHECKING

from plink.model.consistency import parse_rule
from runners.agile.deaths import Deaths
from runners.agile.member import Member
from solvers.agile.events import Failed, Left

if TYPE_CHECKING:
    from runners.agile.controller import Controller

_LEAVES_S = 60.0  # within which a host that cannot load its data hands over what it serves


class Losses:
    """Of one controller's job."""

    def __init__(self, job: "Controller") -> None:
        self._job = job
        self.deaths = Deaths()

    def cannot_begin(self, member: Member, why: str) -> None:
        """A host that had not joined yet: the others do without it."""
        self._job.log(**member.line("failed", why))
        self._drop(member.number, why)

    def unfit(self, number: int, why: str) -> None:
        """A member cannot do its part: it goes at once, unless it serves what would be lost with it."""
        if self._job.turns.begun >= 0 and self._keeps(number):
            self._job.warn({number: _LEAVES_S}, f"it is not fit for this: {why}")
        else:
            self.gone(number, why=why)

    def gone(self, *numbers: int, why: str) -> None:
        """Hosts are no longer there, or as good as gone. Those that are lost at once, as a rack is, are decided on as
        one: nothing is to be moved from one of them to another."""
        job = self._job
        left, failed = list[int](), list[int]()
        for number in numbers:
            member = job.members.get(number)
            if member is None:
                if job.arriving.gone(number):
                    self._drop(number, why)
                job.channel.gone(number)
                continue
            warned = number in job.leaving.deadlines
            (left if job.leaving.gone(number) else failed).append(number)
            job.log(**member.line("left" if number in left else "failed", why))
            del job.members[number]
            self._drop(number, why)  # it may come to again
            if number in failed and not warned and self._blames(member, why):
                return
        lost = [*left, *failed]
        unbegun = job.turns.begun < 0  # then there is nothing that could be lost
        if lost and job.state is not None and (job.carrier.opening or (unbegun and any(map(self._keeps, lost)))):
            job.beginning.start_anew(job.saving.last)  # its backups may not have anything yet
        elif lost:
            if left:
                job.decisions.event(Left(tuple(left)))
            if failed:
                job.decisions.event(Failed(tuple(failed)))
            job.drain()
        for number in lost:
            job.channel.gone(number)  # whoever waited for its answer finds things as they are without it

    def _drop(self, number: int, why: str) -> None:
        self._job.write({"is": "drop", "host": number, "why": why})

    def _keeps(self, number: int) -> bool:
        return any(number in (one.owner, one.backup) for one in self._job.cluster.partitions)

    def _blames(self, member: Member, why: str) -> bool:
        """Whether the job ends because its program ends one host after another."""
        job = self._job
        apart = parse_rule(job.settings.rule).apart
        behind = 1 + apart  # the slowest are at most, and partitions are heard of later than clocks
        clock = -1 if job.state is None else max(job.reached(), job.course.clock_done - behind)
        if self.deaths.died(member.number, member.name, why, clock, job.channel.latest):
            for other in job.members:  # a word that changes nothing: whoever answers has not died at the same time
                job.channel.tell(other, "push_up_to", lambda answer: None, clock=job.rounds.limit)
        if blame := self.deaths.blame:
            job.fail(blame)
        return blame is not None
