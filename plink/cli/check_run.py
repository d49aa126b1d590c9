"""Run one `plink check`: measure or read runs, evaluate them, print and write the result, set the exit code.

Imported when the command runs: it needs the solvers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from plink.api.connecting import connector_for
from plink.api.smoothing import device_for
from plink.cli import calibration
from plink.cli.acceptance import AcceptanceLimits, baseline_from, evaluate, show_check, timed
from plink.cli.order_benchmark import (
    BenchmarkConfig,
    PlannedBenchmark,
    describe,
    plan_orders,
    recompute_costs,
    run_orders,
)
from plink.errors import NoAnswer, PlinkError
from plink.model.benchmark_runs import SCHEMA, BenchmarkRun, read_benchmark_runs
from plink.model.network import Matrix, Network
from plink.model.storage import STANDARD, check_apart, write_document
from plink.model.truth import read_truth
from plink.model.units import format_us
from plink.records import workspace
from plink.records.scratch import scratch_folder
from plink.terminal.inputs import network_from
from plink.terminal.junit import Case, write_junit
from plink.terminal.screen import print_json, print_lines, say
from runners.choice import runner_named
from solvers.affinity import paia, triplets
from solvers.embedding.embed import embed
from solvers.prediction.topology import UNKNOWN, levels_apart


@dataclass(frozen=True)
class CheckRequest:
    """Options of `plink check`. ``limits`` lack the baseline, which is read from ``max_regression``. ``model``: for
    the costs of recorded runs, None for the model of then."""

    network_file: Path | None
    measure: bool
    results: Path | None
    truth: Path | None
    min_paia: float | None
    algorithms: tuple[str, ...]
    config: BenchmarkConfig
    model: str | None
    limits: AcceptanceLimits
    max_regression: Path | None
    dry_run: bool
    output: Path | None
    junit: Path | None
    as_json: bool
    accept_new_host_keys: bool
    calibrate: bool = False


@dataclass
class _CheckReport:
    """Result of a check so far. ``document``: plink.check/1; ``baseline_lines``: for each of its ``checks`` the
    comparison with the baseline."""

    document: dict[str, Any]
    cases: list[Case] = field(default_factory=list)
    baseline_lines: list[list[str]] = field(default_factory=list)
    unknown_hosts: list[str] = field(default_factory=list)

    def add(self, series: BenchmarkRun, limits: AcceptanceLimits, seconds: float = 0.0) -> None:
        """Evaluate a run and add it."""
        entry, cases = evaluate(series, limits, seconds)
        self.document["checks"].append(entry)
        self.cases += cases
        self.baseline_lines.append([case.text for case in cases[1:]])  # after its correlation


def run(request: CheckRequest) -> None:
    """Run the check, print the result and write it.

    :raises PlinkError: where it falls short, or cannot be found out.
    """
    target = target_of(request.output)
    network_file = request.network_file or workspace.NETWORK if _needs_network(request) else None
    read = (network_file, request.results, request.truth, request.max_regression)
    workspace.check_output(request.junit, None, read)
    if request.measure:
        check_apart(request.junit, (), target)
        workspace.check_output(request.output, target, read)
        if request.output is None and not request.dry_run:
            workspace.prepare()
    report = _CheckReport({"schema": SCHEMA, "network": None})
    try:
        if request.max_regression is not None:
            request = replace(request, limits=replace(request.limits, baseline=baseline_from(request.max_regression)))
        recorded_runs = () if request.results is None else read_benchmark_runs(request.results)
        network = _network(request)
        report.document["network"] = None if network is None else network.fingerprint()
        if request.truth is not None and network is not None:
            _add_affinity(report, network, request.truth, request)
        if recorded_runs:
            report.document["checks"] = []
            for series in recorded_runs:
                report.add(
                    series if request.network_file is None else _with_recomputed_costs(series, network, request.model),
                    request.limits,
                )
        if request.calibrate and request.measure:
            calibration.sizes_of(request.config)  # refused before a run
        if request.calibrate and not request.measure and network is not None and network_file is not None:
            model = request.model or "auto"
            timings = calibration.recorded_timings(network, recorded_runs)
            report.document["host_costs"] = calibration.calibrate(network, network_file, timings, model)
        if request.measure and network is not None:
            plans = [plan_orders(network, algo, request.config) for algo in request.algorithms]  # refused before a run
            if request.dry_run:
                if request.calibrate:
                    for planned in plans:
                        calibration.describe_timings(calibration.timing_plan(planned))
                _show_dry_run(network, plans, request.as_json)
                return
            _measure(report, network, plans, request)
            if request.calibrate and network_file is not None:
                _calibrate(report, network, network_file, plans, request)
    except (PlinkError, KeyboardInterrupt) as error:
        error_text = str(error) or "it was interrupted"
        if request.measure and report.document.get("checks"):  # what was run before took time, too
            failures = [*(case.text for case in report.cases if not case.ok), error_text]
            write_document(target, report.document | {"ok": False, "failures": failures})
            if str(target) != STANDARD:
                say(f"what was run -> {target}")
        if request.junit is not None:
            write_junit(request.junit, [*report.cases, Case("check", "check", None, error_text)])
        raise
    _publish(report, request, target)


def target_of(output: Path | None) -> Path:
    """Return the file for the measured runs."""
    return output or workspace.FOLDER / "check.json"


def _needs_network(request: CheckRequest) -> bool:
    return request.network_file is not None or request.measure or request.truth is not None


def _network(request: CheckRequest) -> Network | None:
    """Return the named network, or the last probed one where one is needed."""
    if not _needs_network(request):
        return None
    network: Network = network_from(request.network_file)
    return network


def _with_recomputed_costs(series: BenchmarkRun, network: Network | None, model_name: str | None) -> BenchmarkRun:
    """Return the run with predicted costs by today's network and models."""
    assert network is not None
    model, costs = recompute_costs(series, network, model_name)
    timings = tuple(replace(timing, predicted_us=cost) for timing, cost in zip(series.orders, costs, strict=True))
    return replace(series, model=model, orders=timings)


