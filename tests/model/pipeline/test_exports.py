"""Plans for other programs: read back as those programs read them."""

import csv
import io
import json
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

from plink.errors import UsageError
from plink.model.pipeline.exports import deepspeed, megatron, pipedream, torch_csv, torchtitan
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from tests.runtime.pipeline.apps import plan_of

KINDS = ("Embedding", *["Block"] * 6, "Linear")
TRANSFORMER = ModelProfile(
    minibatch=4,
    layers=tuple(
        LayerProfile(
            name=f"layers.{k}",
            forward_s=0.1,
            backward_s=0.2,
            parameter_bytes=100,
            crossing_bytes=10,
            crossing_back_bytes=10,
            kind=kind,
        )
        for k, kind in enumerate(KINDS)
    ),
)


def flushing(replicas: list[int], count: int = 8, kind: str = "1f1b-flush", **keys: Any) -> PipelinePlan:
    return plan_of(replicas, 8, kind=kind, accumulate=count, **keys)


@pytest.mark.parametrize("kind", ["1f1b-flush", "gpipe"])
@pytest.mark.parametrize(("replicas", "microbatches"), [([1, 1, 1, 1], 8), ([2, 2], 4), ([1], 8)])
def test_torch_accepts_the_schedule(tmp_path: Path, kind: str, replicas: list[int], microbatches: int) -> None:
    """torch adds the messages itself, and its own dry run of them ends."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    path = tmp_path / "schedule.csv"
    path.write_text(torch_csv(flushing(replicas, kind=kind)).text, newline="")
    stages = len(replicas)
    schedule = schedules._PipelineScheduleRuntime.__new__(schedules._PipelineScheduleRuntime)
    schedule.__dict__ |= {
        "pp_group_size": stages, "_num_stages": stages, "_n_microbatches": microbatches, "_stages": [],
        "pipeline_order": {}, "_defer_pp_recv": False,
    }  # fmt: skip
    schedule._load_csv(str(path), format="compute_only")
    assert schedule.stage_index_to_group_rank == {stage: stage for stage in range(stages)}
    lowered = schedule.pipeline_order_with_comms
    passes = [action for action in lowered[stages - 1] if str(action.computation_type.value) in ("F", "B")]
    assert len(passes) == 2 * microbatches
    kinds = ("F", "B", "SEND_F", "RECV_F", "SEND_B", "RECV_B")
    messages = {rank: [item for item in own if item.computation_type.value in kinds] for rank, own in lowered.items()}
    assert sum(item.computation_type.value == "SEND_F" for item in messages[0]) == microbatches * (stages > 1)
    simulated = schedules._simulate_comms_compute(messages, lambda stage: stage, stages)
    assert set(simulated) == set(range(stages))


def test_torch_csv_is_torch_s_own_1f1b() -> None:
    """The thesis's depths give the sequence of torch's Schedule1F1B: stages - stage forwards first."""
    rows = list(csv.reader(io.StringIO(torch_csv(flushing([1, 1, 1])).text)))
    assert [row[:5] for row in rows] == [
        ["0F0", "0F1", "0F2", "0B0", "0F3"], ["1F0", "1F1", "1B0", "1F2", "1B1"], ["2F0", "2B0", "2F1", "2B1", "2F2"],
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["1f1b", "2bw"])
def test_torch_cannot_train_without_flush(kind: str) -> None:
    plan = flushing([1, 1], kind="2bw") if kind == "2bw" else plan_of([1, 1], 8)
    with pytest.raises(UsageError, match="plan with --kind 1f1b-flush"):
        torch_csv(plan)


def test_uneven_replicas_are_refused() -> None:
    plan = plan_of([3, 1], 8, kind="1f1b-flush", accumulate=6)
    for export in (torch_csv, deepspeed):
        with pytest.raises(UsageError, match="equally many replicas of every stage, the plan has 3-1"):
            export(plan)
    with pytest.raises(UsageError, match="equally many replicas"):
        torchtitan(plan, TRANSFORMER)


def test_torchtitan_has_every_layer_once() -> None:
    exported = torchtitan(flushing([2, 2], kind="gpipe"), TRANSFORMER)
    options = tomllib.loads(exported.text)["parallelism"]
    first, second = options["module_fqns_per_model_part"]
    assert [*first, *second] == [layer.name for layer in TRANSFORMER.layers]
    assert len(first) == 4
    assert (options["pipeline_parallel_degree"], options["data_parallel_replicate_degree"]) == (2, 2)
    assert options["pipeline_parallel_schedule"] == "GPipe"
    assert exported.note == ""


def test_an_asynchronous_plan_is_said_to_lose_its_schedule() -> None:
    assert "kind 1f1b, training there flushes" in torchtitan(plan_of([1, 1], 8), TRANSFORMER).note


def megatron_stages(layout: str) -> list[str]:
    """Layers of each stage, by the rules of Megatron-LM's ``parse_str_to_list``: x*n is n times x."""
    stages = []
    for text in layout.split("|"):
        unrolled = ""
        while text:
            letter, text = text[0], text[1:]
            digits = ""
            if text.startswith("*"):
                text = text[1:]
                while text[:1].isdigit():
                    digits, text = digits + text[0], text[1:]
            unrolled += letter * int(digits or 1)
        stages.append(unrolled)
    return stages


