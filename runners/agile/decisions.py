"""Decisions of `solvers.elastic.placement`, each action given to the part that carries it out."""

from collections import deque
from typing import TYPE_CHECKING

from runners.agile.rounds import SHIFT
from solvers.elastic.placement import actions as act
from solvers.elastic.placement.cluster import apply
from solvers.elastic.placement.data import worked_on
from solvers.elastic.placement.events import Event, Measured, Moved
from solvers.elastic.placement.hosts import Tier
from solvers.elastic.placement.state import Cluster

if TYPE_CHECKING:
    from runners.agile.controller import Controller


class Decisions:
    """Of one controller's job. ``welcomed``: members, by number, whose coming is in the log."""

    def __init__(self, job: "Controller") -> None:
        self._job = job
        self._events: deque[Event] = deque()
        self._halt: act.Halt | None = None
        self.welcomed: set[int] = set()

    def event(self, event: Event) -> None:
        """To be decided on, after what is being carried out."""
        self._events.append(event)

    def drain(self) -> None:
        """Decide on what there is, one after another."""
        while self._events and self._job.state is not None and not self._job.ending.over:
            event = self._events.popleft()
            before = self._job.state
            state, actions = apply(before, event)
            if isinstance(event, Moved):
                self._commit(before, state, event)
            if isinstance(event, Measured):
                self._job.tell_all("keep_thresholds", **self._job.traffic.kept(state.thresholds))
            self.carry_out(state, actions)
            self.recover()

    def recover(self) -> None:
        """Begin again from a checkpoint where a decision halted the job, once that decision has been carried out."""
        halt, self._halt = self._halt, None
        if halt is not None:
            suspicion = self._job.losses.deaths.suspicion
            reason = halt.reason if suspicion is None else f"{suspicion}; {halt.reason}"
            self._job.note(halt.reason)
            self._job.beginning.halted(reason)

    def carry_out(self, state: Cluster, actions: tuple[act.Action, ...]) -> None:
        """A decision becomes the state of things, and words to hosts."""
        job = self._job
        before, job.state = job.state, state
        if before is not None and any(isinstance(action, act.RollBack) for action in actions):
            job.carrier.give_up(before, state)
        for action in actions:
            self._carry_out_one(action)
        if before is not None:
            job.carrier.forget_backups(before, state)
        job.turns.wanted = worked_on(state.pieces)
        job.turns.look()

    def point(self) -> None:
        """All members to who serves what."""
        job = self._job
        owners = {
            number: [job.carrier.address(one.owner), one.epoch]
            for number, one in enumerate(job.cluster.partitions)
            if one.owner in job.members
        }
        job.tell_all("point", owners=owners, count=job.cluster.number)

    def _commit(self, before: Cluster, state: Cluster, event: Moved) -> None:
        members = self._job.members
        one = before.partitions[event.partition]
        if one.heir and one.heir.epoch == event.epoch and state.partitions[event.partition].epoch == event.epoch:
            tier = members[one.heir.to].tier if one.heir.to in members else ""
            backed = one.safe and (tier != Tier.RELIABLE.value or one.heir.drain)
            self._job.carrier.commit(event.partition, event.epoch, one.owner, backed)

    def _carry_out_one(self, action: act.Action) -> None:
        job = self._job
        if not isinstance(action, act.Consistent | act.Welcome | act.ChangeStage | act.Serve):
            job.log(what="action", action=type(action).__name__, why=action.reason)
        match action:
            case act.Welcome():
                number = action.host.number
                if number in job.members.keys() - self.welcomed:  # it may be gone by now
                    self.welcomed.add(number)
                    job.log(**job.members[number].line("joined", action.reason))
            case act.ChangeStage():
                job.course.stage = action.stage.value
                job.log(what="stage", stage=action.stage.value, why=action.reason)
            case act.Serve():
                job.carrier.serve(action)
            case act.HandOver() | act.Drain():
                job.carrier.move(action)
            case act.Cancel():
                job.carrier.cancel(action)
            case act.BackUp():
                job.carrier.back_up(action)
            case act.PushTo():
                job.carrier.push_to(action)
            case act.Restore():
                job.carrier.restore(action)
            case act.Promote():
                job.carrier.promote(action)
            case act.Forget():
                job.tell_all("forget", epoch=action.epoch)
            case act.RollBack():
                self._roll_back(action)
            case act.Consistent():
                self._consistent(action.clock - SHIFT)
            case act.PointWorkers():
                self.point()
            case act.Load():
                job.carrier.load(action)
            case act.LetGo():
                job.leaving.let_go.add(action.host)
            case act.Checkpoint():
                job.saving.now = True
                job.say(action.reason)
            case act.Halt():
                self._halt = action
            case act.Work() | act.StopWork():
                pass  # by turns

    def _roll_back(self, action: act.RollBack) -> None:
        job, clock = self._job, action.clock - SHIFT
        redone = max(0, job.turns.begun - 1 - clock)
        job.log(**{"what": "rolled back", "clock": clock, "era": action.era, "redone": redone})
        job.tell_all("roll_back", clock=clock, era=action.era)
        job.rolled_back(clock, action.era)

    def _consistent(self, clock: int) -> None:
        """Steps before a clock are not needed any more; while a checkpoint is written they are."""
        if not self._job.saving.under_way:
            self._job.tell_all("release", clock=clock)
        self._job.saving.consistent(clock)
