"""Memory that plans predict, beside bytes of tensors that ranks hold while they train."""

import json
from typing import Any

import pytest
import torch.distributed as dist

from benchmarks.timing.counted_training import make
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan_file import pipeline_from_json
from plink.model.pipeline.profile import ModelProfile
from plink.model.storage import render_document
from plink.runtime.pipeline.job import PipelineProgram, run_rank
from plink.runtime.pipeline.parts import build_model
from plink.runtime.pipeline.profiler import ProfiledProgram, profile_program
from solvers.pipeline.joint import plan_measured
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts
from solvers.pipeline.threshold import StageRange
from tests.runtime.ranks import results_of, run_ranks

_ALL = {"mlp": 25, "vgg": 15}
_CUT = {"mlp": 12, "vgg": 3}


def arguments(model: str) -> list[str]:
    """Minibatches for two updates of kinds that accumulate, after those in which the pipeline fills."""
    return ["--model", model, "--minibatches", "40"]


def profile_of(model: str) -> ModelProfile:
    app = make(arguments(model))
    return profile_program(ProfiledProgram(build_model(app).units, app.batch, app.loss, app.optimiser), 1)


def trained(model: str, document: str) -> int:
    """Be a rank; return the most bytes that it held."""
    dist.init_process_group("gloo")
    app: Any = make(arguments(model))
    run_rank(PipelineProgram(app), pipeline_from_json(json.loads(document), "plan.json"), "plan.json")
    return int(app.most_bytes)


@pytest.mark.parametrize("model", ["mlp", "vgg"])
@pytest.mark.parametrize(
    ("replicas", "options"),
    [
        ((1, 1), {"kind": "1f1b", "depths": (4, 2)}),
        ((2, 1), {"kind": "1f1b", "depths": "noam"}),
        ((1, 1), {"kind": "2bw", "accumulate": 4}),
        ((1, 1), {"kind": "1f1b-flush", "accumulate": 4}),
        ((1, 1), {"kind": "gpipe", "accumulate": 4, "recompute": True}),
        ((3,), {"kind": "data-parallel"}),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_predictions_are_within_ten_percent(model: str, replicas: tuple[int, ...], options: dict[str, Any]) -> None:
    """Parameters, versions, optimiser state, gradients, activations and messages; the most is in a backward pass."""
    hosts = Hosts(tuple(Host(f"h{k}", f"h{k}", 1) for k in range(sum(replicas))))
    edges = (0, _CUT[model], _ALL[model]) if len(replicas) > 1 else (0, _ALL[model])
    stages = tuple(StageRange(edges[k], edges[k + 1] - 1, replicas[k]) for k in range(len(replicas)))
    request = JointRequest(**options, **({} if len(replicas) == 1 else {"stages": stages}), all_workers=True)
    plan = plan_measured(profile_of(model), MeasuredHosts.even(hosts, 1.0, 1e-4), request)
    counted = results_of(run_ranks(trained, plan.ranks, model, render_document(plan.to_json())))
    for stage in plan.stages:
        predicted = stage.details["memory_bytes"]["all"]
        for rank in stage.ranks:
            assert predicted == pytest.approx(counted[rank], rel=0.1), (plan.label, stage.details["memory_bytes"])