def test_megatron_layout() -> None:
    plan = flushing([1, 1, 1], cuts=[2, 7])
    text = megatron(plan, TRANSFORMER).text
    layout = text.split("--pipeline-model-parallel-layout '")[1].split("'")[0]
    assert megatron_stages(layout) == ["Et", "ttttt", "L"]
    assert "--num-layers 6" in text
    assert f"--global-batch-size {plan.minibatch * plan.accumulate}\n" in text
    even = megatron(flushing([1, 1]), TRANSFORMER).text
    assert megatron_stages(even.split("layout '")[1].split("'")[0]) == ["Ettt", "tttL"]


def test_megatron_needs_a_transformer() -> None:
    mixed = ModelProfile(
        minibatch=4,
        layers=tuple(
            LayerProfile(
                name=f"l{k}",
                forward_s=0.1,
                backward_s=0.2,
                parameter_bytes=100,
                crossing_bytes=10,
                crossing_back_bytes=10,
                kind="Block" if k % 2 else "Norm",
            )
            for k in range(8)
        ),
    )
    with pytest.raises(UsageError, match="other layers lie between"):
        megatron(flushing([1, 1]), mixed)
    for kinds, end in (
        (["Linear"] * 8, "no embedding before its layers of kind Linear"),
        (["Block"] * 7 + ["Linear"], "no embedding before"),
        (["Embedding"] + ["Block"] * 7, "no head after its layers of kind Block"),
    ):
        layers = (
            LayerProfile(
                name=f"l{k}",
                forward_s=0.1,
                backward_s=0.2,
                parameter_bytes=100,
                crossing_bytes=10,
                crossing_back_bytes=10,
                kind=kind,
            )
            for k, kind in enumerate(kinds)
        )
        with pytest.raises(UsageError, match=end):
            megatron(flushing([1, 1]), ModelProfile(minibatch=4, layers=tuple(layers)))
    unknown = ModelProfile(
        minibatch=4,
        layers=tuple(
            LayerProfile(
                name=f"l{k}",
                forward_s=0.1,
                backward_s=0.2,
                parameter_bytes=100,
                crossing_bytes=10,
                crossing_back_bytes=10,
            )
            for k in range(8)
        ),
    )
    with pytest.raises(UsageError, match="needs the kinds of layers"):
        megatron(flushing([1, 1]), unknown)


def test_deepspeed_module_sets_these_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The written module is run with a base class that has what it uses of DeepSpeed's."""

    class PipelineModule:
        global_rank = 1
        bounds: tuple[int, int]

        class _topo:
            @staticmethod
            def get_coord(rank: int) -> Any:
                return types.SimpleNamespace(pipe=rank)

        def _set_bounds(self, start: int, stop: int) -> None:
            self.bounds = start, stop

    stub = types.ModuleType("deepspeed.pipe")
    stub.PipelineModule = PipelineModule  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    monkeypatch.setitem(sys.modules, "deepspeed.pipe", stub)
    written: dict[str, Any] = {}
    exec(deepspeed(flushing([2, 2], cuts=[3])).text, written)
    module = written["PlannedPipelineModule"]()
    module._partition_layers()
    assert module.bounds == (3, 8)
    assert written["CONFIGURATION"]["gradient_accumulation_steps"] == 4


def test_pipedream_configuration() -> None:
    """As its runtime reads it: modules by stage, the loss in the last, ranks by stage, warm-ups."""
    plan = plan_of([3, 1], 8)
    document = json.loads(pipedream(plan).text)
    assert document["module_to_stage_map"] == [0, 1, 1]
    assert {int(key): ranks for key, ranks in document["stage_to_rank_map"].items()} == {0: [1, 2, 3], 1: [0]}
    assert {int(key): depth for key, depth in document["stage_to_depth_map"].items()} == {0: 1, 1: 0}
    with pytest.raises(UsageError, match="PipeDream's runtime has no kind gpipe"):
        pipedream(flushing([1, 1], kind="gpipe"))
