"""Time of releases, which passes by pauses only."""

from dataclasses import dataclass

import pytest

from runners.spot.process import ReleaseWaits, release_spot


@dataclass
class Waits:
    """Time that passes by pauses."""

    now: float = 0.0

    def pause(self, seconds: float) -> None:
        """Pass so much of it at once."""
        self.now += seconds

    def limits(self, timeout_s: float = 300.0) -> ReleaseWaits:
        """What a release waits by."""
        return ReleaseWaits(timeout_s, lambda: self.now, self.pause)


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_spot, "__defaults__", (Waits().limits(),))
