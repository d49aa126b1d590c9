"""Check the cost model against orders that are run or were, and measured distances against true ones."""

import datetime
import logging
import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import structs

from plink.errors import NoAnswer, UsageError
from plink.features.check.acceptance import baseline_from, evaluate
from plink.features.check.benchmark import (
    PlannedBenchmark,
    plan_orders,
    plan_sizes,
    recorded_orders,
    time_orders,
    with_costs_on,
)
from plink.features.check.request import CheckRequest
from plink.features.order.smoothing import device_for
from plink.model.check import (
    Affinity,
    BenchmarkRun,
    CalibratedHosts,
    CalibratedLibrary,
    Check,
    CollectiveCheck,
    read_recorded_runs,
)
from plink.model.document import UNSET, Unset
from plink.model.network import Matrix, Network
from plink.model.truth import read_truth
from plink.terminal.junit import Case
from plink.transport.fleet import Progress
from runners.choice import connector_for
from solvers.affinity import paia, triplets
from solvers.checking import CollectiveTiming, fit_host_costs
from solvers.costs.by_name import MIXED, model_for
from solvers.costs.fabric import fabric_of
from solvers.embedding.embed import embed
from solvers.library_costs import LIBRARY_ALGORITHMS, fit_library_costs
from solvers.prediction.topology import levels_apart

_MIN_TRIPLETS = 100  # that a limit of their share goes by, or half of all
_log = logging.getLogger("plink.check")


@dataclass
class CheckReport:
    """Results of a check as they come, so that an error loses none. ``distances``: the test case of ``affinity``;
    ``unranked``: one for each algorithm that was not run; ``checks``: each with its test cases; ``timings``: what costs
    were fitted to."""

    network: str | None = None
    truth: str | Unset = UNSET
    affinity: Affinity | Unset = UNSET
    unknown_hosts: tuple[str, ...] | Unset = UNSET
    distances: list[Case] = field(default_factory=list)
    unranked: list[Case] = field(default_factory=list)
    checks: list[tuple[CollectiveCheck, list[Case]]] = field(default_factory=list)
    host_costs: CalibratedHosts | Unset = UNSET
    library_costs: tuple[CalibratedLibrary, ...] | Unset = UNSET
    timings: list[BenchmarkRun] = field(default_factory=list)

    @property
    def cases(self) -> list[Case]:
        """All test cases."""
        return [*self.distances, *self.unranked, *(case for _, cases in self.checks for case in cases)]

    def document(self, *errors: str) -> Check:
        """Return the document, with what kept the check from going on among its failures."""
        failures = (*(case.text for case in self.cases if not case.ok), *errors)
        checks = tuple(check for check, _ in self.checks)
        return Check(
            network=self.network,
            truth=self.truth,
            affinity=self.affinity,
            unknown_hosts=self.unknown_hosts,
            ok=not failures,
            spearman=min((check.spearman for check in checks), default=UNSET),
            host_costs=self.host_costs,
            library_costs=self.library_costs,
            timings=tuple(self.timings) or UNSET,
            failures=failures,
            checks=checks or UNSET,
        )


def check(
    network: Network | None,
    request: CheckRequest,
    *,
    recompute: bool = True,
    report: CheckReport | None = None,
    progress: Progress = lambda phase, done, total: None,
) -> Check:
    """Check the cost model by orders that are run on the hosts or were, and measured distances by true ones.

    ``ok`` of the result says whether all limits of the request hold. Host costs are fitted, not written.

    :param network: what was measured; recorded runs can do without. :param recompute: whether costs of recorded runs
        are computed again on the network. :param report: gets the results as they come.
    :raises UsageError: without a network that is needed. :raises InputError: for a file that cannot be read.
    :raises NoAnswer: where nothing can be compared. :raises PlinkError: when a job fails.
    """
    report = CheckReport() if report is None else report
    baseline = () if request.max_regression is None else baseline_from(request.max_regression)
    runs, sizes = ((), ()) if request.results is None else read_recorded_runs(request.results, request.calibrate)
    timings: list[CollectiveTiming] = []
    if network is None:
        if request.measure or request.truth is not None:
            raise UsageError("--measure and --truth need NETWORK")
    else:
        report.network = network.fingerprint()
        if request.truth is not None:
            _check_distances(network, request, request.truth, report)
    recomputed_on = network if recompute else None
    if recomputed_on is None and (runs or sizes) and (request.model is not None or request.calibrate):
        option = "--calibrate" if request.calibrate else "--model"
        raise UsageError(f"{option} goes with --measure, or with NETWORK and --results")
    for run in runs:
        run = run if recomputed_on is None else with_costs_on(run, recomputed_on, request.model)
        _add(report, run, request, baseline)
    if request.calibrate and recomputed_on is not None:
        for run in (*runs, *sizes):
            options, orders = recorded_orders(run, recomputed_on)
            timings += [
                CollectiveTiming(run.algo or "", options, order, run.size_bytes or 0.0, timing.achieved_s)
                for order, timing in zip(orders, run.runs, strict=True)
            ]
    if request.measure and network is not None:
        plans, report.unranked = plan_check(network, request)  # refused before a run
        for case in report.unranked:
            _log.warning("%s; it is not run", case.text)
        connector = connector_for(network.hosts, request.accept_new_host_keys)
        for planned in plans:
            _log.info("%s", planned.text)
            began = time.monotonic()
            run = time_orders(planned, connector, progress)
            if planned.for_costs:
                timings += planned.timings(run)
                report.timings += [
                    structs.replace(run, size_bytes=size, runs=(structs.replace(timing, predicted_us=None),))
                    for size, timing in zip(planned.sizes_bytes, run.runs, strict=True)
                ]
            else:
                _add(report, run, request, baseline, time.monotonic() - began)
    if request.calibrate and network is not None and timings:
        # `latency` and `simulated` stand for `contention`, which has times and is fast.
        fabric = fabric_of(network)
        is_alpha_beta = (
            model_for("auto" if request.model is None else request.model, fabric, timed=True) == "alpha-beta"
        )
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        timed_model: Literal["alpha-beta", "contention"] = "alpha-beta" if is_alpha_beta else "contention"
        of_hosts = [timing for timing in timings if timing.algo not in LIBRARY_ALGORITHMS]
        if of_hosts:
            report.host_costs = fit_host_costs(fabric, of_hosts, timed_model, now)
        report.library_costs = fit_library_costs(fabric, timings, timed_model, now, network.library_costs) or UNSET
    return report.document()


