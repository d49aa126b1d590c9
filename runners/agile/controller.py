"""The elasticity controller: each part of a job is told what concerns it, and what is due is done (Harlap thesis, 4.2).

One thread, which never waits: what the hub says is taken in, decisions follow from it, words to hosts follow from
these. All that it knows can be had again from the hosts: it may be killed at any time, and another goes on.
"""

import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plink.model.consistency import parse_rule
from plink.runtime.agileml.carried import Carried
from runners.agile.arriving import Arriving
from runners.agile.beginning import Beginning
from runners.agile.carrying import Carrier
from runners.agile.channel import Channel
from runners.agile.course import Course
from runners.agile.decisions import Decisions
from runners.agile.ending import Ending
from runners.agile.hearing import Hearing
from runners.agile.leaving import Leaving
from runners.agile.losses import Losses
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
from solvers.agile.events import Joined, Measured, Warned
from solvers.agile.hosts import Tier
from solvers.agile.state import Cluster

_SOON_S = 0.05


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
        self.decisions = Decisions(self)
        self.losses = Losses(self)
        self.channel = Channel(self.write, self.by, lambda host, why: self.losses.gone(host, why=why))
        self.hearing = Hearing(self.settings.silence_s)
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.early: list[Mapping[str, Any]] = []  # clocks that were done while hosts reported
        self.beginning = Beginning(self)
        self.ending = Ending(self)
        self.arriving = Arriving(
            self.channel, self.settings, self.hearing, self.members, self.losses.cannot_begin, self.fail, self.say
        )
        self.leaving = Leaving(self.channel, self.members, self.clock, self.log, self.warned)
        self.course = Course(self.log, lambda: self.clock() - self.settings.began)
        self.resizing = Resizing(self.say)
        self.waiting = Waiting(parse_rule(self.settings.rule).apart)
        self._noted_wait: Wait | None = None
        self.unable = Unable(self.members, lambda: self.cluster, self.losses.unfit, self.fail)
        self.carrier = Carrier(
            self.channel, self.members, lambda: self.cluster, self.decisions.event, self.later, self.fail,
            self.unable.load, self.note, lambda host: not self.turns.works(host), self.clock, self.leaving.deadlines,
            lambda host, why: self.losses.gone(host, why=why),
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
            self.losses.gone(message["host"], why=message["why"])
        elif kind == "evict":
            self.warn(dict.fromkeys(message["hosts"], message["seconds"]), message["why"])
        elif kind == "status":
            self.write({"is": "status", "ask": message["ask"], "status": self.status()})
        elif kind == "checkpoint":
            self.saving.wish(lambda told: self.write({"is": kind, "ask": message["ask"], "checkpoint": told}))
        self.drain()

    def tick(self) -> float:
        """Do what is due; seconds until something else is."""
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
            self.drain()
        if not self.ending.over:
            silent = self.hearing.silent([*self.members.values(), *self.arriving.starting.values()])
            if silent:
                numbers = [member.number for member in silent]
                self.losses.gone(*numbers, why=f"no heartbeat for {self.settings.silence_s:g} s")
                self.drain()
        if self.state is None:
            self.beginning.look()
        if not self.ending.over and self.state is not None:
            self.leaving.overdue()
            self._note_wait()
            self._look()
            self.drain()
        return max(0.0, self._timers[0][0] - self.clock()) if self._timers else 1.0

    def warned(self, hosts: Collection[int]) -> None:
        """To decide on hosts that are to be taken away, once every backup has something: for one without time all
        would go back to what backups have."""
        if self.state is not None and self.carrier.opening:
            self.later(_SOON_S, lambda: self.warned(hosts))
            return
        left = {number: max(0.0, at - self.clock()) for number, at in self.leaving.deadlines.items()}
        if known := {number: left[number] for number in hosts if number in left and number in self.members}:
            self.decisions.event(Warned(known, others=left))

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
        self.ending.end(1, why)

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
        self.ending.turned(shares)
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
        self.decisions.point()
        self.decisions.event(Joined(tuple(member.host for member in new), bulk))

    def warn(self, seconds: Mapping[int, float], why: str) -> None:
        """Hosts are to be taken away, each after so many seconds."""
        self.leaving.warn(seconds, why, () if self.state is None else self.cluster.members)

    # What hosts say.

    def host_says(self, number: int, kind: str, message: Mapping[str, Any]) -> None:
        """What a host says, unless it was given up."""
        member = self.members.get(number) or self.arriving.starting.get(number)
        if member is None:
            return
        self.hearing.heard(member)
        if kind == "answer":
            self.losses.deaths.answered(number, message["id"])
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
                    self.decisions.event(event)
        elif kind == "clock" and self.state is None:
            self.early.append(message)
        elif kind == "clock" and message["era"] == self.turns.era:
            self.turns.begun = max(self.turns.begun, message["clock"] + 1)
            self.course.clock(message, len(self.turns.shares))
            self.waiting.told(number, message["clock"], self.clock())
        elif kind == "finished":
            self.ending.told(message)

    def _of_this_job(self, told: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
        """What is told of partitions that there are."""
        count = len(self.cluster.partitions)
        return ((int(index), report) for index, report in told.items() if int(index) < count)

    # What follows.

    def drain(self) -> None:
        """What has happened is decided on; then what has become possible by it."""
        self.decisions.drain()
        if self.state is not None and not self.ending.over:
            self.rounds.next(self.cluster.consistent, len(self.cluster.partitions))
            self._look()

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
        stage = self.cluster.stage if self.turns.dealt else None
        measured = self.traffic.look(self.clock(), stage, len(self.cluster.transient))
        if measured is not None:
            self.decisions.event(Measured(measured))
        self.ending.look()

    def _last_reliable_s(self) -> float | None:
        """Seconds that a reliable host will still be there, where all of them are warned."""
        hosts = [host.number for host in self.cluster.hosts if host.tier is Tier.RELIABLE]
        if not hosts or any(host not in self.leaving.deadlines for host in hosts):
            return None
        return max(self.leaving.deadlines[host] for host in hosts) - self.clock()

    def _waits(self) -> Wait | None:
        if self.ending.finished or self.cluster.halted or self.carrier.opening:
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
