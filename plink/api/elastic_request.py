"""What an elastic job is asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plink.api.recording import RecordRequest
from plink.errors import UsageError, no_choice
from plink.model.consistency import check_rebalance, parse_rule
from plink.model.divergence import parse_divergence
from plink.model.network import Network

SHARES = ("slots", "speed")
RUNNERS = ("ssh", "local", "slurm", "kubernetes")
_MIN_HEARTBEAT_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class ElasticRequest:
    """How the hosts of an elastic job are reached, and how the job keeps going.

    :param runner: how hosts are reached, one of ``RUNNERS``.
    :param accept_new_host_keys: note unknown SSH host keys instead of refusing them.
    :param record: keep the run in ``.plink/runs``; None: nothing is written.
    :param network: of the hosts: replicas are placed in another rack than their primaries; None: racks are not known.
    :param stage_thresholds: transient hosts to a reliable one over which stage 2 and stage 3 begin, ``auto``: by what
        hosts carry; None: 1 and 15.
    :param rule: the consistency rule, ``bsp``, ``ssp:N`` (a worker may be N clocks ahead of the slowest), ``dssp:L:U``
        (L to U clocks, as waits are predicted), ``elastic-bsp:R`` (a worker does up to R mini-batches of its shards
        between barriers), ``asp[:SECONDS]`` (nobody waits; a clock is so long) or ``ordered:N[:SECONDS]`` (as ``asp``,
        but updates that are more than N others late are dropped, before they travel unless ``:direct`` follows).
    :param shares: of the data that hosts get: by ``slots`` (None), or by measured ``speed``.
    :param rebalance: workers that are ahead do parts of the work of those that are behind; with ``bsp``,
        ``ssp:N`` and ``dssp:L:U``.
    :param divergence: how far the parameters may be from what replicas have, an L2 norm (``0.5``), or a share of it
        (``1%``); None: replicas are pushed to as fast as the network takes it.
    :param max_hosts: that the job will ever have; None: twice as many as now.
    :param checkpoint: folder that the reliable hosts share, written every ``checkpoint_every_s`` (None: 60 s).
    :param restore: folder whose latest checkpoint the job goes on from.
    :param preemption_source: provider whose metadata service every host asks: ``aws``, ``gcp`` or ``azure``.
    :param preemption_grace_s: how long after SIGTERM a host is there; None: 30 s.
    :param heartbeat_timeout_s: after which a host is taken for lost; None: 1.6 s.
    :param host_bandwidth_gbps: what a host carries in either direction.
    """

    runner: str = "ssh"
    accept_new_host_keys: bool = False
    record: RecordRequest | None = None
    network: Network | None = None
    stage_thresholds: tuple[float, float] | Literal["auto"] | None = None
    rule: str | None = None
    shares: str | None = None
    rebalance: bool = False
    divergence: str | None = None
    max_hosts: int | None = None
    checkpoint: Path | None = None
    checkpoint_every_s: float | None = None
    restore: Path | None = None
    preemption_source: str | None = None
    preemption_grace_s: float | None = None
    heartbeat_timeout_s: float | None = None
    host_bandwidth_gbps: float | None = None

    def _check_shares(self, shares: str) -> None:
        if shares not in SHARES:
            raise no_choice("--shares", shares, SHARES)
        if shares == "speed" and parse_rule(self.rule or "bsp").steps:
            raise UsageError(
                f"--shares speed with --rule {self.rule}: fast workers do more steps there as it is; choose one of them"
            )

    def settings(self) -> dict[str, Any]:
        """As :class:`solvers.elastic.settings.Settings` has them. :raises UsageError: for values that cannot be."""
        if self.runner not in RUNNERS:
            raise no_choice("--runner", self.runner, RUNNERS)
        settings: dict[str, Any] = {}
        if self.rule is not None:
            parse_rule(self.rule)
            settings["rule"] = self.rule
        if self.shares is not None:
            self._check_shares(self.shares)
            settings["shares"] = self.shares
        if self.rebalance:
            check_rebalance(parse_rule(self.rule or "bsp"))
            if self.shares == "speed":
                raise UsageError("--rebalance with --shares speed: both take work off slow hosts; choose one of them")
            settings["rebalance"] = True
        if self.divergence is not None and parse_divergence(self.divergence) is not None:
            settings["divergence"] = self.divergence
        if self.max_hosts is not None and self.max_hosts < 1:
            raise UsageError(f"--max-hosts {self.max_hosts}: at least 1 is needed")
        if self.host_bandwidth_gbps is not None:
            settings["host_rate"] = self.host_bandwidth_gbps * 1e9 / 8
        if self.stage_thresholds == "auto":
            if self.host_bandwidth_gbps is None:
                raise UsageError("--stage-thresholds auto needs --host-bandwidth (10gbit): what a host carries")
            settings["measured"] = True
        elif self.stage_thresholds is not None:
            from solvers.elastic.placement.stages import Thresholds

            thresholds = Thresholds(*self.stage_thresholds)
            settings |= {"active": thresholds.active, "backup_only": thresholds.backup_only}
        timeout_s = self.heartbeat_timeout_s
        if timeout_s is not None and not timeout_s >= _MIN_HEARTBEAT_TIMEOUT_S:
            raise UsageError(
                f"--heartbeat-timeout {timeout_s:g}s: {_MIN_HEARTBEAT_TIMEOUT_S:g}s at least; hosts send a heartbeat "
                "every 0.3 s"
            )
        if self.checkpoint_every_s is not None and self.checkpoint is None:
            raise UsageError("--checkpoint-every goes with --checkpoint DIR")
        if self.preemption_source is not None:
            from plink.runtime.elastic.host.preemption import parse_source

            parse_source(self.preemption_source)
        values = {
            "checkpoint_every_s": self.checkpoint_every_s,
            "notice_s": self.preemption_grace_s,
            "silence_s": timeout_s,
            "checkpoints": None if self.checkpoint is None else str(self.checkpoint.absolute()),
            "restore": None if self.restore is None else str(self.restore.absolute()),
            "notices": self.preemption_source,
        }
        return settings | {name: value for name, value in values.items() if value is not None}
