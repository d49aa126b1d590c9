"""What is computed of a schedule: whether it does what its name says (``plink.verification/1``), and what it moves
(``plink.count/1``)."""

from typing import Annotated

from msgspec import Meta

from plink.model.document import Document
from plink.model.types import Count, Name, NonNegative

_PerRank = Annotated[tuple[NonNegative, ...], Meta(min_length=2)]


class ScheduleVerification(Document, frozen=True, kw_only=True, tag="plink.verification/1"):
    """Whether a schedule does what its name says.

    Printed by `plink schedule verify --json`.
    """

    valid: bool
    """Whether every rank ends with every contribution exactly once, without deadlock and without unordered writes."""
    errors: Annotated[tuple[Name, ...], Meta(max_length=20)]
    """What is wrong, each naming the transfer to blame; the first 20. Empty when it is valid."""
    contributors: tuple[Count, ...] = ()
    """The ranks that add something and want the result; servers of their own do neither."""


class ScheduleCount(Document, frozen=True, kw_only=True, tag="plink.count/1"):
    """What a schedule moves.

    Printed by `plink schedule count --json`.
    """

    rounds: Count
    """How many rounds."""
    transfers: Count
    """How many transfers."""
    bytes_on_wire: NonNegative
    """Bytes sent by all ranks together."""
    sent_bytes: _PerRank
    """Bytes that each rank sends."""
    received_bytes: _PerRank
    """Bytes that each rank receives."""
    cross_group_bytes: NonNegative | None
    """Bytes between ranks of different groups; null without groups."""
