"""The page of 512 hosts: how large it is, how long Chromium takes to open it, and how long plink takes to draw it.

A cloud of three tiers, measured with noise, an order for a ring and an embedding. Opening is from the request until the
page is loaded and painted, in a browser that runs already; the median of several times.
"""

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.clouds import three_tier
from benchmarks.record import Bar, record
from plink.features.report.data import ReportData, Route
from plink.features.report.page import page
from plink.features.report.request import ReportRequest
from plink.features.report.run import report_data_of, with_map
from solvers.grouping.even import leaves
from tests.features.report.chromium import PROGRAM, chromium

_HOSTS = (64, 512)
_TIMES = 9
_SECONDS, _MEGABYTES = 3.0, 8.0


def facts_for(hosts: int) -> ReportData:
    """Return what there is to show of such a cloud; the order is that of the leaves of its hierarchy."""
    cloud = three_tier(hosts, 0)
    network = cloud.network(np.random.default_rng(0))
    order = leaves(cloud.rtt_us)
    hops = np.stack([order, np.roll(order, 1)], axis=1)
    data = with_map(network, report_data_of(network, ReportRequest()), ReportRequest())
    return replace(data, route=Route("ring", order, hops, None))


def main() -> int:
    """Run and record; the exit code."""
    if PROGRAM is None:
        print("needs chromium", file=sys.stderr)
        return 1
    figures: dict[str, dict[str, object]] = {}
    bars = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, chromium(Path(folder)) as browser:
        for hosts in _HOSTS:
            data = facts_for(hosts)
            began = time.perf_counter()
            text = page(data)
            drew = time.perf_counter() - began
            path = Path(folder) / f"{hosts}.html"
            path.write_text(text)
            opened = [browser.open(path) for _ in range(_TIMES)]
            megabytes, seconds = len(text.encode()) / 1e6, statistics.median(opened)
            figures[str(hosts)] = {
                "megabytes": round(megabytes, 3),
                "seconds_to_draw": round(drew, 2),
                "seconds_to_open": [round(value, 3) for value in opened],
                "complaints": browser.console_messages,
            }
            bars += [
                Bar(f"megabytes, {hosts} hosts", round(megabytes, 3), at_most=_MEGABYTES),
                Bar(f"seconds to open in Chromium, {hosts} hosts", round(seconds, 3), at_most=_SECONDS),
            ]
        bars.append(Bar("complaints of the console", len(browser.console_messages), at_most=0))
    return record("report", {"hosts": _HOSTS, "times": _TIMES}, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
