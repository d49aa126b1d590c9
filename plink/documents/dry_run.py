"""``plink.dry-run/1``: what a launch would start."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from plink.documents.types import Count


class CommandEntry(TypedDict):
    """One command on one host."""

    host: str | None
    """Where; null: where plink runs."""
    ranks: list[Count]
    """The ranks that it is; empty where it starts them all."""
    workdir: str | None
    """In which folder; null: the current one."""
    env: dict[str, str]
    """What is added to its environment."""
    argv: Annotated[list[str], Meta(min_length=1)]
    """The program and its arguments."""


class DryRunDocument(TypedDict):
    """What a launch would start.

    Printed by `plink launch --dry-run --json`.
    """

    schema: Literal["plink.dry-run/1"]
    """Kind and version of this document."""
    runner: str
    """What would start the ranks: ssh, local, mpirun, ..."""
    files: dict[str, str]
    """What would be written for a launcher, text by path."""
    commands: Annotated[list[CommandEntry], Meta(min_length=1)]
    """The commands that would be started."""
