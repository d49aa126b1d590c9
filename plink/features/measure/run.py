"""Measure a network: round trips, bandwidths, and the capacity that groups of hosts share."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from plink.errors import UsageError
from plink.features.measure.bandwidth_time import ROUND_DRAIN_S, bandwidth_rounds, round_seconds
from plink.features.measure.host_rates import TCP_BLOCKED, measure_host_rates, unreached_by_flows
from plink.features.measure.predicting import PairPrediction, predict_pairs, unmeasured_ring_pairs
from plink.features.measure.request import MAX_COUNT, ProbeRequest
from plink.features.measure.shared_links import link_limits, measure_shared_links, tiers_by_topology
from plink.model.hosts import Hosts
from plink.model.network import Matrix, Network
from plink.model.units import format_duration
from plink.transport.fleet import Progress
from probes.adaptive import AdaptivePlan, AdaptiveSettings
from probes.disjoint_pairs import Pair
from probes.flow_reference import FlowReference
from probes.host_flows import FlowSettings
from probes.interface_flows import measure_interfaces
from probes.interfaces import find_interfaces, with_rates_of
from probes.measurements import NOT_TRIED, Measurements
from probes.method_selection import select_methods
from probes.methods import BANDWIDTH_METHODS, ProbeSettings
from probes.plan import AllPairs, LinkAwarePlan, ProbePlan
from probes.session import ProbeSession
from probes.shared_links import SharedLinkSettings
from runners.choice import connector_for
from solvers.hierarchy.shared_tiers import HostGroups
from solvers.prediction.tiered import predict_tiered

NO_FLOW = "not tried: no TCP flow came through between any hosts"
_PRECISION = 0.02  # of a round trip's 10th percentile: tiers differ by far more
_ORDER_SEARCHES = 3  # after each, pairs of the best ring are measured: N at most
_PREDICTORS = {"tiers": "groups of hosts", "embedding": "coordinates"}
_BUDGET = 0.10  # of all pairs, for adaptive probing
_log = logging.getLogger("plink.probe")


def probe(
    hosts: Hosts, request: ProbeRequest | None = None, *, progress: Progress = lambda what, done, total: None
) -> Network:
    """Measure the network between two hosts or more, over SSH. Pairs that could not be measured are NaN, with a reason
    in ``details["errors"]``.

    For hosts of ``plink lab`` this process enters the lab's network.

    :raises UsageError: for one host, or a request that cannot be met.
    :raises PlinkError: when fewer than two hosts can be measured.
    """
    check_hosts(hosts)
    measurements = Measurements(hosts)
    measure(measurements, request or ProbeRequest(), progress)
    return measurements.network()


def check_hosts(hosts: Hosts) -> None:
    """Refuse a single host.

    :raises UsageError: for one host.
    """
    if len(hosts) < 2:
        raise UsageError(f"there is nothing to measure with one host ({hosts.names[0]}); give at least two")


def settings_of(request: ProbeRequest) -> ProbeSettings:
    """Return the settings of the probe methods."""
    return ProbeSettings(
        count=request.count or MAX_COUNT, precision=None if request.count else _PRECISION,
        timeout_s=request.timeout_s, source_ports=request.source_ports, seed=request.seed,
        streams=request.streams, bandwidth_s=request.bandwidth_s, bandwidth_bytes=request.bandwidth_bytes,
        handshakes=request.method in ("tcp", "auto"),
    )  # fmt: skip


def measure(
    measurements: Measurements,
    request: ProbeRequest,
    progress: Progress = lambda what, done, total: None,
    round_done: Callable[[], None] = lambda: None,
) -> bool:
    """Measure what ``measurements`` lacks and add it; return False when the budget was spent before.

    :param round_done: called after each round, with all of it in ``measurements``.
    :raises UsageError: for a request that cannot be met.
    :raises InputError: for a topology file with none of the hosts.
    :raises PlinkError: when fewer than two hosts can be measured.
    """
    tiers = None if request.topology is None else tiers_by_topology(request.topology, measurements.hosts)
    adaptive = request.adaptive(len(measurements.hosts))
    connector = connector_for(measurements.hosts, request.accept_new_host_keys)
    plan = "adaptive" if adaptive else "all"
    measurements.add(method=request.method, count=request.count or MAX_COUNT, seed=request.seed, plan=plan)
    deadline = None if request.budget_s is None else time.monotonic() + request.budget_s
    with ProbeSession(measurements, connector, settings_of(request), time.monotonic) as session:
        started = time.monotonic()
        session.start(progress)
        _log.debug("agents on %d hosts in %.1f s", len(session.agents), time.monotonic() - started)
        if interfaces := find_interfaces(session):
            measurements.add(interfaces=with_rates_of(measurements.details.interfaces or None, interfaces))
        rounds = _Rounds(session, request.seed, progress, round_done, deadline)
        in_time = rounds.run(request.method, "measuring", adaptive)
        if request.host_rates and in_time and request.method != "iperf3":
            rounds.host_rates()
        blocked = bool(measurements.details.host_flow_errors) and not measurements.details.host_flows
        if blocked:
            _log.warning("no TCP flow came through between any hosts: no shared links or bandwidths are measured")
            if request.bandwidth:
                _note_untried(measurements, "flow", NO_FLOW)
        if request.shared_links and in_time and request.method != "iperf3" and not blocked:
            rounds.shared_links(tiers)
        if request.bandwidth and in_time and not blocked:
            # Last, for only now it is known how many flows the shared links carry at a time.
            with session.scheduler.excluding(unreached_by_flows(measurements), TCP_BLOCKED):
                in_time = rounds.run(request.bandwidth_method, "bandwidth", adaptive=False)
        session.check_agents()
    return in_time


@dataclass(frozen=True)
class _Rounds:
    """Rounds of measurements. ``deadline``: monotonic seconds, after which no round begins."""

    session: ProbeSession
    seed: int
    progress: Progress
    round_done: Callable[[], None]
    deadline: float | None

    def run(self, method: str, title: str, adaptive: bool) -> bool:
        """Run all rounds of one method; return False when the budget was spent before."""
        measurements = self.session.measurements
        plan = _plan(measurements, method, adaptive, self.seed)
        method_for: str | Callable[[int, int], str] = method
        if method == "auto":
            method_for = select_methods(self.session)
            _log.info("--method auto: %s", method_for.summary)
        if method == "flow":
            self.session.context.flow_reference = FlowReference(measurements)
            planned = bandwidth_rounds(measurements.hosts.names, measurements.details.shared_links or (), self.seed)
            seconds = planned * round_seconds(self.session.context.settings.bandwidth_s, both_at_once=True)
            _log.info("bandwidths in %d rounds: about %s", planned, format_duration(seconds))
        done = 0

        def on_done() -> None:
            nonlocal done
            done += 1
            self.progress(title, done, plan.max_pairs)

        def measure_round(pairs: list[Pair]) -> None:
            started = time.monotonic()
            if method == "flow":
                time.sleep(ROUND_DRAIN_S)
            self.session.measure(pairs, method_for, on_done)
            _log.debug("%d pairs by %s in %.2f s", len(pairs), method, time.monotonic() - started)
            self.round_done()

        try:
            while (pairs := plan.next_round(_measured_so_far(measurements, method))) is not None:
                if self.over():
                    if not adaptive:
                        _note_untried(measurements, method)
                    _predict(measurements, plan, self.seed, quick=True)
                    return False
                measure_round(pairs)
        except BaseException:
            _predict(measurements, plan, self.seed, quick=True)  # of what there is when it is stopped
            raise
        prediction = _predict(measurements, plan, self.seed)
        if prediction is None:
            return True
        for _ in range(_ORDER_SEARCHES):
            rounds = unmeasured_ring_pairs(measurements, prediction, self.seed)
            for pairs in rounds:
                if self.over():
                    return False
                measure_round(pairs)
            if not rounds:
                break
            prediction = _predict(measurements, plan, self.seed) or prediction
        return True

    def over(self) -> bool:
        """Return whether the budget is spent."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def host_rates(self) -> None:
        """Measure what every host sends and receives."""
        measure_host_rates(
            self.session, FlowSettings(seed=self.seed),
            lambda done, total: self.progress("host rates", done, total), lambda: not self.over(),
        )  # fmt: skip
        measure_interfaces(
            self.session, FlowSettings(),
            lambda done, total: self.progress("interfaces", done, total), lambda: not self.over(),
        )  # fmt: skip

    def shared_links(self, tiers: Sequence[HostGroups] | None) -> None:
        """Measure the capacity that each group of ``tiers`` shares; None: of groups found by the latencies."""
        measure_shared_links(
            self.session, SharedLinkSettings(seed=self.seed),
            lambda done, total: self.progress("shared links", done, total), lambda: not self.over(), tiers,
        )  # fmt: skip


