"""A profile as arrays: what planners of a chain of layers add up, and where they may cut.

Layers stand in the sequence in which they run, so a cut after layer k is crossed by every tensor that is made before
it and used after it; the profile has their bytes. No graph of layers is needed.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.pipeline.profile import ModelProfile

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LayerCosts:
    """Costs of N layers as prefix sums, shape (N + 1,): layers i to j - 1 take ``seconds[j] - seconds[i]`` and have
    ``weights[j] - weights[i]`` bytes. ``crossing``, shape (N + 1,): bytes both ways of a cut before layer k, infinite
    where a cut is forbidden, 0 at both ends."""

    seconds: Seconds
    weights: Seconds
    crossing: Seconds

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.seconds) - 1


def layer_costs(profile: ModelProfile, with_updates: bool, recompute: bool = False) -> LayerCosts:
    """Return the costs of a profile; layers that share a parameter have no cut between them.

    ``with_updates``: whether seconds include the optimiser's step and the copy of a new version. The thesis and the
    published code leave them out. ``recompute``: they include a second forward pass, of layers that have a backward
    pass.
    """
    layers = profile.layers
    extra = [layer.update_s + layer.copy_s if with_updates else 0.0 for layer in layers]
    passes = passes_s(profile, recompute)
    seconds = [compute_s + more for compute_s, more in zip(passes, extra, strict=True)]
    crossing = np.zeros(len(layers) + 1)
    crossing[1:-1] = [layer.crossing_bytes + layer.crossing_back_bytes for layer in layers[:-1]]
    for first, last, _ in profile.tied_spans():
        crossing[first + 1 : last + 1] = np.inf
    return LayerCosts(
        np.concatenate([[0.0], np.cumsum(seconds)]),
        np.concatenate([[0.0], np.cumsum([float(layer.parameter_bytes) for layer in layers])]),
        crossing,
    )


def passes_s(profile: ModelProfile, recompute: bool) -> list[float]:
    """Return the seconds of each layer's passes for a minibatch; with ``recompute``, the forward pass twice.

    Layers in front of a cut that no gradient crosses are frozen: they have no backward pass, and nothing to recompute.
    """
    layers = profile.layers
    frozen = max((k + 1 for k, layer in enumerate(layers[:-1]) if layer.crossing_back_bytes == 0), default=0)
    return [layer.compute_s + (recompute and k >= frozen) * layer.forward_s for k, layer in enumerate(layers)]
