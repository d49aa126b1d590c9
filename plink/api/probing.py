"""A network from its hosts: round trips, bandwidths, and what groups of hosts share."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.api.connecting import Progress, connector_for
from plink.api.probe_request import ProbeRequest
from plink.errors import UsageError
from plink.model.hosts import Hosts
from plink.model.network import Matrix, Network, symmetrised, to_rows
from probes.adaptive import AdaptivePlan, AdaptiveSettings
from probes.measurements import Measurements
from probes.method_selection import select_methods
from probes.methods import ProbeSettings
from probes.plan import AllPairs, ProbePlan
from probes.session import ProbeProgress, ProbeSession
from probes.shared_links import SharedLinkSettings, shared_links
from solvers.hierarchy.tiers import nearest_tier
from solvers.prediction.tiered import predict_tiered

Labels = npt.NDArray[np.intp]

UNTRIED = "not tried: the budget was spent"
_BUDGET = 0.10  # of all pairs, for adaptive probing
_log = logging.getLogger("plink.probe")


def probe(
    hosts: Hosts, request: ProbeRequest | None = None, *, progress: Progress = lambda what, done, total: None
) -> Network:
    """Measure the network between two hosts or more, over SSH; pairs that could not be measured are NaN, and why is
    among ``details["errors"]``.

    For hosts of ``plink lab`` this process enters the lab's network.

    :raises UsageError: for one host, or a request that cannot be met.
    :raises PlinkError: when fewer than two hosts can be measured.
    """
    check_hosts(hosts)
    found = Measurements(hosts)
    measure(found, request or ProbeRequest(), progress)
    return found.network()


def check_hosts(hosts: Hosts) -> None:
    """:raises UsageError: for one host."""
    if len(hosts) < 2:
        raise UsageError(f"there is nothing to measure with one host ({hosts.names[0]}); give at least two")


def settings_of(request: ProbeRequest) -> ProbeSettings:
    """As the methods take them."""
    return ProbeSettings(
        count=request.count, timeout_s=request.timeout_s, source_ports=request.source_ports, seed=request.seed,
        streams=request.streams, bandwidth_s=request.bandwidth_s, bandwidth_bytes=request.bandwidth_bytes,
        handshakes=request.method in ("tcp", "auto"),
    )  # fmt: skip


def measure(
    found: Measurements,
    request: ProbeRequest,
    progress: Progress = lambda what, done, total: None,
    round_done: Callable[[], None] = lambda: None,
) -> bool:
    """Measure what ``found`` lacks, into it; False when the budget was spent before.

    :param round_done: called after each round, with all of it in ``found``.
    :raises UsageError: for a request that cannot be met.
    :raises PlinkError: when fewer than two hosts can be measured.
    """
    request.check()
    adaptive = request.adaptive(len(found.hosts))
    connector = connector_for(found.hosts, request.accept_new_host_keys)
    plan = "adaptive" if adaptive else "all"
    found.details |= {"method": request.method, "count": request.count, "seed": request.seed, "plan": plan}
    deadline = None if request.budget_s is None else time.monotonic() + request.budget_s
    with ProbeSession(found, connector, settings_of(request), time.monotonic) as session:
        began = time.monotonic()
        session.start(ProbeProgress(lambda done, total: progress("connecting", done, total)))
        _log.debug("agents on %d hosts in %.1f s", len(session.agents), time.monotonic() - began)
        rounds = _Rounds(session, request.seed, progress, round_done, deadline)
        in_time = rounds.run(request.method, "measuring", adaptive)
        if request.bandwidth and in_time:
            in_time = rounds.run("iperf3", "bandwidth", adaptive=False)
        if request.shared_links and in_time and request.method != "iperf3":
            rounds.shared_links()
    return in_time


@dataclass(frozen=True)
class _Rounds:
    """``deadline``: monotonic seconds, after which no round begins."""

    session: ProbeSession
    seed: int
    progress: Progress
    round_done: Callable[[], None]
    deadline: float | None

    def run(self, method: str, title: str, adaptive: bool) -> bool:
        """All rounds of one method; False when the budget was spent before."""
        found = self.session.measurements
        plan = _plan(found, adaptive, self.seed)
        how: str | Callable[[int, int], str] = method
        if method == "auto":
            how = select_methods(self.session)
            _log.info("--method auto: %s", how.summary)
        done = 0

        def on_done() -> None:
            nonlocal done
            done += 1
            self.progress(title, done, plan.max_pairs)

        try:
            while (pairs := plan.next_round(_known(found, method))) is not None:
                if self.over():
                    if not adaptive:
                        _note_untried(found, method)
                    return False
                began = time.monotonic()
                self.session.measure(pairs, how, on_done)
                _log.debug("%d pairs by %s in %.2f s", len(pairs), method, time.monotonic() - began)
                self.round_done()
            return True
        finally:
            _predict(found, plan)  # also of what there is when it is stopped

    def over(self) -> bool:
        """Whether the budget is spent."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def shared_links(self) -> None:
        """Find the groups in the latencies and measure what each shares; noted among the details."""
        found = self.session.measurements
        groups = find_groups(found.latency, found.details.get("plan") == "adaptive")
        if len(groups) < 2:
            _log.info("no groups stand out in the latencies: no shared links to measure")
            return
        found.details["shared_links"] = shared_links(
            self.session, groups, SharedLinkSettings(seed=self.seed),
            lambda done, total: self.progress("shared links", done, total), lambda: not self.over(),
        )  # fmt: skip


