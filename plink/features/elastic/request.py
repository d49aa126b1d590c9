"""Request for an elastic job."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from plink.errors import UsageError
from plink.features.launch.request import CHECKPOINT_HELP, RESTORE_HELP, Seconds
from plink.model.consistency import check_rebalance, parse_rule
from plink.model.divergence import parse_divergence
from plink.model.request import FeatureRequest, Option, Text
from plink.model.units import parse_rate
from plink.runtime.elastic.host.preemption import parse_source

if TYPE_CHECKING:
    from plink.features.launch.run import RecordRequest
    from plink.model.network import Network

RUNNERS = ("ssh", "local", "slurm", "kubernetes")
_CONSISTENCY = "Elastic jobs: consistency of workers"
_PANEL = "Elastic jobs: hosts and checkpoints"
_MIN_HEARTBEAT_TIMEOUT_S = 1.0


def _thresholds(text: str) -> tuple[float, float] | Literal["auto"]:
    if text == "auto":
        return "auto"
    first, _, second = text.partition(":")
    try:
        return float(first), float(second)
    except ValueError:
        raise UsageError(
            f"--stage-thresholds {text}: write two ratios of transient hosts to a reliable one, as in 1:15, or auto"
        ) from None


@dataclass(frozen=True)
class ElasticRequest(FeatureRequest):
    """Request for an elastic job: how its hosts are reached, and how it keeps going.

    :param accept_new_host_keys: note unknown SSH host keys instead of refusing them.
    :param record: keep the run in ``.plink/runs``; None: nothing is written.
    :param network: of the hosts: replicas are placed in another rack than their primaries; None: racks are not known.
    """

    runner: Annotated[str, Option("How its hosts are reached.", choices=RUNNERS, panel="Execution")] = "ssh"
    rule: Annotated[
        str,
        Option(
            "How far workers may be apart. bsp: all at one clock; ssp:N: N clocks ahead of the slowest; "
            "dssp:L:U: L to U, as waits are predicted; elastic-bsp:R: fast ones do up to R mini-batches between "
            "barriers; asp: nobody waits; ordered:N: as asp, but updates that are more than N others late are dropped, "
            "and who sends when is planned (ordered:N:direct: it is not).",
            metavar="[bsp|ssp:N|...]",
            panel=_CONSISTENCY,
        ),
    ] = "bsp"
    shares: Annotated[
        str,
        Option(
            "How the data is divided. slots: by the workers of a host; speed: by how fast they turn out to be.",
            choices=("slots", "speed"),
            panel=_CONSISTENCY,
        ),
    ] = "slots"
    rebalance: Annotated[
        bool,
        Option(
            "Workers that are ahead do parts of the work of those that are behind (FlexRR); with bsp, ssp:N and "
            "dssp:L:U.",
            panel=_CONSISTENCY,
        ),
    ] = False
    stage_thresholds: Annotated[
        tuple[float, float] | Literal["auto"] | None,
        Text("[A:B|auto]", _thresholds),
        Option(
            "Transient hosts to a reliable one over which stage 2 and stage 3 begin; default 1:15; auto: by what hosts "
            "carry.",
            panel=_PANEL,
        ),
    ] = None
    max_hosts: Annotated[
        int | None,
        Option("That the job will ever have: half as many partitions; default: twice.", least=1, panel=_PANEL),
    ] = None
    divergence: Annotated[
        str | None,
        Option(
            "How far parameters may be from their replicas (0.5: an L2 norm, 1%: a share of it): many clocks are "
            "pushed as one. Default: each as soon as the network takes it.",
            metavar="[D|P%]",
            panel=_PANEL,
        ),
    ] = None
    checkpoint: Annotated[Path | None, Option(CHECKPOINT_HELP, metavar="DIR", panel=_PANEL)] = None
    checkpoint_every_s: Annotated[
        Seconds, Option("How often (10m); default 60s.", ("--checkpoint-every",), panel=_PANEL)
    ] = None
    restore: Annotated[Path | None, Option(RESTORE_HELP, metavar="DIR", panel=_PANEL)] = None
    preemption_source: Annotated[
        str | None,
        Option("Ask this provider's metadata service on every host.", metavar="[aws|gcp|azure][=URL]", panel=_PANEL),
    ] = None
    preemption_grace_s: Annotated[
        Seconds, Option("How long after SIGTERM a host is there; default 30s.", ("--preemption-grace",), panel=_PANEL)
    ] = None
    heartbeat_timeout_s: Annotated[
        Seconds, Option("After which a host is taken for lost; default 1.6s.", ("--heartbeat-timeout",), panel=_PANEL)
    ] = None
    host_bandwidth: Annotated[
        int | None,
        Text("RATE", parse_rate),
        Option(
            "What a host carries in either direction (10gbit), bits a second: for --stage-thresholds auto, for what "
            "gets away before a host is taken, and for --rule ordered:N where no network file says so.",
            least=1,
            panel=_PANEL,
        ),
    ] = None
    accept_new_host_keys: bool = False
    record: "RecordRequest | None" = None
    network: "Network | None" = None

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        :raises UsageError: for the first such thing.
        """
        super().__post_init__()
        rule = parse_rule(self.rule)
        if self.shares == "speed" and rule.steps:
            raise UsageError(
                f"--shares speed with --rule {self.rule}: fast workers do more steps there as it is; choose one of them"
            )
        if self.rebalance:
            check_rebalance(rule)
            if self.shares == "speed":
                raise UsageError("--rebalance with --shares speed: both take work off slow hosts; choose one of them")
        if self.divergence is not None:
            parse_divergence(self.divergence)
        if self.stage_thresholds == "auto" and self.host_bandwidth is None:
            raise UsageError("--stage-thresholds auto needs --host-bandwidth (10gbit): what a host carries")
        if self.stage_thresholds not in (None, "auto"):
            from solvers.elastic.placement.stages import Thresholds

            Thresholds(*self.stage_thresholds)  # for what it refuses
        timeout_s = self.heartbeat_timeout_s
        if timeout_s is not None and not timeout_s >= _MIN_HEARTBEAT_TIMEOUT_S:
            raise UsageError(
                f"--heartbeat-timeout {timeout_s:g}s: {_MIN_HEARTBEAT_TIMEOUT_S:g}s at least; hosts send a heartbeat "
                "every 0.3 s"
            )
        for option, value in (
            ("--preemption-grace", self.preemption_grace_s),
            ("--checkpoint-every", self.checkpoint_every_s),
        ):
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"{option} {value:g}: give 0 or more")
        if self.checkpoint_every_s is not None and self.checkpoint is None:
            raise UsageError("--checkpoint-every goes with --checkpoint DIR")
        if self.preemption_source is not None:
            parse_source(self.preemption_source)

    def settings(self) -> dict[str, Any]:
        """Return the settings that are not as :class:`solvers.elastic.settings.Settings` has them by default."""
        divergence = None if self.divergence is None or parse_divergence(self.divergence) is None else self.divergence
        values = {
            "rule": None if self.rule == "bsp" else self.rule,
            "shares": None if self.shares == "slots" else self.shares,
            "rebalance": self.rebalance or None,
            "divergence": divergence,
            "host_rate": None if self.host_bandwidth is None else self.host_bandwidth / 8,
            "checkpoint_every_s": self.checkpoint_every_s,
            "notice_s": self.preemption_grace_s,
            "silence_s": self.heartbeat_timeout_s,
            "checkpoints": None if self.checkpoint is None else str(self.checkpoint.absolute()),
            "restore": None if self.restore is None else str(self.restore.absolute()),
            "notices": self.preemption_source,
        }
        if self.stage_thresholds == "auto":
            values["measured"] = True
        elif self.stage_thresholds is not None:
            values["active"], values["backup_only"] = self.stage_thresholds
        return {name: value for name, value in values.items() if value is not None}
