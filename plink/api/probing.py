"""Measure a network: round trips, bandwidths, and the capacity that groups of hosts share."""

import dataclasses
import functools
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.api.connecting import Progress, connector_for
from plink.api.host_rates import measure_host_rates
from plink.api.predicting import PairPrediction, predict_pairs, unmeasured_ring_pairs
from plink.api.probe_request import MAX_COUNT, ProbeRequest
from plink.errors import UsageError
from plink.model.hosts import Hosts
from plink.model.network import Matrix, Network, symmetrised
from probes.adaptive import AdaptivePlan, AdaptiveSettings
from probes.host_flows import FlowSettings
from probes.measurements import Measurements
from probes.method_selection import select_methods
from probes.methods import ProbeSettings
from probes.plan import AllPairs, ProbePlan
from probes.round_robin import Pair
from probes.session import ProbeProgress, ProbeSession
from probes.shared_links import SharedLinkSettings, TierGroups, shared_links
from solvers.hierarchy.shared_tiers import HostGroups, candidate_tiers, confirmed_rows, doubtful_members, with_larger
from solvers.hierarchy.tiers import completed_far, nearest_tier
from solvers.prediction.tiered import predict_tiered

Labels = npt.NDArray[np.intp]

NOT_TRIED = "not tried: the budget was spent"
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
    :raises PlinkError: when fewer than two hosts can be measured.
    """
    request.check()
    adaptive = request.adaptive(len(measurements.hosts))
    connector = connector_for(measurements.hosts, request.accept_new_host_keys)
    plan = "adaptive" if adaptive else "all"
    measurements.details |= {
        "method": request.method,
        "count": request.count or MAX_COUNT,
        "seed": request.seed,
        "plan": plan,
    }
    deadline = None if request.budget_s is None else time.monotonic() + request.budget_s
    with ProbeSession(measurements, connector, settings_of(request), time.monotonic) as session:
        started = time.monotonic()
        session.start(ProbeProgress(lambda done, total: progress("connecting", done, total)))
        _log.debug("agents on %d hosts in %.1f s", len(session.agents), time.monotonic() - started)
        rounds = _Rounds(session, request.seed, progress, round_done, deadline)
        in_time = rounds.run(request.method, "measuring", adaptive)
        if request.bandwidth and in_time:
            in_time = rounds.run("iperf3", "bandwidth", adaptive=False)
        if request.host_rates and in_time and request.method != "iperf3":
            rounds.host_rates()
        if request.shared_links and in_time and request.method != "iperf3":
            rounds.shared_links()
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
        plan = _plan(measurements, adaptive, self.seed)
        method_for: str | Callable[[int, int], str] = method
        if method == "auto":
            method_for = select_methods(self.session)
            _log.info("--method auto: %s", method_for.summary)
        done = 0

        def on_done() -> None:
            nonlocal done
            done += 1
            self.progress(title, done, plan.max_pairs)

        def measure_round(pairs: list[Pair]) -> None:
            started = time.monotonic()
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

    def shared_links(self) -> None:
        """Find groups by the latencies and measure the capacity that each shares."""
        measure_shared_links(
            self.session, SharedLinkSettings(seed=self.seed),
            lambda done, total: self.progress("shared links", done, total), lambda: not self.over(),
        )  # fmt: skip


def measure_shared_links(
    session: ProbeSession,
    settings: SharedLinkSettings,
    advance: Callable[[int, int], None] = lambda done, total: None,
    keep_going: Callable[[], bool] = lambda: True,
) -> None:
    """Find tiers of groups by the latencies, measure the capacity that each group shares, and add it to the
    measurements' details: from the innermost tier out, those above only where groups have a bottleneck of their own."""
    measurements = session.measurements
    tiers = find_tiers(measurements)
    if len(tiers[0]) < 2:
        _log.info("no groups stand out in the latencies: no shared links to measure")
        return
    names, measured, below = measurements.hosts.names, list[dict[str, Any]](), list[dict[str, Any]]()
    part_of = dict[int, int]()
    ends = np.cumsum([0, *map(len, tiers)]).tolist()
    for groups, outer, first in zip(tiers, [*tiers[1:], None], ends[:-1], strict=True):
        tier = TierGroups(groups, None if outer is None else _families(groups, outer), part_of)
        if part_of:  # the link of a group of one part is that of the part
            several = [group for group in groups if len(set(map(tier.part, group))) > 1]
            tier = dataclasses.replace(tier, measured=frozenset(itertools.chain(*several)))
        on_done = functools.partial(_advance_from, advance, first, ends[-1])
        rows = shared_links(session, tier, settings, on_done, keep_going)
        on_done(len(groups), len(groups))
        families = [[names[host] for host in group] for group in outer or []]
        if doubted := doubtful_members(rows, families):
            hosts = frozenset(names.index(name) for name in doubted)
            everywhere = dataclasses.replace(tier, family_of=None, measured=hosts)
            rows = with_larger(rows, shared_links(session, everywhere, settings, lambda *_: None, keep_going))
        if below:
            rows = confirmed_rows(rows, below)
        if rows:
            measured.append({"groups": rows})
            measurements.details["shared_links"] = measured
            inside = {name for row in rows for name in row["members"]}
            below = rows + [row for row in below if not inside.issuperset(row["members"])]
            part_of = {host: part for part, group in enumerate(groups) for host in group}


