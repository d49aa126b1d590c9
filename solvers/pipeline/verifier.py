"""Proof that the actions of a pipeline's ranks train what the plan says, and end.

Checked in this sequence; later checks assume earlier ones:

1. every rank processes its own minibatches once forward and once backward, in ascending sequence, and makes every
   update once, after its last backward pass of it. Who sends what to whom follows: the replica of a stage that
   processes a minibatch is the same function of its number on both sides of a boundary;
2. every forward pass finds the version that :func:`plink.model.pipeline.shape.version_of` names, and no rank has
   more minibatches in flight or more versions than its generated actions have;
3. all ranks end: generated actions of most depths by proof (:func:`never_locks`), for any number of minibatches.
   Others are executed abstractly, each action as soon as what it waits for is done. Sends never block, as in the
   executor. What an action waits for does not depend on time, so one such execution stands for all.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from plink.model.pipeline.actions import ActionKind, PipelineAction, actions_of, use_of
from plink.model.pipeline.shape import (
    Kind,
    PipelineShape,
    minibatches_to_prove,
    own_of_update,
    replica_of,
    update_of,
    updates_of,
    version_of,
)

MAX_REPORTED_ERRORS = 20

_COVERED: tuple[Kind, ...] = ("1f1b", "2bw", "1f1b-flush", "data-parallel", "model-parallel")
"""Kinds whose actions wait for what is listed above."""

Place = tuple[int, int]
"""A stage and the number of a replica in it."""


def verify_actions(
    shape: PipelineShape,
    minibatches: int | None = None,
    actions: Mapping[Place, Sequence[PipelineAction]] | None = None,
    ranks: Sequence[Sequence[int]] | None = None,
) -> list[str]:
    """Return what is wrong with a pipeline's actions, each in a sentence; an empty list when they are proven.

    ``minibatches``: of the job; None: any number, where generated actions are proven for that, else enough to cover
    start-up, two cycles and a short last round. ``actions``: of each replica; those of the generator where None.
    ``ranks[s][q]``: rank of a replica, for messages.
    """
    if minibatches is None and actions is None and never_locks(shape):
        return _verify_generated(shape, ranks)
    count = minibatches_to_prove(shape) if minibatches is None else minibatches
    places = [(stage, replica) for stage in range(shape.stages) for replica in range(shape.replicas[stage])]
    numbers = {place: rank for rank, place in enumerate(places)}
    if ranks is not None:
        numbers = {(stage, replica): ranks[stage][replica] for stage, replica in places}
    generated = {place: list(actions_of(shape, *place, count)) for place in places}
    lists: dict[Place, Sequence[PipelineAction]] = dict(generated)
    errors: list[str] = []
    if actions is not None:
        lists = {place: actions.get(place, ()) for place in places}
        for place in places:
            errors += [f"rank {numbers[place]}: {error}" for error in _incomplete(shape, place, lists[place], count)]
    if not errors:
        for place in places:
            wrong = _wrong_versions(shape, place, lists[place])
            wrong = wrong or _unplanned_use(shape, place, lists[place], generated[place])
            errors += [f"rank {numbers[place]}: {error}" for error in wrong]
    if not errors:
        errors = _deadlock(shape, lists, numbers, count)
    return errors[:MAX_REPORTED_ERRORS]


def never_locks(shape: PipelineShape) -> bool:
    """Return whether the generated actions are proven to end for any number of minibatches; False says nothing.

    Give every pass a number that is larger than those of all that it waits for: then the pass with the least number
    that is not done can always go on. F of minibatch b at stage s gets b + f_s, and B gets b + g_s. Then

    - F waits for F of the stage before it: f_s > f_(s-1); B for B of the stage behind it: g_s > g_(s+1);
    - B of b follows F of b + W r in its rank, W = depth - 1: g_s - f_s > W_s r_s;
    - F of b + (W + 1) r follows the update that takes in b, so B of every replica of that round, at most b + r - 1:
      g_s - f_s < W_s r_s + 1.

    So g_s - f_s = W_s r_s + e_s with 0 < e_s < 1, and such numbers exist if W_s r_s never rises from a stage to the
    next: e_s then falls from stage to stage, by more than the f_s rise. The thesis's depths obey it, for

        W_s r_s = ceil(R_(s+1) / r_s) r_s >= R_(s+1) = R_(s+2) + r_(s+1)
                > ceil(R_(s+2) / r_(s+1)) r_(s+1) = W_(s+1) r_(s+1)

    where R_s counts the replicas from stage s on. A flush adds a constant per batch to all numbers, and GPipe, whose
    ranks go backward when all of a batch went forward, another to all of B. What a late reduce waits for is earlier.
    Frozen stages wait for nothing behind them.
    """
    if shape.kind == "gpipe":
        return True
    if shape.kind not in _COVERED:
        return False
    trained = range(shape.frozen, shape.stages)
    in_flight = [shape.warm_up(stage) * shape.replicas[stage] for stage in trained]
    return all(before >= after for before, after in pairwise(in_flight))


def _verify_generated(shape: PipelineShape, ranks: Sequence[Sequence[int]] | None) -> list[str]:
    """Check the versions of generated actions, each replica by itself for its own start-up and cycles."""
    errors, rank = [], 0
    for stage, replicas in enumerate(shape.replicas):
        cycle = math.lcm(replicas, shape.accumulate, shape.replicas[shape.frozen] if shape.vertical_sync else 1)
        filled = max(depth * count for depth, count in zip(shape.depths, shape.replicas, strict=True))
        for replica in range(replicas):
            place = stage, replica
            number = rank if ranks is None else ranks[stage][replica]
            actions = list(actions_of(shape, *place, filled + 3 * cycle + 1))
            wrong = _wrong_versions(shape, place, actions) or _unplanned_use(shape, place, actions, actions)
            errors += [f"rank {number}: {error}" for error in wrong]
            rank += 1
    return errors[:MAX_REPORTED_ERRORS]


def _incomplete(shape: PipelineShape, place: Place, actions: Sequence[PipelineAction], minibatches: int) -> list[str]:
    """Return the first action of a replica that is missing, doubled, of others, or out of sequence."""
    stage, replica = place
    own = range(replica, minibatches, shape.replicas[stage])
    trained = stage >= shape.frozen
    updates = range(updates_of(shape, stage, minibatches))
    expected: dict[ActionKind, range] = {
        "F": own,
        "B": own if trained else range(0),
        "REDUCE": updates if trained and shape.replicas[stage] > 1 else range(0),
        "UPDATE": updates if trained else range(0),
    }
    position: dict[ActionKind, int] = dict.fromkeys(expected, 0)
    for action in actions:
        if action.stage != stage:
            return [f"{action.describe()} is not of its stage {stage}"]
        numbers, done = expected[action.kind], position[action.kind]
        if done == len(numbers):
            return [f"{action.describe()} is one too many"]
        if action.number != numbers[done]:
            return [f"{action.describe()} stands where {action.kind} {numbers[done]} is next"]
        position[action.kind] = done + 1
        error = _too_early(shape, place, action, position, own)
        if error:
            return [error]
    return [
        f"{PipelineAction(kind, stage, numbers[position[kind]]).describe()} is missing"
        for kind, numbers in expected.items()
        if position[kind] < len(numbers)
    ][:1]


def _too_early(
    shape: PipelineShape, place: Place, action: PipelineAction, position: Mapping[ActionKind, int], own: range
) -> str:
    """Return what must precede an action within its rank and does not; ``position`` counts it already."""
    stage, _ = place
    if action.kind == "B" and position["B"] > position["F"]:
        return f"{action.describe()} precedes its forward pass"
    if action.kind == "B":
        late = shape.reduce == "late" and shape.replicas[stage] > 1
        if position["UPDATE"] < (needed := update_of(shape, stage, action.number) - late):
            return f"{action.describe()} precedes UPDATE {needed - 1}, which would take in its gradient"
    if action.kind == "REDUCE" and position["UPDATE"] < action.number:
        return f"{action.describe()} precedes UPDATE {action.number - 1}"
    if action.kind in ("REDUCE", "UPDATE"):
        backward = position["B"]
        if backward < len(own) and update_of(shape, stage, own[backward]) <= action.number:
            return f"{action.describe()} precedes B {own[backward]}, whose gradient belongs to it"
    if action.kind == "UPDATE" and shape.replicas[stage] > 1 and position["REDUCE"] < position["UPDATE"]:
        return f"{action.describe()} precedes its reduce"
    return ""


def _wrong_versions(shape: PipelineShape, place: Place, actions: Sequence[PipelineAction]) -> list[str]:
    """Return the first forward pass that finds another version than the plan's."""
    stage, _ = place
    stashes_older = shape.kind == "2bw" or (shape.vertical_sync and stage > shape.frozen)
    current = 0
    for action in actions:
        if action.kind == "UPDATE":
            current += 1
        elif action.kind == "F":
            version = version_of(shape, stage, action.number)
            if version > current or (version < current and not stashes_older):
                return [f"{action.describe()} needs version {version}, but {current} updates precede it"]
    return []


