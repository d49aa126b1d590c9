"""What a command would start (``plink.dry-run/1``)."""

from typing import Annotated

from msgspec import Meta, field

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.types import Count, NonNegative


class LaunchCommand(Part, frozen=True):
    """One command on one host."""

    argv: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The program and its arguments."""
    env: dict[str, str] = field(default_factory=dict)
    """What is added to its environment."""
    host: str | None = None
    """Where; null: where plink runs."""
    ranks: tuple[Count, ...] = ()
    """The ranks that it is; empty where it starts them all."""
    workdir: str | None = None
    """In which folder; null: the current one."""


class PlannedOrder(Part, frozen=True):
    """One order that a check would run."""

    algo: str
    """The collective's algorithm."""
    predicted_us: NonNegative
    """Its cost by the model."""
    hosts: tuple[str, ...]
    """Those that would take its ranks, first rank first."""


class DryRun(Document, frozen=True, tag="plink.dry-run/1"):
    """What a command would start.

    Printed by `plink launch|submit|check --dry-run --json`.
    """

    runner: str
    """What would start the ranks: ssh, local, mpirun, ..., or check."""
    commands: tuple[LaunchCommand, ...] = ()
    """The commands that would be started."""
    files: dict[str, str] = field(default_factory=dict)
    """What would be written for a launcher, text by path."""
    orders: tuple[PlannedOrder, ...] | Unset = UNSET
    """Of a check: the orders that would be run."""
