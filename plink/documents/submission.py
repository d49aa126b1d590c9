"""``plink.submission/1``: a launch that waits in a queue."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta


class SubmissionDocument(TypedDict):
    """A launch that waits in a queue.

    Printed by `plink submit --json`.
    """

    schema: Literal["plink.submission/1"]
    """Kind and version of this document."""
    job_id: Annotated[str, Meta(pattern=r"^[0-9]+$")]
    """The number that Slurm gave the job."""
    script: str
    """The script that was handed to sbatch."""