def _note_untried(found: Measurements, method: str) -> None:
    """The budget is spent: pairs that it left out are null for that reason."""
    errors = found.bandwidth_errors if method == "iperf3" else found.errors
    for i, j in np.argwhere(np.isnan(_known(found, method))).tolist():
        if i != j:
            errors.setdefault((i, j), UNTRIED)


def _known(found: Measurements, method: str) -> Matrix:
    """What the method has measured so far, NaN where it has not."""
    if method != "iperf3":
        return found.latency
    return found.bandwidth_matrix()


def find_groups(latency_us: Matrix, sparse: bool = False) -> list[list[int]]:
    """Hosts that are near each other; one that nothing was heard of is in none."""
    labels = label_groups(latency_us, sparse)
    heard = np.isfinite(latency_us).sum(axis=1) > 1
    groups = [[int(i) for i in np.flatnonzero((labels == label) & heard)] for label in range(labels.max() + 1)]
    return [group for group in groups if group]


def label_groups(latency_us: Matrix, sparse: bool = False) -> Labels:
    """The group of every host, shape (N,), by the latencies; unmeasured pairs count as far, or are predicted where most
    are unmeasured (``sparse``)."""
    if sparse:
        return predict_tiered(latency_us).groups
    cost = symmetrised(latency_us)
    return nearest_tier(np.where(np.isnan(cost), np.nanmax(cost), cost))


def _plan(found: Measurements, adaptive: bool, seed: int) -> ProbePlan:
    n = len(found.hosts)
    if not adaptive:
        return AllPairs(n, seed)
    # A tenth of few pairs says nothing: every host meets sixteen others at least.
    return AdaptivePlan(n, seed, predict_tiered, AdaptiveSettings(budget=min(1.0, max(_BUDGET, 16 / n))))


def _predict(found: Measurements, plan: ProbePlan) -> None:
    """Say how far predictions can be trusted, and note what unmeasured pairs are expected to take."""
    if not isinstance(plan, AdaptivePlan) or not found.any():
        return
    n = len(found.hosts)
    error = plan.held_out_error
    found.details["predicted_us"] = to_rows(predict_tiered(found.latency).rtt_us(np.arange(n)), digits=1)
    found.details["held_out_error"] = None if error != error else round(error, 4)
    pairs = n * (n - 1) // 2
    share = 1 - len(found.missing()) / pairs
    why = "the groups no longer change" if plan.converged else "its share of pairs is spent"
    _log.info(
        f"{share:.1%} of the pairs measured ({why}); others are predicted, {error:.1%} off on held-out pairs (median)"
    )
