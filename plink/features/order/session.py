"""A search from the command line: its status on a terminal, what is said of its result, the order where a launch finds
it."""

from collections.abc import Callable
from dataclasses import dataclass

from plink.features.order.interfaces import interface_warnings
from plink.features.order.request import OrderRequest
from plink.features.order.run import OBJECTIVE_TEXT, find_order
from plink.features.order.search import Solved
from plink.model.network import Network
from plink.model.order import RankOrder
from plink.model.units import format_us
from plink.records import workspace
from plink.terminal.screen import say, search_status, show_table

_MAX_GAP = 1.0  # a bound that is further off says nothing


@dataclass(frozen=True)
class SearchOutcome:
    """Outcome of a search. ``lines``: its summary; ``complete``: False where a requested proof is missing,
    or the order needs pairs that were not measured; ``interrupted``: the search was stopped early."""

    order: RankOrder
    lines: list[str]
    complete: bool = True
    interrupted: bool = False


def search_with_status(network: Network, request: OrderRequest, stopped: Callable[[], bool]) -> SearchOutcome:
    """Search the order to launch and show the search's status on a terminal.

    :raises PlinkError: as :func:`plink.features.order.run.reorder`.
    """
    warnings = interface_warnings(network)  # invalid interfaces are refused before a search, not after
    with search_status() as show:
        order, solved = find_order(network, request, show, stopped)
    if solved is None:
        return SearchOutcome(order, [f"{request.algo} of a single host: there is nothing to order"])
    proven = solved.result.is_optimal or solved.proven_by_rounds
    complete = (not request.prove or proven) and not solved.needs_unmeasured
    return SearchOutcome(order, [*_summary(solved), *warnings], complete, solved.interrupted)


def _summary(solved: Solved) -> list[str]:
    """Return the lines of a summary: costs and bound, notes, then the gain against the noise."""
    task, result = solved.task, solved.result
    costs = [format_us(cost) for cost in (result.baseline_cost, result.cost)]
    usual = "" if result.random_median is None else f", median of random orders {format_us(result.random_median)}"
    sorted_cost = ""
    if solved.mesh_costs is not None:
        by_group = solved.mesh_costs.by_traffic(solved.mesh_costs.sorted_by_group)
        sorted_cost = f", sorted by rack {format_us(sum(by_group))}"
    line = (
        f"{task.algo} of {len(task.hosts)} hosts, {OBJECTIVE_TEXT.get(result.objective, f'model {task.model}')}: "
        f"given {costs[0]}, found {costs[1]}{sorted_cost}{usual}"
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
        cost = OBJECTIVE_TEXT.get(result.objective, "predicted time")
        share = f"{validation.gain:.1%} ({interval}) of the {cost}"
        gain_text = f"found by half of the measurements and checked on the other it saves {share}"
        if not validation.is_significant:
            gain_text += ": the found order is worse" if validation.high < 0 else ": within the noise"
            if solved.baseline_kept:
                gain_text += ", so the given order is kept (--force takes the found one)"
            elif solved.baseline_problem is not None:
                gain_text += f"; the given order is not kept, for {solved.baseline_problem}"
        lines.append(gain_text)
    return lines


def save_order(order: RankOrder) -> None:
    """Write the order where `plink launch` finds it, and say so."""
    workspace.prepare()
    order.write(workspace.ORDER)
    say(f"order -> {workspace.ORDER}")


def show_traffic(order: RankOrder) -> None:
    """Print what each traffic of a mesh costs."""
    has_links = any(each.busiest for each in order.cost_by_traffic or ())  # the model `latency` knows none
    rows = [
        (
            each.traffic,
            *map(format_us, (each.cost, each.baseline, each.sorted_by_group)),
            f"{each.crossing:.0%}",
            *((each.busiest or "",) if has_links else ()),
        )
        for each in order.cost_by_traffic or ()
    ]
    columns = ["traffic of a step", "this order", "given", "sorted by rack", "between racks"]
    columns += ["busiest in this order"] if has_links else []
    show_table(columns, rows, on_stderr=True)