def _advance_from(advance: Callable[[int, int], None], first: int, total: int, done: int, _: int) -> None:
    advance(first + done, total)


def _families(groups: HostGroups, outer: HostGroups) -> list[int]:
    """Return the outer group of each group."""
    outer_of = {host: number for number, group in enumerate(outer) for host in group}
    return [outer_of[group[0]] for group in groups]


def _note_untried(measurements: Measurements, method: str) -> None:
    """Record for pairs without a measurement that the budget was spent."""
    errors = measurements.bandwidth_errors if method == "iperf3" else measurements.errors
    for i, j in np.argwhere(np.isnan(_measured_so_far(measurements, method))).tolist():
        if i != j:
            errors.setdefault((i, j), NOT_TRIED)


def _measured_so_far(measurements: Measurements, method: str) -> Matrix:
    """Return what the method has measured so far, NaN where it has not."""
    if method != "iperf3":
        return measurements.latency
    return measurements.bandwidth_matrix()


def find_tiers(measurements: Measurements) -> list[HostGroups]:
    """Return groups of hosts near each other, then those of candidates for tiers above them, without hosts that have
    no measurement.

    The groups are those of the nearest tier, or finer ones, if both halves of the samples have them too.
    """
    latency = measurements.latency
    sparse = measurements.details.get("plan") == "adaptive"
    labels = label_groups(latency, sparse)
    halves = () if sparse else measurements.network().half_rtts_us
    if halves and len(labels) > 2:
        rtt = completed_far(symmetrised(latency))
        finer = nearest_tier(rtt, halves=[np.where(np.isnan(half), rtt, half) for half in halves])
        if len(np.unique(np.stack([labels, finer]), axis=1).T) == finer.max() + 1:
            labels = finer
    responding = np.isfinite(latency).sum(axis=1) > 1
    groups = [np.flatnonzero((labels == label) & responding).tolist() for label in range(labels.max() + 1)]
    groups = [group for group in groups if group]
    return [groups, *candidate_tiers(symmetrised(latency), groups)]


def label_groups(latency_us: Matrix, sparse: bool = False) -> Labels:
    """Return each host's group by the latencies, shape (N,); unmeasured pairs count as far, or are predicted where
    most are unmeasured (``sparse``)."""
    if sparse:
        return predict_tiered(latency_us).groups
    cost = symmetrised(latency_us)
    return nearest_tier(np.where(np.isnan(cost), np.nanmax(cost), cost))


def _plan(measurements: Measurements, adaptive: bool, seed: int) -> ProbePlan:
    n = len(measurements.hosts)
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
    measurements.details |= prediction.to_details()
    n = len(measurements.hosts)
    share = 1 - len(measurements.missing()) / (n * (n - 1) // 2)
    reason = "the groups no longer change" if plan.converged else "its share of pairs is spent"
    _log.info(
        f"{share:.1%} of the pairs measured ({reason}); others are predicted by {_PREDICTORS[prediction.method]}, with "
        f"a median error of {prediction.held_out_error:.1%} on held-out pairs"
    )
    return prediction