def _unplanned_use(
    shape: PipelineShape, place: Place, actions: Sequence[PipelineAction], generated: Sequence[PipelineAction]
) -> list[str]:
    """Return whether a rank has more minibatches in flight, or more versions, than its generated actions have."""
    stage, _ = place
    if actions == generated and shape.kind != "2bw":
        return []
    use, limit = use_of(shape, stage, actions), use_of(shape, stage, generated)
    most_versions = 2 if shape.kind == "2bw" else limit.versions
    if use.in_flight > limit.in_flight:
        return [f"{use.in_flight} minibatches are in flight at once in stage {stage}; {limit.in_flight} are planned"]
    if use.versions > most_versions:
        return [f"{use.versions} versions are kept at once in stage {stage}; {most_versions} are planned"]
    return []


class _Event(NamedTuple):
    """Something that an action waits for: a pass of a minibatch at a stage."""

    kind: ActionKind
    stage: int
    number: int


def _deadlock(
    shape: PipelineShape, lists: Mapping[Place, Sequence[PipelineAction]], ranks: Mapping[Place, int], minibatches: int
) -> list[str]:
    """Execute the actions abstractly; return the circle of ranks that wait for each other, if they do not end."""
    position = dict.fromkeys(lists, 0)
    done: set[_Event] = set()
    waiters: dict[_Event, list[Place]] = {}
    ready = list(lists)
    while ready:
        place = ready.pop()
        actions = lists[place]
        while position[place] < len(actions):
            action = actions[position[place]]
            if action.kind == "REDUCE" and not own_of_update(shape, place, action.number, minibatches):
                event = _Event("REDUCE", place[0] * shape.workers + place[1], action.number)
                done.add(event)
                ready += waiters.pop(event, [])
            missing = next((event for event in _needs(shape, place, action, minibatches) if event not in done), None)
            if missing is not None:
                waiters.setdefault(missing, []).append(place)
                break
            position[place] += 1
            if action.kind in ("F", "B"):
                event = _Event(action.kind, action.stage, action.number)
                done.add(event)
                ready += waiters.pop(event, [])
    waiting = {place: event for event, places in waiters.items() for place in places}
    return [] if not waiting else [_circle(shape, lists, position, waiting, ranks)]


