"""From a network to an order: what is asked for, the search, proofs, and whether the gain is more than noise."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from plink.api.algorithms import Given, fabric_from, options_of, order_from, rank_groups
from plink.api.constraints import RequestedGroups, constraints_from
from plink.api.fitting import Fitting, at_the_farthest, fitting_of, unknown_pairs, without_guesses
from plink.errors import UsageError
from plink.model.network import Network
from plink.model.topology import Topology
from solvers.costs.by_name import MIXED, NAMES, model_for, parts_of, pattern_for
from solvers.costs.fabric import Fabric
from solvers.ordering.constraints import FeasibleOrders
from solvers.ordering.cross_validation import CostModel, ValidatedGain, cross_validate
from solvers.ordering.exact import EXACT_MAX_RANKS, ExactBudget, is_optimal, solve_exactly
from solvers.ordering.problem import OBJECTIVES, OrderingProblem, OrderingResult
from solvers.ordering.progress import ProgressCallback, SearchBudget, SearchProgress
from solvers.ordering.search import search

if TYPE_CHECKING:
    from plink.api.denoising import Denoised

_log = logging.getLogger("plink.reorder")
_MANY_MOVES = 1 << 50
_LIMIT_S = 10.0
_PROOF_S = 60.0
_PROOF_SHARE = 0.5  # of the time with proofs: what the search before them may take
CONFIDENCE = 0.95


@dataclass(frozen=True)
class OrderRequest:
    """What is asked of an order. ``options``: of the algorithm (``{"base": 4}``). ``pins``: first ranks of hosts, by
    name. ``groups``: hosts kept together, by name, or how many groups to form; ``groups_from`` names them in errors.
    ``prior``: how near hosts are that were not measured. ``time_limit_s`` None: until nothing has come of the search
    for long, 10 s at most (60 s with ``prove``). ``moves``: with them no clock is looked at, so that a seed gives the
    same order however busy the machine is. ``force``: the order that was found, even where its gain is within the
    noise. ``denoise``: round trips as an embedding fits them."""

    algo: str = "ring"
    size_bytes: float = 100e6
    model: str = "auto"
    options: Given = field(default_factory=dict)
    objective: str = "auto"
    pins: Mapping[str, int] = field(default_factory=dict)
    groups: RequestedGroups | None = None
    groups_from: str = "groups"
    prior: Topology | None = None
    time_limit_s: float | None = None
    moves: int | None = None
    seed: int = 0
    prove: bool = False
    force: bool = False
    denoise: bool = False

    def check(self) -> None:
        """Refuse what is wrong whatever the network.

        :raises UsageError: saying what there is.
        """
        if self.algo not in NAMES:
            raise UsageError(f"--algo {self.algo}: there are {', '.join(NAMES)}")
        if self.objective not in OBJECTIVES:
            raise UsageError(f"--objective {self.objective}: there are {', '.join(OBJECTIVES)}")
        if self.moves is not None and self.time_limit_s is not None:
            raise UsageError("--moves is instead of a time; leave --time-limit away or give one of the two")
        for option, number, least in (
            ("moves", self.moves, 1),
            ("time-limit", self.time_limit_s, 0),
            ("seed", self.seed, 0),
        ):
            if number is not None and not number >= least:
                raise UsageError(f"--{option} {number:g}: at least {least} is needed")
        for name, rank in self.pins.items():
            if type(rank) is not int:
                raise UsageError(f"--pin {name}={rank}: a rank is a whole number")
        options_of(self.options, [self.algo])


@dataclass(frozen=True)
class Solved:
    """What was found; ``judged``: what it saves on samples that it was not fitted to, None where there are none;
    ``kept``: the given order stays, for that is within the noise; ``notes``: what else to tell people; ``sparse``: the
    bound is only of orders without pairs that were not measured; ``given_cannot``: why the given order cannot stay;
    ``denoised``: how the round trips were fitted, where they are not the measured ones; ``interrupted``: the search
    was stopped before its end."""

    task: OrderingProblem
    found: OrderingResult
    judged: ValidatedGain | None
    kept: bool
    notes: tuple[str, ...]
    sparse: bool = False
    given_cannot: str | None = None
    denoised: "Denoised | None" = None
    interrupted: bool = False

    @property
    def changed(self) -> bool:
        """Whether the order that was found is another than the given one."""
        return not np.array_equal(self.task.baseline, self.found.order)


def check_alone(network: Network, wanted: OrderRequest) -> None:
    """Refuse for one host what would be refused for more.

    :raises PlinkError: as :func:`solve`.
    """
    wanted.check()
    model_for(wanted.model, fabric_from(network))
    constraints = constraints_from(wanted.pins, wanted.groups, network.hosts, np.zeros((1, 1)), wanted.groups_from)
    FeasibleOrders(np.zeros(network.hosts.members[0].slots, dtype=np.intp), network.hosts.names, constraints)


def solve(
    network: Network,
    wanted: OrderRequest,
    show: Callable[[SearchProgress], None] = lambda progress: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Solved:
    """The cheapest order that is found of two hosts or more.

    :param show: told of the search now and then.
    :param stopped: asked now and then; once it says yes the search ends with the best order so far.
    :raises PlinkError: whatever :func:`solvers.ordering.search.search` and the models refuse.
    """
    wanted.check()
    fitting = fitting_of(network, wanted.prior, wanted.denoise)
    task = _task(network, fitting.fabric, wanted)
    begun = time.monotonic()
    limit = wanted.time_limit_s if wanted.time_limit_s is not None else _PROOF_S if wanted.prove else _LIMIT_S
    clock = wanted.moves is None
    first = begun + limit * (_PROOF_SHARE if wanted.prove else 1.0) if clock else None
    patient = not clock or (wanted.time_limit_s is not None and not wanted.prove)
    budget = SearchBudget(_MANY_MOVES if clock else wanted.moves or 0, _watch(show, first, stopped), patient)
    found = search(task, wanted.seed, budget)
    _log.debug("%s: %.6g after %d moves, %.2f s", found.objective, found.cost, found.moves, time.monotonic() - begun)
    if wanted.prove or (len(task.baseline) <= EXACT_MAX_RANKS and not task.is_latency_ring):  # takes a moment
        found = _proved(task, found, wanted, begun + limit if clock else None, stopped)
    interrupted = stopped()
    judged = _judged(task, found, fitting, wanted.seed)
    moved = not np.array_equal(task.baseline, found.order)
    cannot = _given_cannot(task, found, fitting)
    kept = judged is not None and not judged.is_significant and moved and cannot is None and not wanted.force
    notes: list[str] = []
    if fitting.unknown is not None:
        found, note = without_guesses(task, found, fitting.unknown, wanted.seed)
        notes.append(note)
    if wanted.prove and not is_optimal(found) and not interrupted:
        early = clock and time.monotonic() < begun + limit
        notes.append(_no_proof(task, found, fitting, limit if clock else None, early))
    return Solved(
        task, found, judged, kept, tuple(notes), fitting.unknown is not None, cannot, fitting.denoised,
        interrupted,
    )  # fmt: skip


def _task(network: Network, fabric: Fabric, wanted: OrderRequest) -> OrderingProblem:
    given = order_from(network, None)
    constraints = constraints_from(wanted.pins, wanted.groups, network.hosts, fabric.rtt_us, wanted.groups_from)
    groups = rank_groups(fabric, given)
    if constraints.host_groups is not None:
        feasible = FeasibleOrders(given, fabric.names, constraints)
        group_of = [feasible.group_of[host] for host in feasible.materialise(feasible.hosts).tolist()]
        groups = [[rank for rank, group in enumerate(group_of) if group == k] for k in dict.fromkeys(group_of)]
    options = options_of(wanted.options, [wanted.algo], groups)
    hops = wanted.objective in ("sum", "bottleneck") and wanted.model == "auto"
    model = "latency" if hops else model_for(wanted.model, fabric)
    return OrderingProblem(fabric, given, wanted.algo, options, wanted.size_bytes, model, wanted.objective, constraints)


def _watch(
    show: Callable[[SearchProgress], None], deadline: float | None, stopped: Callable[[], bool]
) -> ProgressCallback:
    def watch(progress: SearchProgress) -> bool:
        show(progress)
        return not stopped() and (deadline is None or time.monotonic() < deadline)

    return watch


def _proved(
    task: OrderingProblem,
    found: OrderingResult,
    wanted: OrderRequest,
    deadline: float | None,
    stopped: Callable[[], bool],
) -> OrderingResult:
    if deadline is None:
        return solve_exactly(task, found, wanted.seed, ExactBudget(None, lambda: not stopped()))
    left = deadline - time.monotonic()
    if left <= 0 or stopped():
        return found
    return solve_exactly(
        task, found, wanted.seed, ExactBudget(left, lambda: not stopped() and time.monotonic() < deadline)
    )


def _judged(task: OrderingProblem, found: OrderingResult, fitting: Fitting, seed: int) -> ValidatedGain | None:
    if fitting.held_out_us is None:
        return None
    fabric = task.fabric if fitting.unknown is None else at_the_farthest(task.fabric, fitting.unknown)
    parts = parts_of(task.algo, task.size_bytes)
    patterns = [(weight, pattern_for(name, len(task.baseline), task.options)) for weight, name in parts]
    if found.objective == "bottleneck":  # the longest hop, not their sum
        patterns = [(weight, replace(pattern, timing="rounds")) for weight, pattern in patterns]
    priced = CostModel(patterns, fabric, task.size_bytes, task.model)
    return cross_validate(priced, found.order, task.baseline, fitting.held_out_us, seed, CONFIDENCE)


def _no_proof(
    task: OrderingProblem, found: OrderingResult, fitting: Fitting, limit_s: float | None, early: bool
) -> str:
    if task.algo in MIXED:
        return f"no proof: no exact method knows {task.algo}"
    if fitting.unknown is not None and unknown_pairs(task, found.order, fitting.unknown):
        return "no proof: it would need the pairs that were not measured"
    if early:
        return "no proof: the exact methods have nothing left to ask"
    return "no proof" if limit_s is None else f"no proof within {limit_s:g} s; a longer --time-limit may find one"


def _given_cannot(task: OrderingProblem, found: OrderingResult, fitting: Fitting) -> str | None:
    """Why the given order cannot stay even where nothing is won by another."""
    feasible = FeasibleOrders(task.baseline, task.fabric.names, task.constraints)
    if not np.array_equal(feasible.materialise(feasible.hosts), task.baseline):
        return "it is not as was wished"
    if fitting.unknown is not None:
        given, other = (len(unknown_pairs(task, order, fitting.unknown)) for order in (task.baseline, found.order))
        if given > other:
            return "it needs pairs that were not measured"
    return None
