"""``plink.count/1``: what a schedule moves."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from plink.documents.types import Count, NonNegative


class CountDocument(TypedDict):
    """What a schedule moves.

    Printed by `plink schedule count --json`.
    """

    schema: Literal["plink.count/1"]
    """Kind and version of this file."""
    rounds: Count
    """How many rounds."""
    transfers: Count
    """How many transfers."""
    bytes_on_wire: NonNegative
    """Bytes sent by all ranks together."""
    sent_bytes: Annotated[list[NonNegative], Meta(min_length=2)]
    """Bytes that each rank sends."""
    received_bytes: Annotated[list[NonNegative], Meta(min_length=2)]
    """Bytes that each rank receives."""
    cross_group_bytes: NonNegative | None
    """Bytes between ranks of different groups; null without groups."""
