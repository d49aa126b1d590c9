"""Profiles and plans of pipelines: read as they were written, and refused with the key that is wrong."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plink.errors import InputError
from plink.model.pipeline.plan import PipelinePlan, pipeline_from_json, read_pipeline
from plink.model.pipeline.profile import LayerProfile, ModelProfile, profile_from_json, read_profile
from plink.model.storage import render_document
from tests.model.schemas import complaints

Document = dict[str, Any]

TENSOR = {"shape": [8, 10], "dtype": "float32", "gradient": True, "from": "a"}
PROFILE: Document = {
    "schema": "plink.profile/1", "program": "train.py", "arguments": ["--width", "32"], "method": "modules",
    "minibatch": 8, "minibatches": 100,
    "layers": [
        {"name": "a", "kind": "Linear", "forward_s": 0.01, "backward_s": 0.02, "parameter_bytes": 400,
         "crossing": [TENSOR], "crossing_bytes": 320, "crossing_back_bytes": 320},
        {"name": "b", "forward_s": 0, "backward_s": 0.02, "parameter_bytes": 0, "crossing_bytes": 64},
        {"name": "c.head", "forward_s": 0.01, "backward_s": 0.02, "parameter_bytes": 400, "crossing_bytes": 0},
    ],
    "tied": [["a.weight", "c.head.weight"]], "hosts": {"node-0": 1.0, "node-1": 1.25}, "colour": "green",
}  # fmt: skip
PLAN: Document = {
    "schema": "plink.pipeline/1", "profile": "sha256:12ab", "network": None, "model": "thesis", "kind": "1f1b",
    "minibatch": 8, "hosts": [{"name": "h0", "slots": 2}, {"name": "h1"}, {"name": "h2"}],
    "stages": [
        {"layers": [0, 1], "names": ["a", "b"], "ranks": [0, 1, 3], "depth": 2, "delay": 1, "lr_scale": 1.0},
        {"layers": [2, 2], "ranks": [2], "depth": 1, "delay": 0, "lr_scale": 0.25},
    ],
    "boundaries": [{"after": 1, "forward_bytes": 64, "backward_bytes": 64}],
    "idle": ["h9"], "proven": False,
}  # fmt: skip


def profile_of(document: Document) -> ModelProfile:
    return profile_from_json(document, "p.json")


def plan_of(document: Document) -> PipelinePlan:
    return pipeline_from_json(document, "plan.json")


def changed(document: Document, change: Callable[[Document], object]) -> Document:
    result = copy.deepcopy(document)
    change(result)
    return result


def test_profile_is_read_as_written(tmp_path: Path) -> None:
    profile = profile_of(PROFILE)
    assert complaints("profile", profile.to_json()) == []
    assert profile_of(json.loads(render_document(profile.to_json()))) == profile
    assert (profile.parameter_bytes, profile.tied_spans(), profile.slowness["node-1"]) == (
        800,
        [(0, 2, "a.weight")],
        1.25,
    )
    assert [layer.crossing_back_bytes for layer in profile.layers] == [320, 64, 0]
    profile.write(tmp_path / "p.json")
    assert read_profile(tmp_path / "p.json").digest() == profile.digest()


def test_profile_made_of_numpy_numbers_is_the_same_document() -> None:
    def profile(seconds: Callable[[float], Any], count: Callable[[int], Any]) -> ModelProfile:
        layer = LayerProfile(
            name="a", forward_s=seconds(0.25), backward_s=seconds(0.5), parameter_bytes=count(8), crossing_bytes=64
        )
        return ModelProfile(minibatch=count(8), layers=(layer,))

    made = profile(np.float64, np.int64)
    assert made.layers[0].crossing_back_bytes == 64
    assert profile(np.float32, np.int32).digest() == made.digest() == profile(float, int).digest()


def test_plan_is_read_as_written(tmp_path: Path) -> None:
    plan = plan_of(PLAN)
    assert complaints("pipeline", plan.to_json()) == []
    assert plan_of(json.loads(render_document(plan.to_json()))) == plan
    assert (plan.label, plan.ranks, plan.place_of(3), plan.host_names()) == ("3-1", 4, (0, 2), ["h0", "h0", "h1", "h2"])
    plan.write(tmp_path / "plan.json")
    assert read_pipeline(tmp_path / "plan.json") == plan


def test_stage_before_a_boundary_without_gradients_is_frozen() -> None:
    frozen = changed(PLAN, lambda plan: plan["boundaries"][0].update(backward_bytes=0))
    frozen["stages"][0]["delay"] = 0
    assert plan_of(frozen).shape.frozen == 1


def _layer(number: int, **keys: object) -> Callable[[Document], object]:
    return lambda document: document["layers"][number].update(keys)


def _stage(number: int, **keys: object) -> Callable[[Document], object]:
    return lambda document: document["stages"][number].update(keys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(layers=[]), "p.json: layers: "),
        (lambda p: p.pop("layers"), "p.json: layers: is missing"),
        (lambda p: p.update(minibatch=0), "p.json: minibatch: "),
        (_layer(1, forward_s=-0.1), r"p.json: layers\[1\].forward_s: expected a number >= 0"),
        (_layer(1, forward_s=float("nan")), r"p.json: layers\[1\].forward_s: expected a number"),
        (_layer(1, backward_s="fast"), r"p.json: layers\[1\].backward_s: expected a number, got 'fast'"),
        (_layer(1, parameter_bytes=1.5), r"p.json: layers\[1\].parameter_bytes: "),
        (_layer(1, name="a"), r"p.json: layers\[1\].name: layers\[0\] is named 'a' too"),
        (_layer(0, saved_bytes=8, saved_input_bytes=9), r"layers\[0\].saved_input_bytes: it is part of saved_bytes, 8"),
        (_layer(0, crossing_bytes=321), r"p.json: layers\[0\].crossing_bytes: the tensors in crossing have 320 bytes"),
        (_layer(0, crossing_back_bytes=0), r"layers\[0\].crossing_back_bytes: the tensors .* have 320"),
        (_layer(0, crossing=[TENSOR | {"dtype": "float8"}]), r"layers\[0\].crossing\[0\].dtype: choose one of "),
        (lambda p: p.update(tied=[["a.weight", "z.weight"]]), r"tied\[0\]: no layer has the parameter 'z.weight'"),
        (lambda p: p.update(hosts={"node-0": 0}), "p.json: hosts"),
        (lambda p: [layer.update(forward_s=0, backward_s=0) for layer in p["layers"]], "layers: no layer takes"),
        (lambda p: p.update(schema="plink.plan/1"), "p.json: schema: expected 'plink.profile/1'"),
    ],
)  # fmt: skip
def test_bad_profiles_are_refused(change: Callable[[Document], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        profile_of(changed(PROFILE, change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_stage(1, ranks=[2, 0]), r"plan.json: stages\[1\].ranks: rank 0 is already in stage 0"),
        (_stage(1, ranks=[2, 2]), r"plan.json: stages\[1\].ranks: rank 2 is already in this stage"),
        (_stage(0, ranks=[0, 1]), "plan.json: stages: rank 3 is in no stage"),
        (_stage(1, ranks=[4]), r"plan.json: stages\[1\].ranks: the hosts have ranks 0 to 3, there is no rank 4"),
        (_stage(1, ranks=[]), r"plan.json: stages\[1\].ranks: "),
        (_stage(0, layers=[1, 1]), r"plan.json: stages\[0\].layers: the first stage begins with layer 1, not 0"),
        (_stage(1, layers=[3, 3]), r"plan.json: stages\[1\].layers: layer 2 follows the stage before it, not 3"),
        (_stage(1, layers=[1, 2]), r"plan.json: stages\[1\].layers: layer 2 follows the stage before it, not 1"),
        (_stage(1, layers=[2, 1]), r"plan.json: stages\[1\].layers: expected first and last, got 2, 1"),
        (_stage(0, delay=2), r"plan.json: stages\[0\].delay: 1 follows from kind, replicas and depths, not 2"),
        (_stage(0, depth=3), r"plan.json: stages\[0\].delay: 2 follows"),
        (_stage(0, depth=0), r"plan.json: stages\[0\].depth: "),
        (lambda p: p.update(boundaries=[]), "plan.json: boundaries: 2 stages have 1 boundaries, not 0"),
        (lambda p: p["boundaries"][0].update(after=0), r"boundaries\[0\].after: stage 0 ends with layer 1, not 0"),
        (lambda p: p["boundaries"][0].update(tensors=[TENSOR]), r"boundaries\[0\].forward_bytes: the tensors have 320"),
        (lambda p: p.update(kind="zero-bubble"), "plan.json: kind: choose one of 1f1b, "),
        (lambda p: p.update(kind="2bw", accumulate=4), "plan.json: 2bw with replicas 3-1 accumulates a multiple of 3"),
        (lambda p: p.update(kind="2bw", accumulate=3), "plan.json: 2bw accumulates 3 .* below the depth"),
        (lambda p: p.update(actions=[["0F0"]]), "plan.json: actions: expected a list for each of 4 ranks, got 1"),
        (lambda p: p.update(actions=[["0F0"], ["0X1"], [], []]), r"plan.json: actions\[1\]\[0\]: expected an action"),
        (lambda p: p["hosts"][0].update(slots=3), "plan.json: stages: rank 4 is in no stage"),
    ],
)  # fmt: skip
def test_bad_plans_are_refused(change: Callable[[Document], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_of(changed(PLAN, change))
