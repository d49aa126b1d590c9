"""What ``plink launch --backend agileml`` takes, and what does not go with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plink.errors import UsageError
from plink.model.units import parse_duration, parse_rate
from solvers.agile.stages import Thresholds

AGILEML = "agileml"
_RUNNERS = ("ssh", "local", "slurm", "kubernetes")
_SHORTEST_SILENCE_S = 1.0
_MOST_SLACK = 30  # plink.runtime.agileml.progress keeps 32 clocks in sight


@dataclass(frozen=True)
class Elastic:
    """What was typed for it, beside the program. ``thresholds``: ``A:B`` or ``auto``; durations as they were typed."""

    thresholds: str | None = None
    slack: int | None = None
    most_hosts: int | None = None
    checkpoints: Path | None = None
    checkpoint_every: str | None = None
    restore: Path | None = None
    notices: str | None = None
    notice: str | None = None
    silence: str | None = None
    host_rate: str | None = None

    @property
    def typed(self) -> bool:
        """Whether anything was."""
        return any(value is not None for value in vars(self).values())

    def settings(self) -> dict[str, Any]:
        """As :class:`runners.agile.settings.Settings` has them. :raises UsageError: for values that cannot be."""
        found: dict[str, Any] = {"slack": self.slack}
        if self.slack is not None and self.slack > _MOST_SLACK:
            raise UsageError(f"--slack {self.slack}: {_MOST_SLACK} clocks at most")
        if self.host_rate is not None:
            found["host_rate"] = parse_rate(self.host_rate) / 8
        if self.thresholds == "auto":
            if self.host_rate is None:
                raise UsageError("--thresholds auto needs to know what a host carries: --host-rate 10gbit, for example")
            found["measured"] = True
        elif self.thresholds is not None:
            found |= _thresholds(self.thresholds)
        for name, text in (
            ("checkpoint_every_s", self.checkpoint_every), ("notice_s", self.notice), ("silence_s", self.silence)
        ):  # fmt: skip
            if text is not None:
                found[name] = parse_duration(text)
        if found.get("silence_s", 1.0) < _SHORTEST_SILENCE_S:
            raise UsageError(
                f"--silence {self.silence}: {_SHORTEST_SILENCE_S:g}s at least, for hosts say something every 0.3 s"
            )
        for name, folder in (("checkpoints", self.checkpoints), ("restore", self.restore)):
            if folder is not None:
                found[name] = str(folder.absolute())
        if self.checkpoint_every is not None and self.checkpoints is None:
            raise UsageError("--checkpoint-every goes with --checkpoint DIR")
        if self.notices is not None:
            from plink.runtime.agileml.notices import parse_source

            parse_source(self.notices)
            found["notices"] = self.notices
        return found


def _thresholds(text: str) -> dict[str, float]:
    first, _, second = text.partition(":")
    try:
        found = Thresholds(float(first), float(second))
        return {"active": found.active, "backup_only": found.backup_only}
    except ValueError:
        raise UsageError(
            f"--thresholds {text}: write two ratios of transient hosts to a reliable one, as in 1:15, or auto"
        ) from None


def refuse_with_agileml(runner: str | None, **typed: object) -> None:
    """:param typed: options' values by name, None for those that were not typed.
    :raises UsageError: for what an elastic job cannot take.
    """
    if runner not in (None, *_RUNNERS):
        raise UsageError(f"--backend {AGILEML}: goes with --runner {', '.join(_RUNNERS)}, not {runner}")
    for name, value in typed.items():
        if value is not None:
            raise UsageError(f"--backend {AGILEML}: leave --{name.replace('_', '-')} away, its hosts have no ranks")
