"""``plink.elastic-checkpoint/1``: a checkpoint that was asked for."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from plink.documents.types import Count, Name


class ElasticCheckpointDocument(TypedDict):
    """A checkpoint that was asked for.

    Printed by `plink elastic checkpoint --json` when it is on disk.
    """

    schema: Literal["plink.elastic-checkpoint/1"]
    """Kind and version of this document."""
    run: Annotated[str, Meta(pattern=r"^[0-9a-f]+$")]
    """The run's id."""
    clock: Count
    """The last clock whose updates are in it, all of them."""
    folder: Name
    """Where it is on the reliable hosts: a folder in that of `--checkpoint`."""
