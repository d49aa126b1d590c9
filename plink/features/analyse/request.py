"""Requests for analyses."""

from dataclasses import dataclass
from typing import Annotated

from plink.model.request import FeatureRequest, Option


@dataclass(frozen=True)
class EmbedRequest(FeatureRequest):
    """Request for an embedding; what is None is chosen by the error on pairs held out."""

    dimension: Annotated[
        int | None,
        Option("Dimension of the space; default: chosen by the error on pairs it has not seen.", least=1, most=64),
    ] = None
    alpha: Annotated[
        float | None, Option("Power of the distance, 1 to 2; default: the better of 1 and 2.", least=1, most=2)
    ] = None
    heights: Annotated[
        bool | None,
        Option("Fit what each host adds to all its distances; default: if better.", names=("--heights/--no-heights",)),
    ] = None
    loss: Annotated[
        str,
        Option(
            "Errors count relative to the distance, or absolute, in microseconds: auto takes the better.",
            choices=("auto", "relative", "absolute"),
        ),
    ] = "auto"
    seed: Annotated[int, Option("Draws the starts and the pairs kept out of the fit.", least=0, most=2**63 - 1)] = 0
    device: Annotated[str, Option("auto: a GPU for many hosts, if there is one.")] = "auto"


@dataclass(frozen=True)
class ClusterRequest(FeatureRequest):
    """Request for groups of hosts."""

    groups: Annotated[
        int | None,
        Option("Number of groups; default: the square root of the number of hosts.", least=1, metavar="K"),
    ] = None
    elasticity: Annotated[
        float,
        Option("How uneven groups may be: 1 even, 2 from half to twice n/K hosts.", least=1, most=2, metavar="E"),
    ] = 1.0
    seed: Annotated[int, Option("Makes the search reproducible.", least=0, most=2**32 - 1)] = 0
