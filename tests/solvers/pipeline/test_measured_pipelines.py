"""The simulator beside the clock: pipelines that ran on four lab hosts of 200 Mbit/s (docs/results/pipelines.md)."""

import statistics

from benchmarks.timing.emulated_training import ITEMS, SHAPES
from plink.api.pipeline_simulation import simulate_plan
from plink.api.pipeline_training import TrainingRequest
from plink.api.pipelines import EvenNetworkRequest, PipelineRequest, plan_pipeline
from plink.model.pipeline.profile import LayerProfile, ModelProfile

GBPS = 0.2
UPDATE_BYTES_PER_S = 4e9
MEASURED = {
    ("vgg", "0-2x3,3-6x1", "2,1"): 0.1147,
    ("s2vt", "0-2x3,3-5x1", "2,1"): 0.0789,
    ("alexnet", "0-3x3,4-6x1", "2,1"): 0.0767,
    ("gnmt", "0-1,2-3,4-5,6-7", "5,4,3,1"): 0.0434,
    ("lm", "0-1,2-3,4-5,6-7", "5,4,3,1"): 0.0444,
}
"""Seconds per minibatch, by shape, stages and depths."""


def profile_of(shape: str) -> ModelProfile:
    """Return the seconds and bytes that the emulated layers were run with."""
    layers = []
    for number, layer in enumerate(SHAPES[shape]):
        crossing = layer.output_bytes if number + 1 < len(SHAPES[shape]) else 0
        forward_s, update_s = layer.seconds * layer.forward_share, layer.weight_bytes / UPDATE_BYTES_PER_S
        layers.append(
            LayerProfile(
                str(number), forward_s, layer.seconds - forward_s, layer.weight_bytes, crossing, crossing,
                update_s=update_s, copy_s=update_s,
            )
        )  # fmt: skip
    return ModelProfile(ITEMS, tuple(layers))


def test_simulated_seconds_equal_the_measured() -> None:
    """Within 5 % at the median, and 10 % always."""
    errors = {}
    for (shape, stages, depths), measured_s in MEASURED.items():
        profile = profile_of(shape)
        training = TrainingRequest(stages=stages, depth=depths)
        plan = plan_pipeline(profile, PipelineRequest(EvenNetworkRequest("4", str(GBPS)), training))
        simulated = simulate_plan(plan, profile, GBPS).result.minibatch_s
        errors[shape] = abs(simulated / measured_s - 1)
    assert statistics.median(errors.values()) <= 0.05, errors
    assert max(errors.values()) <= 0.1, errors
