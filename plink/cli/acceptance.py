"""Evaluate the benchmark runs of ``plink check`` against its acceptance limits.

Imported when the command runs: it needs the solvers.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plink.errors import InputError, NoAnswer, printable
from plink.model.benchmark_runs import BenchmarkRun, read_benchmark_runs
from plink.model.units import format_bytes, format_us
from plink.terminal.junit import Case
from solvers.checking.agreement import MIN_ORDERS, Correlation, calibration, gain_of_best, rank_correlation
from solvers.checking.regression import Tolerance, ranks_worse, slower

_US = 1e6


@dataclass(frozen=True)
class AcceptanceLimits:
    """Acceptance limits of a check. ``minimum``: of Spearman's correlation, None for no limit; ``baseline``: the runs
    of an earlier check."""

    minimum: float | None
    baseline: tuple[BenchmarkRun, ...]
    tolerance: Tolerance


def evaluate(series: BenchmarkRun, limits: AcceptanceLimits, seconds: float = 0.0) -> tuple[dict[str, Any], list[Case]]:
    """Return one entry of ``checks``, and a test case for each limit.

    :raises NoAnswer: when a correlation cannot be had. :raises InputError: for times that are none.
    """
    costs, samples = _predicted_and_samples(series)
    predicted = [round(cost, 3) for cost in costs]  # as the document has them: equal costs are ties in both
    medians = [statistics.median(timing.achieved_s) for timing in series.orders]
    correlation = rank_correlation(predicted, medians)
    entry: dict[str, Any] = {
        "algo": series.algo,
        "model": series.model,
        "size_bytes": series.size_bytes,
        "options": list(series.options),
        **({} if series.ranks is None else {"ranks": series.ranks}),
        **({} if series.groups is None else {"groups": [list(group) for group in series.groups]}),
        "spearman": round(correlation.spearman, 4),
        "interval": None if correlation.low is None else [round(correlation.low, 4), round(correlation.high or 0.0, 4)],
        "orders": correlation.orders,
        "calibration": _calibration(series, predicted, medians),
        "gain": None,
        "runs": [
            {
                "order": timing.order,
                **({"hosts": list(timing.hosts)} if timing.hosts else {}),
                "predicted_us": cost,
                "achieved_s": list(timing.achieved_s),
            }
            for timing, cost in zip(series.orders, predicted, strict=True)
        ],
    }
    if samples is not None:
        gain = gain_of_best(predicted, samples)
        interval = None if gain.low is None or gain.high is None else [round(gain.low, 4), round(gain.high, 4)]
        entry["gain"] = {"gain": round(gain.gain, 4), "interval": interval}
    cases = [_spearman_case(series, correlation, limits.minimum, seconds)]
    if limits.baseline:
        baseline_run = next((run for run in limits.baseline if _collective(run) == _collective(series)), None)
        entry["baseline"], more = _baseline_cases(series, baseline_run, correlation, limits.tolerance)
        cases += more
    return entry, cases


def baseline_from(path: Path) -> tuple[BenchmarkRun, ...]:
    """Read an earlier check to compare with, and validate it before anything is run.

    :raises InputError: when it cannot be read, or nothing can be compared with it.
    """
    runs = read_benchmark_runs(path)
    for series in runs:
        try:
            _correlation(series)
        except (InputError, NoAnswer) as error:
            raise InputError(f"--max-regression {path}", f"{series.algo or 'runs'} is no baseline: {error}") from None
    return runs


def _correlation(series: BenchmarkRun) -> Correlation:
    return rank_correlation(
        _predicted_and_samples(series)[0], [statistics.median(timing.achieved_s) for timing in series.orders]
    )


def _predicted_and_samples(series: BenchmarkRun) -> tuple[list[float], "np.ndarray[Any, Any] | None"]:
    """Return the predicted costs and the samples, shape (orders, repetitions); None where the repetitions differ in
    number."""
    predicted = []
    for timing in series.orders:
        if timing.predicted_us is None:
            if series.algo is None or series.size_bytes is None or not timing.hosts:  # no cost without these
                raise NoAnswer(f"nothing was predicted of order {timing.order}: predicted_us is null in the file")
            raise NoAnswer(f"nothing was predicted of order {timing.order}; give the NETWORK that it was run on")
        if not min(timing.achieved_s) > 0:
            raise InputError(f"order {timing.order}", "a run takes more than 0 seconds")
        predicted.append(timing.predicted_us)
    even = len({len(timing.achieved_s) for timing in series.orders}) == 1
    return predicted, np.array([timing.achieved_s for timing in series.orders]) if even else None


def _calibration(series: BenchmarkRun, predicted: list[float], medians: list[float]) -> dict[str, float] | None:
    """Return measured over predicted times, None for a model without times."""
    if series.model == "latency" or min(predicted) <= 0:
        return None
    fit = calibration([cost / _US for cost in predicted], medians)
    return {"factor": round(fit.factor, 4), "low": round(fit.low, 4), "high": round(fit.high, 4)}


def _spearman_case(series: BenchmarkRun, correlation: Correlation, minimum: float | None, seconds: float) -> Case:
    suite = _suite(series)
    text = f"Spearman's rank correlation of {correlation.orders} orders is {correlation.spearman:.3f}"
    if minimum is None:
        return Case(suite, "spearman", True, text, seconds)
    if correlation.low is None:
        text_without_verdict = f"{text}: too few for --min-spearman {minimum:g}, which needs {MIN_ORDERS} or more"
        return Case(suite, "spearman", None, text_without_verdict, seconds)
    if correlation.spearman < minimum:
        return Case(suite, "spearman", False, f"{text}, below --min-spearman {minimum:g}", seconds)
    return Case(suite, "spearman", True, f"{text}, --min-spearman {minimum:g}", seconds)


def _suite(series: BenchmarkRun) -> str:
    return series.algo or "runs"


def _collective(series: BenchmarkRun) -> tuple[object, ...]:
    return series.algo, series.size_bytes, sorted(series.options)


def _baseline_cases(
    series: BenchmarkRun, baseline_run: BenchmarkRun | None, correlation: Correlation, tolerance: Tolerance
) -> tuple[dict[str, float] | None, list[Case]]:
    """Compare the cheapest order's time and the correlation with the baseline's, None if it has no such run. Returns
    the values and the test cases."""
    suite = _suite(series)
    if baseline_run is None:
        reason = f"the baseline has no run of {suite} of this size and these options to compare with"
        return None, [Case(suite, "baseline", False, reason)]
    baseline_times, current_times = _cheapest(baseline_run), _cheapest(series)
    baseline_s, current_s = statistics.median(baseline_times), statistics.median(current_times)
    fast = slower(baseline_times, current_times, tolerance) is None
    text = f"the cheapest order takes {current_s:.4g} s; {baseline_s:.4g} s in the baseline"
    hosts = [{name for timing in run.orders for name in timing.hosts} for run in (baseline_run, series)]
    if all(hosts) and hosts[0] != hosts[1]:
        text += ", which was run on other hosts"
    text += f": {current_s / baseline_s:.2f} times"
    if not fast:
        text += f", more than {1 + tolerance.time:.2f}"
    cases = [Case(suite, "time against the baseline", fast, text)]
    baseline_correlation = _correlation(baseline_run)
    worse = ranks_worse(baseline_correlation, correlation.spearman, tolerance)
    text = (
        f"Spearman's rank correlation {correlation.spearman:.3f}; {baseline_correlation.spearman:.3f} in the baseline"
    )
    if worse:
        text += ", worse than tolerated"
    cases.append(Case(suite, "spearman against the baseline", not worse, text))
    values = {
        "then_s": baseline_s,
        "now_s": current_s,
        "ratio": current_s / baseline_s,
        "spearman": baseline_correlation.spearman,
    }
    return {name: round(value, 4 if name == "spearman" else 9) for name, value in values.items()}, cases


def _cheapest(series: BenchmarkRun) -> tuple[float, ...]:
    predicted = _predicted_and_samples(series)[0]
    return series.orders[predicted.index(min(predicted))].achieved_s


def timed(run: Callable[[], BenchmarkRun]) -> tuple[BenchmarkRun, float]:
    """Return the result of the call and the seconds it took."""
    started = time.monotonic()
    return run(), time.monotonic() - started


def show_check(entry: dict[str, Any]) -> None:
    """Print one check as a table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    name = entry["algo"] or "runs"
    size = "" if entry["size_bytes"] is None else f", {format_bytes(int(entry['size_bytes']))}"
    model = "" if entry["model"] is None else f", model {entry['model']}"
    has_times = entry["calibration"] is not None
    table = Table("order", "predicted", "measured", *(["ratio"] if has_times else []))
    # From a file: neither rich nor the terminal obeys what stands in it.
    table.title = escape(printable(f"{name}{size}{model}"))
    for column in table.columns[1:]:
        column.justify = "right"
    for run in entry["runs"]:
        median_s = statistics.median(run["achieved_s"])
        ratio = [f"{median_s / run['predicted_us'] * _US:.2f}"] if has_times else []
        table.add_row(
            escape(printable(run["order"])), format_us(run["predicted_us"]), format_us(median_s * _US), *ratio
        )
    Console(soft_wrap=True).print(table)
    interval = entry["interval"]
    interval_text = (
        "too few orders for an interval" if interval is None else f"95 %: {interval[0]:.2f} to {interval[1]:.2f}"
    )
    print(
        f"Spearman's rank correlation: {entry['spearman']:.3f} ({interval_text}) of {entry['orders']} orders; "
        "1: times rank them as predicted"
    )
    if has_times:
        fit = entry["calibration"]
        print(f"measured times are {fit['factor']:.2f} of predicted ({fit['low']:.2f} to {fit['high']:.2f})")
    if (gain := entry["gain"]) is not None:
        spread = "" if gain["interval"] is None else f" (95 %: {gain['interval'][0]:.2f} to {gain['interval'][1]:.2f})"
        print(f"the order with the lowest cost is {gain['gain']:.2f} times as fast as the median order{spread}")
