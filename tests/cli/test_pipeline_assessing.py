"""``plink pipeline assess``, ``export`` and traces: what a plan predicted beside what its run did."""

import json
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from plink.errors import InputError, NoAnswer
from plink.features.pipeline.assess import assess_pipeline
from plink.model.document import UNSET
from plink.model.pipeline.document import PipelinePrediction, StagePrediction
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.results import PipelineAssessment
from tests.conftest import typed
from tests.model.schemas import complaints
from tests.runtime.pipeline.apps import plan_of

PREDICTED = {0: 0.1, 1: 0.04}


def plan() -> PipelinePlan:
    base = plan_of([2, 1], 8)
    stages = tuple(
        structs.replace(stage, predicted=StagePrediction(compute_s=seconds, network_s=0.0))
        for stage, seconds in zip(base.stages, PREDICTED.values(), strict=True)
    )
    return structs.replace(base, stages=stages, predicted=PipelinePrediction(minibatch_s=0.1, items_per_s=40.0))


def reports(**changes: Any) -> list[dict[str, Any]]:
    """Of a run as predicted, but for ``changes`` of stage 0."""
    result = []
    for rank, (stage, replica) in enumerate([(1, 0), (0, 0), (0, 1)]):
        own = {"forward_s": 0.06, "backward_s": 0.13, "update_s": 0.01} if stage == 0 else {
            "forward_s": 0.01, "backward_s": 0.02, "update_s": 0.01}  # fmt: skip
        result.append(
            {
                "schema": "plink.pipeline-log/1", "type": "end", "plan": plan().fingerprint(), "rank": rank,
                "host": "here", "stage": stage, "replica": replica, "at_s": 10.0,
                "minibatches": 100 if stage else 50, "minibatch_s": 0.1, "wait_forward_s": 6.0 if stage else 0.0,
                "wait_backward_s": 0.0, "wait_reduce_s": 0.0, "sent_bytes": 6400 if stage else 3200,
                "received_bytes": 0, "versions": 1 if stage else 2, **own,
            }
            | (changes if stage == 0 else {})
        )  # fmt: skip
    return result


