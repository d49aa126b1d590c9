"""ElasticBSP: barriers at variable distance (Zhao et al. 2019)."""

import re
from dataclasses import dataclass

from plink.errors import UsageError
from plink.model.consistency import Rule

DEFAULT_STEPS, MAX_STEPS = 15, 240
_SPEC = re.compile(r"elastic-bsp(?::(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True)
class ElasticBSP(Rule):
    """A clock is a superstep: each worker does as many steps as fit until a barrier at which all wait least, 1 to
    ``most_steps``. Between barriers reads see what has arrived; at a barrier all updates of the clocks before.

    :raises UsageError: fewer than 1 step, or more than :data:`MAX_STEPS`.
    """

    steps = True
    most_steps: int = DEFAULT_STEPS

    def __post_init__(self) -> None:
        if not 1 <= self.most_steps <= MAX_STEPS:
            raise UsageError(f"elastic-bsp:{self.most_steps}: choose 1 to {MAX_STEPS} steps a worker and superstep")

    @property
    def sees_ahead(self) -> bool:
        """Whether steps see each other's updates: not where each superstep has one, which is BSP."""
        return self.most_steps > 1


def parse(spec: str) -> ElasticBSP | None:
    """Return the rule of ``elastic-bsp`` or ``elastic-bsp:R``; None for another one.

    :raises UsageError: as :class:`ElasticBSP`.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        return None
    return ElasticBSP(DEFAULT_STEPS if match[1] is None else int(match[1]))
