"""The verifier passes what the generator makes, and refuses what somebody changed."""

import itertools
import random
from collections.abc import Iterator

import pytest

from plink.model.pipeline.actions import PipelineAction, actions_of, use_of
from plink.model.pipeline.shape import PipelineShape, base_depths, minibatches_to_prove, version_of
from solvers.pipeline.verifier import Place, verify_actions

Lists = dict[Place, list[PipelineAction]]


def compositions(workers: int) -> Iterator[tuple[int, ...]]:
    """All ways to replicate stages over that many workers."""
    for cuts in itertools.product((0, 1), repeat=workers - 1):
        sizes = [1]
        for cut in cuts:
            if cut:
                sizes.append(1)
            else:
                sizes[-1] += 1
        yield tuple(sizes)


def pipeline(*replicas: int, **options: object) -> PipelineShape:
    return PipelineShape("1f1b", replicas, base_depths(replicas), **options)  # type: ignore[arg-type]


def lists_of(shape: PipelineShape, minibatches: int) -> Lists:
    places = [(stage, replica) for stage in range(shape.stages) for replica in range(shape.replicas[stage])]
    return {place: list(actions_of(shape, *place, minibatches)) for place in places}


@pytest.mark.extended
def test_thesis_depths_never_lock() -> None:
    """All replications of up to eight workers, whole and short rounds."""
    for workers in range(1, 9):
        for replicas in compositions(workers):
            for minibatches in (1, 2, 3, workers - 1, workers, 13, 24, 25, 36, 60):
                assert verify_actions(pipeline(*replicas), minibatches) == [], (replicas, minibatches)