def assess(plan: PipelinePlan, reports: Sequence[dict[str, Any]]) -> PipelineAssessment:
    """Assess a run with these reports."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        (run / "pipeline.jsonl").write_text("".join(f"{json.dumps(report)}\n" for report in reports))
        return assess_pipeline(plan, run)


def assessed(*changed: dict[str, Any], period_s: float = 0.1) -> dict[str, Any]:
    own = [{**report, "minibatch_s": period_s} for report in reports(**(changed[0] if changed else {}))]
    document = assess(plan(), own).to_json()
    assert complaints("pipeline-assessment", document) == []
    return document


def test_a_run_as_predicted() -> None:
    document = assessed()
    assert document["verdict"] == ["as predicted, within 10%"]
    assert document["minibatches"] == 100
    assert document["stages"][0]["compute_s"] == {"predicted": 0.1, "measured": pytest.approx(0.1)}
    assert document["stages"][1]["busy"]["measured"] == pytest.approx(0.4)
    assert document["stages"][1]["waits_for"] == "activations of the stage before"


def test_evaluations_are_no_time_of_training() -> None:
    own = [{**report, "at_s": 110.0, "evaluation_s": 100.0} for report in reports()]
    document = assess(plan(), own).to_json()
    assert [stage["busy"] for stage in document["stages"]] == [stage["busy"] for stage in assessed()["stages"]]


def test_slow_computing_is_named() -> None:
    (verdict,) = assessed({"backward_s": 0.33}, period_s=0.2)["verdict"]
    assert verdict.startswith("stage 0 computes 2 times as long as profiled")


def test_a_stage_that_hardly_waits_is_named() -> None:
    """Stage 0 waits for 4 % of the time, so messages cannot be what costs a third of it; medians are as profiled."""
    (verdict,) = assessed({"wait_reduce_s": 0.4}, period_s=0.15)["verdict"]
    assert verdict.startswith("stage 0 is busy 96% of the time")
    (verdict,) = assessed({"backward_s": 0.17, "wait_reduce_s": 0.4}, period_s=0.25)["verdict"]
    assert verdict.startswith("stage 0 computes 1.2 times as long as profiled")


def test_slow_messages_are_named() -> None:
    """Computing is as profiled, so it is the network."""
    (verdict,) = assessed({"wait_reduce_s": 7.0}, period_s=0.15)["verdict"]
    assert verdict.startswith(
        "messages or all-reduces take longer than planned; stage 0 waits for gradients of the oth"
    )


def slow_run(
    replicas: list[int], waits: dict[tuple[int, int], dict[str, float]], predicted_compute_s: float | None = None
) -> str:
    """Return the verdict on a run that takes 1.5 times as long as predicted; all stages compute 40 ms.

    ``waits``: by (stage, replica)."""
    own = plan_of(replicas, 8)
    predicted = StagePrediction(compute_s=predicted_compute_s, network_s=0.0) if predicted_compute_s else UNSET
    stages = tuple(structs.replace(stage, predicted=predicted) for stage in own.stages)
    own = structs.replace(own, stages=stages, predicted=PipelinePrediction(minibatch_s=0.1, items_per_s=40.0))
    documents = []
    for (stage, replica), waited in waits.items():
        rank = own.stages[stage].ranks[replica]
        place = {"rank": rank, "stage": stage, "replica": replica, "host": f"node-{stage}-{replica}"}
        documents.append(
            reports()[0] | {"plan": own.fingerprint(), "minibatch_s": 0.15, "wait_forward_s": 0.0} | place | waited
        )
    return "\n".join(assess(own, documents).to_json()["verdict"])


@pytest.mark.parametrize(("after_s", "is_named"), [(4.0, True), (0.2, False)])
def test_slow_link_is_named_beside_slow_computing(after_s: float, is_named: bool) -> None:
    """Computing explains 30 ms of the 50 ms that are lost. A rank that hardly waits has no slow link: the one before it
    waits for its computing."""
    waits = {(0, 0): {"wait_backward_s": 4.0}, (1, 0): {"wait_forward_s": after_s}}
    verdict = slow_run([1, 1], waits, predicted_compute_s=0.01)
    assert "computes 4 times as long as profiled" in verdict
    assert ("rank 1 (node-0-0) and rank 0 (node-1-0) wait for each other" in verdict) == is_named


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_slow_link_is_named(slow: int) -> None:
    """That between stages ``slow`` and ``slow + 1``: all before wait for gradients, all after for activations."""
    waits = {
        (stage, 0): {"wait_backward_s": 5.0, "wait_forward_s": 0.2 if stage else 0.0}
        if stage <= slow
        else {"wait_forward_s": 5.0, "wait_backward_s": 0.2}
        for stage in range(4)
    }
    # In plan_of stage 0 has the last rank.
    verdict = slow_run([1, 1, 1, 1], waits)
    assert f"rank {3 - slow} (node-{slow}-0) and rank {2 - slow} (node-{slow + 1}-0) wait for each other" in verdict


@pytest.mark.parametrize(
    ("replicas", "backward_s", "forward_s", "named"),
    [
        # Minibatches of replica 0 go to replica 0, those of replica 1 to replica 1.
        ([2, 2], (5.0, 1.0), (4.0, 4.2), "rank 2 (node-0-0) and rank 0 (node-1-0) wait"),
        ([2, 2], (5.0, 4.6), (4.5, 5.0), ""),
        ([2, 1], (5.0, 1.0), (4.0,), "rank 1 (node-0-0) and rank 0 (node-1-0) wait"),
        ([2, 1], (5.0, 4.9), (4.0,), ""),
        ([2, 4], (1.0, 5.0), (5.0, 3.0, 1.0, 4.5), "rank 5 (node-0-1) and rank 3 (node-1-3) wait"),
    ],
)  # fmt: skip
def test_ranks_that_wait_for_each_other_exchange_messages(
    replicas: list[int], backward_s: tuple[float, ...], forward_s: tuple[float, ...], named: str
) -> None:
    """None is named where no pair waits much longer than the others."""
    waits = {(0, replica): {"wait_backward_s": waited} for replica, waited in enumerate(backward_s)}
    waits |= {(1, replica): {"wait_forward_s": waited} for replica, waited in enumerate(forward_s)}
    verdict = slow_run(replicas, waits)
    assert named in verdict
    assert ("wait for each other" in verdict) == bool(named)
    assert "longer than planned" in verdict


@pytest.mark.parametrize(("slow", "rank"), [(0, 1), (3, 4)])
def test_slow_link_of_one_of_many_replicas(slow: int, rank: int) -> None:
    """The other replicas wait for its gradients, most of their stage."""
    waits = {(0, replica): {"wait_reduce_s": 5.0, "wait_backward_s": 0.5} for replica in range(4)}
    waits[0, slow] = {"wait_backward_s": 5.0, "wait_reduce_s": 0.1}
    waits[1, 0] = {"wait_forward_s": 4.0}
    verdict = slow_run([4, 1], waits)
    assert f"rank {rank} (node-0-{slow}) and rank 0 (node-1-0) wait for each other" in verdict


def test_wait_for_replicas_is_no_slow_link() -> None:
    waits = {(0, replica): {"wait_reduce_s": 5.0, "wait_backward_s": 2.0 * replica} for replica in range(2)}
    waits[1, 0] = {"wait_forward_s": 4.0}
    verdict = slow_run([2, 1], waits)
    assert "longer than planned" in verdict
    assert "wait for each other" not in verdict


def test_other_bytes_are_named() -> None:
    assert "stage 0 sends" in assessed({"sent_bytes": 6400})["verdict"][0]


def test_another_plan_s_run_is_refused() -> None:
    with pytest.raises(InputError, match="it ran plan"):
        assess(plan(), reports(plan="other"))


def test_a_rank_without_report() -> None:
    with pytest.raises(NoAnswer, match="rank 0 did not report"):
        assess(plan(), reports()[1:])


@pytest.mark.extended
def test_assess_of_a_launched_run(tmp_path: Path) -> None:
    plan_of([1, 1], 7).write(tmp_path / "plan.json")
    example = str(Path(__file__).parents[2] / "examples" / "pipeline_mlp.py")
    words = ("launch", "--runner", "local", "--pipeline", "plan.json", example, "--minibatches", "20", "--items", "8")
    done = typed(*words, "--width", "8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = typed("pipeline", "assess", "last", "--plan", "plan.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["minibatches"] == 20
    assert [stage["versions"] for stage in document["stages"]] == [2, 1]
    lines = typed("pipeline", "assess", "--plan", "plan.json", cwd=tmp_path).stdout.splitlines()
    assert "20 minibatches" in lines[0]
    assert lines[1].split()[:2] == ["stage", "compute"]


def test_runs_that_cannot_be_assessed(tmp_path: Path) -> None:
    plan_of([1, 1], 7).write(tmp_path / "plan.json")
    done = typed("pipeline", "assess", "last", "--plan", "plan.json", cwd=tmp_path)
    assert (done.returncode, "plink runs" in done.stderr) == (2, True)


def simulated(folder: Path, *more: str) -> Any:
    from plink.model.pipeline.profile import LayerProfile, ModelProfile

    layers = tuple(
        LayerProfile(
            name=f"l{k}",
            forward_s=0.01,
            backward_s=0.02,
            parameter_bytes=1_000_000,
            crossing_bytes=64,
            crossing_back_bytes=64,
        )
        for k in range(8)
    )
    profile = ModelProfile(minibatch=4, layers=layers)
    profile.write(folder / "profile.json")
    structs.replace(plan_of([2, 1], 8), profile=profile.digest()).write(folder / "plan.json")
    words = ("pipeline", "simulate", "plan.json", "--profile", "profile.json", "--gbps", "1", "--minibatches", "30")
    return typed(*words, *more, cwd=folder)


def test_trace_has_every_pass_where_it_runs(tmp_path: Path) -> None:
    """Passes of a rank do not overlap, and each begins after that of the stage before has ended."""
    done = simulated(tmp_path, "--trace", "trace.json", "--json")
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    passes = [event for event in events if event["ph"] == "X"]
    assert sum(event["cat"] == "forward" for event in passes) == 60
    assert {event["pid"] for event in passes} == {0, 1}
    by_rank: dict[int, list[Any]] = {}
    for event in passes:
        by_rank.setdefault(event["tid"], []).append(event)
    assert set(by_rank) == {0, 1, 2}
    for own in by_rank.values():
        for before, after in pairwise(own):
            assert after["ts"] >= before["ts"] + before["dur"] - 1e-3
    begins = {(event["name"], event["pid"]): event for event in passes}
    for number in range(30):
        first, second = begins[f"F {number}", 0], begins[f"F {number}", 1]
        assert second["ts"] >= first["ts"] + first["dur"]
    seconds = max(event["ts"] + event["dur"] for event in passes) / 1e6
    assert seconds == pytest.approx(json.loads(done.stdout)["job_s"])


def test_picture_of_a_timeline(tmp_path: Path) -> None:
    done = simulated(tmp_path, "--picture", "timeline.svg")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "timeline.svg").read_text()
    assert "Pipeline 2-1, 1f1b" in text
    assert simulated(tmp_path, "--picture", "timeline.gif").returncode == 2


def test_export_formats(tmp_path: Path) -> None:
    plan_of([1, 1], 7, kind="1f1b-flush", accumulate=4).write(tmp_path / "plan.json")
    done = typed("pipeline", "export", "plan.json", "--to", "torch-csv", "-o", "s.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "s.csv").read_text().splitlines()[1] == "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3"
    plan_of([3, 1], 7).write(tmp_path / "plan.json")
    done = typed("pipeline", "export", "plan.json", "--to", "deepspeed", cwd=tmp_path)
    assert (done.returncode, "the plan has 3-1" in done.stderr) == (2, True)
    assert json.loads(typed("pipeline", "export", "plan.json", "--to", "pipedream", cwd=tmp_path).stdout)
