"""What ``plink elastic run`` takes beyond what all jobs do."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from plink.cli.job_options import CHECKPOINT_HELP, RESTORE_HELP, option
from plink.errors import UsageError
from plink.model.units import parse_duration, parse_rate

if TYPE_CHECKING:
    from plink.api.elastic_request import ElasticRequest

_CONSISTENCY = "Elastic jobs: consistency of workers"
_PANEL = "Elastic jobs: hosts and checkpoints"


@dataclass(frozen=True)
class ElasticOptions:
    """As typed; None where nothing was."""

    # fmt: off
    rule: Annotated[str | None, option(
        _CONSISTENCY, "How far workers may be apart. bsp (the default): all at one clock; ssp:N: N clocks "
        "ahead of the slowest; dssp:L:U: L to U, as waits are predicted; elastic-bsp:R: fast ones do up to R "
        "mini-batches between barriers; asp: nobody waits; ordered:N: as asp, but updates that are more than N "
        "others late are dropped, and who sends when is planned (ordered:N:direct: it is not).",
        metavar="[bsp|ssp:N|...]")] = None
    shares: Annotated[str | None, option(
        _CONSISTENCY, "How the data is divided. slots (the default): by the workers of a host; speed: by "
        "how fast they turn out to be.", metavar="[slots|speed]")] = None
    rebalance: Annotated[bool, option(
        _CONSISTENCY, "Workers that are ahead do parts of the work of those that are behind (FlexRR); "
        "with bsp, ssp:N and dssp:L:U.", "--rebalance")] = False
    stage_thresholds: Annotated[str | None, option(
        _PANEL, "Transient hosts to a reliable one over which stage 2 and stage 3 begin; default 1:15.",
        metavar="[A:B|auto]")] = None
    max_hosts: Annotated[int | None, option(
        _PANEL, "That the job will ever have: half as many partitions; default: twice.", min=1)] = None
    divergence: Annotated[str | None, option(
        _PANEL, "How far parameters may be from their replicas (0.5: an L2 norm, 1%: a share of it): many clocks are "
        "pushed as one. Default: each as soon as the network takes it.", metavar="[D|P%]")] = None
    checkpoint: Annotated[Path | None, option(_PANEL, CHECKPOINT_HELP, metavar="DIR")] = None
    checkpoint_every: Annotated[str | None, option(_PANEL, "How often (10m); default 60s.")] = None
    restore: Annotated[Path | None, option(_PANEL, RESTORE_HELP, metavar="DIR")] = None
    preemption_source: Annotated[str | None, option(
        _PANEL, "Ask this provider's metadata service on every host.", metavar="[aws|gcp|azure][=URL]")] = None
    preemption_grace: Annotated[str | None, option(
        _PANEL, "How long after SIGTERM a host is there; default 30s.")] = None
    heartbeat_timeout: Annotated[str | None, option(
        _PANEL, "After which a host is taken for lost; default 1.6s.")] = None
    host_bandwidth: Annotated[str | None, option(
        _PANEL, "What a host carries in either direction (10gbit): for --stage-thresholds auto, for what gets "
        "away before a host is taken, and for --rule ordered:N where no network file says so.")] = None
    # fmt: on

    def request(self, **how: Any) -> "ElasticRequest":
        """With ``how`` the job is run besides. :raises UsageError: for what is no time, rate or pair of ratios."""
        from plink.api.elastic_request import ElasticRequest

        return ElasticRequest(
            **how,
            stage_thresholds=_thresholds(self.stage_thresholds),
            rule=self.rule,
            shares=self.shares,
            rebalance=self.rebalance,
            divergence=self.divergence,
            max_hosts=self.max_hosts,
            checkpoint=self.checkpoint,
            checkpoint_every_s=_seconds(self.checkpoint_every),
            restore=self.restore,
            preemption_source=self.preemption_source,
            preemption_grace_s=_seconds(self.preemption_grace),
            heartbeat_timeout_s=_seconds(self.heartbeat_timeout),
            host_bandwidth_gbps=None if self.host_bandwidth is None else parse_rate(self.host_bandwidth) / 1e9,
        )


def _seconds(text: str | None) -> float | None:
    return None if text is None else parse_duration(text)


def _thresholds(text: str | None) -> "tuple[float, float] | Literal['auto'] | None":
    if text is None:
        return None
    if text == "auto":
        return "auto"
    first, _, second = text.partition(":")
    try:
        return float(first), float(second)
    except ValueError:
        raise UsageError(
            f"--stage-thresholds {text}: write two ratios of transient hosts to a reliable one, as in 1:15, or auto"
        ) from None