def _note_untried(measurements: Measurements, method: str, reason: str = NOT_TRIED) -> None:
    """Record for pairs without a measurement why they were not tried."""
    errors = measurements.bandwidth_errors if method in BANDWIDTH_METHODS else measurements.errors
    for i, j in np.argwhere(np.isnan(_measured_so_far(measurements, method))).tolist():
        if i != j:
            errors.setdefault((i, j), reason)


def _measured_so_far(measurements: Measurements, method: str) -> Matrix:
    """Return what the method has measured so far, NaN where it has not."""
    if method not in BANDWIDTH_METHODS:
        return measurements.latency
    return measurements.bandwidth_matrix()


def _plan(measurements: Measurements, method: str, adaptive: bool, seed: int) -> ProbePlan:
    n = len(measurements.hosts)
    if method in BANDWIDTH_METHODS:
        limits = link_limits(measurements.hosts.names, measurements.details.shared_links or ())
        return LinkAwarePlan(n, seed, limits) if limits else AllPairs(n, seed)
    if not adaptive:
        return AllPairs(n, seed)
    # A tenth of few pairs says nothing: every host meets sixteen others at least. Pairs of orders come after the plan.
    budget = min(1.0, max(_BUDGET, 16 / n)) - _ORDER_SEARCHES / n
    return AdaptivePlan(n, seed, predict_tiered, AdaptiveSettings(budget=max(budget, 1 / n)))


def _predict(measurements: Measurements, plan: ProbePlan, seed: int, quick: bool = False) -> PairPrediction | None:
    """Record predictions of unmeasured pairs, and log how accurate they are; None where all pairs are measured."""
    if not isinstance(plan, AdaptivePlan) or not measurements.any():
        return None
    prediction = predict_pairs(measurements.latency, plan.held_out, seed, quick)
    measurements.add(**prediction.details())
    n = len(measurements.hosts)
    share = 1 - len(measurements.missing()) / (n * (n - 1) // 2)
    reason = "the groups no longer change" if plan.converged else "its share of pairs is spent"
    _log.info(
        f"{share:.1%} of the pairs measured ({reason}); others are predicted by {_PREDICTORS[prediction.method]}, with "
        f"a median error of {prediction.held_out_error:.1%} on measured pairs that were kept out of it"
    )
    return prediction
