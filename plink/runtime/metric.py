"""Report a program's own metric, which ``plink compare`` compares orders by."""

import json
import math

METRIC_KEY = "plink_metric"


def report_metric(value: float, unit: str = "s") -> None:
    """Print a metric of the program, such as the seconds of a step, as a line of JSON that ``plink compare`` reads.

    Call it as often as you like, on any rank; the median of the first rank that calls it counts.

    :raises ValueError: for a value that is not above 0 and finite.
    """
    if not 0 < value < math.inf:
        raise ValueError(f"a metric must be above 0 and finite, not {value!r}")
    print(json.dumps({METRIC_KEY: value, "unit": unit}), flush=True)
