"""On-line roll-back recovery: what is done when servers are gone before they could hand over (Harlap thesis, 4.2.3)."""

from collections.abc import Collection

from solvers.elastic.placement import actions as act
from solvers.elastic.placement.moving import back_up, backup_targets, cancel, cancel_all, owner_targets
from solvers.elastic.placement.stages import Stage
from solvers.elastic.placement.state import Step


def recover(step: Step, gone: Collection[int], *, effective: bool = False) -> None:
    """Hosts are gone from the state's members already; ``effective``: those that are leaving have as good as failed.

    Backups that are gone are made anew from the owners. Where an owner is gone everybody goes back to the clock that
    all backups have, and its partitions start from there: on other transient hosts, in stage 1 where the backups are.
    """
    partitions = step.state.partitions
    lost = tuple(
        index
        for index, partition in enumerate(partitions)
        if (partition.owner in gone or partition.waiting) and (partition.backup in gone or not partition.safe)
    )
    if lost or not step.state.reliable:
        _halt(step, lost)
        return
    for index, partition in enumerate(partitions):
        if partition.move and partition.move.to in gone and partition.owner not in gone:
            cancel(step, index, f"{step.cause}: who was to take partition {index} is gone")
        if partition.backup in gone or (partition.copy and partition.copy.to in gone):
            _mend_backup(step, index, gone)
    if effective or any(partition.owner in gone for partition in partitions):
        _roll_back(step, gone)


def _halt(step: Step, lost: tuple[int, ...]) -> None:
    what = f"the state of {len(lost)} partitions" if lost else "the last reliable host"
    reason = f"{step.cause}: {what} is gone; start again from a checkpoint, with a reliable host"
    step.actions = [act.Halt(lost, reason)]
    step.change(halted=True)


def _mend_backup(step: Step, index: int, gone: Collection[int]) -> None:
    """Whose owner is alive: the backup, or who was to become it, is gone."""
    partition = step.state.partitions[index]
    if partition.copy and partition.copy.to not in gone:
        # The copy that was under way is now the only one.
        step.partition(index, backup=partition.copy.to, safe=False)
        return
    if partition.copy and partition.owner not in gone:
        reason = f"{step.cause}: who was to be the backup of partition {index} is gone"
        step.act(act.Cancel((partition.owner,), index, partition.copy.epoch, reason))
    step.partition(index, copy=None)
    if partition.backup in gone:
        to = backup_targets(step.state)[index]
        step.partition(index, backup=to, safe=False)
        back_up(step, index, to, step.cause)


def _roll_back(step: Step, gone: Collection[int]) -> None:
    state, era = step.state, step.next()
    step.change(era=era)
    reason = f"{step.cause}: what came after clock {state.consistent} has to be done again"
    step.act(act.RollBack(state.consistent, era, reason))
    for index, partition in enumerate(state.partitions):
        # What is under way is neither here nor there, and newer than the clock: it starts again from those that stay.
        unsafe = None if partition.safe else partition.copy
        cancel_all(step, index, "rolled back")
        step.partition(index, clock=state.consistent)
        if unsafe:
            back_up(step, index, unsafe.to, "rolled back")
    if step.state.stage is Stage.PARAMETER_SERVERS:
        _promote(step)
    else:
        _restore(step, gone)


def _promote(step: Step) -> None:
    """Backups have what everybody goes back to: they serve it themselves, and nothing needs to be sent."""
    promoted: dict[int, list[int]] = {}
    epoch = step.next()
    for index, partition in enumerate(step.state.partitions):
        if partition.safe and (partition.owner != partition.backup or partition.waiting):
            step.partition(index, owner=partition.backup, epoch=epoch, waiting=False)
            promoted.setdefault(partition.backup, []).append(index)
    for host, which in sorted(promoted.items()):
        reason = f"{step.cause}: {step.state.name(host)} serves {len(which)} partitions from its backup"
        step.act(act.Promote(host, tuple(which), epoch, reason))


def _restore(step: Step, gone: Collection[int]) -> None:
    targets = owner_targets(step.state)
    for index, partition in enumerate(step.state.partitions):
        needed = partition.owner in gone or partition.owner in step.state.leaving or partition.waiting
        if not needed or not partition.safe:
            continue
        to, epoch = targets[index], step.next()
        step.partition(index, owner=to, epoch=epoch, waiting=True)
        reason = f"{step.cause}: partition {index} goes to {step.state.name(to)} from its backup"
        step.act(act.Restore(partition.backup, to, index, epoch, step.state.consistent, reason))
