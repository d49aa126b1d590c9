"""Workers that take part in a partition's clocks, and updates that are ahead of its state."""

from dataclasses import dataclass, field

from msgspec import Struct

from plink.runtime.elastic.arrays.row_blocks import RowBlock


class Participant(Struct, array_like=True):
    """A worker that takes part: the clocks from ``first`` to ``until`` (None: no end yet) need its update; it sent all
    of ``finished`` and before, ``steps`` steps of the clock after, and of ``finished`` itself ``finished_steps``, if
    that is not 0."""

    first: int
    finished: int
    until: int | None = None
    steps: int = 0
    finished_steps: int = 0

    @property
    def begun(self) -> int:
        """Return the latest clock that it has sent anything of."""
        return self.finished + (self.steps > 0)

    def has_pending(self, clock: int) -> bool:
        """Return whether the state of ``clock`` has to wait for it."""
        return self.first <= clock and (self.until is None or clock <= self.until) and self.finished < clock


@dataclass
class Ahead:
    """Updates of one clock that is not in the state yet: the sums of the workers ``summed``, and the rest."""

    summed: list[int] = field(default_factory=list)
    sums: list[RowBlock] = field(default_factory=list)
    waiting: dict[int, tuple[RowBlock, ...]] = field(default_factory=dict)