def _show_dry_run(network: Network, plans: Sequence[PlannedBenchmark], as_json: bool) -> None:
    names = network.hosts.names
    rows: list[dict[str, Any]] = []
    for planned in plans:
        describe(planned)
        for order, cost in planned.orders:
            hosts = [names[host] for host in dict.fromkeys(order.tolist())]
            rows.append({"algo": planned.algo, "predicted_us": round(cost, 3), "hosts": hosts})
    if as_json:
        print_json({"schema": "plink.dry-run/1", "runner": "check", "files": {}, "commands": [], "orders": rows})
        return
    for row in rows:
        print(f"{row['algo']}, {format_us(row['predicted_us'])}: {' '.join(row['hosts'])}")


def _measure(report: _CheckReport, network: Network, plans: Sequence[PlannedBenchmark], request: CheckRequest) -> None:
    connector = connector_for(network.hosts, request.accept_new_host_keys)
    identities = network.host_identities
    report.document["checks"] = []
    for planned in plans:
        describe(planned)
        with scratch_folder() as folder:
            benchmark = partial(
                run_orders, network, planned, lambda name: runner_named(name, lambda: connector), identities, folder
            )
            series, seconds = timed(benchmark)
        report.add(series, request.limits, seconds)


def _calibrate(
    report: _CheckReport, network: Network, network_file: Path, plans: Sequence[PlannedBenchmark], request: CheckRequest
) -> None:
    connector = connector_for(network.hosts, request.accept_new_host_keys)
    timings = []
    for planned in map(calibration.timing_plan, plans):
        calibration.describe_timings(planned)
        with scratch_folder() as folder:
            series = run_orders(
                network, planned, lambda name: runner_named(name, lambda: connector), network.host_identities, folder
            )
        timings += calibration.timings_from(planned, series)
    report.document["host_costs"] = calibration.calibrate(network, network_file, timings, request.config.model)


def _add_affinity(report: _CheckReport, network: Network, truth: Path, request: CheckRequest) -> None:
    paths = read_truth(truth, network.hosts)
    report.unknown_hosts = [name for name, path in zip(network.hosts.names, paths, strict=True) if path is None]
    affinity = affinity_of(network, levels_apart(paths), request.config.seed)
    report.document |= {"truth": str(truth), "affinity": affinity, "unknown_hosts": report.unknown_hosts}
    measured, minimum = affinity["measured"], request.min_paia
    if measured is None:
        raise NoAnswer(f"{truth}: no two hosts are at different distances of a third; there is nothing to tell apart")
    ok = minimum is None or measured >= minimum
    limit = "" if minimum is None else f", --min-paia {minimum:g}" if ok else f" is below --min-paia {minimum:g}"
    report.cases.append(Case("truth", "paia", ok, f"PAIA {measured:.3f}{limit}"))


def _publish(report: _CheckReport, request: CheckRequest, target: Path) -> None:
    """Print and write the result.

    :raises PlinkError: where it falls short. :raises NoAnswer: where not all can be judged, and what can holds.
    """
    document = report.document
    failures = [case.text for case in report.cases if not case.ok]
    if "checks" in document:
        document["spearman"] = min(entry["spearman"] for entry in document["checks"])
    document |= {"ok": not failures, "failures": failures}
    to_file = request.measure and str(target) != STANDARD
    if to_file:
        write_document(target, document)
    if request.junit is not None:
        write_junit(request.junit, report.cases)
    if request.as_json or (request.measure and not to_file):
        print_json(document)
    else:
        if (affinity := document.get("affinity")) is not None:
            print(f"measured distances have {affinity['measured']:.1%} of {affinity['triplets']:,} triplets right")
            if affinity["fitted"] is not None:
                print(f"fitted distances (--smooth-latencies) have {affinity['fitted']:.1%} right")
        for entry, baseline_lines in zip(document.get("checks", []), report.baseline_lines, strict=True):
            show_check(entry)
            print_lines(*baseline_lines)
        if (host_costs := document.get("host_costs")) is not None:
            calibration.show_host_costs(host_costs)
    if to_file:
        say(f"check -> {target}")
    if request.calibrate:
        say(f"host costs -> {request.network_file or workspace.NETWORK}")
    if failures:
        falls_short = any(case.ok is False for case in report.cases)
        raise (PlinkError if falls_short else NoAnswer)("; ".join(failures))


def affinity_of(network: Network, levels: Any, seed: int) -> dict[str, Any]:
    """Return PAIA of the measured and of the fitted distances, None where there is none.

    :param levels: shape (N, N), how many levels apart two hosts truly are.
    """
    measured = network.rtt_us
    truth = np.where(levels == UNKNOWN, np.nan, levels.astype(float))
    fitted: Matrix | None
    try:
        names = network.hosts.names
        fitted = embed(network.latency_us, seed=seed, device=device_for("auto", len(names)), names=names).fitted_us
    except NoAnswer as error:
        say(f"no fitted distances: {error}")
        fitted = None

    def share(distances: "Matrix | None") -> float | None:
        value = math.nan if distances is None else paia(distances, truth)
        return None if math.isnan(value) else round(value, 6)

    return {"triplets": triplets(truth), "measured": share(measured), "fitted": share(fitted)}
