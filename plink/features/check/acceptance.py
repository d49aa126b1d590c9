"""Evaluate benchmark runs, and judge them by the limits of a check."""

import statistics
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from plink.errors import InputError, NoAnswer
from plink.features.check.request import CheckRequest
from plink.model.check import (
    US_PER_S,
    BaselineComparison,
    BenchmarkRun,
    CollectiveCheck,
    CostCalibration,
    StatedGain,
    read_benchmark_runs,
)
from plink.model.document import UNSET
from plink.terminal.junit import Case
from solvers.checking import (
    Correlation,
    calibration,
    gain_of_best,
    rank_correlation,
    ranks_worse,
    slower,
    too_few_rankings,
)

_TOLERANCE = 0.1  # share by which the cheapest order may take longer


def evaluate(
    run: BenchmarkRun, request: CheckRequest, baseline: tuple[BenchmarkRun, ...], seconds: float = 0.0
) -> tuple[CollectiveCheck, list[Case]]:
    """Return how well the model ranked the orders of a run, and a test case for each limit.

    :param baseline: the runs of an earlier check, none without a limit. :param seconds: what the run took.
    :raises NoAnswer: when a correlation cannot be had. :raises InputError: for times that are none.
    """
    # As the document has them.
    predicted = [round(cost, 3) for cost in _predicted(run)]
    medians = [statistics.median(timing.achieved_s) for timing in run.runs]
    correlation = rank_correlation(predicted, medians)
    evaluated = CollectiveCheck(
        **structs.asdict(run)
        | {
            "groups": run.groups or UNSET,
            "runs": tuple(
                structs.replace(timing, hosts=timing.hosts or UNSET, predicted_us=cost)
                for timing, cost in zip(run.runs, predicted, strict=True)
            ),
        },
        spearman=round(correlation.spearman, 4),
        interval=_rounded(correlation.low, correlation.high),
        orders=correlation.orders,
        attainable=round(correlation.attainable, 4) if correlation.attainable < 1 else UNSET,
        calibration=_calibration(run, predicted, medians),
        gain=_gain(run, predicted),
    )
    cases = [_spearman_case(run, predicted, correlation, request.min_spearman, seconds)]
    if baseline:
        baseline_run = next((each for each in baseline if _collective(each) == _collective(run)), None)
        tolerance = _TOLERANCE if request.tolerance is None else request.tolerance
        comparison, more = _baseline_cases(run, baseline_run, correlation, tolerance)
        evaluated, cases = structs.replace(evaluated, baseline=comparison), cases + more
    return evaluated, cases


def baseline_from(path: Path) -> tuple[BenchmarkRun, ...]:
    """Read an earlier check to compare with, and validate it before anything is run.

    :raises InputError: when it cannot be read, or nothing can be compared with it.
    """
    runs = read_benchmark_runs(path)
    for run in runs:
        try:
            _correlation(run)
        except (InputError, NoAnswer) as error:
            raise InputError(f"--max-regression {path}", f"{_suite(run)} is no baseline: {error}") from None
    return runs