def _add(
    report: CheckReport,
    run: BenchmarkRun,
    request: CheckRequest,
    baseline: tuple[BenchmarkRun, ...],
    seconds: float = 0.0,
) -> None:
    """Evaluate a run. One whose orders cannot be ranked, nor have to be, may still tell the costs of hosts."""
    try:
        report.checks.append(evaluate(run, request, baseline, seconds))
    except NoAnswer as error:
        if request.has_to_rank:
            raise
        _log.warning("%s: %s", run.algo, error)


def plan_check(network: Network, request: CheckRequest) -> tuple[list[PlannedBenchmark], list[Case]]:
    """Return the benchmarks of a check, those for the costs of hosts last: of a library's own choice with what it
    chooses from. And a test case without a result for each algorithm whose orders cannot be ranked as they have to.

    :raises NoAnswer: when that is so of all. :raises PlinkError: for what cannot be run.
    """
    plans, unranked = [], list[Case]()
    for algo in request.algorithms:
        try:
            plans.append(plan_orders(network, request, algo))
        except NoAnswer as error:
            unranked.append(Case(algo, "spearman", None, f"{algo}: {error}"))
    if not plans:
        raise NoAnswer("; ".join(case.text for case in unranked))
    ranked = [planned for planned in plans if len(planned.orders) > 1]
    if not request.calibrate:
        return ranked, unranked
    planned_of = {planned.algo: planned for planned in plans}
    choices = [replace(planned, algo=part) for planned in plans for part in MIXED.get(planned.algo, ())]
    timed = {each.algo: each for each in choices} | planned_of
    return ranked + [plan_sizes(each) for each in timed.values()], unranked


def _check_distances(network: Network, request: CheckRequest, truth: Path, report: CheckReport) -> None:
    """Judge measured distances by true ones."""
    paths = read_truth(truth, network.hosts)
    report.truth, names = str(truth), network.hosts.names
    report.unknown_hosts = tuple(name for name, path in zip(names, paths, strict=True) if path is None)
    levels = levels_apart(paths)
    true_levels = np.where(levels < 0, np.nan, levels.astype(float))

    def share(distances: Matrix) -> float | None:
        return None if math.isnan(value := paia(distances, true_levels)) else round(value, 6)

    fitted_us = None
    try:
        device = device_for("auto", len(names))
        fitted_us = embed(network.latency_us, seed=request.seed, device=device, names=names).fitted_us
    except NoAnswer as error:
        _log.info("no fitted distances: %s", error)
    measured, minimum = share(network.rtt_us), request.min_paia
    total, compared = triplets(true_levels), triplets(true_levels, network.rtt_us)
    report.affinity = Affinity(
        triplets=total,
        measured_triplets=compared,
        measured=measured,
        fitted_triplets=None if fitted_us is None else triplets(true_levels, fitted_us),
        fitted=None if fitted_us is None else share(fitted_us),
    )
    if measured is None:
        reason = "no two hosts are at different distances of a third; there is nothing to tell apart"
        if total:
            reason = f"both pairs of none of {total:,} triplets were measured; there is nothing to compare"
        raise NoAnswer(f"{truth}: {reason}")
    if minimum is not None and compared < min(total / 2, _MIN_TRIPLETS):
        raise NoAnswer(f"{truth}: --min-paia: too few pairs were measured, {compared:,} of {total:,} triplets")
    ok = minimum is None or measured >= minimum
    limit = "" if minimum is None else f", --min-paia {minimum:g}" if ok else f" is below --min-paia {minimum:g}"
    report.distances.append(Case("truth", "paia", ok, f"PAIA {measured:.3f} of {compared:,} triplets{limit}"))
