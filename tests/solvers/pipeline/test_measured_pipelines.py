"""The simulator beside the clock: pipelines that ran on four lab hosts of 200 Mbit/s (docs/results/pipelines.md)."""

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.timing.emulated_training import ITEMS, SHAPES
from plink.features.pipeline.plan import plan_pipeline, simulate_pipeline
from plink.features.pipeline.request import PipelineRequest, PipelineSimulationRequest
from plink.model.pipeline.profile import LayerProfile, ModelProfile

GBPS = 0.2
UPDATE_BYTES_PER_S = 4e9
RECORD = Path(__file__).parents[3] / "benchmarks/records/pipeline-lab.json"
STAGES = {
    "vgg": "0-3x3,4-6x1",
    "s2vt": "0,1,2,3-5",
    "alexnet": "0-3x3,4-6x1",
    "gnmt": "0-1,2-3,4-5,6-7",
    "lm": "0-1,2-3,4-5,6-7",
}
"""Layers of the plans that were measured: of a record with other plans, these have to be theirs."""


def profile_of(shape: str) -> ModelProfile:
    """Return the seconds and bytes that the emulated layers were run with."""
    layers = []
    for number, layer in enumerate(SHAPES[shape]):
        crossing = layer.output_bytes if number + 1 < len(SHAPES[shape]) else 0
        forward_s, update_s = layer.seconds * layer.forward_share, layer.weight_bytes / UPDATE_BYTES_PER_S
        layers.append(
            LayerProfile(
                name=str(number),
                forward_s=forward_s,
                backward_s=layer.seconds - forward_s,
                parameter_bytes=layer.weight_bytes,
                crossing_bytes=crossing,
                crossing_back_bytes=crossing,
                update_s=update_s,
                copy_s=update_s,
            )
        )
    return ModelProfile(minibatch=ITEMS, layers=tuple(layers))


def test_simulated_seconds_equal_the_measured() -> None:
    """Within 5 % at the median, and 10 % always."""
    measured: dict[str, Any] = json.loads(RECORD.read_text())["figures"]["shapes"]
    errors = {}
    for shape, stages in STAGES.items():
        profile, record = profile_of(shape), measured[shape]
        depth = ",".join(map(str, record["depths"]))
        plan = plan_pipeline(profile, PipelineRequest(hosts=4, gbps=(GBPS,), stages=stages, depth=depth))
        assert plan.label == record["measured"]
        simulated = simulate_pipeline(plan, profile, None, PipelineSimulationRequest(GBPS)).document.minibatch_s
        errors[shape] = abs(simulated / statistics.median(record["pipeline_s"]) - 1)
    assert statistics.median(errors.values()) <= 0.05, errors
    assert max(errors.values()) <= 0.1, errors
