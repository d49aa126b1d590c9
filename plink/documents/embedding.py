"""``plink.embedding/1``: hosts as points whose distances are round trips."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, Matrix, NonNegative, PositiveInt, Share


class VerdictEntry(TypedDict):
    """Whether fitted distances are nearer to fresh measurements than measured ones; null where there were too few pairs
    to say."""

    word: Literal["helps", "hurts", "no difference"]
    """A difference of less than two standard errors is none."""
    basis: Literal["halves", "held-out"]
    """Judged on the other half of the samples, or on pairs held out."""
    fitted_error: NonNegative
    """Mean of |log(fitted / measured)| over the pairs."""
    raw_error: NonNegative
    """The same of the measured half, or of what near hosts measured."""
    standard_error: NonNegative
    """Of the difference."""
    pairs: PositiveInt
    """So many."""


class PlacedHosts(TypedDict):
    """What readers need of an embedding."""

    schema: Literal["plink.embedding/1"]
    """Kind and version of this file."""
    hosts: list[str]
    """The hosts that were placed; all arrays are in this order."""
    alpha: Annotated[float, Meta(ge=1, le=2)]
    """The power of the distance: ||v_i - v_j||^alpha + h_i + h_j are microseconds."""
    held_out_error: NonNegative
    """Mean of |log(fitted / measured)| over pairs it had not seen; a little flattered where the setting was chosen by
    it."""
    coordinates: list[Annotated[list[Annotated[float, Meta(gt=-1e15, lt=1e15)]], Meta(min_length=1)]]
    """Of each host, D numbers, centred."""
    fitted_us: Matrix
    """Fitted round trips, 0 on the diagonal; of pairs that were not measured as unmeasured_by says."""


class EmbeddingDocument(PlacedHosts):
    """Hosts as points whose distances are round trips.

    Written by `plink embed`.
    """

    network: str
    """Fingerprint of the network it was fitted to."""
    left_out: list[str]
    """Hosts of which nothing was measured."""
    dimension: Annotated[int, Meta(ge=1, le=64)]
    """Of the space."""
    heights: bool
    """Whether heights were fitted."""
    loss: Literal["relative", "absolute"]
    """Whether errors count relative to the distance."""
    settings_tried: NotRequired[PositiveInt]
    """From how many settings this one was chosen."""
    steps: NotRequired[PositiveInt]
    """Of Adam."""
    seed: NotRequired[Count]
    """Drew the starts and the pairs held out."""
    unmeasured_by: NotRequired[Literal["fit", "neighbours"]]
    """What fitted_us has for pairs that were not measured: the fit, or what near hosts measured, whichever was nearer
    to pairs held out."""
    triangle_violations: NotRequired[Share | None]
    """The share of measured detours that are shorter than the straight way; null without triangles."""
    verdict: NotRequired[VerdictEntry | None]
    """Whether fitted distances are nearer to fresh measurements than measured ones; null where there were too few pairs
    to say."""
    heights_us: list[NonNegative]
    """What each host adds to all its distances; zeros where none were fitted."""
    measured_us: NotRequired[Matrix]
    """Measured round trips, the slower of both directions; null where unmeasured."""
