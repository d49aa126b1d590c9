"""Search a rank order for a network: constraints, search, proof, and whether the gain is more than noise."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from plink.features.order.algorithms import fabric_from, links_of, options_of, order_from, rank_groups
from plink.features.order.constraints import constraints_from
from plink.features.order.data import (
    SearchData,
    avoiding_unknown_pairs,
    prepare_search_data,
    unknown_pairs,
    with_costs_of,
    without_unmeasured_bound,
)
from plink.features.order.fast_tsp_process import FastTsp
from plink.features.order.interfaces import BCUBE_ALGORITHMS, fabric_of_algorithm, interface_topology, own_options
from plink.features.order.mesh import MeshCosts, block_pins, hosts_of_blocks, notes_of, refuse_unweighed
from plink.features.order.request import OrderRequest
from plink.model.document import UNSET
from plink.model.network import Matrix, Network
from solvers.compilation import search_clock
from solvers.costs.by_name import (
    CONTENTION,
    MIXED,
    SIMULATED,
    engine_slices,
    misranking_warning,
    model_for,
    parts_of,
    pattern_for,
    search_model_for,
)
from solvers.costs.fabric import Fabric
from solvers.ordering.bounds import with_link_bound
from solvers.ordering.constraints import FeasibleOrders
from solvers.ordering.cross_validation import CostModel, ValidatedGain, cross_validate
from solvers.ordering.interfaces import BCube
from solvers.ordering.problem import (
    RINGS,
    OrderingProblem,
    OrderingResult,
    ProgressCallback,
    SearchBudget,
    SearchProgress,
)
from solvers.ordering.search import SAME_COST, median_of_random, or_cheaper, search

if TYPE_CHECKING:
    from plink.features.order.smoothing import SmoothedLatencies
    from solvers.ordering.simulated_choice import SimulatedChoice
    from solvers.simulation.cost import SimulatedCost

_log = logging.getLogger("plink.reorder")
_UNLIMITED_MOVES = 1 << 50
_LIMIT_S = 10.0
_PROOF_S = 60.0
# Of the time where an accurate cost chooses: when its parts end. The rest is for simulations.
_SEARCH_END, _OTHER_SEARCHES_END, _DESCENT_END = 0.6, 0.7, 0.85
_PROOF_SHARE = 0.5  # of the time with proofs: what the search before them may take
_VALIDATION_SHARE = 0.4  # of the time of a search: what the one by half of the samples may take
_AS_LONG, _MAX_NAMED = 1e-3, 4  # of the time: two orders that differ by no more take as long; limiting links
_MIN_HOPS_GAIN = 0.01  # of the round trips: below, an order that takes as long does not replace the given one
_INTERRUPTED_DRAWS = 30  # of the noise: a second even for 2lha of 1,000 hosts
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Solved:
    """Result of a search.

    ``validation``: the gain on held-out samples, None without any. ``baseline_kept``: the gain is within noise, so the
    given order stays; ``baseline_problem``: why it cannot. ``notes``: further remarks. ``sparse``: the bound is only
    for orders of measured pairs; ``estimated``: it rests on predicted pairs, so it is no bound. ``needs_unmeasured``:
    the order uses pairs of which nothing is known. ``smoothing``: how round trips were smoothed, if they were.
    ``interrupted``: the search was stopped early. ``proven_by_rounds``: the exact methods' proof, which is no one for
    ranks that do not all wait for each other. ``choice``: how the order was chosen by simulation, None without.
    ``mesh_costs``: of a mesh.
    """

    task: OrderingProblem
    result: OrderingResult
    validation: ValidatedGain | None
    baseline_kept: bool
    notes: tuple[str, ...]
    sparse: bool = False
    estimated: bool = False
    needs_unmeasured: bool = False
    baseline_problem: str | None = None
    smoothing: "SmoothedLatencies | None" = None
    interrupted: bool = False
    choice: "SimulatedChoice | None" = None
    proven_by_rounds: bool = False
    mesh_costs: MeshCosts | None = None

    @property
    def changed(self) -> bool:
        """Whether the found order differs from the given one."""
        return not np.array_equal(self.task.baseline, self.result.order)


def check_alone(network: Network, request: OrderRequest) -> None:
    """Refuse for one host what would be refused for several.

    :raises PlinkError: as :func:`solve`.
    """
    model_for(request.model, fabric_from(network))
    constraints = constraints_from(request.pins, request.groups, network.hosts, np.zeros((1, 1)), request.groups_source)
    FeasibleOrders(np.zeros(network.hosts.members[0].slots, dtype=np.intp), network.hosts.names, constraints)


def solve(
    network: Network,
    request: OrderRequest,
    show: Callable[[SearchProgress], None] = lambda progress: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Solved:
    """Search the cheapest order of two hosts or more.

    :param show: told of the search now and then.
    :param stopped: asked now and then; once it says yes the search ends with the best order so far.
    :raises PlinkError: whatever :func:`solvers.ordering.search.search` and the models refuse.
    """
    data = prepare_search_data(network, request.prior, request.smooth_latencies, request.mesh is not None)
    shape = _bcube_of(network, request)
    if not {"base", "levels"} & request.options.keys():
        options = own_options(network, request.algo, sum(host.slots for host in network.hosts))
        request = replace(request, options={**options, **request.options})
    task = _task(network, data.fabric, request)
    if shape is not None:
        return _by_digits(task, shape, request.seed, stopped)
    task, data = avoiding_unknown_pairs(task, data, request.seed)
    started = search_clock()
    limit = request.time_limit_s if request.time_limit_s is not None else _PROOF_S if request.prove else _LIMIT_S
    timed = request.max_moves is None
    simulated = request.model == SIMULATED
    priced = _accurate_cost(task, request)  # refused before a search, not after
    accurate_cost = None if priced is None or priced.is_closed_form else priced
    if priced is not None:
        task = replace(task, slices=engine_slices(task.algo, task.options, task.fabric, task.size_bytes))

    def searched(task: OrderingProblem, share: float) -> tuple[OrderingResult, SearchBudget]:
        deadline = started + limit * share if timed else None
        patient = not timed or (request.time_limit_s is not None and not request.prove)
        budget = SearchBudget(
            _UNLIMITED_MOVES if timed else request.max_moves or 0,
            _watch(show, deadline, stopped),
            patient,
            None if deadline is None else deadline + time.monotonic() - search_clock(),
            FastTsp,
            stopped,
        )
        result = search(task, request.seed, budget)
        seconds = search_clock() - started
        _log.debug("%s: %.6g after %d moves, %.2f s", result.objective, result.cost, result.moves, seconds)
        return result, budget

    proof_end = _SEARCH_END if accurate_cost is not None else 1.0
    share = proof_end * (_PROOF_SHARE if request.prove else 1.0)
    validated = accurate_cost is not None or data.held_out_us is None
    result, budget = searched(task, share if validated else share * _VALIDATION_SHARE)
    fitted, fitted_task = result, task
    if not validated:  # the order by half of the samples says what a search gains, by the other half
        task = _by_all_samples(task, data)
        result, budget = searched(task, share)
        result = or_cheaper(task, result, fitted.order)  # a search that was cut short has start orders alone
    if request.prove:
        result = _prove(task, result, request, started + limit * proof_end if timed else None, stopped)
    warning = misranking_warning(request.algo, task.model)
    notes = [] if request.mesh is None else notes_of(request.mesh, len(task.baseline))
    notes += [warning] if warning else []
    if request.model == "auto" and task.model == "latency" and _is_probed(network) and data.fabric.group_of.any():
        source = "uncertain" if network.shared_links else data.fabric.capacities
        notes.append(
            f"warning: what groups of hosts share is {source}: the order goes by round trips alone, without rates"
        )
    if (simulated or task.model == CONTENTION) and not task.fabric.measured:
        notes.append(f"shared capacities were not measured; they are {task.fabric.capacities}")
    choice, proven_by_rounds, stated_cost = None, False, None
    if accurate_cost is not None:
        from solvers.ordering.simulated_choice import candidate_orders, choose_by_simulation, improved_candidates

        def is_before(share: float) -> Callable[[], bool]:
            return lambda: not stopped() and (not timed or search_clock() < started + limit * share)

        other_deadline = started + limit * _OTHER_SEARCHES_END if timed else None
        orders = [result.order, *([task.baseline] if task.feasible.allows(task.baseline) else [])]
        if not stopped():
            other_budget = replace(budget, keep_going=_watch(show, other_deadline, stopped))
            orders = candidate_orders(task, result, request.seed, other_budget)
        if data.unknown is not None and all(unknown_pairs(task, order, data.unknown) for order in orders):
            farthest = task.fabric.with_farthest_for_unknown(data.unknown)
            accurate_cost = replace(accurate_cost, fabric=farthest)  # none avoids them: how many counts for nothing
        if not stopped():
            orders = improved_candidates(task, orders, accurate_cost, request.seed, is_before(_DESCENT_END))
        simulation_started = search_clock()
        stated_cost, fabric = accurate_cost, _without_guesses(task.fabric, data, data.all_us)
        if not np.array_equal(fabric.rtt_us, accurate_cost.fabric.rtt_us):
            stated_cost = replace(accurate_cost, fabric=fabric)
        costs_of = (stated_cost if stopped() else accurate_cost, stated_cost)  # one is as much as a stop has time for
        choice = choose_by_simulation(task, result, orders, costs_of, request.seed, is_before(1.0))
        # By rounds masters are by sizes; and by half of the samples the search's costs are not the stated ones.
        same_costs = accurate_cost.options.tree is None and stated_cost is accurate_cost
        proven_by_rounds = request.prove and result.is_optimal and same_costs
        # What an accurate cost executes has limits of pairs, too.
        tree = stated_cost.options.tree
        executed = replace(task, fabric=stated_cost.fabric, model=SIMULATED, options=replace(task.options, tree=tree))
        result = choice.result if stopped() else with_link_bound(choice.result, executed)
        if request.prove and request.mesh is not None:
            from solvers.ordering.mesh_bounds import ASSIGNMENT, assignment_bound  # it imports Numba

            left_s = max(1.0, started + limit - search_clock()) if timed else None
            bound = assignment_bound(executed, result.cost, left_s, lambda: not stopped())
            result = result.with_bound(min(bound, result.cost), ASSIGNMENT)
        if proven_by_rounds and not result.is_optimal:
            notes.append(
                "proven by rounds (all ranks wait for each other): no order costs less; as ranks play it only the "
                "bound above is proven"
            )
        if simulated:
            notes.append(_choice_note(choice, search_clock() - simulation_started))
    elif priced is not None and request.mesh is None:
        result = _in_slices(task, result, replace(priced, fabric=task.fabric), request.seed)
    interrupted = stopped()
    found_by_halves = fitted if choice is None else result
    validation = _validate(fitted_task, found_by_halves, data, request.seed, choice, interrupted)
    changed = not np.array_equal(task.baseline, result.order)
    problem = _baseline_problem(task, result, data)
    if choice is not None and abs(result.cost - result.baseline_cost) <= _AS_LONG * result.baseline_cost:
        if not interrupted and (limits := choice.cost_of.limits(result.order)):
            named = ", ".join(limits[:_MAX_NAMED]) + (", ..." if len(limits) > _MAX_NAMED else "")
            notes.append(f"links that work nearly all of that time: {named}")
        if problem is None and task.algo in RINGS:
            by_hops = _validate(replace(task, model="latency"), result, data, request.seed, None)
            if by_hops is not None and by_hops.is_significant and by_hops.gain >= _MIN_HOPS_GAIN:
                problem = f"the found one takes as long and saves {by_hops.gain:.0%} of the round trips"
    baseline_kept = (
        validation is not None and not validation.is_significant and changed and problem is None and not request.force
    )
    needs_unmeasured, stated_task = False, task
    if data.unknown is not None:
        stated_task = replace(task, fabric=task.fabric.with_farthest_for_unknown(data.unknown))
        if accurate_cost is None:  # accurate costs are without guesses already
            cost_of = None if priced is None or request.mesh is not None else replace(priced, fabric=stated_task.fabric)
            result = with_costs_of(stated_task, result, request.seed, cost_of)
        taken = task.baseline if baseline_kept else result.order
        needs_unmeasured = bool(unknown_pairs(task, taken, data.unknown))
        result, note = without_unmeasured_bound(task, result, taken, data.unknown)
        notes.append(note)
    if request.prove and not (result.is_optimal or proven_by_rounds or interrupted):
        finished_early = timed and search_clock() < started + limit
        notes.append(_no_proof(task, result, data, limit if timed else None, finished_early))
    return Solved(
        replace(task, model=SIMULATED) if simulated else task, result, validation, baseline_kept, tuple(notes),
        data.unknown is not None, data.has_predictions, needs_unmeasured, problem,
        data.smoothing, interrupted, choice if simulated else None, proven_by_rounds,
        None if request.mesh is None else MeshCosts(stated_task, request.mesh, stated_cost),
    )  # fmt: skip


def _by_all_samples(task: OrderingProblem, data: SearchData) -> OrderingProblem:
    """Return the task by all samples; pairs without any data are as far apart as before."""
    rtt = data.all_us if data.unknown is None else np.where(data.unknown, task.fabric.rtt_us, data.all_us)
    return replace(task, fabric=replace(task.fabric, rtt_us=rtt))


def _bcube_of(network: Network, request: OrderRequest) -> BCube | None:
    """Return the BCube that hosts' interfaces form, None where the order has to be searched."""
    topology = interface_topology(network) if request.algo in BCUBE_ALGORITHMS else None
    shape = None if topology is None else topology.shape
    searched = request.pins or request.groups or any(host.slots > 1 for host in network.hosts)
    if searched or not isinstance(shape, BCube):
        return None
    own = {"base": shape.base, "levels": shape.levels}
    return shape if {**own, **request.options} == own else None


