"""Hosts on their way into a job: their servers begin, in a job that runs they join in their order, and to a controller
that takes over from another they say what they have."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from plink.runtime.agileml.carried import Carried
from runners.agile.channel import GONE, Answer, Channel
from runners.agile.hearing import Hearing
from runners.agile.member import Member
from runners.agile.settings import Settings
from solvers.elastic.placement.hosts import Tier


@dataclass
class _Arrival:
    """Hosts that were started together; ``ready``: their servers listen, or they are gone again."""

    members: list[Member]
    bulk: bool
    ready: bool = False


@dataclass
class Arriving:
    """``members``: of the job, to which those are added whose servers listen. ``saved``: a checkpoint that one of them
    found where it was told to look, ``own``: the latest of this very job. ``starting``: those that have not answered
    yet. ``refused``: what those said that could not begin, of which ``lost`` is told: the others do without them.
    ``fail`` ends the job, ``say`` takes a line for the user."""

    channel: Channel
    settings: Settings
    hearing: Hearing
    members: dict[int, Member]
    lost: Callable[[Member, str], None]
    fail: Callable[[str], None]
    say: Callable[[str], None]
    saved: dict[str, Any] | None = None
    own: dict[str, Any] | None = None
    starting: dict[int, Member] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    _queue: list[_Arrival] = field(default_factory=list)
    _folder_marked: bool = False

    def begin(self, newcomers: list[Member], then: Callable[[], None], *, late: bool = False) -> None:
        """Servers on these hosts; ``then`` when all of them listen, or are gone. ``late``: the job runs already."""
        waiting = {member.number for member in newcomers}

        def begun(member: Member, answer: Answer) -> None:
            waiting.discard(member.number)
            if answer["why"] is None:
                self._admit(member, answer)
                if why := answer["unwritable"]:
                    told = f"--checkpoint {self.settings.checkpoints}: it cannot be written on {member.name}: {why}"
                    (self.say if late else self.fail)(told)
                if why := answer["unsaved"]:
                    (self.say if late else self.fail)(f"{member.name}: what is learnt could not be kept: {why}")
            elif member.number in self.starting:
                self.refused.append(f"{member.name}: {answer['why']}")
                self.lost(member, answer["why"])
            self.starting.pop(member.number, None)
            if not waiting:
                self._check_folder(newcomers, then, late=late)

        if not newcomers:
            then()
        for member in newcomers:
            self._ask(member, "begin", begun, **self.settings.of(member))

    def _check_folder(
        self, newcomers: list[Member], then: Callable[[], None], *, late: bool, just_marked: bool = False
    ) -> None:  # fmt: skip
        """Whether reliable newcomers see the same folder for checkpoints as the others: one that was there before marks
        it, or else the first newcomer."""
        everybody = {member.number: member for member in self.members.values() if member.tier == Tier.RELIABLE.value}
        reliable = {member.number: member for member in newcomers if member.number in everybody}
        if not self.settings.checkpoints or not reliable:
            then()
            return
        waiting = set(reliable)

        def marked(number: int, answer: Answer) -> None:
            marked_now = answer["why"] is None
            self._folder_marked |= marked_now
            if not marked_now and answer.get("kind") != GONE:
                if number not in reliable:  # its disk fails: that comes out at the next checkpoint
                    then()
                    return
                refuse(number, answer["why"])
            others = [member for member in newcomers if member.number != number]
            self._check_folder(others, then, late=late, just_marked=marked_now)

        def checked(number: int, answer: Answer) -> None:
            waiting.discard(number)
            if answer["why"] is not None and answer.get("kind") != GONE:
                refuse(number, answer["why"])
            if not waiting:
                then()

        def refuse(number: int, error: str) -> None:
            told = f"--checkpoint {self.settings.checkpoints}: {reliable[number].name}: {error}"
            if late:
                self.members.pop(number, None)
                self.say(told)
                self.lost(reliable[number], error)
            else:
                self.fail(told)

        there = everybody.keys() - reliable.keys()
        if not self._folder_marked or (there and not just_marked):  # who marked it first may have left
            first = min(there or reliable)
            self.channel.tell(first, "mark_folder", lambda answer: marked(first, answer))
            return
        for number in reliable:
            self.channel.tell(number, "check_folder", lambda answer, number=number: checked(number, answer))  # type: ignore[misc]

    def arrive(self, newcomers: list[Member], bulk: bool, *, first: bool = False) -> None:
        """Hosts for a job that runs; :meth:`joining` tells when they may join. ``first``: before those that wait."""
        arrival = _Arrival(newcomers, bulk)
        self._queue.insert(0 if first else len(self._queue), arrival)

        def ready() -> None:
            arrival.ready = True

        self.begin(newcomers, ready, late=True)

    def joining(self) -> Iterator[tuple[list[Member], bool]]:
        """Those that may join now, in the order in which they came, whoever was faster; and whether as one."""
        while self._queue and self._queue[0].ready:
            first = self._queue.pop(0)
            yield [member for member in first.members if member.number in self.members], first.bulk

    def report(self, members: list[Member], then: Callable[[dict[int, Answer], list[Member]], None]) -> None:
        """What hosts have that another controller began: their reports by number, and those that had not begun."""
        waiting, reports, unbegun = {member.number for member in members}, dict[int, Answer](), list[Member]()

        def reported(member: Member, answer: Answer) -> None:
            waiting.discard(member.number)
            if answer["why"] is None:
                reports[member.number] = answer
                member.carried = Carried(**answer["carried"])
                self._admit(member, answer)
            elif member.number in self.starting:
                unbegun.append(member)
            self.starting.pop(member.number, None)
            if not waiting:  # some may have been lost since they answered
                then({number: report for number, report in reports.items() if number in self.members}, unbegun)

        if not members:
            then({}, [])
        for member in members:
            self._ask(member, "report", reported)

    def gone(self, number: int) -> bool:
        """Whether it was one of those that have not answered yet; the channel is to be told after this."""
        return self.starting.pop(number, None) is not None

    def _ask(self, member: Member, do: str, then: Callable[[Member, Answer], None], **fields: Any) -> None:
        self.starting[member.number] = member
        self.hearing.heard(member)
        self.channel.tell(member.number, do, lambda answer: then(member, answer), **fields)

    def _admit(self, member: Member, answer: Answer) -> None:
        member.address = answer["address"]
        self.saved = self.saved or answer["saved"]
        self.own = max(filter(None, (self.own, answer["own"])), key=lambda one: one["clock"], default=None)
        self.members[member.number] = member
        self.hearing.heard(member)
