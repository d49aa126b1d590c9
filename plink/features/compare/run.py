"""Run a job in the hosts file's order and in plink's order, alternately, and estimate the gain (``plink compare``).

Imported by that command, when it runs: it needs the runners and the solvers.
"""

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from plink.errors import PlinkError, UsageError
from plink.features.compare.request import CompareRequest
from plink.features.launch.run import RecordRequest
from plink.features.launch.session import JobSetup, report_failure, run
from plink.model.hosts import Hosts
from plink.model.run import ComparedRun, ComparedTraffic, OrderComparison, OrderName
from plink.model.units import format_us
from plink.records import workspace
from plink.runtime.step_report import METRIC_KEY
from plink.terminal.screen import print_json, print_lines, say, show_table
from solvers.gain import CONFIDENCE, paired_gain

_Parser = Callable[[Sequence[str]], float | None]
# What programs call the time of a step; their other figures (loss, accuracy) do not depend on the order.
_STEP_NAME = r"(?:(?:avg|average|mean|median)[ _]?)?(?:step|iter|iteration|batch|epoch)s?"
_TIME_NAME = re.compile(rf"(?i:{_STEP_NAME}[ _]?(?:time|duration)?(?:[ _](s|sec|secs|seconds|ms|us))?)")
_TEXT = re.compile(
    rf"(?i:\b{_STEP_NAME}[ _](?:time|duration)(?:[ _](?:s|ms|us))?\s*[:=]\s*([0-9.e+-]+)\s*(s|sec|ms|us)?\b)"
)
_REGULAR = re.compile(r"\\|[.\]][*+?]|\[\^?\w-\w")  # in no key of JSON
_NUMBER_NAME = re.compile(rf"(?i:{_STEP_NAME})")
_UNITS = {"s": "s", "sec": "s", "secs": "s", "seconds": "s", "ms": "ms", "us": "us"}


SCHEMA = "plink.compare/1"
RESULT = workspace.FOLDER / "compare.json"
_MAX_LINES_PER_RANK = 2000


@dataclass(frozen=True)
class Metric:
    """Where a program's metric is: its name, its unit if known, and a function that parses it from lines."""

    name: str
    unit: str | None
    parse: _Parser


def metric_from(pattern: str) -> Metric:
    """Return the metric that a user names: the last in the lines counts.

    ``pattern``: a regular expression whose one group is the metric, or the key of a JSON line (``{"step_s": 0.31}``),
    whose value is a number, or a list of numbers of which the median counts.

    :raises UsageError: for a regular expression that is none, or has not one group.
    """
    if "(" not in pattern and _REGULAR.search(pattern):
        raise UsageError(f"--metric {pattern}: it has no group; one must hold the metric, like 'loss: ([0-9.]+)'")
    if "(" not in pattern:
        return Metric(pattern, _unit_of(pattern), lambda lines: _last(lines, lambda line: _from_json(line, pattern)))
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--metric {pattern}: that is no regular expression ({error})") from None
    if expression.groups != 1:
        raise UsageError(f"--metric {pattern}: it has {expression.groups} groups; one must hold the metric")
    return Metric(pattern, None, lambda lines: _last(lines, lambda line: _from_text(line, expression)))


def detected_metric(lines: Sequence[str]) -> Metric | None:
    """Return the metric that one rank's output has: of ``plink.report_metric``, else the time of a step in lines of
    JSON or of text. The median of all lines counts.
    """
    return next((metric for metric in _candidates(lines) if (metric.parse(lines) or 0) > 0), None)


