"""Checkpoints of the reliable hosts, in the background (Harlap thesis, 4.2.4)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from plink.runtime.agileml.checkpoints import name_of
from runners.agile.channel import GONE, Answer, Channel
from runners.agile.member import Member
from runners.agile.settings import Settings
from solvers.elastic.placement.state import Cluster

_SHARE = 0.25  # of the time that is left, after which the next is due where the last reliable host is warned
_LEAST_S = 0.2
_MOVED = "Refused"  # what is answered where a partition is not, or not as it was: it moved meanwhile
_LAST_S = 30.0  # that a job waits at its end until one can be begun


@dataclass(frozen=True)
class Saved:
    """A whole checkpoint: its folder on the reliable hosts, and the clock whose state it has."""

    folder: str
    clock: int


@dataclass
class _Attempt:
    """One checkpoint being written by ``hosts``, of whom ``waiting`` have not answered. It ends, whole or removed, when
    all have: a file that is still being written must not fall into the next attempt's folder."""

    saved: Saved
    urgent: bool
    hosts: list[int]
    waiting: set[int] = field(default_factory=set)
    seconds: float = 0.0
    bytes: int = 0
    failure: Answer | None = None
    abandoned: bool = False


class Saving:
    """Writes one when it is due, at the clock that all backups have. The files may be of later states, which go back
    to that clock: so nobody is held up, and nothing before it is released meanwhile.

    ``now``: one is due whatever the time. ``clock``: seconds, monotonic.
    """

    def __init__(
        self, settings: Settings, channel: Channel, members: Mapping[int, Member], say: Callable[[str], None],
        log: Callable[..., None], clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._settings, self._channel, self._members, self._say, self._log = settings, channel, members, say, log
        self._now_s = clock
        self.last: Saved | None = None
        self.now = False
        self._attempt: _Attempt | None = None
        self._clock = -1  # that all backups have
        self._over_s = clock()
        self._next_s = self._over_s + settings.checkpoint_every_s
        self._failures = 0
        self._ending: tuple[float, int] | None = None  # since when all is done, and the failures before
        self._again_s = 0.0  # before which none is tried again that was wished for, or due whatever the time
        self._wishes: list[tuple[int, Callable[[dict[str, Any]], None]]] = []  # of which clock one is wanted, by whom

    def found(self, saved: Mapping[str, object] | None, folder: str) -> Saved | None:
        """One that was there before."""
        if saved is not None:
            clock = saved["clock"]
            assert isinstance(clock, int)
            self.last = Saved(f"{folder}/{saved['folder']}", clock)
        return self.last

    @property
    def under_way(self) -> bool:
        """Whether one is being written, or removed because it failed."""
        return self._attempt is not None

    @property
    def _own(self) -> Saved | None:
        """The last that is in the folder of this job's own; it may have begun with one from elsewhere."""
        there = self.last is not None and PurePosixPath(self.last.folder).parent
        return self.last if there == PurePosixPath(self._settings.checkpoints) else None

    def wish(self, tell: Callable[[dict[str, Any]], None]) -> None:
        """One of the clock that all backups have, or of a later one, whatever the time: ``tell`` hears which it is
        when it is whole, or why there is none."""
        least = 0 if (last := self._own) is None else last.clock + 1  # where it is not known yet which clock that is
        self._wishes.append((self._clock if self._clock >= 0 else least, tell))
        self._grant()

    def consistent(self, clock: int) -> None:
        """All backups have that clock."""
        self._clock = clock

    def rolled_back(self, clock: int) -> None:
        """All are at a clock again: one that is under way may be of what nobody knows any more."""
        if self._attempt is not None:
            self._attempt.abandoned = True
        self._clock, self._ending = clock, None
        self._wishes = [(min(wanted, max(0, clock)), tell) for wanted, tell in self._wishes]

    def finished(self, state: Cluster, clock: int) -> bool:
        """Whether a job may end whose last clock all have done: it is on disk, so that another can go on from there,
        or cannot be."""
        if not self._settings.checkpoints or (self.last is not None and self.last.clock >= clock):
            return True
        since, failures = self._ending = self._ending or (self._now_s(), self._failures)
        if self._failures > failures:
            return True
        if self.under_way:
            return False
        if self._clock >= clock:
            self.now = True
            self.look(state)
        return not self.under_way and self._now_s() - since > _LAST_S

    def look(self, state: Cluster, left_s: float | None = None) -> None:
        """Begin one, if it is due and everything is where it belongs.

        :param left_s: for how long a reliable host will still be there; None: nobody has said that the last one goes.
            What is done after the last checkpoint is lost with it: they follow each other the faster the less is left.
        """
        next_s = self._next_s
        if left_s is not None:
            next_s = min(next_s, self._over_s + max(_LEAST_S, _SHARE * left_s))
        may = self._now_s() >= self._again_s
        wished, hurried = bool(self._wishes) and may, self.now and may
        due = self._settings.checkpoints and (hurried or wished or self._now_s() >= next_s)
        fit = all(one.safe and not one.waiting and one.backup in self._members for one in state.partitions)
        last = self._own if wished else self.last
        newer = last is None or self._clock > last.clock
        if not due or self.under_way or not fit or not newer or self._clock < 0 or state.halted:
            return
        by_host: dict[int, list[int]] = {}
        for index, one in enumerate(state.partitions):
            by_host.setdefault(one.backup, []).append(index)
        name = name_of(self._clock, self._settings.job)
        attempt = self._attempt = _Attempt(
            Saved(f"{self._settings.checkpoints}/{name}", self._clock), hurried, list(by_host), set(by_host)
        )
        self.now = False
        for host, partitions in by_host.items():
            self._channel.tell(
                host, "checkpoint", lambda answer, host=host: self._written(attempt, host, answer),  # type: ignore[misc]
                folder=attempt.saved.folder, partitions=partitions,
            )  # fmt: skip

    def _written(self, attempt: _Attempt, host: int, answer: Answer) -> None:
        attempt.waiting.discard(host)
        if answer["why"] is None:
            attempt.seconds, attempt.bytes = max(attempt.seconds, answer["seconds"]), attempt.bytes + answer["bytes"]
        else:
            attempt.failure = attempt.failure or answer
        if not attempt.waiting:
            if attempt.failure or attempt.abandoned:
                self._remove(attempt)
            else:
                self._announce(attempt, host)

    def _announce(self, attempt: _Attempt, host: int) -> None:
        """All files are written: a host that sees them all says that the checkpoint counts."""
        saved = attempt.saved

        def announced(answer: Answer) -> None:
            if answer["why"] is not None:
                attempt.failure = answer
                self._remove(attempt)
                return
            self.last = saved
            self._over()
            self._log(what="checkpoint", clock=saved.clock, seconds=attempt.seconds, bytes=attempt.bytes)
            self._grant()

        self._channel.tell(
            host, "keep", announced, folder=self._settings.checkpoints,
            saved={
                "clock": saved.clock, "partitions": self._settings.partitions,
                "folder": PurePosixPath(saved.folder).name,
            },
            job=self._settings.job,
        )  # fmt: skip

    def _remove(self, attempt: _Attempt) -> None:
        """What was written of a checkpoint that failed would fill the disk for nothing."""
        waiting = {host for host in attempt.hosts if host in self._members}

        def removed(host: int) -> None:
            waiting.discard(host)
            if not waiting:
                self._failed(attempt)

        for host in list(waiting):
            self._channel.tell(
                host, "discard", lambda _, host=host: removed(host),  # type: ignore[misc]
                folder=attempt.saved.folder, job=self._settings.job,
            )  # fmt: skip
        if not waiting:
            self._failed(attempt)

    def _failed(self, attempt: _Attempt) -> None:
        self._over()
        answer = attempt.failure
        if attempt.abandoned or answer is None:
            return
        kind = answer.get("kind")
        if kind == _MOVED:
            self._again_s = self._now_s() + _LEAST_S
            self.now |= attempt.urgent
        elif kind != GONE:
            self._failures += 1
            why = f"no checkpoint could be written in {self._settings.checkpoints}: {answer['why']}"
            self._say(why)
            wishes, self._wishes = self._wishes, []
            for _, tell in wishes:
                tell({"why": why})

    def _grant(self) -> None:
        """The wishes that what is on disk fulfils."""
        if (last := self._own) is None:
            return
        wishes, self._wishes = self._wishes, [wish for wish in self._wishes if wish[0] > last.clock]
        for wanted, tell in wishes:
            if wanted <= last.clock:
                tell({"clock": last.clock, "folder": last.folder})

    def _over(self) -> None:
        self._attempt = None
        self._over_s = self._now_s()
        self._next_s = self._over_s + self._settings.checkpoint_every_s
        self._channel.tell_all(list(self._members), "release", clock=self._clock)