def test_rounded_down_depths_lock() -> None:
    """29 of the 255 configurations of up to eight workers, and never a straight one or n-1."""
    locked = []
    for workers in range(1, 9):
        for replicas in compositions(workers):
            depths = tuple(max(1, sum(replicas[stage:]) // count) for stage, count in enumerate(replicas))
            shape = PipelineShape("1f1b", replicas, depths)
            if any(verify_actions(shape, minibatches) for minibatches in (13, 24, 25, 37)):
                locked.append(replicas)
    assert len(locked) == 29
    assert {(3, 1, 1), (4, 1, 1), (1, 3, 1, 1)} <= set(locked)
    assert not [replicas for replicas in locked if max(replicas) == 1 or len(replicas) < 3]


def test_too_deep_a_later_stage_locks() -> None:
    """It would take in more minibatches than the first stage gives before it has a gradient."""
    (error,) = verify_actions(PipelineShape("1f1b", (1, 1), (1, 3)))
    assert "deadlock" in error


@pytest.mark.parametrize("accumulate", [4, 8, 12])
@pytest.mark.parametrize("kind", ["gpipe", "1f1b-flush", "2bw"])
@pytest.mark.parametrize("replicas", [(1, 1, 1), (2, 1), (1, 2), (2, 2), (4,), (2, 1, 1)])
def test_other_kinds_end(kind: str, replicas: tuple[int, ...], accumulate: int) -> None:
    depths = tuple(
        min(depth, accumulate // count) for depth, count in zip(base_depths(replicas), replicas, strict=True)
    )
    shape = PipelineShape(kind, replicas, depths, accumulate=accumulate)  # type: ignore[arg-type]
    for minibatches in range(1, 3 * accumulate + 2):
        assert verify_actions(shape, minibatches) == []


@pytest.mark.parametrize(
    "shape",
    [
        PipelineShape("data-parallel", (4,), (1,)),
        PipelineShape("model-parallel", (1, 1, 1), (1, 1, 1)),
        PipelineShape("model-parallel", (2, 1, 1), (1, 1, 1)),
        pipeline(2, 1, 1, vertical_sync=True),
        pipeline(1, 2, vertical_sync=True),
        pipeline(3, 1, reduce="late"),
        pipeline(1, 1, 1, frozen=1),
        pipeline(2, 3, 1, frozen=1),
    ],
)
def test_all_other_ways_end(shape: PipelineShape) -> None:
    for minibatches in range(1, 30):
        assert verify_actions(shape, minibatches) == []


def test_absent_replica_must_join_the_last_reduce() -> None:
    """3-1 with 25 minibatches: without the reduce of those that have nothing, the others wait for ever."""
    shape = pipeline(3, 1)
    lists = lists_of(shape, 25)
    assert lists[0, 2][-2:] == [PipelineAction("REDUCE", 0, 8), PipelineAction("UPDATE", 0, 8)]
    del lists[0, 2][-2:]
    assert verify_actions(shape, 25, lists) == ["rank 2: REDUCE 8 of stage 0 is missing"]


SHAPES = [
    pipeline(1, 1, 1), pipeline(2, 1), pipeline(1, 2, 1), pipeline(3, 1, reduce="late"),
    pipeline(2, 1, vertical_sync=True),
    PipelineShape("gpipe", (2, 1), (2, 1), accumulate=4), PipelineShape("2bw", (2, 1), (2, 1), accumulate=4),
    PipelineShape("1f1b-flush", (1, 1), (2, 1), accumulate=4), pipeline(1, 2, frozen=1),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_dropped_and_doubled_actions_are_refused(shape: PipelineShape) -> None:
    """Every single one."""
    minibatches = minibatches_to_prove(shape)
    lists = lists_of(shape, minibatches)
    assert verify_actions(shape, minibatches, lists) == []
    for place, actions in lists.items():
        for position in range(len(actions)):
            dropped = actions[:position] + actions[position + 1 :]
            assert verify_actions(shape, minibatches, lists | {place: dropped}) != []
            doubled = actions[: position + 1] + actions[position:]
            assert verify_actions(shape, minibatches, lists | {place: doubled}) != []


@pytest.mark.parametrize("shape", SHAPES)
def test_swapped_actions_are_refused_unless_nothing_changes(shape: PipelineShape) -> None:
    """Of two neighbours each; a swap may pass only if a naive run ends, with the same versions and no more in use."""
    minibatches = minibatches_to_prove(shape)
    lists = lists_of(shape, minibatches)
    verdicts = []
    for place, actions in lists.items():
        for position in range(len(actions) - 1):
            swapped = actions.copy()
            swapped[position : position + 2] = reversed(actions[position : position + 2])
            refused = verify_actions(shape, minibatches, lists | {place: swapped}) != []
            verdicts.append(refused)
            if not refused:
                kinds = {action.kind for action in swapped[position : position + 2]}
                earlier_wait = shape.reduce == "late" and kinds == {"B", "REDUCE"}
                assert earlier_wait or "F" in kinds, swapped[position : position + 2]
                assert naive_versions(shape, place[0], swapped) == naive_versions(shape, place[0], actions)
                now, before = use_of(shape, place[0], swapped), use_of(shape, place[0], actions)
                assert now.in_flight <= before.in_flight
                assert now.versions <= before.versions
                assert naive_run_ends(shape, lists | {place: swapped})
    assert sum(verdicts) > len(verdicts) / 3


@pytest.mark.parametrize("shape", SHAPES)
def test_far_swaps_never_pass_a_run_that_hangs(shape: PipelineShape) -> None:
    """Two actions of one rank, anywhere: what passes is run by somebody else, and ends."""
    chance = random.Random(3)
    minibatches = minibatches_to_prove(shape)
    lists = lists_of(shape, minibatches)
    for _ in range(150):
        place = chance.choice(list(lists))
        first, second = sorted(chance.sample(range(len(lists[place])), 2))
        swapped = lists[place].copy()
        swapped[first], swapped[second] = swapped[second], swapped[first]
        if verify_actions(shape, minibatches, lists | {place: swapped}) == []:
            assert naive_run_ends(shape, lists | {place: swapped})
            assert naive_versions(shape, place[0], swapped) == naive_versions(shape, place[0], lists[place])


def test_actions_of_another_replica_are_refused() -> None:
    """What a rank is sent follows from the minibatch's number, so it may not take another's."""
    shape = pipeline(2, 1)
    lists = lists_of(shape, 12)
    lists[0, 0], lists[0, 1] = lists[0, 1], lists[0, 0]
    errors = verify_actions(shape, 12, lists)
    assert errors[0] == "rank 0: F 1 of stage 0 stands where F 0 is next"


def test_actions_of_another_stage_are_refused() -> None:
    shape = pipeline(1, 1)
    lists = lists_of(shape, 6)
    lists[0, 0], lists[1, 0] = lists[1, 0], lists[0, 0]
    assert "is not of its stage 0" in verify_actions(shape, 6, lists)[0]


def test_more_in_flight_than_planned_is_refused() -> None:
    """GPipe's actions for a plan that drains one by one: the versions agree, the memory does not."""
    shape = PipelineShape("1f1b-flush", (1, 1), (2, 1), accumulate=4)
    eager = PipelineShape("gpipe", (1, 1), (2, 1), accumulate=4)
    errors = verify_actions(shape, 8, lists_of(eager, 8))
    assert errors == [
        "rank 0: 4 minibatches are in flight at once in stage 0; 2 are planned",
        "rank 1: 4 minibatches are in flight at once in stage 1; 1 are planned",
    ]


def test_missing_rank_is_refused() -> None:
    shape = pipeline(1, 1)
    lists = lists_of(shape, 6)
    del lists[1, 0]
    assert verify_actions(shape, 6, lists) == ["rank 1: F 0 of stage 1 is missing"]


def naive_versions(shape: PipelineShape, stage: int, actions: list[PipelineAction]) -> dict[int, int]:
    """The version of each minibatch: the current one, or the older one that the kind asks for."""
    older = shape.kind == "2bw" or shape.vertical_sync
    updates, versions = 0, {}
    for action in actions:
        updates += action.kind == "UPDATE"
        if action.kind == "F":
            versions[action.number] = min(updates, version_of(shape, stage, action.number)) if older else updates
    return versions


def naive_run_ends(shape: PipelineShape, lists: Lists) -> bool:
    """Messages in boxes, ranks polled in turns; written without the verifier's code."""
    position = dict.fromkeys(lists, 0)
    forward, backward, joined = set(), set(), set()
    last = shape.stages - 1
    moved = True
    while moved:
        moved = False
        for (stage, replica), actions in lists.items():
            while position[stage, replica] < len(actions):
                kind, _, number = actions[position[stage, replica]]
                if kind == "F" and stage > 0 and (stage - 1, number) not in forward:
                    break
                if kind == "B" and stage < last and (stage + 1, number) not in backward:
                    break
                if kind == "REDUCE":
                    joined.add((stage, replica, number))
                    size = shape.accumulate if shape.kind in ("gpipe", "2bw", "1f1b-flush") else shape.replicas[stage]
                    if any(
                        (stage, other, number) not in joined
                        and not all(
                            (stage, action.number) in backward
                            for action in lists[stage, other]
                            if action.kind == "B" and action.number // size == number
                        )
                        for other in range(shape.replicas[stage])
                    ):
                        break
                if kind == "F":
                    forward.add((stage, number))
                elif kind == "B":
                    backward.add((stage, number))
                position[stage, replica] += 1
                moved = True
    return all(position[place] == len(actions) for place, actions in lists.items())
