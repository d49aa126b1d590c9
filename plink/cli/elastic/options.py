"""What ``plink elastic run`` takes beyond what all jobs do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from plink.cli.job_options import option
from plink.errors import UsageError
from plink.model.consistency import parse_rule
from plink.model.units import parse_duration, parse_rate

_PANEL = "How the job keeps going"
_MIN_HEARTBEAT_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class ElasticOptions:
    """As typed; None where nothing was."""

    # fmt: off
    stage_thresholds: Annotated[str | None, option(
        _PANEL, "Transient hosts to a reliable one over which stage 2 and stage 3 begin; default 1:15.",
        metavar="[A:B|auto]")] = None
    rule: Annotated[str | None, option(
        _PANEL, "How far workers may be apart: bsp (the default): all at one clock; ssp:N: N clocks ahead of the "
        "slowest.", metavar="[bsp|ssp:N]")] = None
    max_hosts: Annotated[int | None, option(
        _PANEL, "That the job will ever have: half as many partitions; default: twice.", min=1)] = None
    checkpoint: Annotated[Path | None, option(
        _PANEL, "Folder that the reliable hosts share, for checkpoints.", metavar="DIR")] = None
    checkpoint_every: Annotated[str | None, option(_PANEL, "How often (10m); default 60s.")] = None
    restore: Annotated[Path | None, option(
        _PANEL, "Go on from the latest checkpoint in there.", metavar="DIR")] = None
    preemption_source: Annotated[str | None, option(
        _PANEL, "Ask this provider's metadata service on every host.", metavar="[aws|gcp|azure][=URL]")] = None
    preemption_grace: Annotated[str | None, option(
        _PANEL, "How long after SIGTERM a host is there; default 30s.")] = None
    heartbeat_timeout: Annotated[str | None, option(
        _PANEL, "After which a host is taken for lost; default 1.6s.")] = None
    host_bandwidth: Annotated[str | None, option(
        _PANEL, "What a host carries in either direction (10gbit): for --stage-thresholds auto, and for what gets "
        "away before a host is taken.")] = None
    # fmt: on

    def settings(self) -> dict[str, Any]:
        """As :class:`solvers.elastic.settings.Settings` has them. :raises UsageError: for values that cannot be."""
        found: dict[str, Any] = {}
        if self.rule is not None:
            parse_rule(self.rule)
            found["rule"] = self.rule
        if self.host_bandwidth is not None:
            found["host_rate"] = parse_rate(self.host_bandwidth) / 8
        if self.stage_thresholds == "auto":
            if self.host_bandwidth is None:
                raise UsageError("--stage-thresholds auto needs --host-bandwidth (10gbit): what a host carries")
            found["measured"] = True
        elif self.stage_thresholds is not None:
            found |= _thresholds(self.stage_thresholds)
        for name, text in (
            ("checkpoint_every_s", self.checkpoint_every),
            ("notice_s", self.preemption_grace),
            ("silence_s", self.heartbeat_timeout),
        ):
            if text is not None:
                found[name] = parse_duration(text)
        if found.get("silence_s", 1.0) < _MIN_HEARTBEAT_TIMEOUT_S:
            raise UsageError(
                f"--heartbeat-timeout {self.heartbeat_timeout}: {_MIN_HEARTBEAT_TIMEOUT_S:g}s at least; hosts send a "
                "heartbeat every 0.3 s"
            )
        for name, folder in (("checkpoints", self.checkpoint), ("restore", self.restore)):
            if folder is not None:
                found[name] = str(folder.absolute())
        if self.checkpoint_every is not None and self.checkpoint is None:
            raise UsageError("--checkpoint-every goes with --checkpoint DIR")
        if self.preemption_source is not None:
            from plink.runtime.agileml.notices import parse_source

            parse_source(self.preemption_source)
            found["notices"] = self.preemption_source
        return found


def _thresholds(text: str) -> dict[str, float]:
    from solvers.elastic.placement.stages import Thresholds

    first, _, second = text.partition(":")
    try:
        found = Thresholds(float(first), float(second))
        return {"active": found.active, "backup_only": found.backup_only}
    except ValueError:
        raise UsageError(
            f"--stage-thresholds {text}: write two ratios of transient hosts to a reliable one, as in 1:15, or auto"
        ) from None
