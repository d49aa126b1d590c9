"""``plink.aggregation/1``: by which schedule ranks all-reduce which messages."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.schedule import ScheduleDocument
from plink.documents.types import Count

ByteCount = Annotated[int, Meta(ge=1, le=1 << 40)]


class SizeClassEntry(TypedDict):
    """The schedule of messages up to a size."""

    up_to_bytes: Annotated[int, Meta(ge=1, le=1 << 62)] | None
    """The largest message of the class; null for the last class, which has no limit."""
    algo: str
    """A name for it; gloo where there is no schedule."""
    schedule: NotRequired[ScheduleDocument | None]
    """A plink.schedule/1 document of an all-reduce, of as many ranks in every class; null: Gloo does it."""


class AggregationDocument(TypedDict):
    """By which schedule ranks all-reduce which messages.

    By which schedule the ranks of a group all-reduce messages of which size (docs/aggengine.md). Read where
    PLINK_PLAN names it.
    """

    schema: Literal["plink.aggregation/1"]
    """Which document this is."""
    lanes: NotRequired[Annotated[int, Meta(ge=1, le=16)]]
    """Threads a rank, each with connections of its own to the other ranks, between which an all-reduce is divided; 2
    unless said."""
    chunk_bytes: NotRequired[ByteCount]
    """No chunk of the schedule is smaller while a message has several; 16384 unless said."""
    piece_bytes: NotRequired[ByteCount]
    """So much of a large message is one piece of all its chunks; 1048576 unless said."""
    pieces: NotRequired[Annotated[int, Meta(ge=1, le=1048576)]]
    """Into how many pieces a smaller message is cut while each has least_bytes; 8 unless said."""
    least_bytes: NotRequired[ByteCount]
    """What each piece of such a message has at least; 262144 unless said."""
    smallest_bytes: NotRequired[Annotated[int, Meta(ge=0, le=1 << 62)] | None]
    """Smaller messages go to Gloo. Null, or not there: from which size on the schedules are faster is measured when a
    group begins."""
    ring: NotRequired[Annotated[list[Count], Meta(extra_json_schema={"uniqueItems": True})]]
    """All ranks in the sequence in which Gloo's ring is to go round them, so that large messages go by it where a
    measurement finds that faster. Empty, or not there, or with smallest_bytes: it is not tried."""
    classes: Annotated[list[SizeClassEntry], Meta(min_length=1)]
    """By size, ascending."""
