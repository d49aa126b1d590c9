"""The generator of actions: hand cases of the thesis, versions by the closed form, what each kind has in flight."""

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.pipeline.actions import PipelineAction, actions_from, actions_of, parse_action, use_of
from plink.model.pipeline.shape import (
    PipelineShape,
    backward_peer,
    base_depths,
    delay_of,
    forward_peer,
    learning_rate_scale,
    minibatches_of_update,
    minibatches_to_prove,
    older_versions_from,
    own_of_update,
    update_of,
    updates_of,
    version_of,
)


def pipeline(*replicas: int, **options: object) -> PipelineShape:
    """1F1B at the thesis's depths."""
    return PipelineShape("1f1b", replicas, base_depths(replicas), **options)  # type: ignore[arg-type]


def text(shape: PipelineShape, stage: int, replica: int, minibatches: int) -> str:
    return " ".join(map(str, actions_of(shape, stage, replica, minibatches)))


@st.composite
def shapes(draw: st.DrawFn) -> PipelineShape:
    """Any asynchronous pipeline of up to nine workers, at the thesis's depths or one deeper everywhere."""
    replicas = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    depths = tuple(depth + draw(st.integers(0, 1)) for depth in base_depths(replicas))
    return PipelineShape("1f1b", replicas, depths, reduce=draw(st.sampled_from(("wait", "late"))))


def test_figure_5_4_straight_of_four_stages() -> None:
    """Start-up with four minibatches at the first stage, then one forward and one backward pass in turns."""
    shape = pipeline(1, 1, 1, 1)
    assert shape.depths == (4, 3, 2, 1)
    assert text(shape, 0, 0, 6).startswith("0F0 0F1 0F2 0F3 0B0 0UPDATE0 0F4 0B1 0UPDATE1 0F5 0B2")
    assert text(shape, 3, 0, 2) == "3F0 3B0 3UPDATE0 3F1 3B1 3UPDATE1"
    # "minibatch 5 at stage 1 of 4 uses update 1", counted from 1
    assert version_of(shape, 0, 4) == 1
    assert [delay_of(shape, stage) for stage in range(4)] == [3, 2, 1, 0]


def test_figure_5_5_two_replicas_then_one() -> None:
    """1F1B-RR of 2-1: replica 0 has the even minibatches, both reduce before each update."""
    shape = pipeline(2, 1)
    assert shape.depths == (2, 1)
    assert text(shape, 0, 0, 5) == (
        "0F0 0F2 0B0 0REDUCE_GRAD0 0UPDATE0 0F4 0B2 0REDUCE_GRAD1 0UPDATE1 0B4 0REDUCE_GRAD2 0UPDATE2"
    )
    assert text(shape, 0, 1, 5) == (
        "0F1 0F3 0B1 0REDUCE_GRAD0 0UPDATE0 0B3 0REDUCE_GRAD1 0UPDATE1 0REDUCE_GRAD2 0UPDATE2"
    )
    assert text(shape, 1, 0, 2) == "1F0 1B0 1UPDATE0 1F1 1B1 1UPDATE1"


def test_noam_is_a_ceiling() -> None:
    """Rounded down, 3-1-1 and others lock."""
    assert base_depths((3, 1, 1)) == (2, 2, 1)
    assert base_depths((15, 1)) == (2, 1)
    assert base_depths((1, 3, 1, 1)) == (6, 2, 2, 1)


def test_actions_far_into_a_job_are_made_at_once() -> None:
    """Not by way of all that came before: these would take years."""
    shape, begin = PipelineShape("1f1b", (2, 1), (2, 1)), 1 << 50
    assert [str(action) for action in actions_of(shape, 0, 1, begin + 4, begin)][:2] == [
        f"0F{begin + 1}", f"0F{begin + 3}",
    ]  # fmt: skip


