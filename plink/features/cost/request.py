"""Request for a cost."""

from dataclasses import dataclass, field
from typing import Annotated

from plink.model.request import MODEL, SET, SIZE, SMOOTH, Bytes, FeatureRequest, Option, Settings


@dataclass(frozen=True)
class CostRequest(FeatureRequest):
    """Request for the cost of a collective. ``random``: None is 201, fewer (11 at least) where they
    are simulated, and no more than 10 s of them."""

    algo: Annotated[str, Option("The collective's algorithm, or a library's own (gloo, nccl, ...).")] = "ring"
    size_bytes: Annotated[Bytes, SIZE] = 100e6
    model: Annotated[str, MODEL] = "auto"
    options: Annotated[Settings, SET] = field(default_factory=dict[str, int | bool])
    random: Annotated[
        int | None, Option("Random orders to compare with; default 201, fewer if large.", least=0, most=100_000)
    ] = None
    seed: Annotated[int, Option("Draws the random orders.", least=0)] = 0
    smooth_latencies: Annotated[bool, SMOOTH] = False
