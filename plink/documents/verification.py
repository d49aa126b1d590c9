"""``plink.verification/1``: whether a schedule does what its name says."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, Name


class VerificationDocument(TypedDict):
    """Whether a schedule does what its name says.

    Printed by `plink schedule verify --json`.
    """

    schema: Literal["plink.verification/1"]
    """Kind and version of this file."""
    valid: bool
    """Whether every rank ends with every contribution exactly once, without deadlock and without unordered writes."""
    errors: Annotated[list[Name], Meta(max_length=20)]
    """What is wrong, each naming the transfer to blame; the first 20. Empty when it is valid."""
    contributors: NotRequired[list[Count]]
    """The ranks that add something and want the result; servers of their own do neither."""
