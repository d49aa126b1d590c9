"""Stages: which parts run where, by the ratio of transient to reliable hosts (Harlap thesis, 4.2.2)."""

import math
from dataclasses import dataclass
from enum import IntEnum

from plink.errors import UsageError

HYSTERESIS_SHARE = 0.1  # share of a threshold by which a ratio must fall below it before the stage goes down


class Stage(IntEnum):
    """Stage of a job. 1: reliable hosts serve the parameters. 2: transient hosts serve them, reliable ones hold
    replicas. 3: as 2, and reliable hosts do no other work."""

    PARAMETER_SERVERS = 1
    ACTIVE_AND_BACKUP = 2
    BACKUP_ONLY = 3


@dataclass(frozen=True)
class Thresholds:
    """Ratios of transient hosts to a reliable one, over which stage 2 and stage 3 begin.

    Defaults: 1:1 and 15:1 (Harlap thesis, 4.5.3).

    :raises UsageError: for ratios that are none, or in the wrong order.
    """

    active: float = 1.0
    backup_only: float = 15.0

    def __post_init__(self) -> None:
        if not 0 <= self.active <= self.backup_only or math.isnan(self.backup_only):
            raise UsageError(
                f"stage thresholds {self.active:g}:{self.backup_only:g}: expected two ratios of 0 or more, the one for "
                "stage 2 first and the one for stage 3 not below it, as in 1:15"
            )


def stage_for(reliable: int, transient: int, thresholds: Thresholds, now: Stage | None = None) -> Stage:
    """Return the stage for so many hosts that are at work, coming from stage ``now`` (None: from none).

    Up at once, since a bottleneck costs every iteration. Down only where the ratio is under the threshold by one
    transient host at least and by :data:`HYSTERESIS_SHARE` of it: one host that comes and goes at a threshold moves the
    stage once. The thesis has no such band (it saw little difference near the thresholds). A reliable host is not
    damped: it is rented to stay, and when it goes its replicas have to be copied anyway. Without transient hosts it is
    stage 1.

    :raises UsageError: without a reliable host.
    """
    check_reliable(reliable)
    if not transient:
        return Stage.PARAMETER_SERVERS
    target = Stage(1 + sum(transient > ratio * reliable for ratio in (thresholds.active, thresholds.backup_only)))
    if now is None or target >= now:
        return target
    # Each threshold between the stage that is and the one that is wanted must be clearly undercut.
    for stage, ratio in ((Stage.BACKUP_ONLY, thresholds.backup_only), (Stage.ACTIVE_AND_BACKUP, thresholds.active)):
        edge = ratio * reliable
        if target < stage <= now and transient + max(1.0, HYSTERESIS_SHARE * edge) > edge:
            return stage
    return target


def check_reliable(reliable: int) -> None:
    """Check that there is a reliable host.

    :raises UsageError: where there is none to keep the parameters safe.
    """
    if reliable < 1:
        raise UsageError(
            "no reliable host: parameters would be lost with the hosts that may be taken away; "
            "mark one in the hosts file with tier=reliable"
        )


@dataclass(frozen=True)
class MeasuredTraffic:
    """Of the reliable hosts, as measured, in bytes a second of the busier direction.

    ``worker``: what one host's workers exchange with the servers. ``replica``: what replicas receive in all, by
    transient host; None while there are no replicas. ``capacity``: what a reliable host carries. ``load``: share of it
    that may be used before it queues.
    """

    worker: float
    capacity: float
    replica: float | None = None
    load: float = 0.8

    def __post_init__(self) -> None:
        numbers = (self.worker, self.capacity, self.load, 0.0 if self.replica is None else self.replica)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise UsageError("traffic of the reliable hosts: bytes a second of 0 and more were expected")


def measured_thresholds(traffic: MeasuredTraffic, now: Thresholds) -> Thresholds:
    """Return thresholds from what the reliable hosts carry (Harlap thesis, future work 6.2.2).

    With x transient hosts to a reliable one, in stage 1 a reliable host serves x + 1 hosts' workers, (x + 1) w, and is
    the bottleneck where that exceeds what it may be loaded with, C; in stage 2 it receives x b for its replicas beside
    its own workers' w, which straggle where x b + w exceeds C. So ``C / w - 1`` and ``(C - w) / b``. A w that the
    bottleneck itself holds down is C over the hosts served, which puts the threshold under the ratio that is: the
    stage goes up all the same. What was not measured, or is within :data:`HYSTERESIS_SHARE` of what holds now, stays.
    """
    room = traffic.load * traffic.capacity
    active = max(0.0, room / traffic.worker - 1) if traffic.worker > 0 else now.active
    backup_only = max(0.0, room - traffic.worker) / traffic.replica if traffic.replica else now.backup_only
    active, backup_only = _if_changed(now.active, active), _if_changed(now.backup_only, backup_only)
    return Thresholds(active, max(active, backup_only))


def _if_changed(now: float, measured: float) -> float:
    return now if abs(measured - now) <= HYSTERESIS_SHARE * now else measured
