"""Measure a few pairs once more without touching what was found: trials before a survey, suspects after it."""

from dataclasses import replace

import numpy as np

from probes.measurements import Measurements
from probes.methods import Work, errand
from probes.survey import Survey


def measure_again(
    survey: Survey, pairs: list[tuple[int, int]], count: int, method: str = "stamp"
) -> dict[tuple[int, int], float]:
    """The larger of both directions' 10th percentile, microseconds, of every pair that answered both ways.

    The pairs need not be disjoint; the conductor keeps hosts apart.
    """
    scratch = Measurements(survey.found.hosts)
    # The session numbers go on from the survey's own: an agent never sees one twice.
    work = Work(replace(survey.work.settings, count=count), survey.ready, scratch, survey.work.ssids)
    survey.conductor.run([errand(work, method, *pair) for pair in dict.fromkeys(pairs)])
    found = {(i, j): np.maximum(scratch.latency[i, j], scratch.latency[j, i]) for i, j in pairs}
    return {pair: float(value) for pair, value in found.items() if not np.isnan(value)}
