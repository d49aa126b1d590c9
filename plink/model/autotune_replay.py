"""Decisions of an Autotune log, made again (``plink.autotune-replay/1``)."""

from typing import Annotated

from msgspec import Meta

from plink.model.document import Document, Part
from plink.model.types import Count, Name, NonNegative

_ACTIONS = ["watch", "wait", "resend", "quicktune", "finetune", "return", "done"]


class ReplayedInterval(Part, frozen=True, kw_only=True):
    """What was observed between two decisions, and the decision made again."""

    at_s: NonNegative | None
    """When it was told, seconds from the job's beginning; null where the log does not say."""
    epoch: Count
    """How many times masters had been moved before it."""
    bytes_per_s: Count
    """Bytes all-reduced a second in it."""
    imbalance: Annotated[float, Meta(ge=1)] | None
    """The most that a rank sends over the least, under the masters at work then; null where these are not known."""
    action: Annotated[str, Meta(extra_json_schema={"enum": _ACTIONS})]
    """What is decided now."""
    reason: Name
    """Why, in a line."""
    as_logged: bool
    """The log has the same decision, with the same masters."""


class AutotuneReplay(Document, frozen=True, kw_only=True, tag="plink.autotune-replay/1"):
    """The decisions of an Autotune log, made again.

    Printed by `plink runs replay --json`.
    """

    stretches: tuple[ReplayedInterval, ...]
    """One entry a stretch, up to the first decision that differs: what follows was seen under other masters."""
    as_logged: bool
    """No decision differs."""
