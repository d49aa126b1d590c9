"""What was found, for people.

Imported by commands that solve, when they run: it needs the solvers.
"""

from plink.api.ordering import Solved
from plink.model.units import format_us
from solvers.ordering.exact import is_optimal

_WHAT = {"sum": "sum of round trips", "bottleneck": "longest round trip"}


def summary(solved: Solved) -> list[str]:
    """Lines for people: costs and bound, then what else there is to say, then what it is worth beyond the noise."""
    task, found = solved.task, solved.found
    costs = [format_us(cost) for cost in (found.baseline_cost, found.cost, found.random_median)]
    line = (
        f"{task.algo} of {len(task.hosts)} hosts, {_WHAT.get(found.objective, f'model {task.model}')}: "
        f"given {costs[0]}, found {costs[1]}, median of random orders {costs[2]}"
    )
    if found.lower_bound is not None and (found.lower_bound > 0 or found.cost == 0):
        of = " of measured pairs" if solved.sparse else ""
        line += f"; no order{of} under {format_us(found.lower_bound)}"
        if found.gap is not None and not is_optimal(found):
            line += f" (found is at most {found.gap:.2%} above the best)"
    lines = [line, *solved.notes]
    judged = solved.judged
    if judged is not None and solved.changed and (judged.gain or judged.predicted):
        saves = f"on samples it was not fitted to it saves {judged.gain:.1%} ({judged.low:.1%} to {judged.high:.1%})"
        if not judged.is_significant:
            saves += ": within the noise"
            if solved.kept:
                saves += ", so the given order is kept (--force takes the found one)"
            elif solved.given_cannot is not None:
                saves += f"; the given order is not kept, for {solved.given_cannot}"
        lines.append(saves)
    return lines
