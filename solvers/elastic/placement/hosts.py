"""Members of an elastic job and how far each may be relied on (Harlap thesis, 4.2)."""

import math
from dataclasses import dataclass
from enum import StrEnum

from plink.errors import UsageError


class Tier(StrEnum):
    """Tier of a host: reliable hosts stay; transient ones may be taken away with a warning, or without."""

    RELIABLE = "reliable"
    TRANSIENT = "transient"


@dataclass(frozen=True)
class JobHost:
    """A member.

    ``number``: of its joining, never given twice, so that the smaller one has been running longer and a host that comes
    back under its old name is another one. ``slots``: workers on it; its share of the input data goes by them.
    ``bytes_per_s``: what it carries in either direction, None where nobody has measured it. ``rack``: hosts of one name
    may be lost together; empty where it is not known.

    :raises UsageError: for numbers that cannot be.
    """

    number: int
    name: str
    tier: Tier
    slots: int = 1
    bytes_per_s: float | None = None
    rack: str = ""

    def __post_init__(self) -> None:
        if self.number < 0:
            raise UsageError(f"host {self.name}: members are numbered from 0, not {self.number}")
        if self.slots < 1:
            raise UsageError(f"host {self.name}: slots={self.slots}, but a member has one at least")
        if self.bytes_per_s is not None and not (math.isfinite(self.bytes_per_s) and self.bytes_per_s > 0):
            raise UsageError(f"host {self.name}: {self.bytes_per_s} bytes a second is no rate")