def _by_digits(task: OrderingProblem, shape: BCube, seed: int, stopped: Callable[[], bool]) -> Solved:
    """Return the order in which ranks are the hosts' digits: every exchange is between hosts on one switch."""
    order = np.array(shape.rank_order(), dtype=np.intp)
    from solvers.simulation.cost import cost_by_model

    cost = cost_by_model(task.algo, len(order), task.options, task.fabric, task.size_bytes, task.model)
    random_median = median_of_random(task, cost, seed)
    result = OrderingResult(order, cost(order), None, None, cost(task.baseline), random_median, 0)
    result = with_link_bound(result, task)
    note = f"interfaces form a BCube({shape.base},{shape.levels}): ranks are the hosts' digits, without a search"
    return Solved(task, result, None, False, (note,), interrupted=stopped())


def _accurate_cost(task: OrderingProblem, request: OrderRequest) -> "SimulatedCost | None":
    """Return the cost by which orders are stated, None where it is the search's own: what simulates them, and chooses
    among those of a search, or a closed form where there is too much to simulate."""
    if request.model != SIMULATED and task.model != "contention":
        return None
    from solvers.simulation.cost import SimulatedCost

    model = SIMULATED if request.model == SIMULATED else task.model
    tree = links_of(task.algo, task.fabric, task.baseline)
    options = replace(task.options, tree=tree)
    return SimulatedCost.of(task.algo, len(task.baseline), options, task.fabric, task.size_bytes, model)