def _rounded(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (round(low, 4), round(high, 4))


def _correlation(run: BenchmarkRun) -> Correlation:
    return rank_correlation(_predicted(run), [statistics.median(timing.achieved_s) for timing in run.runs])


def _predicted(run: BenchmarkRun) -> list[float]:
    """Return the predicted cost of every order.

    :raises NoAnswer: where there is none. :raises InputError: for a measured time that is none.
    """
    predicted = []
    for timing in run.runs:
        if timing.predicted_us is None:
            if run.algo is None or run.size_bytes is None or not timing.hosts:  # no cost without these
                raise NoAnswer(f"nothing was predicted of order {timing.order}: predicted_us is null in the file")
            raise NoAnswer(f"nothing was predicted of order {timing.order}; give the NETWORK that it was run on")
        if not min(timing.achieved_s) > 0:
            raise InputError(f"order {timing.order}", "a run takes more than 0 seconds")
        predicted.append(timing.predicted_us)
    return predicted


def _gain(run: BenchmarkRun, predicted: list[float]) -> StatedGain | None:
    """Return what the cheapest order gains, None where orders were repeated differently often."""
    if len({len(timing.achieved_s) for timing in run.runs}) > 1:
        return None
    gain = gain_of_best(predicted, np.array([timing.achieved_s for timing in run.runs]))
    return StatedGain(gain=round(gain.gain, 4), interval=_rounded(gain.low, gain.high))


def _calibration(run: BenchmarkRun, predicted: list[float], medians: list[float]) -> CostCalibration | None:
    """Return measured over predicted times, None for a model without times."""
    if run.model == "latency" or min(predicted) <= 0:
        return None
    return calibration([cost / US_PER_S for cost in predicted], medians)


def _spearman_case(
    run: BenchmarkRun, predicted: list[float], correlation: Correlation, minimum: float | None, seconds: float
) -> Case:
    text = f"Spearman's rank correlation of {correlation.orders} orders is {correlation.spearman:.3f}"
    if minimum is None:
        ok: bool | None = True
    elif (reason := too_few_rankings(predicted)) is not None:
        ok = None
        text += f", too few for --min-spearman {minimum:g}: {reason}"
    else:
        ok = correlation.spearman >= minimum * correlation.attainable
        text += f", {'' if ok else 'below '}--min-spearman {minimum:g}"
        text += f" of the {correlation.attainable:.3f} that equal costs allow" if correlation.attainable < 1 else ""
    return Case(_suite(run), "spearman", ok, text, seconds)


def _suite(run: BenchmarkRun) -> str:
    return run.algo or "runs"


def _collective(run: BenchmarkRun) -> tuple[Any, ...]:
    return run.algo, run.size_bytes, sorted(run.options)


def _baseline_cases(
    run: BenchmarkRun, baseline: BenchmarkRun | None, correlation: Correlation, tolerance: float
) -> tuple[BaselineComparison | None, list[Case]]:
    """Compare the cheapest order's time and the correlation with the baseline's, None if it has no such run. Returns
    the values and the test cases."""
    suite = _suite(run)
    if baseline is None:
        reason = f"the baseline has no run of {suite} of this size and these options to compare with"
        return None, [Case(suite, "baseline", None, reason)]
    earlier_times, times = _cheapest(baseline), _cheapest(run)
    baseline_s, current_s = statistics.median(earlier_times), statistics.median(times)
    hosts = [{name for timing in each.runs for name in timing.hosts or ()} for each in (baseline, run)]
    is_fast = slower(earlier_times, times, tolerance) is None
    time_text = (
        f"the cheapest order takes {current_s:.4g} s; {baseline_s:.4g} s in the baseline"
        f"{', which was run on other hosts' if all(hosts) and hosts[0] != hosts[1] else ''}"
        f": {current_s / baseline_s:.2f} times{'' if is_fast else f', more than {1 + tolerance:.2f}'}"
    )
    earlier = _correlation(baseline)
    is_worse = ranks_worse(earlier, correlation.spearman)
    rank_text = (
        f"Spearman's rank correlation {correlation.spearman:.3f}; {earlier.spearman:.3f} in the baseline"
        f"{', worse than tolerated' if is_worse else ''}"
    )
    comparison = BaselineComparison(
        then_s=round(baseline_s, 9),
        now_s=round(current_s, 9),
        ratio=round(current_s / baseline_s, 9),
        spearman=round(earlier.spearman, 4),
    )
    return comparison, [
        Case(suite, "time against the baseline", is_fast, time_text),
        Case(suite, "spearman against the baseline", not is_worse, rank_text),
    ]


def _cheapest(run: BenchmarkRun) -> tuple[float, ...]:
    predicted = _predicted(run)
    return run.runs[predicted.index(min(predicted))].achieved_s