def _needs(shape: PipelineShape, place: Place, action: PipelineAction, minibatches: int) -> list[_Event]:
    """Return what an action waits for at other ranks."""
    stage = place[0]
    if action.kind == "F":
        return [_Event("F", stage - 1, action.number)] if stage else []
    if action.kind == "B":
        return [_Event("B", stage + 1, action.number)] if stage + 1 < shape.stages else []
    if action.kind == "UPDATE":
        return []
    events = []
    for replica in range(shape.replicas[stage]):
        own = own_of_update(shape, (stage, replica), action.number, minibatches)
        if own:
            events.append(_Event("B", stage, own[-1]))
        else:  # it takes part with nothing when it reaches its own reduce
            events.append(_Event("REDUCE", stage * shape.workers + replica, action.number))
    return events


def _circle(
    shape: PipelineShape,
    lists: Mapping[Place, Sequence[PipelineAction]],
    position: Mapping[Place, int],
    waiting: Mapping[Place, _Event],
    ranks: Mapping[Place, int],
) -> str:
    """Return who waits for whom, from any rank that waits until one is named again."""
    place = min(waiting, key=lambda waiter: ranks[waiter])
    visited: list[Place] = []
    while place not in visited:
        visited.append(place)
        event = waiting[place]
        place = _owner(shape, event)
        if place not in waiting:  # its list ended: it never does what is waited for
            break
    if place in visited:
        visited = visited[visited.index(place) :]
    steps = []
    for waiter in visited:
        event, action = waiting[waiter], lists[waiter][position[waiter]]
        owner = _owner(shape, event)
        name = PipelineAction(event.kind, owner[0], event.number).describe()
        steps.append(f"rank {ranks[waiter]} in {action.describe()} waits for {name} by rank {ranks[owner]}")
    return "deadlock: " + ", which waits: ".join(steps)


def _owner(shape: PipelineShape, event: _Event) -> Place:
    """Return the replica that does what is waited for."""
    if event.kind == "REDUCE":
        return divmod(event.stage, shape.workers)
    return event.stage, replica_of(shape, event.stage, event.number)
