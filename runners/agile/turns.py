"""When the work changes hands: at a clock that nobody has begun, everywhere at the same one (Harlap thesis, 4.2.3).

A *turn* has three steps. Workers are held before a clock C in the near future, which none of them may have begun; every
server is told who takes part in its partitions from C on; and workers are told what they work on from C on, and go on.
If C is far enough ahead nobody notices being held. Who is lost owes its updates of the clocks before C: another host
does them in its name. After a roll-back to a clock K the turn is at K + 1, and nobody needs to be held: in the new era
workers begin nothing before they were told what.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from runners.agile.channel import Answer, Channel

_AHEAD = 2  # clocks
_AGAIN_S = 0.05

Pieces = tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """What one worker does: on ``host``, from clock ``first`` on, as long as it does anything."""

    host: int
    pieces: Pieces
    first: int


@dataclass(frozen=True)
class Owed:
    """What a lost worker still has to do: clocks from ``first`` to before ``until``, by ``host`` in its name."""

    pieces: Pieces
    first: int
    until: int
    host: int


class _Step(Enum):
    IDLE = 0
    HOLDING = 1
    TAKING_PART = 2


class Job(Protocol):
    """What a turn has to know of the job."""

    def alive(self, host: int) -> bool:
        """Whether a host is a member."""

    def slots(self, host: int) -> int:
        """Workers of a host."""

    def owners(self) -> tuple[int, ...]:
        """Who serves each partition."""

    def reached(self) -> int:
        """The clock that all partitions have."""

    def loaded(self, host: int) -> frozenset[int]:
        """Pieces that a host has in memory."""

    def ready(self) -> bool:
        """Whether all partitions are served."""

    def turned(self, first: int, shares: Mapping[int, Share]) -> None:
        """A turn is over."""


@dataclass
class Turns:
    """``wanted``: pieces by host, as decided; whoever changes it calls :meth:`look`. ``later`` calls something after
    some seconds."""

    channel: Channel
    job: Job
    number_of_pieces: int
    later: Callable[[float, Callable[[], None]], None]
    wanted: Mapping[int, Pieces] = field(default_factory=dict)
    shares: dict[int, Share] = field(default_factory=dict)
    owed: dict[int, Owed] = field(default_factory=dict)
    ending: dict[int, Owed] = field(default_factory=dict)  # told to leave, with some clocks still to do
    era: int = 0
    begun: int = -1
    next_worker: int = 0
    frozen: bool = False  # the job is about to end: whoever has work goes on with it
    _at: int | None = 0  # the clock of a turn that nobody has to be held for
    _step: _Step = _Step.IDLE
    _left: dict[int, int] = field(default_factory=dict)  # hosts of workers that leave after a roll-back
    _had: dict[int, list[tuple[int, Pieces]]] = field(default_factory=dict)  # by worker: from which clock on, this era
    _turn: int = 0
    _next: dict[int, Share] = field(default_factory=dict)

    @property
    def turning(self) -> bool:
        """Whether the work is about to change hands."""
        return self._step is not _Step.IDLE

    @property
    def dealt(self) -> bool:
        """Whether workers were told what to do, since the beginning and since the last roll-back."""
        return self._at is None

    def works(self, host: int) -> bool:
        """Whether a host has workers, also such as stand in for others; or will have."""
        shares = (*self.shares.values(), *self._next.values())
        left = (*self.owed.values(), *self.ending.values())
        return any(share.host == host for share in shares) or any(owed.host == host for owed in left)

    def look(self) -> None:
        """Begin a turn if one is due and nothing is in its way."""
        self._mend_owed()
        if self._step is not _Step.IDLE or not self._possible():
            return
        if self._at is not None:
            self._begin()
        elif self._lost() or (not self.frozen and self._dealt() != self._now()):
            self._hold(max(self.begun, self.job.reached() + 1) + _AHEAD)

    def rolled_back(self, clock: int, era: int) -> None:
        """All are back at a clock: whatever was under way is off, and what comes next is told anew."""
        self._abandon()
        self.era, self._at, self.frozen = era, clock + 1, False
        self.begun = clock
        self._left |= {worker: left.host for worker, left in self.ending.items()}
        self._had.clear()
        self.owed.clear()
        self.ending.clear()
        self.shares = {number: share for number, share in self.shares.items() if self.job.alive(share.host)}

    def ended(self, worker: int, until: int | None = None) -> None:
        """A worker that was told to leave, or who stood in for one that was lost, has done what was left to do.

        :param until: the clock at which it was told to; None: the job is over. What is owed beyond it stays owed.
        """
        owed = self.owed.get(worker)
        if owed is not None and (until is None or until >= owed.until):
            del self.owed[worker]
        self.ending.pop(worker, None)
        self._left.pop(worker, None)
        self.look()

    def resume(
        self, shares: Mapping[int, Share], era: int, next_worker: int, begun: int, left: Mapping[int, int]
    ) -> None:  # fmt: skip
        """Go on where another controller left off, its last turn being over.

        :param left: hosts of workers that were told to leave and have not.
        """
        self._left = dict(left)
        self.shares, self.era, self.next_worker, self.begun, self._at = dict(shares), era, next_worker, begun, None

    def _possible(self) -> bool:
        """Whether every piece has somebody who has it in memory. Where a wanted host is no more, what follows from that
        is yet to be decided."""
        covered = sum(len(pieces) for pieces in self.wanted.values())
        return covered == self.number_of_pieces and all(map(self.job.alive, self.wanted)) and self.job.ready()

    def _lost(self) -> list[int]:
        return [worker for worker, share in self.shares.items() if not self.job.alive(share.host)]

    def _now(self) -> dict[int, tuple[int, Pieces]]:
        return {worker: (share.host, share.pieces) for worker, share in self.shares.items()}

    def _dealt(self) -> dict[int, tuple[int, Pieces]]:
        """Who is to do what, host and pieces by worker, of workers that there are and new ones."""
        at_host: dict[int, list[int]] = {}
        for worker, share in sorted(self.shares.items()):
            at_host.setdefault(share.host, []).append(worker)
        found: dict[int, tuple[int, Pieces]] = {}
        new = itertools.count(self.next_worker)
        for host, pieces in sorted(self.wanted.items()):
            slots = max(1, min(self.job.slots(host), len(pieces)))
            there = at_host.get(host, [])
            for slot in range(slots):
                worker = there[slot] if slot < len(there) else next(new)
                found[worker] = host, pieces[slot::slots]
        return found

    def _hold(self, clock: int, ahead: int = _AHEAD) -> None:
        """:param ahead: how many clocks ``clock`` is off; twice as many each time that somebody was faster."""
        self._step = _Step.HOLDING
        self._turn += 1
        turn, begun = self._turn, [-1]
        waiting = {share.host for share in self.shares.values() if self.job.alive(share.host)}

        def answered(host: int, answer: Answer) -> None:
            if turn != self._turn or self._step is not _Step.HOLDING:
                return
            waiting.discard(host)
            if answer["why"] is None:
                begun.append(answer["begun"])
            if waiting:
                return
            if not self._possible():  # somebody was lost meanwhile
                self._abandon()
            elif max(begun) >= clock:
                self._let_go()
                self._hold(max(begun) + 2 * ahead, 2 * ahead)
            else:
                self._take_part(clock)

        hosts = sorted(waiting)
        for host in hosts:
            self.channel.tell(host, "hold", lambda answer, host=host: answered(host, answer), clock=clock)  # type: ignore[misc]
        if not hosts:
            self._take_part(clock)

    def _let_go(self) -> None:
        for host in {share.host for share in self.shares.values() if self.job.alive(share.host)}:
            self.channel.tell(host, "let_go")

    def _abandon(self) -> None:
        if self._step is not _Step.IDLE:
            self._turn += 1
            self._step, self._next = _Step.IDLE, {}
            self._let_go()

    def _begin(self) -> None:
        """A turn that nobody needs to be held for."""
        assert self._at is not None
        self._turn += 1
        self._take_part(self._at)

    def _take_part(self, clock: int) -> None:
        self._step = _Step.TAKING_PART
        self._next = {
            worker: Share(host, pieces, min(self.shares[worker].first, clock) if worker in self.shares else clock)
            for worker, (host, pieces) in self._dealt().items()
        }
        self.next_worker = max(self.next_worker, *(worker + 1 for worker in self._next))
        turn, waiting = self._turn, set(range(len(self.job.owners())))

        def tell(partitions: set[int]) -> None:
            if turn != self._turn:
                return
            by_owner: dict[int, list[int]] = {}
            for partition in sorted(partitions):
                by_owner.setdefault(self.job.owners()[partition], []).append(partition)
            for owner, theirs in by_owner.items():
                self.channel.tell(
                    owner, "take_part", lambda answer, theirs=theirs: answered(theirs, answer),  # type: ignore[misc]
                    partitions=theirs, workers=sorted(self._next), first=clock,
                )  # fmt: skip

        def answered(partitions: list[int], answer: Answer) -> None:
            if turn != self._turn:
                return
            elsewhere = partitions if answer["why"] is not None else [number for number, _ in answer["elsewhere"]]
            waiting.difference_update(set(partitions) - set(elsewhere))
            if elsewhere:
                self.later(_AGAIN_S, lambda: tell(set(elsewhere) & waiting))
            elif not waiting:
                self._assign(clock)

        tell(set(waiting))

    def _assign(self, clock: int) -> None:
        before, self.shares, self._next = self.shares, self._next, {}
        self._step, rolled_back = _Step.IDLE, self._at is not None
        self._at = None
        self.begun = max(self.begun, clock - 1)
        everywhere = {worker: [share.host, list(share.pieces), share.first] for worker, share in self.shares.items()}
        if rolled_back:
            self._left |= {worker: share.host for worker, share in before.items() if worker not in self.shares}
        else:
            for worker, share in before.items():
                if worker in self.shares:
                    continue  # one who was lost meanwhile takes part: the next turn says up to where it is owed
                if not self.job.alive(share.host):
                    self.owed[worker] = Owed(share.pieces, share.first, clock, -1)
                else:
                    self.ending[worker] = Owed(share.pieces, share.first, clock, share.host)
        left = [[owed.host, owed.until] for owed in (*self.ending.values(), *self.owed.values())]
        for worker, share in self.shares.items():
            self._had.setdefault(worker, []).append((clock, share.pieces))
        hosts = {*self._left.values(), *(share.host for share in (*before.values(), *self.shares.values()))}
        for host in sorted(filter(self.job.alive, hosts)):
            own = {worker: list(share.pieces) for worker, share in self.shares.items() if share.host == host}
            self.channel.tell(host, "assign", clock=clock, era=self.era, workers=own, everywhere=everywhere, left=left)
        self.job.turned(clock, self.shares)
        self.look()

    def _mend_owed(self) -> None:
        """Somebody does what lost workers owe: who has most of their pieces in memory, and least to do."""
        for worker, left in list(self.ending.items()):
            if not self.job.alive(left.host):
                self.owed[worker] = replace(self.ending.pop(worker), host=-1)
        for worker, owed in list(self.owed.items()):
            if owed.host >= 0 and self.job.alive(owed.host):
                continue
            hosts = sorted({share.host for share in self.shares.values() if self.job.alive(share.host)})
            if not hosts:
                continue
            busy = [other.host for other in self.owed.values()]
            pieces = set(owed.pieces)
            host = min(hosts, key=lambda host: (-len(pieces & self.job.loaded(host)), busy.count(host), host))
            self.owed[worker] = replace(owed, host=host)
            had = [[since, list(theirs)] for since, theirs in self._had.get(worker, [(owed.first, owed.pieces)])]
            self.channel.tell(
                host, "stand_in", worker=worker, had=had,
                clock=max(owed.first, self.job.reached() + 1), until=owed.until, era=self.era,
            )  # fmt: skip
