"""Partitions on their way from one server to another, one at a time for each partition (Harlap thesis, 4.2.3)."""

from solvers.elastic.placement import actions as act
from solvers.elastic.placement.hosts import Tier
from solvers.elastic.placement.partitions import Move, Partition, balanced
from solvers.elastic.placement.racks import place_backups
from solvers.elastic.placement.stages import Stage
from solvers.elastic.placement.state import Cluster, Step

_PASSES = 4  # a copy called off for a move leaves other hosts short of backups: once or twice, as seen in many courses


def settle(step: Step) -> None:
    """Begin every move that brings servers and backups nearer to what the stage asks for, and call off those that no
    longer do. What has to wait for another move is begun when that one has been answered: this is called again then.
    """
    for _ in range(_PASSES):
        before = step.state
        _pass(step)
        if step.state.partitions == before.partitions:
            break


def _pass(step: Step) -> None:
    backups, owners = backup_targets(step.state), owner_targets(step.state)
    for index, partition in enumerate(step.state.partitions):
        if partition.waiting:
            continue
        if partition.move and partition.move.to != owners[index]:
            if partition.move.drain and partition.owner in step.state.leaving:
                continue  # all that there was time for; it moves on from its backup
            cancel(step, index, f"{step.cause}: it is to go elsewhere")
        partition = step.state.partitions[index]
        if partition.move:
            continue
        if partition.owner != owners[index]:
            begin(step, index, owners[index], step.cause)
        elif partition.owner != partition.backup:
            _settle_backup(step, index, backups[index])


def owner_targets(state: Cluster) -> tuple[int, ...]:
    """Who is to serve each partition."""
    if state.stage is Stage.PARAMETER_SERVERS:
        staying = state.servers
        return tuple(
            partition.backup if partition.owner != partition.backup and partition.backup in staying else target
            for partition, target in zip(state.partitions, backup_targets(state), strict=True)
        )
    return balanced([_bound(state, partition) for partition in state.partitions], state.servers)


def _bound(state: Cluster, partition: Partition) -> int:
    if partition.move and partition.move.to in state.servers:
        return partition.move.to
    return partition.owner


def backup_targets(state: Cluster) -> tuple[int, ...]:
    """The reliable host for each partition: its ParamServ or its backup."""
    reliable = [host.number for host in state.reliable]

    def bound(partition: Partition) -> int:
        if partition.move and partition.move.to in reliable:
            return partition.move.to
        return partition.copy.to if partition.copy else partition.backup

    current = [bound(partition) for partition in state.partitions]
    if state.stage is Stage.PARAMETER_SERVERS:
        return balanced(current, reliable)
    return place_backups(current, owner_targets(state), state.reliable, state.members)


def begin(step: Step, index: int, to: int, reason: str) -> None:
    """The owner sends the partition to another host; to its own backup only what that lacks."""
    partition = step.state.partitions[index]
    if partition.copy and partition.safe:
        _cancel_copy(step, index, f"{reason}: the partition itself moves")
    epoch, drain = step.next(), to == partition.backup
    step.partition(index, move=Move(to, epoch, drain))
    text = f"{reason}: partition {index} goes from {step.state.name(partition.owner)} to {step.state.name(to)}"
    if drain:
        step.act(act.Drain(partition.owner, to, index, epoch, text))
    else:
        step.act(act.HandOver(partition.owner, to, index, epoch, text))


def cancel(step: Step, index: int, reason: str) -> None:
    """The owner keeps the partition."""
    partition = step.state.partitions[index]
    assert partition.move
    _tell(step, index, partition.move, reason)
    step.partition(index, move=None)


def _cancel_copy(step: Step, index: int, reason: str) -> None:
    partition = step.state.partitions[index]
    assert partition.copy
    _tell(step, index, partition.copy, reason)
    step.partition(index, copy=None)


def cancel_all(step: Step, index: int, reason: str) -> None:
    """Nothing of the partition is under way any more."""
    if step.state.partitions[index].move:
        cancel(step, index, reason)
    if step.state.partitions[index].copy:
        _cancel_copy(step, index, reason)


def _tell(step: Step, index: int, move: Move, reason: str) -> None:
    ends = (step.state.partitions[index].owner, move.to)
    left = tuple(host for host in ends if host in step.state.members)
    if left:
        step.act(act.Cancel(left, index, move.epoch, reason))


def back_up(step: Step, index: int, to: int, reason: str) -> None:
    """The owner makes another reliable host the partition's backup."""
    owner, epoch = step.state.partitions[index].owner, step.next()
    step.partition(index, copy=Move(to, epoch))
    text = f"{reason}: {step.state.name(to)} becomes the backup of partition {index}"
    step.act(act.BackUp(to, index, epoch, owner, text))


def _settle_backup(step: Step, index: int, to: int) -> None:
    partition = step.state.partitions[index]
    if partition.copy and (partition.copy.to == to or not partition.safe):
        return
    if partition.copy:
        _cancel_copy(step, index, f"{step.cause}: another host is to be the backup")
    if partition.backup != to:
        back_up(step, index, to, step.cause)


def moved(step: Step, index: int, epoch: int) -> bool:
    """Something of the partition has arrived; False where that is no longer of interest."""
    partition = step.state.partitions[index]
    if partition.move and partition.move.epoch == epoch:
        _taken(step, index, partition.move)
    elif partition.copy and partition.copy.epoch == epoch:
        # It has what the owner can go back to and all that followed; what it had been pushed is not known.
        step.partition(index, backup=partition.copy.to, copy=None, safe=True, clock=step.state.consistent)
        reason = f"{step.state.name(partition.copy.to)} has the copy of partition {index}"
        step.act(act.PushTo(partition.owner, index, partition.copy.to, reason))
    elif partition.waiting and partition.epoch == epoch:
        step.partition(index, waiting=False)
    else:
        return False
    return True


def _taken(step: Step, index: int, move: Move) -> None:
    partition = step.state.partitions[index]
    if step.state.members[move.to].tier is Tier.RELIABLE:
        if partition.copy:
            _cancel_copy(step, index, f"partition {index} is served where it is safe")
        # A backup that drains into keeps what it has; a new one can be relied on for what it can go back to.
        clock = partition.clock if move.to == partition.backup and partition.safe else step.state.consistent
        step.partition(index, owner=move.to, epoch=move.epoch, backup=move.to, clock=clock, safe=True, move=None)
        reason = f"{step.state.name(move.to)} has the state of partition {index}"
        step.act(act.Promote(move.to, (index,), move.epoch, reason))
        return
    step.partition(index, owner=move.to, epoch=move.epoch, move=None)
    if partition.safe:
        reason = f"{step.state.name(move.to)} has the state of partition {index}"
        step.act(act.PushTo(move.to, index, partition.backup, reason))
    if partition.copy:
        # The old owner was to send the backup its copy, and it may be about to leave.
        _tell(step, index, partition.copy, f"partition {index} has another owner, who sends it")
        back_up(step, index, partition.copy.to, "its owner changed")
