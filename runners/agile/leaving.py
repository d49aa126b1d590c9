"""Hosts on their way out of a job: those that are warned, until when they may stay, and when one of them is let go."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from runners.agile.channel import Channel
from runners.agile.member import Member

_LATE_S = 1.0  # after its deadline a host that was warned is let go, whatever it still has


@dataclass
class Leaving:
    """``members``: those that are alive, by number. ``decide`` takes those that were warned.

    ``deadlines``: of those that were warned, by number, on the clock. ``let_go``: those that are, once they are free.
    """

    channel: Channel
    members: Mapping[int, Member]
    clock: Callable[[], float]
    log: Callable[..., None]
    decide: Callable[[Collection[int]], None]
    deadlines: dict[int, float] = field(default_factory=dict)
    let_go: set[int] = field(default_factory=set)
    _released: set[int] = field(default_factory=set)
    _early: dict[int, tuple[float, str]] = field(default_factory=dict)  # of hosts on their way in: until when, and why

    def warn(self, seconds: Mapping[int, float], why: str, joined: Collection[int]) -> None:
        """Hosts are to be taken away, each after so many seconds; of those that have not ``joined`` yet it is kept in
        mind."""
        known = []
        for number, left in seconds.items():
            if number not in joined:
                self._early[number] = self.clock() + left, why
            elif number in self.members:
                known.append(number)
                self.deadlines[number] = self.clock() + left
                self.log(**self.members[number].line("warned", why, left))
        if known:
            self.decide(known)

    def joined(self, joined: Collection[int]) -> None:
        """Those that were warned on their way in are, once they have joined."""
        for number, (until, why) in list(self._early.items()):
            if number in joined:
                del self._early[number]
                self.warn({number: max(0.0, until - self.clock())}, why, joined)

    def overdue(self) -> None:
        """Those whose time is over go."""
        now = self.clock()
        for number, at in list(self.deadlines.items()):
            if now > at + _LATE_S and number in self.members:
                self.release(number, "its time is over")

    def look(self, free: Callable[[int], bool]) -> None:
        """Those that are to be let go and have nothing left go."""
        for number in sorted(self.let_go):
            if number not in self.members:
                self.let_go.discard(number)
            elif free(number):
                self.let_go.discard(number)
                self.release(number, "it has nothing left that anybody needs")

    def release(self, number: int, why: str) -> None:
        """A host may go."""
        if number not in self._released:
            self._released.add(number)
            self.log(**self.members[number].line("let go", why))
            self.channel.tell(number, "bye")

    def gone(self, number: int) -> bool:
        """A member is no longer there; whether it was let go before."""
        self.deadlines.pop(number, None)
        return number in self._released
