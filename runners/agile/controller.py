"""The elasticity controller: what `solvers.agile` decides, carried out (Harlap thesis, 4.2).

One thread, which never waits: what the hub says is taken in, decisions follow from it, words to hosts follow from
these. All that it knows can be had again from the hosts: it may be killed at any time, and another goes on.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plink.runtime.agileml.carried import Carried
from runners.agile.arriving import Arriving
from runners.agile.beginning import Beginning
from runners.agile.carrying import Carrier
from runners.agile.channel import Answer, Channel
from runners.agile.course import Course
from runners.agile.deaths import Deaths
from runners.agile.hearing import Hearing
from runners.agile.leaving import Leaving
from runners.agile.member import Member
from runners.agile.resizing import Resizing
from runners.agile.rounds import SHIFT, Rounds
from runners.agile.saving import Saving
from runners.agile.settings import Settings
from runners.agile.status import hosts_of
from runners.agile.traffic import Traffic
from runners.agile.turns import Share, Turns
from runners.agile.unable import Unable
from runners.agile.waiting import Wait, Waiting
from solvers.agile import actions as act
from solvers.agile.cluster import apply
from solvers.agile.data import worked_on
from solvers.agile.events import Event, Failed, Joined, Left, Measured, Moved, Warned
from solvers.agile.hosts import Tier
from solvers.agile.state import Cluster

_SOON_S = 0.05
_LEAVES_S = 60.0  # within which a host that cannot load its data hands over what it serves


@dataclass
class Controller:
    """Of one job.

    :param write: takes a message on its way to the hub. :param by: of this controller; greater than any before it.
    :param clock: seconds, monotonic.
    """

    write: Callable[[dict[str, Any]], None]
    settings: Settings
    by: int
    clock: Callable[[], float]
    members: dict[int, Member] = field(default_factory=dict)
    state: Cluster | None = None

    def __post_init__(self) -> None:
        self.channel = Channel(self.write, self.by, self._gone)
        self.hearing = Hearing(self.settings.silence_s)
        self._events: deque[Event] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.welcomed: set[int] = set()
        self.early: list[Mapping[str, Any]] = []  # clocks that were done while hosts reported
        self._over = False
        self.finished: dict[int, int] = {}  # clock by worker
        self._last_word = False
        self.beginning = Beginning(self)
        self.arriving = Arriving(
            self.channel, self.settings, self.hearing, self.members, self._cannot_begin, self.fail, self.say
        )
        self.leaving = Leaving(self.channel, self.members, self.clock, self.log, self.warned)
        self.course = Course(self.log, lambda: self.clock() - self.settings.began)
        self.resizing = Resizing(self.say)
        self.waiting = Waiting(self.settings.slack or 0)
        self._noted_wait: Wait | None = None
        self.deaths = Deaths()
        self.unable = Unable(self.members, lambda: self.cluster, self._without, self.fail)
        self.carrier = Carrier(
            self.channel, self.members, lambda: self.cluster, self.event, self.later, self.fail, self.unable.load,
            self.note, lambda host: not self.turns.works(host), self.clock, self.leaving.deadlines,
        )  # fmt: skip
        self.turns = Turns(self.channel, self, self.settings.pieces, self.later)
        self.rounds = Rounds(lambda clock: self.tell_all("push_up_to", clock=clock))
        self.traffic = Traffic(self.members, self.settings.host_rate if self.settings.measured else None, self.log)
        self.saving = Saving(self.settings, self.channel, self.members, self.say, self.log, self.clock)

    # What is heard.

    def hear(self, message: Mapping[str, Any]) -> None:
        """One message of the hub's: of a host (``from``), of a host's coming and going, or of somebody's wishes."""
        self.hearing.pass_time(self.clock())
        kind = message["is"]
        if "from" in message:
            self.host_says(message["from"], kind, message)
        elif kind == "start":
            self.arriving.begin([Member(**host) for host in message["hosts"]], self.beginning.start)
        elif kind == "resume":
            self.arriving.report([Member(**host) for host in message["hosts"]], self.beginning.go_on)
        elif kind == "joined":
            self.arriving.arrive([Member(**host) for host in message["hosts"]], message["bulk"])
        elif kind == "gone":
            self._gone(message["host"], message["why"])
        elif kind == "evict":
            self.warn(dict.fromkeys(message["hosts"], message["seconds"]), message["why"])
        elif kind == "status":
            self.write({"is": "status", "ask": message["ask"], "status": self.status()})
        self._drain()

    def tick(self) -> float:
        """Do what is due; seconds until something else is."""
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
            self._drain()
        if not self._over:
            for member in self.hearing.silent([*self.members.values(), *self.arriving.starting.values()]):
                self._gone(member.number, f"nothing was heard of it for {self.settings.silence_s:g} s")
                self._drain()
        if self.state is None:
            self.beginning.look()
        if not self._over and self.state is not None:
            self.leaving.overdue()
            self._note_wait()
            self._look()
            self._drain()
        return max(0.0, self._timers[0][0] - self.clock()) if self._timers else 1.0

    def event(self, event: Event) -> None:
        """To be decided on, after what is being carried out."""
        self._events.append(event)

    def warned(self, hosts: Collection[int]) -> None:
        """To decide on hosts that are to be taken away, once every backup has something: for one without time all
        would go back to what backups have."""
        if self.state is not None and self.carrier.opening:
            self.later(_SOON_S, lambda: self.warned(hosts))
            return
        left = {number: max(0.0, at - self.clock()) for number, at in self.leaving.deadlines.items()}
        if known := {number: left[number] for number in hosts if number in left and number in self.members}:
            self.event(Warned(known, others=left))

    def later(self, seconds: float, does: Callable[[], None]) -> None:
        """Not now."""
        heapq.heappush(self._timers, (self.clock() + seconds, next(self._order), does))

    def log(self, **line: Any) -> None:
        """A line of the run's log."""
        self.write({"is": "log", "line": line})

    def note(self, text: str) -> None:
        """A line for whoever looks for the cause of something."""
        self.write({"is": "note", "text": text})

    def say(self, text: str) -> None:
        """A line for the user."""
        self.write({"is": "say", "text": text})

    def fail(self, why: str) -> None:
        """Nobody can go on."""
        self._end(1, why)

    def _end(self, code: int, why: str) -> None:
        if not self._over:
            self._over = True
            self.course.end()
            self.traffic.tell()
            self.write({"is": "end", "code": code, "why": why})

    # Who there is.

    def any_reliable(self) -> bool:
        """Whether a reliable host is there."""
        return any(member.tier == Tier.RELIABLE.value for member in self.members.values())

    def alive(self, host: int) -> bool:
        """Whether a host is a member."""
        return host in self.members

    def slots(self, host: int) -> int:
        """Workers of a host."""
        return self.members[host].slots

    def owners(self) -> tuple[int, ...]:
        """Who serves each partition."""
        return tuple(one.owner for one in self.cluster.partitions)

    def reached(self) -> int:
        """The clock that all partitions have."""
        return self.rounds.clock(len(self.cluster.partitions))

    def loaded(self, host: int) -> frozenset[int]:
        """Pieces that a host has in memory."""
        return frozenset(index for index, piece in enumerate(self.cluster.pieces) if host in piece.loaded)

    def ready(self) -> bool:
        """Whether all partitions are served."""
        return not self.carrier.opening and not self.cluster.halted

    def turned(self, first: int, shares: Mapping[int, Share]) -> None:
        """The work has changed hands."""
        self.finished = {worker: clock for worker, clock in self.finished.items() if worker in shares}
        self.course.turned(first, shares)
        self.resizing.turned(first, shares, self.cluster)

    @property
    def cluster(self) -> Cluster:
        """The job, once it has begun."""
        assert self.state is not None
        return self.state

    def tell_all(self, do: str, **fields: Any) -> None:
        """All members, without answers."""
        self.channel.tell_all(list(self.members), do, **fields)

    def _join(self, newcomers: list[Member], bulk: bool) -> None:
        new = [member for member in newcomers if member.number not in self.cluster.members]
        if self.cluster.halted:
            self.beginning.start_again()
            return
        for member in new:
            if member.number <= self.cluster.newest:  # it fell between two controllers
                self.leaving.release(member.number, "it came while the controller changed; add it again")
            self.channel.tell(member.number, "push_up_to", clock=self.rounds.limit)
        self._point()
        self.event(Joined(tuple(member.host for member in new), bulk))

    def warn(self, seconds: Mapping[int, float], why: str) -> None:
        """Hosts are to be taken away, each after so many seconds."""
        self.leaving.warn(seconds, why, () if self.state is None else self.cluster.members)

    def _cannot_begin(self, member: Member, why: str) -> None:
        self.log(**member.line("failed", why))
        self.write({"is": "drop", "host": member.number, "why": why})

    def _without(self, number: int, why: str) -> None:
        """A member cannot do its part: it goes at once, unless it serves what would be lost with it."""
        if self.turns.begun >= 0 and self._keeps(number):
            self.warn({number: _LEAVES_S}, f"it is not fit for this: {why}")
        else:
            self._gone(number, why)

    def _keeps(self, number: int) -> bool:
        return any(number in (one.owner, one.backup) for one in self.cluster.partitions)

    def _gone(self, number: int, why: str) -> None:
        member = self.members.get(number)
        if member is None:
            if self.arriving.gone(number):
                self.write({"is": "drop", "host": number, "why": why})
            self.channel.gone(number)
            return
        warned = number in self.leaving.deadlines
        left = self.leaving.gone(number)
        self.log(**member.line("left" if left else "failed", why))
        del self.members[number]
        self.write({"is": "drop", "host": number, "why": why})  # it may come to again
        if not left and not warned and self._blames(member, why):
            return
        unbegun = self.turns.begun < 0  # then there is nothing that could be lost
        if self.state is not None and (self.carrier.opening or (unbegun and self._keeps(number))):
            self.beginning.start_anew(self.saving.last)  # its backups may not have anything yet
            self.channel.gone(number)
            return
        self.event(Left((number,)) if left else Failed((number,)))
        self._drain()
        self.channel.gone(number)  # whoever waited for its answer finds things as they are without it

    def _blames(self, member: Member, why: str) -> bool:
        """Whether the job ends because its program ends one host after another."""
        behind = 1 + (
            self.settings.slack or 0
        )  # the slowest are at most, and partitions are heard of later than clocks
        clock = -1 if self.state is None else max(self.reached(), self.course.clock_done - behind)
        if self.deaths.died(member.number, member.name, why, clock, self.channel.latest):
            for other in self.members:  # a word that changes nothing: whoever answers has not died at the same time
                self.channel.tell(other, "push_up_to", lambda answer: None, clock=self.rounds.limit)
        if blame := self.deaths.blame:
            self.fail(blame)
        return blame is not None

    # What hosts say.

    def host_says(self, number: int, kind: str, message: Mapping[str, Any]) -> None:
        """What a host says, unless it was given up."""
        member = self.members.get(number) or self.arriving.starting.get(number)
        if member is None:
            return
        self.hearing.heard(member)
        if kind == "answer":
            self.deaths.answered(number, message["id"])
            self.channel.answered(number, dict(message))
        elif kind == "alive":
            member.carried = Carried(**message["carried"])
        elif kind == "notice":
            self.warn({number: message["seconds"]}, message["why"])
        elif kind == "failed":
            self.fail(f"{member.name}: {message['why']}")
        elif self.state is not None and kind == "partitions":
            for number_of, report in self._of_this_job(message["partitions"]):
                event = self.rounds.reported(
                    number, number_of, report, self.cluster.partitions[number_of], self.cluster.era
                )
                if event is not None:
                    self.event(event)
        elif kind == "clock" and self.state is None:
            self.early.append(message)
        elif kind == "clock" and message["era"] == self.turns.era:
            self.turns.begun = max(self.turns.begun, message["clock"] + 1)
            self.course.clock(message, len(self.turns.shares))
            self.waiting.told(number, message["clock"], self.clock())
        elif kind == "finished":
            self._worker_finished(message)

    def _of_this_job(self, told: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
        """What is told of partitions that there are."""
        count = len(self.cluster.partitions)
        return ((int(index), report) for index, report in told.items() if int(index) < count)

    def _worker_finished(self, message: Mapping[str, Any]) -> None:
        if message["stood_in"] or message["told"]:
            self.turns.ended(message["worker"], message["clock"] if message["told"] else None)
        else:
            self.finished.setdefault(message["worker"], message["clock"])  # begun anew at a later one it ends there
            self.turns.frozen = True

    # What follows.

    def _drain(self) -> None:
        while self._events and self.state is not None and not self._over:
            event = self._events.popleft()
            before = self.state
            state, actions = apply(before, event)
            if isinstance(event, Moved):
                self._commit(before, state, event)
            self.carry(state, actions)
        if self.state is not None and not self._over:
            self.rounds.next(self.cluster.consistent, len(self.cluster.partitions))
            self._look()

    def _commit(self, before: Cluster, state: Cluster, event: Moved) -> None:
        one = before.partitions[event.partition]
        if one.heir and one.heir.epoch == event.epoch and state.partitions[event.partition].epoch == event.epoch:
            tier = self.members[one.heir.to].tier if one.heir.to in self.members else ""
            backed = one.safe and (tier != Tier.RELIABLE.value or one.heir.drain)
            self.carrier.commit(event.partition, event.epoch, one.owner, backed)

    def carry(self, state: Cluster, actions: tuple[act.Action, ...]) -> None:
        """A decision becomes the state of things, and words to hosts."""
        before, self.state = self.state, state
        if before is not None and any(isinstance(action, act.RollBack) for action in actions):
            self.carrier.give_up(before, state)
        for action in actions:
            self._carry_one(action)
        if before is not None:
            self.carrier.forget_backups(before, state)
        self.turns.wanted = worked_on(state.pieces)
        self.turns.look()

    def _carry_one(self, action: act.Action) -> None:
        if not isinstance(action, act.Consistent | act.Welcome | act.ChangeStage | act.Serve):
            self.log(what="action", action=type(action).__name__, why=action.reason)
        match action:
            case act.Welcome():
                number = action.host.number
                if number in self.members.keys() - self.welcomed:  # it may be gone by now
                    self.welcomed.add(number)
                    self.log(**self.members[number].line("joined", action.reason))
            case act.ChangeStage():
                self.course.stage = action.stage.value
                self.log(what="stage", stage=action.stage.value, why=action.reason)
            case act.Serve():
                self.carrier.serve(action)
            case act.HandOver() | act.Drain():
                self.carrier.move(action)
            case act.Cancel():
                self.carrier.cancel(action)
            case act.BackUp():
                self.carrier.back_up(action)
            case act.PushTo():
                self.carrier.push_to(action)
            case act.Restore():
                self.carrier.restore(action)
            case act.Promote():
                self.carrier.promote(action)
            case act.Forget():
                self.tell_all("forget", epoch=action.epoch)
            case act.RollBack():
                self._roll_back(action)
            case act.Consistent():
                self._consistent(action.clock - SHIFT)
            case act.PointWorkers():
                self._point()
            case act.Load():
                self.carrier.load(action)
            case act.LetGo():
                self.leaving.let_go.add(action.host)
            case act.Checkpoint():
                self.saving.now = True
                self.say(action.reason)
            case act.Halt():
                self._halt(action)
            case act.Work() | act.StopWork():
                pass  # by turns

    def _roll_back(self, action: act.RollBack) -> None:
        clock = action.clock - SHIFT
        redone = max(0, self.turns.begun - 1 - clock)
        self.log(**{"what": "rolled back", "clock": clock, "era": action.era, "redone": redone})
        self.tell_all("roll_back", clock=clock, era=action.era)
        self.finished.clear()
        self.carrier.rolled_back()
        self.turns.rolled_back(clock, action.era)
        self.rounds.rolled_back(clock)
        self.course.rolled_back(clock)
        self.waiting.rolled_back()
        self.saving.rolled_back(clock)

    def _consistent(self, clock: int) -> None:
        """Steps before a clock are not needed any more; while a checkpoint is written they are."""
        if not self.saving.under_way:
            self.tell_all("release", clock=clock)
        self.saving.consistent(clock)

    def _point(self) -> None:
        owners = {
            number: [self.carrier.address(one.owner), one.epoch]
            for number, one in enumerate(self.cluster.partitions)
            if one.owner in self.members
        }
        self.tell_all("point", owners=owners, count=self.cluster.number)

    def _halt(self, action: act.Halt) -> None:
        suspicion = self.deaths.suspicion
        reason = action.reason if suspicion is None else f"{suspicion}; {action.reason}"
        self.note(action.reason)
        self.beginning.halted(reason)

    def _look(self) -> None:
        """What has become possible."""
        for newcomers, bulk in self.arriving.joining():
            self._join(newcomers, bulk)
        self.leaving.joined(self.cluster.members)
        if self.cluster.halted:
            return
        self.turns.look()
        self.leaving.look(lambda host: not self.turns.works(host) and not self.carrier.busy(host))
        self.saving.look(self.cluster, self._last_reliable_s())
        measured = self.traffic.look(self.clock(), self.cluster.stage, len(self.cluster.transient))
        if measured is not None:
            self.event(Measured(measured))
        if self.finished and not self.turns.turning and not self.turns.owed:
            last = min(self.finished.values())
            done = all(worker in self.finished for worker, share in self.turns.shares.items() if share.first <= last)
            if done and self.saving.finished(self.cluster, last - SHIFT):
                self._finish(last)

    def _last_reliable_s(self) -> float | None:
        """Seconds that a reliable host will still be there, where all of them are warned."""
        hosts = [host.number for host in self.cluster.hosts if host.tier is Tier.RELIABLE]
        if not hosts or any(host not in self.leaving.deadlines for host in hosts):
            return None
        return max(self.leaving.deadlines[host] for host in hosts) - self.clock()

    def _finish(self, clock: int) -> None:
        """The program's last word, then the end."""
        if self._over or self._last_word:
            return
        self._last_word = True
        reliable = min(self.cluster.reliable, key=lambda host: host.number).number

        era = self.cluster.era

        def ended(answer: Answer) -> None:
            if answer["why"] is None:
                self._end(0, "")
            elif reliable in self.members and era == self.cluster.era:
                self.fail(f"{self.members[reliable].name}: {answer['why']}")
            else:
                self._last_word = False  # another one will do it

        self.channel.tell(reliable, "result", ended, clock=clock, era=self.cluster.era)

    def _waits(self) -> Wait | None:
        if self.finished or self.cluster.halted or self.carrier.opening:
            return None  # for something else
        return self.waiting.now(self.turns.shares, self.clock())

    def _note_wait(self) -> None:
        wait, last = self._waits(), self._noted_wait
        if wait is not None and (last is None or (wait.clock, wait.hosts) != (last.clock, last.hosts)):
            self._noted_wait = wait
            self.note(f"clock {wait.clock} waits for {', '.join(self._named(wait))} since {wait.seconds:.0f} s")

    def _named(self, wait: Wait) -> list[str]:
        return [self.members[host].name for host in wait.hosts if host in self.members]

    def status(self) -> dict[str, Any]:
        """For a person, or a program of theirs."""
        if self.state is None:
            return {"stage": None, "hosts": [], "clock": -1}
        state, last, wait = self.cluster, self.saving.last, self._waits()
        waits = wait and {"clock": wait.clock, "hosts": self._named(wait), "seconds": round(wait.seconds, 1)}
        return {
            "stage": state.stage.value, "hosts": hosts_of(state, self.members.values(), self.turns),
            "clock": self.reached(), "consistent": state.consistent - SHIFT, "era": state.era, "controller": self.by,
            "checkpoint": None if last is None else last.clock, "waits": waits, **self.course.status(),
        }  # fmt: skip
