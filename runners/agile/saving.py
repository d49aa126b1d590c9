"""Checkpoints of the reliable hosts, in the background (Harlap thesis, 4.2.4)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from plink.runtime.agileml.checkpoints import name_of

from runners.agile.channel import GONE, Answer, Channel
from runners.agile.member import Member
from runners.agile.settings import Settings
from solvers.agile.state import Cluster


@dataclass(frozen=True)
class Saved:
    """A whole checkpoint: its folder on the reliable hosts, and the clock whose state it has."""

    folder: str
    clock: int


class Saving:
    """Writes one when it is due, at the clock that all backups have. The files may be of later states, which go back
    to that clock: so nobody is held up, and nothing before it is released meanwhile.

    ``now``: one is due whatever the time.
    """

    def __init__(
        self, settings: Settings, channel: Channel, members: Mapping[int, Member], say: Callable[[str], None],
        log: Callable[..., None],
    ) -> None:  # fmt: skip
        self._settings, self._channel, self._members, self._say, self._log = settings, channel, members, say, log
        self.last: Saved | None = None
        self.now = False
        self.under_way = False
        self._clock = -1  # that all backups have
        self._next_s = time.monotonic() + settings.checkpoint_every_s
        self._attempt = 0

    def found(self, saved: Mapping[str, object] | None, folder: str) -> Saved | None:
        """One that was there before."""
        if saved is not None:
            clock = saved["clock"]
            assert isinstance(clock, int)
            self.last = Saved(f"{folder}/{saved['folder']}", clock)
        return self.last

    def consistent(self, clock: int) -> None:
        """All backups have that clock."""
        self._clock = clock

    def rolled_back(self, clock: int) -> None:
        """All are at a clock again: one that is under way may be of what nobody knows any more."""
        self._attempt += 1
        self.under_way, self._clock = False, clock

    def look(self, state: Cluster) -> None:
        """Begin one, if it is due and everything is where it belongs."""
        due = self._settings.checkpoints and (self.now or time.monotonic() >= self._next_s)
        fit = all(one.safe and not one.waiting and one.backup in self._members for one in state.partitions)
        newer = self.last is None or self._clock > self.last.clock
        if not due or self.under_way or not fit or not newer or self._clock < 0 or state.halted:
            return
        self.under_way, self.now = True, False
        self._attempt += 1
        attempt, clock = self._attempt, self._clock
        name = name_of(clock, self._settings.job)
        saved = Saved(f"{self._settings.checkpoints}/{name}", clock)
        by_host: dict[int, list[int]] = {}
        for index, one in enumerate(state.partitions):
            by_host.setdefault(one.backup, []).append(index)
        waiting, written = set(by_host), [0.0, 0]

        def answered(host: int, answer: Answer) -> None:
            if attempt != self._attempt:
                return
            if answer["why"] is not None:
                self._failed(answer)
                return
            waiting.discard(host)
            written[0], written[1] = max(written[0], answer["seconds"]), written[1] + answer["bytes"]
            if not waiting:
                self._channel.tell(
                    host, "keep", kept, folder=self._settings.checkpoints,
                    saved={"clock": clock, "partitions": len(state.partitions), "folder": name},
                    job=self._settings.job,
                )  # fmt: skip

        def kept(answer: Answer) -> None:
            if attempt != self._attempt:
                return
            if answer["why"] is not None:
                self._failed(answer)
                return
            self.last = saved
            self._over()
            self._log(what="checkpoint", clock=clock, seconds=written[0], bytes=written[1])

        for host, partitions in by_host.items():
            self._channel.tell(
                host, "checkpoint", lambda answer, host=host: answered(host, answer),  # type: ignore[misc]
                folder=saved.folder, partitions=partitions,
            )  # fmt: skip

    def _failed(self, answer: Answer) -> None:
        self._attempt += 1
        self._over()
        if answer.get("kind") != GONE:
            self._say(f"no checkpoint could be written in {self._settings.checkpoints}: {answer['why']}")

    def _over(self) -> None:
        self.under_way = False
        self._next_s = time.monotonic() + self._settings.checkpoint_every_s
        self._channel.tell_all(list(self._members), "release", clock=self._clock)
