"""Summarise a search for an order in lines of text.

Imported by commands that solve, when they run: it needs the solvers.
"""

from plink.api.ordering import Solved
from plink.model.units import format_us

_MAX_GAP = 1.0  # a bound that is further off says nothing
_OBJECTIVE_TEXT = {"sum": "sum of round trips", "bottleneck": "longest round trip"}


def summary(solved: Solved) -> list[str]:
    """Return the lines of a summary: costs and bound, notes, then the gain against the noise."""
    task, result = solved.task, solved.result
    costs = [format_us(cost) for cost in (result.baseline_cost, result.cost, result.random_median)]
    line = (
        f"{task.algo} of {len(task.hosts)} hosts, {_OBJECTIVE_TEXT.get(result.objective, f'model {task.model}')}: "
        f"given {costs[0]}, found {costs[1]}, median of random orders {costs[2]}"
    )
    if result.lower_bound is not None and (result.lower_bound > 0 or result.cost == 0):
        of = " of measured pairs" if solved.sparse else ""
        bound = format_us(result.lower_bound)
        line += (
            f"; estimated bound {bound}, from predicted pairs"
            if solved.estimated
            else f"; no order{of} costs less than {bound}"
        )
        if not solved.estimated and result.is_optimal:
            line += " (optimal)"
        elif not solved.estimated and bound != costs[1] and result.gap is not None and result.gap <= _MAX_GAP:
            line += f" (found is at most {result.gap:.2%} above the best)"
    lines = [line, *solved.notes]
    validation = solved.validation
    if validation is not None and solved.changed and (validation.gain or validation.predicted):
        interval = "{:.1%} to {:.1%}".format(*validation.interval)
        cost = _OBJECTIVE_TEXT.get(result.objective, "predicted time")
        share = f"{validation.gain:.1%} ({interval}) of the {cost}"
        gain_text = f"found by half of the measurements and checked on the other it saves {share}"
        if not validation.is_significant:
            gain_text += ": within the noise"
            if solved.baseline_kept:
                gain_text += ", so the given order is kept (--force takes the found one)"
            elif solved.baseline_problem is not None:
                gain_text += f"; the given order is not kept, for {solved.baseline_problem}"
        lines.append(gain_text)
    return lines
