"""What a driver works with: a provider, a job, a brain, a journal, clocks."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from plink.model.hosts import Host
from plink.model.spot import journal
from runners.spot.brain import Brain, OnDemandFallback
from runners.spot.elastic_job import DrivenJob
from runners.spot.provider import ListedInstance, Provider
from solvers.spot.ledger import RentedInstance

REPEAT_S = 60.0  # a warning that still holds is repeated


class JournalWriter(Protocol):
    """Where entries go."""

    def add(self, entry: journal.JournalEntry) -> None:
        """Return when the entry is on disk."""


@dataclass(frozen=True)
class DriverParts:
    """What a driver works with. ``host_of``: the host that an instance is in the job; ``clock``: the provider's time;
    ``steady``: a clock as fast as that, which nobody sets; ``new_token``: makes tokens of the run that were never
    used; ``fallback``: None without a deadline; ``release_is_requested``: everything is to
    be released although the job goes on; ``history_from_s``: as of :class:`RecordedPrices`."""

    provider: Provider
    job: DrivenJob
    brain: Brain
    journal: JournalWriter
    host_of: Callable[[RentedInstance, ListedInstance], Host]
    clock: Callable[[], float]
    steady: Callable[[], float]
    new_token: Callable[[], str]
    note: Callable[[str], None] = lambda text: None
    fallback: OnDemandFallback | None = None
    release_is_requested: Callable[[], bool] = lambda: False
    history_from_s: float | None = None


class RepeatedNotes:
    """Warnings by what they are about."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._latest: dict[str, tuple[str, float]] = {}

    def warn(self, about: str, text: str, now: float, repeat_s: float = REPEAT_S) -> None:
        """Note a problem at once, and again every minute while it lasts."""
        before, at = self._latest.get(about, ("", -math.inf))
        if text != before or now - at >= repeat_s:
            self._latest[about] = (text, now)
            self._note(text)

    def forget(self, about: str) -> None:
        """Let the next warning be a new one."""
        self._latest.pop(about, None)