def _candidates(lines: Sequence[str]) -> Iterator[Metric]:
    """Yield metrics that lines may have, the last line first; their numbers need not be valid."""
    documents = [document for line in reversed(lines) if (document := _object(line)) is not None]
    for document in documents:
        if METRIC_KEY in document:
            unit = document.get("unit")
            unit = unit if isinstance(unit, str) else None
            yield Metric("plink.report_metric", unit, lambda lines: _of_key(lines, METRIC_KEY))
            break
    for key in dict.fromkeys(key for document in documents for key in document):
        if _TIME_NAME.fullmatch(key) and not _NUMBER_NAME.fullmatch(key):
            yield Metric(key, _unit_of(key), lambda lines, key=key: _of_key(lines, key))  # type: ignore[misc]
    for line in reversed(lines):
        if match := _TEXT.search(line):
            name = re.split(r"[:=]", match.group(0))[0].strip()
            yield Metric(name, _UNITS.get((match.group(2) or "").lower()) or _unit_of(name), _of_text)
            return


def _of_key(lines: Sequence[str], key: str) -> float | None:
    """Return the median of the values of a key in lines of JSON."""
    return _median(value for line in lines if (value := _from_json(line, key)) is not None)


def _of_text(lines: Sequence[str]) -> float | None:
    """Return the median of the times of a step in lines of text."""
    values = []
    for line in lines:
        if match := _TEXT.search(line):
            try:
                values.append(float(match.group(1)))
            except ValueError:
                continue
    return _median(values)


def _median(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return statistics.median(numbers) if numbers else None


def _unit_of(name: str) -> str | None:
    """Return the unit that the end of a name says."""
    return _UNITS.get(re.split(r"[ _]", name.lower())[-1])


def _object(line: str) -> dict[str, Any] | None:
    """Return the JSON object that a line is, None where it is none."""
    try:
        document = json.loads(line) if line.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _last(lines: Sequence[str], read: Callable[[str], float | None]) -> float | None:
    return next((value for line in reversed(lines) if (value := read(line)) is not None), None)


def _from_text(line: str, expression: re.Pattern[str]) -> float | None:
    matches = expression.findall(line)
    try:
        return float(matches[-1]) if matches else None
    except ValueError:
        raise UsageError(f"--metric {expression.pattern}: {str(matches[-1])[:40]!r} is no number") from None


def _from_json(line: str, key: str) -> float | None:
    value = (_object(line) or {}).get(key)
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(item, bool) or not isinstance(item, int | float) for item in values):
        return None
    try:
        return float(statistics.median(values))
    except OverflowError:  # whole numbers of JSON know no limit
        return None


_RUN_SECONDS = Metric("time of whole runs", "s", lambda lines: None)


ByTraffic = Callable[[Mapping[OrderName, Sequence[str]]], Sequence[ComparedTraffic]]


def compare_orders(setup: JobSetup, comparison: CompareRequest, by_traffic: ByTraffic | None = None) -> None:
    """Run both orders alternately and print the gain with its interval.

    :param by_traffic: what the traffic of a mesh took, from what the ranks of an order's runs printed.
    :raises PlinkError: when a run fails or reports no metric.
    """
    if setup.baseline.names == setup.hosts.names:
        say("plink's order is the given one: there is nothing to compare")
        return
    orders: dict[OrderName, Hosts] = {"given": setup.baseline, "plink": setup.hosts}
    values: dict[str, list[float]] = {order_name: [] for order_name in orders}
    lines: dict[OrderName, list[str]] = {order_name: [] for order_name in orders}
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
                lines[order_name] += [line for rank in sorted(printed) for line in printed[rank]]
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
    document = _document(comparison, metric, values, runs)
    _report(setup, document if by_traffic is None else structs.replace(document, traffic=tuple(by_traffic(lines))))


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
    if document.traffic:
        _show_traffic(document.traffic)


def _show_traffic(traffic: Sequence[ComparedTraffic]) -> None:
    rows = [
        (each.traffic, *("" if value is None else format_us(value * 1e6) for value in columns))
        for each in traffic
        for columns in [(each.given_s, each.given_predicted_s, each.plink_s, each.plink_predicted_s)]
    ]
    show_table(("traffic of a step", "given", "predicted", "plink", "predicted"), rows)
