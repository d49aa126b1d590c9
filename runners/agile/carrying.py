"""Decisions carried out: each action becomes a word to one host or to all, and what they answer becomes an event."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plink.runtime.agileml.checkpoints import partition_file
from plink.runtime.agileml.partition import Refused
from runners.agile.channel import GONE, Answer, Channel
from runners.agile.member import Member
from runners.agile.rounds import SHIFT
from solvers.elastic.placement import actions as act
from solvers.elastic.placement.events import Event, Moved, Ready, Unserved
from solvers.elastic.placement.eviction import WAIT
from solvers.elastic.placement.state import Cluster

_AGAIN_S = 0.3
_MAX_HAND_ON_ATTEMPTS = 20
_GIVE_UP = 100  # attempts at a commit whose source is alive
_SOON_S = 0.1
_TURN_S = 10.0  # that a partition waits at most until it is its turn to move, where nobody leaves
_REST = 3  # times as long as a partition was on its way its hosts are left to the job

_Transfer = act.HandOver | act.Drain | act.BackUp | act.Restore  # of a state, by ``source``


@dataclass
class Carrier:
    """``members``: those that are alive, by number. ``event`` takes what follows, ``later`` calls something after some
    seconds, ``broken`` is told of what nobody can mend, ``unable`` of a host that cannot load these pieces, and why,
    ``unfit`` of one that cannot be reached, ``note`` of what only is worth a line. ``rested``: whether a host works on
    nothing, not even what it began before it was told to stop.

    ``opening``: partitions that nobody serves yet because the job begins, with their epochs. ``commits``: moves whose
    new owner is to begin, (epoch, source) by partition; until it has, what concerns the partition is not said to it.
    """

    channel: Channel
    members: Mapping[int, Member]
    state: Callable[[], Cluster]
    event: Callable[[Event], None]
    later: Callable[[float, Callable[[], None]], None]
    broken: Callable[[str], None]
    unable: Callable[[int, tuple[int, ...], str], None]
    note: Callable[[str], None]
    rested: Callable[[int], bool]
    clock: Callable[[], float]
    deadlines: Mapping[int, float]
    unfit: Callable[[int, str], None]
    opening: dict[int, int] = field(default_factory=dict)
    commits: dict[int, tuple[int, int]] = field(default_factory=dict)
    restore_from: tuple[str, int] | None = None  # a checkpoint's folder and clock
    _copies: dict[tuple[int, int], str] = field(default_factory=dict)  # (partition, epoch): address of the new backup
    _on_their_way: dict[tuple[int, int], set[int]] = field(default_factory=dict)  # (partition, epoch): from and to
    _resting: list[tuple[set[int], float]] = field(default_factory=list)  # hosts, until when

    def address(self, host: int) -> str:
        """Of a host's server; empty for one that is gone."""
        return self.members[host].address if host in self.members else ""

    def serve(self, action: act.Serve) -> None:
        """Open a partition that has no state yet, and give it its backup; or restore it from a checkpoint."""
        self.opening[action.partition] = action.epoch
        if self.restore_from is not None:
            self._read_checkpoint(action, *self.restore_from)
            return
        self._opening_step(
            action, action.host, "open", lambda: self._first_backup(action),
            epoch=action.epoch, era=self.state().era,
        )  # fmt: skip

    def _read_checkpoint(self, action: act.Serve, folder: str, clock: int) -> None:
        """The backup reads the file, for it is reliable and sees the folder; then it hands the partition on to a
        transient owner, and stays its backup. The move is a later epoch than the one it reads in."""
        number, backup = action.partition, self.state().partitions[action.partition].backup
        attempts = itertools.count(1)
        epoch = action.epoch if backup == action.host else action.epoch - 1

        def opened() -> None:
            del self.opening[number]

        def hand_on() -> None:
            if backup == action.host:
                opened()
            else:
                self._opening_step(action, backup, "prepare", commit, again=failed, epoch=action.epoch, **heir)

        def commit() -> None:
            self._opening_step(action, backup, "commit", opened, again=failed, epoch=action.epoch)

        def failed(error: str) -> None:
            told = f"partition {number} cannot be handed on by {self.members[backup].name}: {error}"
            attempt = next(attempts)
            if attempt == 1:
                self.note(told)
            if attempt > _MAX_HAND_ON_ATTEMPTS:
                self.unfit(action.host, told)
            elif attempt % 2:  # whether a commit whose answer is lost took place is found out by the next
                commit()
            else:
                hand_on()

        heir = {"address": self.address(action.host), "backup": self.address(backup)}
        self._opening_step(
            action, backup, "restore", hand_on, epoch=epoch, era=self.state().era, clock=clock,
            path=f"{folder}/{partition_file(number)}",
        )  # fmt: skip

    def _opening_step(
        self, action: act.Serve, host: int, do: str, then: Callable[[], None], *,
        again: Callable[[str], None] | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """Send one request of a partition's opening, unless all has begun anew.

        :param again: what follows a failure, after a while; without it a failure ends the job.
        """

        def answered(answer: Answer) -> None:
            if not self._opens(action) or answer.get("kind") == GONE:
                return
            if answer["why"] is None:
                then()
            elif again is None:
                self.broken(f"{self.members[host].name}: partition {action.partition}: {answer['why']}")
            else:
                error = str(answer["why"])
                self.later(_AGAIN_S, lambda: again(error) if self._opens(action) else None)

        if self._opens(action):
            self.channel.tell(host, do, answered, partition=action.partition, **fields)

    def _opens(self, action: act.Serve) -> bool:
        """Whether it is still to be opened: not all has begun anew."""
        return self.opening.get(action.partition) == action.epoch

    def _first_backup(self, action: act.Serve) -> None:
        """Copy a new partition to its backup, until that succeeds or the partition moves on."""
        number = action.partition

        def backed(answer: Answer) -> None:
            if not self._opens(action):
                return
            if answer["why"] is None or not self._serves(number, action.epoch):  # it is on its way elsewhere
                del self.opening[number]
            elif answer.get("kind") != GONE:
                self.later(_AGAIN_S, back_up)

        def back_up() -> None:
            backup = self.state().partitions[number].backup
            if backup == action.host or backup not in self.members:
                backed({"why": None})
            else:
                self.channel.tell(
                    action.host, "back_up", backed, partition=number, address=self.address(backup),
                    epoch=action.epoch,
                )  # fmt: skip

        back_up()

    def move(self, action: act.HandOver | act.Drain) -> None:
        """A partition to its heir; what the old owner takes meanwhile goes there too, until the commit.

        Where there is time those who leave first end what they work on: the servers that stay are fewer, and would have
        all of the workers for some clocks. And a host sends or takes one partition at a time, so that each is on its
        way for a shorter time and fewer updates have to go along; where hosts leave none goes for a while after it.
        """
        number, source, heir, begun_at = action.partition, action.source, action.to, self.clock()

        def later() -> bool:
            waited_s = self.clock() - begun_at
            return self._in_the_way(source, heir) and waited_s <= self._patience_s(waited_s)

        def where() -> dict[str, object]:
            self._on_their_way[number, action.epoch] = {source, heir}
            return {"address": self.address(heir), "backup": self._new_backup(number, heir)}

        def over(seconds: float) -> None:
            self._on_their_way.pop((number, action.epoch), None)
            # Not so with newcomers, who serve less than their part until they have it all, and are about to work.
            if self.state().leaving:
                self._resting.append(({source, heir}, self.clock() + _REST * seconds))

        self._until_done(action, "prepare", where, later, over)

    def _patience_s(self, waited_s: float) -> float:
        """Of what has waited for so long: a part of the time that those who leave had left when it began to."""
        times = [self.deadlines[host] - self.clock() for host in self.state().leaving if host in self.deadlines]
        return WAIT * (min(times) + waited_s) if times else _TURN_S

    def _in_the_way(self, host: int, heir: int) -> bool:
        """Of a partition from one to the other."""
        self._resting = [(ends, until) for ends, until in self._resting if self.clock() < until]
        beginning = ({source, self.state().partitions[number].owner} for number, (_, source) in self.commits.items())
        busy = (*self._on_their_way.values(), *(ends for ends, _ in self._resting), *beginning)
        return any({host, heir} & ends for ends in busy) or not all(map(self.rested, self.state().leaving))

    def back_up(self, action: act.BackUp) -> None:
        """Another backup beside the one that is there."""
        self._copies[action.partition, action.epoch] = self.address(action.host)
        self._until_done(action, "back_up", lambda: {"address": self.address(action.host)})

    def restore(self, action: act.Restore) -> None:
        """From a backup to who is to serve; what that one has of it is of no use."""

        def dropped(answer: Answer) -> None:
            if answer.get("kind") != GONE:
                first = action.clock - SHIFT + 1
                self._until_done(action, "restore_to", lambda: {"address": self.address(action.to), "first": first})

        self.channel.tell(action.to, "drop", dropped, partition=action.partition, epoch=action.epoch)

    def promote(self, action: act.Promote) -> None:
        """A backup serves; where a commit is under way that one does it."""
        first = self.state().consistent - SHIFT + 1

        def ask(number: int) -> None:
            if number not in self.commits and self._serves(number, action.epoch):
                self.channel.tell(
                    action.host, "take_over", lambda answer: taken(number, answer), partition=number,
                    epoch=action.epoch, first=first,
                )  # fmt: skip

        def taken(number: int, answer: Answer) -> None:
            if answer["why"] is not None and action.host in self.members:
                self.note(f"{self.members[action.host].name} cannot serve partition {number} yet: {answer['why']}")
                self.later(_AGAIN_S, lambda: ask(number))

        for number in action.partitions:
            self.later(0.0, lambda number=number: ask(number))  # type: ignore[misc]

    def cancel(self, action: act.Cancel) -> None:
        """A move or a copy is off."""
        address = self._copies.pop((action.partition, action.epoch), None)
        for host in action.hosts:
            if address is None:
                self.channel.tell(host, "cancel", partition=action.partition, epoch=action.epoch)
            else:
                self.channel.tell(host, "stop_pushing", partition=action.partition, address=address)

    def push_to(self, action: act.PushTo) -> None:
        """One backup alone. Who takes over was told to whom it pushes."""

        def told(answer: Answer) -> None:
            if answer["why"] is not None and answer.get("kind") != GONE:
                self.note(f"partition {action.partition}: {answer['why']}")

        if action.partition not in self.commits and action.backup in self.members:
            self.channel.tell(
                action.host, "push_to", told, partition=action.partition, address=self.address(action.backup)
            )

    def commit(self, number: int, epoch: int, source: int, backed: bool) -> None:
        """The decision has been taken: the heir begins, the source ends. Where a connection that was lost, or a
        roll-back, has called the move off the source has everything still: it is prepared once more."""
        self.commits[number] = epoch, source
        attempts = itertools.count(1)

        def answered(do: str, answer: Answer) -> None:
            if self.commits.get(number) != (epoch, source):
                return
            alive = source in self.members and self.state().partitions[number].owner in self.members
            refused = answer.get("kind") == Refused.__name__
            if answer["why"] is None and do == "commit":
                del self.commits[number]
            elif answer["why"] is None:
                ask("commit")
            elif alive and next(attempts) < _GIVE_UP and not (refused and do == "prepare"):
                self.later(_AGAIN_S, lambda: ask("prepare" if refused else do))
            else:
                del self.commits[number]
                self.event(Unserved(number, epoch, backed))

        def ask(do: str) -> None:
            if self.commits.get(number) != (epoch, source):
                return
            if source not in self.members:
                answered(do, {"why": "it is gone", "kind": GONE})
                return
            one = self.state().partitions[number]
            where = {"address": self.address(one.owner), "backup": self._new_backup(number, one.owner)}
            self.channel.tell(
                source, do, lambda answer: answered(do, answer), partition=number, epoch=epoch,
                **(where if do == "prepare" else {}),
            )  # fmt: skip

        ask("commit")

    def _new_backup(self, number: int, heir: int) -> str:
        """Address of the one that an heir shall push to; a reliable one is its own."""
        safe = heir not in self.members or self.members[heir].tier == "reliable"
        return "" if safe else self.address(self.state().partitions[number].backup)

    def rolled_back(self) -> None:
        """Whatever was under way is off."""
        self._copies.clear()

    def load(self, action: act.Load) -> None:
        """Pieces into a host's memory."""

        def loaded(answer: Answer) -> None:
            if answer["why"] is None:
                self.event(Ready(action.host, action.ticket))
            elif answer.get("kind") != GONE:
                self.unable(action.host, action.pieces, answer["why"])

        self.channel.tell(action.host, "load", loaded, pieces=list(action.pieces))

    def give_up(self, before: Cluster, after: Cluster) -> None:
        """Before all go back: who is alive and serves no longer what it served must not take another update of it."""
        for number, (one, now) in enumerate(zip(before.partitions, after.partitions, strict=True)):
            if one.owner != now.owner and one.owner in self.members and one.owner != now.backup:
                self.channel.tell(one.owner, "drop", partition=number, epoch=now.epoch)
            epoch, source = self.commits.get(number, (now.epoch, -1))
            if epoch != now.epoch:  # it is served from elsewhere than the heir that was to begin
                del self.commits[number]
                if source in self.members and source not in (now.owner, now.backup):
                    self.channel.tell(source, "drop", partition=number, epoch=now.epoch)

    def forget_backups(self, before: Cluster, after: Cluster) -> None:
        """Who is no backup any more has a state that it could not go back from with the others."""
        for number, (one, now) in enumerate(zip(before.partitions, after.partitions, strict=True)):
            _, source = self.commits.get(number, (0, None))  # who still gives it away
            if one.backup != now.backup and one.backup in self.members and one.backup not in (now.owner, source):
                self.channel.tell(one.backup, "drop", partition=number, epoch=now.epoch + 1)

    def busy(self, host: int) -> bool:
        """Whether a host still has to end the move of a partition."""
        return any(source == host for _, source in self.commits.values())

    def _serves(self, number: int, epoch: int) -> bool:
        return not self.state().halted and self.state().partitions[number].epoch == epoch

    def _wanted(self, number: int, epoch: int) -> bool:
        one, state = self.state().partitions[number], self.state()
        moves = [move.epoch for move in (one.heir, one.copy) if move]
        return not state.halted and (epoch in moves or (one.waiting and one.epoch == epoch))

    def _until_done(
        self, action: _Transfer, method: str, destination: Callable[[], dict[str, object]],
        later: Callable[[], bool] = lambda: False, over: Callable[[float], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Ask the source for a transfer until it succeeds, or is no longer needed.

        :param destination: what else is sent, as it is at that time. :param later: whether it has to wait.
        :param over: called at each answer with the seconds that it took; 0 where it failed.
        """
        host, number, epoch = action.source, action.partition, action.epoch
        told_at, fields = 0.0, dict[str, object]()

        def answered(answer: Answer) -> None:
            over((self.clock() - told_at) * (answer["why"] is None))
            if answer["why"] is None:
                if method == "back_up" and not self._wanted(number, epoch):
                    self.channel.tell(host, "stop_pushing", partition=number, address=fields["address"])
                self.event(Moved(number, epoch))
            elif answer.get("kind") != GONE and self._wanted(number, epoch) and host in self.members:
                self.later(_AGAIN_S, ask)

        def ask() -> None:
            nonlocal told_at, fields
            if self.opening:  # what moves now would be given up for a backup that has nothing yet
                self.later(_AGAIN_S, ask)
            elif not self._wanted(number, epoch) or host not in self.members:
                return
            elif later():
                self.later(_SOON_S, ask)
            else:
                told_at, fields = self.clock(), destination()
                self.channel.tell(host, method, answered, partition=number, epoch=epoch, **fields)

        # Not before the state that asks for it is the one that holds.
        self.later(0.0, ask)
