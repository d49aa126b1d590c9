"""Run a job in the hosts file's order and in plink's order, alternately, and estimate the gain (``plink compare``).

Imported by that command, when it runs: it needs the runners and the solvers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from plink.errors import PlinkError
from plink.features.compare.metrics import Metric, detected_metric, metric_from
from plink.features.compare.request import CompareRequest
from plink.features.launch.recording import RecordRequest
from plink.features.launch.session import JobSetup, report_failure, run
from plink.model.hosts import Hosts
from plink.model.run import ComparedRun, OrderComparison, OrderName
from plink.records import workspace
from plink.terminal.screen import print_json, print_lines, say
from solvers.gain import CONFIDENCE, paired_gain

RESULT = workspace.FOLDER / "compare.json"
_MAX_LINES_PER_RANK = 2000
_RUN_SECONDS = Metric("time of whole runs", "s", lambda lines: None)


def compare_orders(setup: JobSetup, comparison: CompareRequest) -> None:
    """Run both orders alternately and print the gain with its interval.

    :raises PlinkError: when a run fails or reports no metric.
    """
    if setup.baseline.names == setup.hosts.names:
        say("plink's order is the given one: there is nothing to compare")
        return
    orders: dict[OrderName, Hosts] = {"given": setup.baseline, "plink": setup.hosts}
    values: dict[str, list[float]] = {order_name: [] for order_name in orders}
    runs: list[ComparedRun] = []
    metric = None if comparison.metric is None else metric_from(comparison.metric)
    try:
        for pair in range(comparison.pairs):
            # Turn and turn about, so that what drifts with time favours neither.
            for order_name in list(orders) if pair % 2 == 0 else list(orders)[::-1]:
                run_id, seconds, printed = _run_once(replace(setup, hosts=orders[order_name]), order_name, pair)
                setup = replace(setup, request=replace(setup.request, preflight=None))  # once, before the first run
                if metric is None:
                    metric = _metric_of(printed)
                value = seconds if metric is _RUN_SECONDS else _parsed(metric, printed, run_id)
                values[order_name].append(value)
                runs.append(ComparedRun(order=order_name, pair=pair, value=value, id=run_id))
                say(f"{order_name:>5}, {pair + 1} of {comparison.pairs}: {_shown(value, metric)}")
    except (KeyboardInterrupt, PlinkError):
        pairs = len(runs) // 2
        outcome = f"the result is that of {pairs} of {comparison.pairs} pairs" if pairs else "there is no result yet"
        say(f"stopped after {len(runs)} runs: {outcome}; `plink runs` lists the runs; the same command starts anew")
        if metric is not None and pairs:
            _report(setup, _document(replace(comparison, pairs=pairs), metric, values, runs[: 2 * pairs]))
        raise
    assert metric is not None  # there is one pair at least
    _report(setup, _document(comparison, metric, values, runs))


def _report(setup: JobSetup, comparison: OrderComparison) -> None:
    workspace.prepare()
    comparison.write(RESULT)
    if setup.options.as_json:
        print_json(comparison.to_json())
    else:
        _show(comparison)


def _metric_of(printed: Mapping[int, Sequence[str]]) -> Metric:
    """Return the metric that the output of the first run has, or that of whole runs, and say which."""
    for rank in sorted(printed):
        metric = detected_metric(printed[rank])
        if metric is not None:
            unit = f" in {metric.unit}" if metric.unit else ""
            say(f"compared by {metric.name}{unit}, which rank {rank} prints (--metric selects another)")
            return metric
    say(
        "warning: compared by the time of whole runs, start-up and imports included, for the output has no time of a "
        "step; call plink.report_metric(seconds) in the program, or give --metric"
    )
    return _RUN_SECONDS


def _parsed(metric: Metric, printed: Mapping[int, Sequence[str]], run_id: str) -> float:
    """Return the metric of the first rank that prints it.

    :raises PlinkError: when none does, or it cannot be compared.
    """
    for rank in sorted(printed):
        if (value := metric.parse(printed[rank])) is not None:
            if not 0 < value < math.inf:
                raise PlinkError(f"--metric {metric.name}: the run {run_id} reports {value:g}; gains need more than 0")
            return value
    raise PlinkError(f"--metric {metric.name}: no rank of the run {run_id} printed one; `plink runs show {run_id}`")


def _shown(value: float, metric: Metric) -> str:
    return f"{value:.4g} {metric.unit}" if metric.unit else f"{value:g}"


def _run_once(setup: JobSetup, order_name: str, pair: int) -> tuple[str, float, dict[int, list[str]]]:
    """Run the job once and return its run id, how long it took, and what each rank printed last."""
    printed: dict[int, list[str]] = {}

    def record_line(rank: int | None, stream: str, line: str) -> None:
        if rank is not None and stream == "out":
            lines = printed.setdefault(rank, [])
            lines.append(line)
            del lines[:-_MAX_LINES_PER_RANK]

    log_dir = None if setup.options.log_dir is None else setup.options.log_dir / f"{order_name}-{pair + 1}"
    compared = f"{order_name} ({setup.options.algo or 'ring'})" if order_name == "plink" else order_name
    note = {"python": setup.options.python, "order": compared, "compared": order_name}
    record = RecordRequest(log_dir, note)
    result = run(replace(setup, request=replace(setup.request, record=record)), record_line)
    if result.exit_code:
        failure = report_failure(result)
        raise PlinkError(f"in {order_name} order {failure}; `plink runs show {result.id}` shows more")
    return result.id, result.seconds, printed


def _document(
    comparison: CompareRequest, metric: Metric, values: Mapping[str, list[float]], runs: list[ComparedRun]
) -> OrderComparison:
    baseline, optimised = (values[name][: comparison.pairs] for name in ("given", "plink"))
    gain = paired_gain(baseline, optimised, comparison.higher_is_better)
    return OrderComparison(
        metric=None if metric is _RUN_SECONDS else metric.name,
        unit=metric.unit,
        higher_is_better=comparison.higher_is_better,
        pairs=comparison.pairs,
        gain=round(gain.gain, 4),
        interval=None if gain.low is None or gain.high is None else (round(gain.low, 4), round(gain.high, 4)),
        confidence=CONFIDENCE,
        runs=tuple(runs),
    )


def _show(document: OrderComparison) -> None:
    import statistics

    metric = Metric(document.metric or "time of whole runs", document.unit, lambda lines: None)
    for order_name in ("given", "plink"):
        values = [run.value for run in document.runs if run.order == order_name]
        median = _shown(statistics.median(values), metric)
        print_lines(f"{order_name:>5} order: {metric.name} {median}, median of {len(values)}")
    interval = document.interval
    if interval is None:
        print(f"gain {document.gain:.2f} times; one pair of runs has no interval; use --pairs 5")
        return
    low, high = interval
    print(f"gain {document.gain:.2f} times, {document.confidence:.0%} between {low:.2f} and {high:.2f}")
    if low <= 1 <= high:
        print(f"that is within the noise of {document.pairs} pairs: no significant difference between the orders")
