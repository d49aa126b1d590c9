"""``plink.elastic/1``: how an elastic run ended."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, NonNegative
from plink.model.spot.results import SpotStatus


class ElasticDocument(TypedDict):
    """How an elastic run ended.

    Printed by `plink elastic run --json`.
    """

    schema: Literal["plink.elastic/1"]
    """Kind and version of this document."""
    id: Annotated[str, Meta(pattern=r"^[0-9a-f]+$")]
    """Tells runs apart."""
    exit_code: Annotated[int, Meta(ge=0, le=255)]
    """0; 1 where it could not go on; 124 when it was ended for taking longer than it may."""
    seconds: NonNegative
    """From the moment the job began, its program made on all hosts, to its end."""
    why: str
    """Why it ended; empty when it ended well."""
    iterations: Count
    """Iterations that were told of; one that was done again after a roll-back counts once."""
    iteration_s: NonNegative | None
    """Their median time, in seconds; null where there is none."""
    objective: float | None
    """The last that is known; null where the program tells of none."""
    spot: NotRequired[SpotStatus]
    """What was rented for it and what that cost, as plink.spot-status/1 has it; without `--spot` the key is missing."""
