"""Embedding of hosts: points whose distances are round trips (``plink.embedding/1``)."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from plink.model.codec import decode
from plink.model.document import Document, Part
from plink.model.storage import name_of, read_document
from plink.model.types import Count, Matrix, NonNegative, PositiveInt, Share


class SmoothingVerdict(Part, frozen=True, kw_only=True):
    """Whether fitted distances are nearer to fresh measurements than measured ones; null where there were too few pairs
    to say."""

    word: Annotated[str, Meta(extra_json_schema={"enum": ["helps", "hurts", "no difference"]})]
    """A difference of less than two standard errors is none."""
    basis: Annotated[str, Meta(extra_json_schema={"enum": ["halves", "held-out"]})]
    """Judged on the other half of the samples, or on pairs held out."""
    fitted_error: NonNegative
    """Mean of |log(fitted / measured)| over the pairs."""
    raw_error: NonNegative
    """The same of the measured half, or of what near hosts measured."""
    standard_error: NonNegative
    """Of the difference."""
    pairs: PositiveInt
    """So many."""


class NetworkEmbedding(Document, frozen=True, kw_only=True, tag="plink.embedding/1"):
    """Hosts as points whose distances are round trips.

    Written by `plink embed`. Readers need hosts, alpha, held_out_error, coordinates and fitted_us alone.
    """

    network: str = ""
    """Fingerprint of the network it was fitted to."""
    hosts: tuple[str, ...]
    """The hosts that were placed; all arrays are in this order."""
    left_out: tuple[str, ...] = ()
    """Hosts of which nothing was measured."""
    dimension: Annotated[int, Meta(ge=1, le=64)] = 1
    """Of the space."""
    alpha: Annotated[float, Meta(ge=1, le=2)]
    """The power of the distance: ||v_i - v_j||^alpha + h_i + h_j are microseconds."""
    heights: bool = False
    """Whether heights were fitted."""
    loss: Annotated[str, Meta(extra_json_schema={"enum": ["relative", "absolute"]})] = "relative"
    """Whether errors count relative to the distance."""
    settings_tried: PositiveInt = 1
    """From how many settings this one was chosen."""
    steps: PositiveInt = 1
    """Of Adam."""
    seed: Count = 0
    """Drew the starts and the pairs held out."""
    unmeasured_by: Annotated[str, Meta(extra_json_schema={"enum": ["fit", "neighbours"]})] = "fit"
    """What fitted_us has for pairs that were not measured: the fit, or what near hosts measured, whichever was nearer
    to pairs held out."""
    held_out_error: NonNegative
    """Mean of |log(fitted / measured)| over pairs it had not seen; a little flattered where the setting was chosen by
    it."""
    triangle_violations: Share | None = None
    """The share of measured detours that are shorter than the straight way; null without triangles."""
    verdict: SmoothingVerdict | None = None
    """Whether fitted distances are nearer to fresh measurements than measured ones; null where there were too few pairs
    to say."""
    coordinates: tuple[Annotated[tuple[Annotated[float, Meta(gt=-1e15, lt=1e15)], ...], Meta(min_length=1)], ...]
    """Of each host, D numbers, centred."""
    heights_us: tuple[NonNegative, ...] = ()
    """What each host adds to all its distances; zeros where none were fitted."""
    fitted_us: Matrix
    """Fitted round trips, 0 on the diagonal; of pairs that were not measured as unmeasured_by says."""
    measured_us: Matrix = None
    """Measured round trips, the slower of both directions; null where unmeasured."""


def read_embedding(path: str | Path) -> NetworkEmbedding:
    """Return an embedding from a file (``-``: standard input, ``.gz``: compressed).

    :raises InputError: when it cannot be read, or naming the key that is wrong.
    """
    return decode(NetworkEmbedding, read_document(path), name_of(path))
