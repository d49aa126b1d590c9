"""Settings of RapidReassignment (Harlap thesis, Table 3.1)."""

from dataclasses import dataclass

from plink.errors import UsageError

MAX_HELPERS = 64


@dataclass(frozen=True)
class Rebalance:
    """When work is given away, how much, and to how many; the defaults are the thesis's.

    :param helpers: those who may help a worker.
    :param initial, follow_up: share of a clock's work in the first request to a helper, and in the next ones.
    :param trigger: share of a clock that a worker must be behind a helper.
    :param report: share of its own work at which a worker reports its progress to those whom it may help.
    :param redo_factor, redo_least_s: a helper's result is waited for so many times as long as the work is expected to
        take, and no less than so many seconds; then the worker does it itself.
    :raises UsageError: a value that cannot be.
    """

    helpers: int = 4
    initial: float = 0.025
    follow_up: float = 0.05
    trigger: float = 0.2
    report: float = 0.75
    redo_factor: float = 2.0
    redo_least_s: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.helpers <= MAX_HELPERS:
            raise UsageError(f"{self.helpers} helpers a worker: choose 1 to {MAX_HELPERS}")
        for name in ("initial", "follow_up", "trigger", "report"):
            if not 0 < getattr(self, name) <= 1:
                raise UsageError(f"{name} is {getattr(self, name)!r}: choose a share above 0, at most 1")
        if not (self.redo_factor >= 1 and self.redo_least_s > 0):
            raise UsageError("redo_factor must be at least 1, and redo_least_s above 0")