def _in_slices(task: OrderingProblem, result: OrderingResult, cost_of: "SimulatedCost", seed: int) -> OrderingResult:
    """Return the result of a search, whose costs are those of the vector whole, with the costs in slices."""
    result = with_costs_of(task, result, seed, cost_of)
    if result.bound_by == SAME_COST:
        return replace(result, lower_bound=result.cost)
    return with_link_bound(replace(result, lower_bound=None, bound_by=None), replace(task, model=SIMULATED))


def _without_guesses(fabric: Fabric, data: SearchData, rtt_us: Matrix) -> Fabric:
    """Return the fabric with other round trips, and pairs without any data as far as the farthest known one."""
    fabric = replace(fabric, rtt_us=rtt_us)
    return fabric if data.unknown is None else fabric.with_farthest_for_unknown(data.unknown)


def _is_probed(network: Network) -> bool:
    """Return whether plink measured the network, and could have measured rates; files by others have what they have."""
    return network.details.plan is not UNSET


def _choice_note(choice: "SimulatedChoice", seconds: float) -> str:
    number = (
        f"all {choice.candidates}"
        if choice.simulated == choice.candidates
        else f"{choice.simulated} of {choice.candidates}"
    )
    return (
        f"the search went by {choice.search_model}; {number} candidate orders were simulated in "
        f"{seconds:.1f} s, and the fastest is taken"
    )


