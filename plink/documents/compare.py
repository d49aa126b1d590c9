"""``plink.compare/1``: what one order gained over another."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from plink.documents.types import Count, Positive, PositiveInt


class ComparedRun(TypedDict):
    """One run."""

    order: Literal["given", "plink"]
    """Which order."""
    pair: Count
    """Of which pair."""
    value: Positive
    """The figure."""
    id: str
    """The run (`plink runs show ID`)."""


class CompareDocument(TypedDict):
    """What one order gained over another.

    Printed by `plink compare --json`, and left in .plink/compare.json.
    """

    schema: Literal["plink.compare/1"]
    """Kind and version of this document."""
    metric: str | None
    """Where the program reports how it did, as typed or as found in its output; null: how long the job took."""
    unit: str | None
    """Unit of the metric, if its name or the program tells it."""
    higher_is_better: bool
    """Whether a larger metric is a better one."""
    pairs: PositiveInt
    """How often each order was run."""
    gain: Positive
    """How many times better plink's order is: the geometric mean of the pairs' ratios."""
    interval: Annotated[list[Positive], Meta(min_length=2, max_length=2)] | None
    """Lowest and highest gain at that confidence; null with one pair."""
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    """Of the interval."""
    runs: Annotated[list[ComparedRun], Meta(min_length=2)]
    """Every run, in the order they were made."""
