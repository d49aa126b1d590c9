"""Run a job in the hosts file's order and in plink's order, alternately, and estimate the gain (``plink compare``).

Imported by that command, when it runs: it needs the runners and the solvers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plink.api.recording import RecordRequest
from plink.cli.launching import JobSetup, report_failure, run
from plink.cli.metrics import metric_from
from plink.cli.screen import print_json, say
from plink.errors import PlinkError, UsageError
from plink.model.storage import write_document
from plink.records import workspace
from solvers.gain import CONFIDENCE, paired_gain

SCHEMA = "plink.compare/1"
RESULT = workspace.FOLDER / "compare.json"
_MAX_LINES_PER_RANK = 2000


@dataclass(frozen=True)
class ComparisonRequest:
    """A paired comparison. ``pairs``: how often each order is run; ``metric``: where the program reports how it did,
    None: how long the job took."""

    pairs: int
    metric: str | None
    higher_is_better: bool


def compare_orders(setup: JobSetup, comparison: ComparisonRequest) -> None:
    """Run both orders alternately and print the gain with its interval.

    :raises UsageError: when there is nothing to compare. :raises PlinkError: when a run fails or reports no metric.
    """
    if setup.baseline.names == setup.hosts.names:
        raise UsageError("plink's order is the given one: there is nothing to compare")
    orders = {"given": setup.baseline, "plink": setup.hosts}
    values: dict[str, list[float]] = {order_name: [] for order_name in orders}
    runs: list[dict[str, Any]] = []
    for pair in range(comparison.pairs):
        # Turn and turn about, so that what drifts with time favours neither.
        for order_name in list(orders) if pair % 2 == 0 else list(orders)[::-1]:
            run_id, value = _run_once(replace(setup, hosts=orders[order_name]), order_name, pair, comparison)
            values[order_name].append(value)
            runs.append({"order": order_name, "pair": pair, "value": value, "id": run_id})
            say(f"{order_name:>5}, {pair + 1} of {comparison.pairs}: {value:g}")
    document = _document(comparison, values, runs)
    workspace.prepare()
    write_document(RESULT, document)
    if setup.options.as_json:
        print_json(document)
    else:
        _show(document)


def _run_once(setup: JobSetup, order_name: str, pair: int, comparison: ComparisonRequest) -> tuple[str, float]:
    """Run the job once and return its run id and its metric."""
    printed: dict[int, list[str]] = {}

    def record_line(rank: int | None, stream: str, line: str) -> None:
        if rank is not None and stream == "out":
            lines = printed.setdefault(rank, [])
            lines.append(line)
            del lines[:-_MAX_LINES_PER_RANK]

    log_dir = None if setup.options.log_dir is None else setup.options.log_dir / f"{order_name}-{pair + 1}"
    record = RecordRequest(log_dir, {"python": setup.options.python, "compared": order_name})
    result = run(replace(setup, request=replace(setup.request, record=record)), record_line)
    if result.exit_code:
        failure = report_failure(result)
        raise PlinkError(f"in {order_name} order {failure}; `plink runs show {result.id}` shows more")
    if comparison.metric is None:
        return result.id, result.seconds
    parse_metric = metric_from(comparison.metric)
    for rank in sorted(printed):
        if (value := parse_metric(printed[rank])) is not None:
            if not 0 < value < math.inf:
                raise PlinkError(
                    f"--metric {comparison.metric}: the run {result.id} reports {value:g}; gains need more than 0"
                )
            return result.id, value
    raise PlinkError(
        f"--metric {comparison.metric}: no rank of the run {result.id} printed one; `plink runs show {result.id}`"
    )


def _document(
    comparison: ComparisonRequest, values: Mapping[str, list[float]], runs: list[dict[str, Any]]
) -> dict[str, Any]:
    gain = paired_gain(values["given"], values["plink"], comparison.higher_is_better)
    return {
        "schema": SCHEMA,
        "metric": comparison.metric,
        "higher_is_better": comparison.higher_is_better,
        "pairs": comparison.pairs,
        "gain": round(gain.gain, 4),
        "interval": None if gain.low is None or gain.high is None else [round(gain.low, 4), round(gain.high, 4)],
        "confidence": CONFIDENCE,
        "runs": runs,
    }


def _show(document: dict[str, Any]) -> None:
    import statistics

    for order_name in ("given", "plink"):
        order_values = [run["value"] for run in document["runs"] if run["order"] == order_name]
        print(f"{order_name:>5} order: median {statistics.median(order_values):g} of {len(order_values)}")
    interval = document["interval"]
    if interval is None:
        print(f"gain {document['gain']:.2f} times; one pair of runs has no interval; use --pairs 5")
        return
    low, high = interval
    print(f"gain {document['gain']:.2f} times, {document['confidence']:.0%} between {low:.2f} and {high:.2f}")
    if low <= 1 <= high:
        print(f"that is within the noise of {document['pairs']} pairs: no significant difference between the orders")