def _task(network: Network, fabric: Fabric, request: OrderRequest) -> OrderingProblem:
    baseline, fabric = order_from(network, None), fabric_of_algorithm(network, fabric, request.algo)
    constraints = constraints_from(request.pins, request.groups, network.hosts, fabric.rtt_us, request.groups_source)
    if request.mesh is not None:
        blocks = hosts_of_blocks(network, request.mesh, baseline)
        pins = block_pins(dict(constraints.pinned_ranks), len(baseline) // len(blocks), fabric.names)
        baseline, constraints = blocks, replace(constraints, pinned_ranks=pins)
    groups = rank_groups(fabric, baseline)
    if constraints.host_groups is not None:
        assignment = FeasibleOrders(baseline, fabric.names, constraints)
        group_of = [assignment.group_of[host] for host in assignment.materialise(assignment.hosts).tolist()]
        groups = [[rank for rank, group in enumerate(group_of) if group == k] for k in dict.fromkeys(group_of)]
    options = replace(options_of(request.options, [request.algo], groups, ranks=baseline), mesh=request.mesh)
    hops = request.objective in ("sum", "bottleneck") and request.model == "auto"
    model = "latency" if hops else search_model_for(model_for(request.model, fabric, algo=request.algo), fabric)
    if request.mesh is not None:
        refuse_unweighed(request.mesh, len(baseline), model, request.model)
    return OrderingProblem(
        fabric, baseline, request.algo, options, request.size_bytes, model, request.objective, constraints
    )


def _watch(
    show: Callable[[SearchProgress], None], deadline: float | None, stopped: Callable[[], bool]
) -> ProgressCallback:
    def watch(progress: SearchProgress) -> bool:
        show(progress)
        return not stopped() and (deadline is None or search_clock() < deadline)

    return watch


def _prove(
    task: OrderingProblem,
    result: OrderingResult,
    request: OrderRequest,
    deadline: float | None,
    stopped: Callable[[], bool],
) -> OrderingResult:
    from solvers.ordering.exact import ExactBudget, solve_exactly  # brings solvers that most orders do without

    if deadline is None:
        return solve_exactly(task, result, request.seed, ExactBudget(None, lambda: not stopped()))
    remaining_s = deadline - search_clock()
    if remaining_s <= 0 or stopped():
        return result
    return solve_exactly(
        task, result, request.seed, ExactBudget(remaining_s, lambda: not stopped() and search_clock() < deadline)
    )


def _validate(
    task: OrderingProblem,
    result: OrderingResult,
    data: SearchData,
    seed: int,
    choice: "SimulatedChoice | None",
    interrupted: bool = False,
) -> ValidatedGain | None:
    """Return the gain on the held-out samples; of an interrupted search by few draws."""
    if data.held_out_us is None:
        return None
    fabric = task.fabric if data.unknown is None else task.fabric.with_farthest_for_unknown(data.unknown)
    parts = parts_of(task.algo, task.size_bytes, task.fabric)
    patterns = [(weight, pattern_for(name, len(task.baseline), task.priced_options)) for weight, name in parts]
    if result.objective == "bottleneck":  # the longest hop, not their sum
        patterns = [(weight, replace(pattern, timing="rounds")) for weight, pattern in patterns]
    cost_model = CostModel(patterns, fabric, task.size_bytes, task.model)
    cost_model = cost_model._replace(draws=_INTERRUPTED_DRAWS) if interrupted else cost_model
    gain = cross_validate(cost_model, result.order, task.baseline, data.held_out_us, seed, CONFIDENCE)
    if choice is None:
        return gain
    from solvers.ordering.simulated_choice import simulated_gain

    held_out = replace(fabric, rtt_us=np.where(data.held_out_us > 0, data.held_out_us, fabric.rtt_us))
    return simulated_gain(choice, task.baseline, held_out, gain)


def _no_proof(
    task: OrderingProblem, result: OrderingResult, data: SearchData, limit_s: float | None, early: bool
) -> str:
    if task.algo in MIXED:
        return f"no proof: no exact method knows {task.algo}"
    if data.unknown is not None and unknown_pairs(task, result.order, data.unknown):
        return "no proof: it would need the pairs that were not measured"
    if early:
        return "no proof: the exact methods ended without one"
    return "no proof" if limit_s is None else f"no proof within {limit_s:g} s; a longer --time-limit may find one"


def _baseline_problem(task: OrderingProblem, result: OrderingResult, data: SearchData) -> str | None:
    """Return why the given order cannot stay even without a gain, or None."""
    assignment = FeasibleOrders(task.baseline, task.fabric.names, task.constraints)
    if not np.array_equal(assignment.materialise(assignment.hosts), task.baseline):
        return "it violates the constraints"
    if data.unknown is not None:
        baseline_needs, result_needs = (
            unknown_pairs(task, order, data.unknown) for order in (task.baseline, result.order)
        )
        if baseline_needs and not result_needs:
            dead = "" if task.fabric.blocked is None else ", or that nothing gets through between"
            return f"it needs pairs that were not measured{dead}"
    return None
