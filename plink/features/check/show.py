"""Tables and lines of a check."""

import statistics
from collections.abc import Iterator

from plink.features.check.run import CheckReport
from plink.model.check import US_PER_S, CalibratedHosts, CalibratedLibrary, CollectiveCheck
from plink.model.network_file import format_host_costs, format_library_costs
from plink.model.units import format_bytes, format_us
from plink.terminal.screen import print_lines, show_table


def print_report(report: CheckReport) -> None:
    """Print the results of a check."""
    if report.affinity:
        affinity, measured, fitted = report.affinity, report.affinity.measured, report.affinity.fitted
        if measured is not None:
            others = affinity.triplets - affinity.measured_triplets
            rest = f"; {others:,} more have a pair that was not measured" if others else ""
            print(f"measured distances have {measured:.1%} of {affinity.measured_triplets:,} triplets right{rest}")
        if fitted is not None:
            fitted_triplets = affinity.fitted_triplets or 0
            of = (
                ""
                if fitted_triplets == affinity.measured_triplets
                else f" of {fitted_triplets:,}, with unmeasured pairs,"
            )
            print(f"fitted distances (--smooth-latencies) have {fitted:.1%}{of} right")
    for check, cases in report.checks:
        _show_orders(check)
        print_lines(*_lines(check), *(case.text for case in cases[1:]))  # the first one is that of the correlation
    for costs in ([report.host_costs] if report.host_costs else []) + list(report.library_costs or ()):
        print_lines(*_cost_lines(costs))


def _show_orders(check: CollectiveCheck) -> None:
    """Print the orders of a check."""
    size = "" if check.size_bytes is None else f", {format_bytes(int(check.size_bytes))}"
    model = "" if check.model is None else f", model {check.model}"
    has_times = check.calibration is not None
    rows = []
    for timing in check.runs:
        predicted_us, median_us = timing.predicted_us or 0.0, statistics.median(timing.achieved_s) * US_PER_S
        ratio = [f"{median_us / predicted_us:.2f}"] if has_times else []
        rows.append((timing.order, format_us(predicted_us), format_us(median_us), *ratio))
    columns = ("order", "predicted", "measured", *(["ratio"] if has_times else []))
    show_table(columns, rows, f"{check.algo or 'runs'}{size}{model}", boxed=True)


def _lines(check: CollectiveCheck) -> Iterator[str]:
    interval = "too few different costs for an interval" if check.interval is None else _interval(check.interval)
    attainable = f"; equal costs allow {check.attainable:.3f} at most" if check.attainable else ""
    yield f"Spearman's rank correlation: {check.spearman:.3f} ({interval}) of {check.orders} orders{attainable}"
    if (fit := check.calibration) is not None:
        yield f"measured times are {fit.factor:.2f} of predicted ({fit.low:.2f} to {fit.high:.2f})"
    if (gain := check.gain) is not None:
        spread = "" if gain.interval is None else f" ({_interval(gain.interval)})"
        yield f"the order with the lowest cost is {gain.gain:.2f} times as fast as the median order{spread}"


def _interval(interval: tuple[float, float]) -> str:
    return f"95 %: {interval[0]:.2f} to {interval[1]:.2f}"


def _cost_lines(costs: CalibratedHosts | CalibratedLibrary) -> Iterator[str]:
    """Yield the fitted costs, and every timing beside its fit."""
    text = format_host_costs(costs) if isinstance(costs, CalibratedHosts) else format_library_costs(costs)
    yield f"{text}; the fit is off by {costs.error:.1%} in the median"
    for row in costs.fitted:
        yield (
            f"  {row.algo}, {format_bytes(int(row.size_bytes))}: {format_us(row.measured_us)} measured, "
            f"{format_us(row.fitted_us)} fitted"
        )