@settings(max_examples=150)
@given(shapes(), st.integers(0, 40))
def test_versions_are_the_closed_form(shape: PipelineShape, minibatches: int) -> None:
    """What a forward pass finds when its rank's updates are counted is what the formula says."""
    for stage, replicas in enumerate(shape.replicas):
        late = 1 if shape.reduce == "late" and replicas > 1 else 0
        for replica in range(replicas):
            updates = 0
            for action in actions_of(shape, stage, replica, minibatches):
                if action.kind == "UPDATE":
                    updates += 1
                elif action.kind == "F":
                    expected = max(0, action.number // replicas - (shape.depths[stage] - 1) - late)
                    assert updates == expected == version_of(shape, stage, action.number)
            assert updates == updates_of(shape, stage, minibatches)


def versions_are_found(shape: PipelineShape, begin: int, minibatches: int) -> bool:
    """Return whether each forward pass from a minibatch on finds its version among those that a checkpoint has, and
    those that are made since."""
    for stage, replicas in enumerate(shape.replicas):
        for replica in range(replicas):
            current = updates_of(shape, stage, begin)
            available = {*older_versions_from(shape, (stage, replica), begin, minibatches), current}
            actions = list(actions_of(shape, stage, replica, minibatches, begin))
            whole = actions_of(shape, stage, replica, minibatches)
            assert actions == list(actions_from(shape, stage, whole, begin))
            for action in actions:
                if action.kind == "UPDATE":
                    assert action.number == current
                    current += 1
                    available.add(current)
                elif action.kind == "F" and version_of(shape, stage, action.number) not in available:
                    return False
            assert current == updates_of(shape, stage, minibatches)
    return True


@settings(max_examples=150)
@given(shapes(), st.booleans(), st.integers(0, 4), st.integers(0, 20))
def test_a_job_goes_on_with_the_versions_of_its_checkpoint(
    shape: PipelineShape, vertical_sync: bool, cycles: int, more: int
) -> None:
    shape, begin = replace(shape, vertical_sync=vertical_sync), cycles * shape.cycle
    if versions_are_found(shape, 0, begin + more):  # else no such plan is proven
        assert versions_are_found(shape, begin, begin + more)


@given(shapes())
def test_depth_and_versions_in_use_are_the_plans(shape: PipelineShape) -> None:
    """A replica has d_s minibatches in flight, and d_s versions, no more and no less."""
    minibatches = minibatches_to_prove(shape)
    for stage, depth in enumerate(shape.depths):
        use = use_of(shape, stage, list(actions_of(shape, stage, 0, minibatches)))
        assert (use.in_flight, use.versions) == (depth, depth)


def test_vertical_sync_uses_the_first_stages_version() -> None:
    """A straight pipeline uses one version everywhere, and keeps as many as there are stages."""
    shape = pipeline(1, 1, 1, 1, vertical_sync=True)
    for minibatch in range(20):
        assert {version_of(shape, stage, minibatch) for stage in range(4)} == {max(0, minibatch - 3)}
    uses = [use_of(shape, stage, list(actions_of(shape, stage, 0, 30))) for stage in range(4)]
    assert [use.versions for use in uses] == [4, 4, 4, 4]
    assert [use.in_flight for use in uses] == [4, 3, 2, 1]
    assert [delay_of(shape, stage) for stage in range(4)] == [3, 3, 3, 3]


def test_vertical_sync_with_replicas() -> None:
    """The updates of whole rounds of minibatches that the first stage had taken in."""
    shape = pipeline(2, 1, vertical_sync=True)
    assert [version_of(shape, 1, b) for b in range(8)] == [0, 0, 0, 0, 2, 2, 4, 4]
    assert [version_of(shape, 0, b) for b in range(8)] == [0, 0, 0, 0, 1, 1, 2, 2]


def test_gpipe_flushes_every_batch() -> None:
    shape = PipelineShape("gpipe", (1, 1), (1, 1), accumulate=3)
    assert text(shape, 0, 0, 4) == "0F0 0F1 0F2 0B0 0B1 0B2 0UPDATE0 0F3 0B3 0UPDATE1"
    assert [delay_of(shape, stage) for stage in (0, 1)] == [0, 0]
    assert use_of(shape, 0, list(actions_of(shape, 0, 0, 9))) == (3, 1)


def test_1f1b_flush_drains_every_batch() -> None:
    shape = PipelineShape("1f1b-flush", (1, 1), (2, 1), accumulate=4)
    assert text(shape, 0, 0, 5) == "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3 0UPDATE0 0F4 0B4 0UPDATE1"
    assert use_of(shape, 0, list(actions_of(shape, 0, 0, 9))) == (2, 1)


def test_2bw_keeps_two_versions() -> None:
    shape = PipelineShape("2bw", (2, 1), (2, 1), accumulate=4)
    assert text(shape, 0, 0, 8) == ("0F0 0F2 0B0 0F4 0B2 0REDUCE_GRAD0 0UPDATE0 0F6 0B4 0B6 0REDUCE_GRAD1 0UPDATE1")
    assert [version_of(shape, 0, b) for b in (0, 4, 8, 12)] == [0, 0, 1, 2]
    assert [delay_of(shape, stage) for stage in (0, 1)] == [1, 1]
    assert {use_of(shape, stage, list(actions_of(shape, stage, 0, 40))).versions for stage in (0, 1)} == {2}


def test_late_reduce_hides_behind_the_next_passes() -> None:
    shape = PipelineShape("1f1b", (2,), (1,), reduce="late")
    assert text(shape, 0, 0, 6) == (
        "0F0 0B0 0F2 0B2 0REDUCE_GRAD0 0UPDATE0 0F4 0B4 0REDUCE_GRAD1 0UPDATE1 0REDUCE_GRAD2 0UPDATE2"
    )
    assert delay_of(shape, 0) == 1


def test_frozen_stage_only_computes_forward() -> None:
    shape = pipeline(1, 1, 1, frozen=1)
    assert text(shape, 0, 0, 3) == "0F0 0F1 0F2"
    assert backward_peer(shape, 1, 5) is None
    assert backward_peer(shape, 2, 5) == (1, 0)
    assert forward_peer(shape, 0, 5) == (1, 0)
    assert updates_of(shape, 0, 9) == 0


def test_short_last_round_has_a_replica_with_nothing() -> None:
    shape = pipeline(3, 1)
    assert list(minibatches_of_update(shape, 0, 1, 4)) == [3]
    assert [len(own_of_update(shape, (0, replica), 1, 4)) for replica in range(3)] == [1, 0, 0]
    assert text(shape, 0, 2, 4).endswith("0B2 0REDUCE_GRAD0 0UPDATE0 0REDUCE_GRAD1 0UPDATE1")


def test_peers_are_round_robin() -> None:
    shape = pipeline(2, 3, 1)
    assert [forward_peer(shape, 0, b) for b in range(4)] == [(1, 0), (1, 1), (1, 2), (1, 0)]
    assert [backward_peer(shape, 1, b) for b in range(4)] == [(0, 0), (0, 1), (0, 0), (0, 1)]
    assert forward_peer(shape, 2, 0) is None
    assert update_of(shape, 1, 5) == 1


def test_learning_rates_follow_the_minibatches_of_an_update() -> None:
    assert [learning_rate_scale(pipeline(15, 1), stage) for stage in (0, 1)] == [1.0, 1 / 15]
    assert learning_rate_scale(PipelineShape("2bw", (2, 1), (2, 1), accumulate=4), 1) == 1.0


@given(shapes(), st.integers(0, 30))
def test_notation_is_read_back(shape: PipelineShape, minibatches: int) -> None:
    actions = list(actions_of(shape, 0, 0, minibatches))
    assert [parse_action(str(action)) for action in actions] == actions


@pytest.mark.parametrize("word", ["", "F0", "0F", "0I1", "0W2", "1SEND_F0", "-1F0", "0F1 ", "0REDUCE0", "٣F0"])
def test_other_notation_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="expected an action like 0F3"):
        parse_action(word)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "2bw", "accumulate": 2}, "below the depth of stage 0"),
        ({"kind": "gpipe", "replicas": (2, 1), "depths": (2, 1), "accumulate": 3}, "a multiple of 2 .*, not 3"),
        ({"kind": "gpipe", "accumulate": 0}, "a multiple of 1"),
        ({"accumulate": 2}, "accumulates no minibatches"),
        ({"kind": "data-parallel"}, "one stage, not 3"),
        ({"kind": "model-parallel"}, "one minibatch in flight"),
        ({"kind": "gpipe", "vertical_sync": True, "accumulate": 4}, "belong to 1f1b"),
        ({"kind": "zero-bubble"}, "choose one of 1f1b"),
        ({"depths": (1, 1)}, "for each of 3 stages"),
        ({"depths": (3, 0, 1)}, "a depth of 1 or more"),
        ({"replicas": ()}, "one stage or more"),
        ({"frozen": 3}, "something to train"),
    ],
)  # fmt: skip
def test_impossible_pipelines_are_refused(arguments: dict[str, object], message: str) -> None:
    base: dict[str, object] = {"kind": "1f1b", "replicas": (1, 1, 1), "depths": (3, 2, 1)}
    with pytest.raises(UsageError, match=message):
        PipelineShape(**(base | arguments))  # type: ignore[arg-type]


def test_ranks_import_no_numpy() -> None:
    code = "import sys, plink.model.pipeline.actions; print(*{'numpy', 'torch', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_actions_describe_themselves() -> None:
    assert PipelineAction("F", 0, 7).describe() == "F 7 of stage 0"


def test_delays_of_replicas_without_a_common_factor_take_no_time() -> None:
    """Who processes what repeats after ten million minibatches; delays do after one round of both stages."""
    shape = PipelineShape("1f1b", (61, 59, 53, 47), base_depths((61, 59, 53, 47)), vertical_sync=True)
    delays = [delay_of(shape, stage) for stage in range(4)]
    assert delays[0] == shape.depths[0] - 1
    assert all(0 < delay < 10 for delay in delays)
