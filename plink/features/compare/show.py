"""What ``plink compare`` prints."""

import statistics
from collections.abc import Sequence

from plink.features.compare.metric import RUN_SECONDS, Metric
from plink.model.run import ComparedTraffic, OrderComparison
from plink.model.units import format_us
from plink.terminal.screen import print_lines, show_table


def show_comparison(document: OrderComparison) -> None:
    """Print the medians of both orders, the gain with its interval, and a mesh's traffic."""
    metric = RUN_SECONDS if document.metric is None else Metric(document.metric, document.unit, lambda lines: None)
    for order_name in ("given", "plink"):
        values = [run.value for run in document.runs if run.order == order_name]
        median = metric.shown(statistics.median(values))
        print_lines(f"{order_name:>5} order: {metric.name} {median}, median of {len(values)}")
    interval = document.interval
    if interval is None:
        print(f"gain {document.gain:.2f} times; one pair of runs has no interval; use --pairs 5")
    else:
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
