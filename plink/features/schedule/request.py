"""Requests for a schedule, and for what one moves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from plink.errors import UsageError
from plink.model.request import SET, SIZE, Bytes, FeatureRequest, Option, Settings, Text


def _groups(text: str) -> list[list[int]]:
    try:
        return [[int(rank) for rank in part.split(",")] for part in text.split("/")]
    except ValueError:
        raise UsageError(f"--groups {text}: write ranks like 0,1/2,3") from None


_Groups = Annotated[Sequence[Sequence[int]] | None, Text("GROUPS", _groups)]  # the ranks of each


@dataclass(frozen=True)
class ScheduleRequest(FeatureRequest):
    """Request for a schedule. ``groups`` None: neighbours, the square root of the number of ranks."""

    algo: Annotated[str | None, Option("The algorithm, or a library's own.")] = None
    ranks: Annotated[int, Option("Number of ranks.", least=1, most=1 << 20)] = 4
    collective: Annotated[str, Option("all-reduce, or a part of it, if the algorithm has it.")] = "all-reduce"
    options: Annotated[Settings, SET] = field(default_factory=dict[str, int | bool])
    groups: Annotated[
        _Groups,
        Option(
            "For 2lha and phub-2l: the ranks of each group, 0,1,2/3,4,5, of phub-2l with some of the last "
            "ranks, which are hubs; default: square root of N."
        ),
    ] = None


@dataclass(frozen=True)
class CountRequest(FeatureRequest):
    """Request for what a schedule moves; with ``groups`` also between these."""

    size_bytes: Annotated[Bytes, SIZE] = 100e6
    groups: Annotated[_Groups, Option("Groups of ranks, 0,1/2,3: also count bytes between groups.")] = None
