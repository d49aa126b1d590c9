"""``plink.runs/1``: the jobs that were run here."""

from typing import Literal, TypedDict


class RunEntry(TypedDict):
    """One run."""

    schema: Literal["plink.run/1"]
    id: str


class RunsDocument(TypedDict):
    """The jobs that were run here.

    Printed by `plink runs --json`.
    """

    schema: Literal["plink.runs/1"]
    """Kind and version of this document."""
    runs: list[RunEntry]
    """Each a plink.run/1 document, as .plink/runs/ID/run.json has it; the latest first."""
