"""What one replica of a stage computes, keeps and sends, by the profile of its layers."""

from dataclasses import dataclass

from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from plink.model.pipeline.shape import PipelineShape, most_versions

DEFAULT_BUCKET_BYTES = 1 << 20
"""As the executor's (:mod:`plink.runtime.pipeline.replicas`)."""
REDUCE_ROUND_S = 1.7e-3
"""Seconds of a round of Gloo's ring all-reduce that sends next to nothing: 53 ms in 30 rounds of 16 hosts, for any size
from 1 to 64 KB (docs/results/aggengine.md)."""


@dataclass(frozen=True)
class GradientBucket:
    """Gradients that are added up together: ``ready_s`` into the backward pass the last of them is there."""

    ready_s: float
    size_bytes: float


@dataclass(frozen=True)
class StageCosts:
    """Seconds of one minibatch on a host of slowness 1, and what replicas add up."""

    forward_s: float
    backward_s: float
    update_s: float
    copy_s: float
    parameter_bytes: float
    buckets: tuple[GradientBucket, ...]

    @property
    def compute_s(self) -> float:
        """Seconds of both passes."""
        return self.forward_s + self.backward_s


def stage_costs(
    layers: tuple[LayerProfile, ...], bucket_bytes: int = DEFAULT_BUCKET_BYTES, recompute: bool = False
) -> StageCosts:
    """Return the costs of a stage of these layers.

    Buckets are filled from the last layer to the first, until they have ``bucket_bytes``; the profile knows no single
    parameters, so a layer's gradients stay together. ``recompute``: a backward pass computes activations again.
    """
    forward_s = sum(layer.forward_s for layer in layers)
    buckets: list[GradientBucket] = []
    done_s, size = forward_s if recompute else 0.0, 0.0
    for layer in reversed(layers):
        done_s += layer.backward_s
        if not layer.parameter_bytes:
            continue
        if buckets and size < bucket_bytes:
            size += layer.parameter_bytes
            buckets[-1] = GradientBucket(done_s, size)
        else:
            size = float(layer.parameter_bytes)
            buckets.append(GradientBucket(done_s, size))
    return StageCosts(
        forward_s,
        done_s,
        sum(layer.update_s for layer in layers),
        sum(layer.copy_s for layer in layers),
        float(sum(layer.parameter_bytes for layer in layers)),
        tuple(buckets),
    )


def costs_of_plan(plan: PipelinePlan, profile: ModelProfile) -> tuple[StageCosts, ...]:
    """Return the costs of each stage of a plan."""
    costs = []
    for stage in plan.stages:
        bucket_bytes = (stage.all_reduce and stage.all_reduce.bucket_bytes) or DEFAULT_BUCKET_BYTES
        layers = profile.layers[stage.first : stage.last + 1]
        costs.append(stage_costs(layers, bucket_bytes, plan.recompute))
    return tuple(costs)


def keeps_versions(shape: PipelineShape, stage: int) -> bool:
    """Whether an update copies the parameters first, because a minibatch in flight still uses them."""
    return most_versions(shape, stage) > 1
