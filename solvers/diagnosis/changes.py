"""Severity of a change between two networks: the judgement of a diagnosis, applied to what got worse."""

from solvers.changes.network_change import WORSE, NetworkChange
from solvers.diagnosis.finding import Severity, severity_of_loss, severity_of_ratio


def severity_of_change(change: NetworkChange) -> Severity:
    """Return how severe a change is: info unless it got worse.

    Pairs that can no longer be measured are an error: a job between them fails.
    """
    if change.verdict != WORSE:
        return Severity.INFO
    if change.what == "loss":
        return severity_of_loss(change.new)
    if change.what == "unmeasured":
        return Severity.ERROR
    times = (change.old, change.new) if change.what == "latency" else (change.new, change.old)
    return severity_of_ratio(times[1] / times[0]) if times[0] > 0 else Severity.ERROR
