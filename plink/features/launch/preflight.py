"""Preflight of a job's network: one flow a host, all at once, compared with what was measured, before ranks start."""

import logging
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.errors import PlinkError
from plink.model.network import Network
from runners.job.runner import Flow, FlowRun
from solvers.diagnosis.ring_check import expected_gbps, is_slow, slow_parts

_DRAIN_S = 0.2  # what is still queued of the flows before would slow the next ones
_MAX_NAMED = 4
_log = logging.getLogger("plink.launch")


@dataclass(frozen=True)
class PreflightRequest:
    """What a job's network is compared with: ``network``, which has all of its hosts. ``ring``: their names in the
    order of the flows; ``strict``: refuse to start the job instead of warning."""

    network: Network
    ring: tuple[str, ...]
    strict: bool = False


def check_network(run: FlowRun, request: PreflightRequest) -> None:
    """Run a ring of flows, and again those that are slow or fail; warn of what is slower than half of before.

    :raises PlinkError: with ``strict``, for what is warned of otherwise.
    """
    network, ring = request.network, request.ring
    flows: list[Flow] = list(zip(ring, (*ring[1:], ring[0]), strict=True)) if len(ring) > 1 else []
    index = {name: host for host, name in enumerate(network.hosts.names)}
    source, target = np.array([[index[name] for name in flow] for flow in flows], dtype=np.intp).reshape(-1, 2).T
    expected = expected_gbps(network, source, target)
    if not np.isfinite(expected).any():
        message = f"{network.location} has no rates of these hosts to compare with; `plink probe` measures them"
        if request.strict:
            raise PlinkError(f"{message}; nothing was run (--set preflight=strict)")
        _log.debug("no preflight of the network: %s", message)
        return
    started = time.monotonic()
    results = run(flows)

    def rates() -> npt.NDArray[np.float64]:
        return np.array([rate if isinstance(rate := results[flow], float | int) else np.nan for flow in flows])

    doubtful = [flow for flow, bad in zip(flows, is_slow(rates(), expected) | np.isnan(rates()), strict=True) if bad]
    if len(doubtful) == len(flows) and np.isnan(rates()).all():
        _report([], [f"no flow came through between hosts ({results[flows[0]]})"], request.strict)
        return
    if doubtful:  # by themselves: hosts that were busy for a moment, or shared cores, are no fault of the network
        time.sleep(_DRAIN_S)
        for flow, again in run(doubtful).items():
            before = results[flow]
            both = [rate for rate in (before, again) if isinstance(rate, float | int)]
            results[flow] = max(both) if both else again
    _log.debug("preflight of %d flows in %.2f s", len(flows), time.monotonic() - started)
    failed = [
        f"no flow came through from {a} to {b} ({results[a, b]})" for a, b in flows if isinstance(results[a, b], str)
    ]
    _report([str(part) for part in slow_parts(network, source, target, rates(), expected)], failed, request.strict)


def _report(slow: list[str], failed: list[str], strict: bool) -> None:
    for what, problems, advice in (
        ("slower than when the network was measured", slow, "measure anew (`plink probe`) or leave them out"),
        ("the network could not be checked", failed, "are ports closed between the hosts?"),
    ):
        if not problems:
            continue
        more = f" and {len(problems) - _MAX_NAMED} more" if len(problems) > _MAX_NAMED else ""
        line = f"{what}: {'; '.join(problems[:_MAX_NAMED])}{more}; {advice}"
        if strict:
            raise PlinkError(f"{line}; nothing was run (--set preflight=strict)")
        _log.warning("%s (--set preflight=off skips this check)", line)
