"""Measure a few pairs without changing the session's results: trials of a method, and outliers again."""

from dataclasses import replace

import numpy as np

from probes.measurements import Measurements
from probes.methods import MeasurementContext, probe_task
from probes.session import ProbeSession


def remeasure(
    session: ProbeSession, pairs: list[tuple[int, int]], count: int, method: str = "stamp"
) -> dict[tuple[int, int], float]:
    """Return the 10th percentile of both directions of every pair that was measured both ways, microseconds.

    The pairs need not be disjoint: the scheduler runs those that share a host one after the other.
    """
    scratch = Measurements(session.measurements.hosts)
    # SSIDs continue those of the session: an agent never sees one twice.
    settings = replace(session.context.settings, count=count)
    context = MeasurementContext(settings, session.agents, scratch, session.context.ssids)
    session.scheduler.run([probe_task(context, method, *pair) for pair in dict.fromkeys(pairs)])
    directions = [direction for i, j in pairs for direction in ((i, j), (j, i))]
    return {
        (i, j): float(scratch.latency[i, j])
        for i, j in directions
        if not np.isnan(scratch.latency[i, j] + scratch.latency[j, i])
    }
