"""``plink.aggregation/2``: by which schedule ranks all-reduce which messages."""

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

    schema: Literal["plink.aggregation/2"]
    """Which document this is."""
    channels: NotRequired[Annotated[int, Meta(ge=1, le=16)]]
    """Channels per rank, each a thread with its own connections, that share an all-reduce; default 2."""
    chunk_bytes: NotRequired[ByteCount]
    """Minimum bytes of a chunk of the schedule while a message has several; default 16384."""
    segment_bytes: NotRequired[ByteCount]
    """Bytes of a large message in one segment of all its chunks; default 1048576."""
    segments: NotRequired[Annotated[int, Meta(ge=1, le=1048576)]]
    """Segments of a smaller message, while each has min_segment_bytes; default 8."""
    min_segment_bytes: NotRequired[ByteCount]
    """Minimum bytes of each segment of such a message; default 262144."""
    smallest_bytes: NotRequired[Annotated[int, Meta(ge=0, le=1 << 62)] | None]
    """Smaller messages go to Gloo. Null, or not there: from which size on the schedules are faster is measured when a
    group begins."""
    ring: NotRequired[Annotated[list[Count], Meta(extra_json_schema={"uniqueItems": True})]]
    """All ranks in the sequence in which Gloo's ring is to go round them, so that large messages go by it where a
    measurement finds that faster. Empty, or not there, or with smallest_bytes: it is not tried."""
    classes: Annotated[list[SizeClassEntry], Meta(min_length=1)]
    """By size, ascending."""
