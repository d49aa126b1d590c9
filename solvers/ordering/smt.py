"""Find an order that costs less than a bound, or prove that there is none: Z3 (PLink thesis, 5.2.3).

The thesis takes one integer a rank and an array of costs, and asks for ``cost < C0``. Here the Boolean ``x[u][v]`` says
that unit u gets the contents of unit v, and costs are bounded from below by what pairs of these imply: ``x[u][v] and
x[w][t]`` means that this hop takes at least so much. That is enough, for every cost grows with each of its hops. On a
ring of 8 (three tiers with noise, rank 0 fixed) the proof took 4.4 s with the array and 0.05 s like this. Sums as
pseudo-Boolean constraints (QF_FD) were as fast for halving-doubling and 20 times slower on a ring of 10; difference
logic (QF_IDL) gained nothing worth its own path for trees; duals (:mod:`solvers.ordering.smt_windows`) prove a ring of
10 to 14 four to ten times sooner.

Rounds, pipelines, chains and the loads of ``alpha-beta`` are encoded as they are. The 16-norm of ``contention`` is not
linear: it is relaxed to the maximum and tangents, one more of them after each candidate that the closed form does not
confirm. So "unsatisfiable" is a proof for all models, up to a share of ``EPSILON`` of the cost.

Symmetries of a pattern are rank permutations that change no order's cost; the choices that they make redundant are
forbidden.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from plink.model.network import Matrix
from solvers.costs.closed_forms import CostProblem, Order, closed_form
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.ordering.smt_windows import LinearLoad, LongestLoad, Window, longest_loads

_POLL_INTERVAL_S = 0.1
Result = TypeVar("Result")
_SLOPE_BITS = 12  # of a tangent
_NORM = 16  # of the groups' shared links: see solvers.costs.evaluator.latest
_MAX_REJECTED_CANDIDATES = 300  # that the closed form did not confirm


def symmetries(pattern: Pattern, model: str) -> list[Order]:
    """Return rank permutations, shape (N,) each, that leave the pattern the same, so that they change no cost.

    Candidates are digit-wise additions in any base that N is a power of (rotations are base N, ``xor`` is base 2), and
    their mirror images. For chains under ``latency`` there are no candidates.
    """
    n, rank = pattern.ranks, np.arange(pattern.ranks)
    if pattern.all_to_all_share or (model == "latency" and pattern.timing == "chain"):
        return []
    shares = pattern.share if model != "latency" else np.zeros(len(pattern.share))

    def canonical_form(s: Order) -> tuple[bytes, bytes]:
        source, target = s[pattern.source], s[pattern.target]
        if model == "latency":
            source, target = np.minimum(source, target), np.maximum(source, target)
        key = (pattern.round * n + source) * n + target
        by_key = np.lexsort((shares, key))
        return key[by_key].tobytes(), shares[by_key].tobytes()

    pattern_form, permutations = canonical_form(rank), []
    for base in range(2, n + 1):
        digits = round(np.log(n) / np.log(base))
        if base**digits != n:
            continue
        powers = base ** np.arange(digits)
        of_rank = rank[:, None] // powers % base
        for k in range(n):
            shifted = ((of_rank + of_rank[k]) % base) @ powers
            permutations += [s for s in (shifted, (-shifted) % n) if canonical_form(s) == pattern_form]
    return permutations


def redundant_choices(pattern: Pattern, model: str, rtt_us: Matrix) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield sets of choices (rank, host) that may be forbidden: some order without them costs the same.

    :param rtt_us: shape (N, N), of all hosts, in any numbering; where it is not symmetric nothing is redundant.
    """
    n = pattern.ranks
    if not np.array_equal(rtt_us, rtt_us.T, equal_nan=True):
        return
    permutations = symmetries(pattern, model)
    # The first host can be brought to the lowest rank of any orbit that it is in.
    lowest_in_orbit = np.arange(n)
    for _ in range(n):
        for permutation in permutations:
            np.minimum.at(lowest_in_orbit, permutation, lowest_in_orbit.copy())
            lowest_in_orbit = np.minimum(lowest_in_orbit, lowest_in_orbit[permutation])
    for rank in range(n):
        if lowest_in_orbit[rank] != rank:
            yield ((rank, 0),)
    mirrors = [
        permutation
        for permutation in permutations
        if permutation[0] == 0 and permutation[1] != 1 and (permutation[permutation] == np.arange(n)).all()
    ]
    if n > 2 and not lowest_in_orbit.any() and mirrors:
        for v in range(n):
            for t in range(v):
                yield (1, v), (int(mirrors[0][1]), t)


def ordered_ranks(patterns: Sequence[Pattern], model: str) -> list[tuple[int, int]]:
    """Return pairs of ranks, the lower one first: some cheapest order has the lower-numbered host at the first of each.

    Of the orders that symmetries of all patterns make of one another the lexicographically least is meant: a symmetry
    that changes no rank below k cannot bring a lower host to k. Hosts may have any numbers.
    """
    common = set.intersection(*({tuple(s.tolist()) for s in symmetries(pattern, model)} for pattern in patterns))
    first_moved = ((next((k for k, rank in enumerate(s) if rank != k), None), s) for s in common)
    return sorted({(k, s[k]) for k, s in first_moved if k is not None})


def interruptible(call: Callable[[], Result], stop: Callable[[], object], keep_going: Callable[[], bool]) -> Result:
    """Run ``call`` in a thread and return its result; ``stop`` ends it early once ``keep_going`` returns False.

    The caller's thread stays free for signal handlers, which Python runs in the main thread only.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        try:
            while not future.done():
                try:
                    future.exception(_POLL_INTERVAL_S)
                except TimeoutError:
                    if not keep_going():
                        stop()
        except BaseException:  # Ctrl-C: do not wait for the rest of the call
            while not future.done():
                stop()
                time.sleep(_POLL_INTERVAL_S)
            raise
        return future.result()


@dataclass(frozen=True)
class SmtLimits:
    """Limits of one query: Z3's resource counter (the same on any machine), milliseconds, and ``keep_going``.

    ``keep_going`` is polled meanwhile and returns False to stop. About 3 to 10 million steps take a second.
    """

    rlimit: int = 20_000_000
    timeout_ms: int | None = None
    keep_going: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class SmtAnswer:
    """A cheaper order, shape (N,), or None.

    ``proved_none``: no order of this neighbourhood is cheaper by more than a share of ``EPSILON``. If False without an
    order, the limits ended the query.
    """

    order: Order | None
    proved_none: bool


def find_cheaper(
    problem: CostProblem, order: Order, units: Sequence[Sequence[int]], below: float, limits: SmtLimits
) -> SmtAnswer:
    """Find an order that costs less than ``below`` microseconds by exchanging the contents of units of an order.

    The units may be all ranks (the whole order), some ranks (a window), or blocks of ranks (groups).

    :param order: shape (N,), the host at each rank.
    :param units: disjoint lists of ranks of one length; hosts keep their positions inside a unit.
    :raises UsageError: for an unknown model or a size that is not positive.
    :raises NoAnswer: when the order has no cost.
    """
    pattern, fabric, _, model = problem
    cost_of = closed_form(*problem)
    start_cost = cost_of(order)
    if start_cost < below:
        return SmtAnswer(order, False)
    if pattern.all_to_all_share or len(units) < 2 or below <= 0:
        return SmtAnswer(None, True)
    window = Window(order, units, below)
    query = _Query(window, limits)
    if window.ranks.size == window.size == pattern.ranks:
        for choices in redundant_choices(pattern, model, fabric.rtt_us[np.ix_(order, order)]):
            query.forbid(*((int(window.unit_of[rank]), host) for rank, host in choices))
    if model == "latency" and pattern.timing == "chain":
        query.limit_chain(pattern, fabric)
    else:
        query.limit_sum(longest_loads(window, *problem), window.identity())
    for _ in range(_MAX_REJECTED_CANDIDATES):
        contents = query.solve()
        if contents is None:
            return SmtAnswer(None, query.proved_none)
        candidate = window.materialise(contents)
        if cost_of(candidate) < below:
            return SmtAnswer(candidate, False)
        query.reject(contents)
    return SmtAnswer(None, False)


class _Query:
    """Z3 query for an assignment of contents to units, in a context of its own: earlier queries have no effect."""

    def __init__(self, window: Window, limits: SmtLimits) -> None:
        import z3

        self.window, self.proved_none = window, False
        self._z3, self._context = z3, z3.Context()
        self._solver = z3.Solver(ctx=self._context)
        self._limits, self._spent = limits, 0
        self._solver.set("ctrl_c", False)  # else Z3 takes the signal from the program
        if limits.timeout_ms is not None:
            self._solver.set("timeout", limits.timeout_ms)
        m = range(window.size)
        self._has = [[z3.Bool(f"x{u}_{v}", self._context) for v in m] for u in m]
        self._has_not = [[z3.Not(literal) for literal in row] for row in self._has]
        self._sums: dict[int, Any] = {}
        self._norms: list[tuple[Any, LongestLoad]] = []
        for u in m:
            self._solver.add(z3.Or(self._has[u]), z3.Or([self._has[v][u] for v in m]))
            for v in m:
                for t in range(v):
                    self.forbid((u, v), (u, t))
                    self.forbid((v, u), (t, u))

    def forbid(self, *choices: tuple[int, int]) -> None:
        """Forbid that all of these choices, (unit, whose contents), are made together."""
        self._solver.add(self._z3.Or([self._has_not[u][v] for u, v in choices]))

    def limit_sum(self, parts: list[LongestLoad], contents: list[int]) -> None:
        """Require that the sum of the parts is within the bound; add tangents of norms at the loads of ``contents``."""
        slack = self.window.bound - sum(part.minimum for part in parts)
        if slack < 0:
            self._solver.add(self._z3.BoolVal(False, self._context))
            return
        variables = []
        for number, part in enumerate(parts):
            loads = [load for load in (*part.loads, *part.shared) if load.terms]
            if not loads:
                variables.append(self._number(part.minimum))
                continue
            largest = self._variable(f"longest{number}", part.minimum)
            for load in loads:
                self._bound_from_below(largest, load, part.minimum, part.minimum + slack)
            if part.shared:
                self._norms.append((largest, part))
            variables.append(largest)
        self._solver.add(self._z3.Sum(variables) <= self.window.bound)
        self._add_tangents(contents)

    def limit_chain(self, pattern: Pattern, fabric: Fabric) -> None:
        """Require that every hop ends after those that it waits for, and within the bound."""
        window, bound, weight = self.window, self.window.bound, np.ones(1)
        end_of: dict[int, Any] = {}
        for level in pattern.chain:
            wait_ends = [*level.starts[1:].tolist(), len(level.waits)]
            sources, targets = level.edges // pattern.ranks, level.edges % pattern.ranks
            for k, hop_id in enumerate(level.places.tolist()):
                hop = window.load(sources[[k]], targets[[k]], weight, lambda i, j: fabric.rtt_us[i, j])
                waits = (
                    [end_of[w] for w in level.waits[level.starts[k] : wait_ends[k]].tolist()]
                    if len(level.waits)
                    else []
                )
                fixed_us = max((w for w in waits if isinstance(w, int)), default=0)
                variable_waits = [w for w in waits if not isinstance(w, int)]
                if not hop.terms and not variable_waits:
                    end_of[hop_id] = fixed_us + hop.minimum
                    continue
                begin = self._variable(f"begin{hop_id}", fixed_us)
                end = self._variable(f"end{hop_id}", fixed_us + hop.minimum)
                self._solver.add(*[begin >= w for w in variable_waits], end <= bound, end >= begin + hop.minimum)
                for term in hop.terms:
                    for choices, value in term.entries():
                        if fixed_us + hop.minimum + value > bound:
                            self.forbid(*choices)
                        elif value:
                            self._imply(choices, end >= begin + (hop.minimum + value))
                end_of[hop_id] = end
        if any(isinstance(end, int) and end > bound for end in end_of.values()):
            self._solver.add(self._z3.BoolVal(False, self._context))

    def solve(self) -> list[int] | None:
        """Return whose contents each unit gets; None: none exists (``proved_none``), or a limit ended the query."""
        if self._spent >= self._limits.rlimit:
            return None
        self._solver.set("rlimit", self._limits.rlimit - self._spent)
        status = interruptible(self._solver.check, self._context.interrupt, self._limits.keep_going)
        self._spent = int(self._solver.statistics().get_key_value("rlimit count"))
        self.proved_none = status == self._z3.unsat
        if status != self._z3.sat:
            return None
        model = self._solver.model()
        return [next(v for v, literal in enumerate(row) if self._z3.is_true(model.eval(literal))) for row in self._has]

    def reject(self, contents: list[int]) -> None:
        """Forbid this choice, and all whose loads cost as much by the norm's tangent there."""
        self.forbid(*enumerate(contents))
        self._add_tangents(contents)

    def _add_tangents(self, contents: list[int]) -> None:
        """Add the tangents of the norms at a choice: ``norm(x) >= gradient(y) @ x`` for all x, y >= 0, by convexity."""
        for largest, part in self._norms:
            loads = np.array([load.value(contents) for load in part.shared], dtype=float)
            if loads.max() <= 0:
                continue
            share = loads / loads.max()
            slopes = share ** (_NORM - 1) / (share**_NORM).sum() ** ((_NORM - 1) / _NORM)
            integer_slopes = np.floor(slopes * (1 << _SLOPE_BITS)).astype(int).tolist()
            sums = [slope * self._sum(load) for slope, load in zip(integer_slopes, part.shared, strict=True) if slope]
            if len(sums) > 1:
                self._solver.add((1 << _SLOPE_BITS) * largest >= self._z3.Sum(sums))

    def _variable(self, name: str, minimum: int) -> Any:
        variable = self._z3.Int(name, self._context)
        self._solver.add(variable >= minimum)
        return variable

    def _number(self, value: int) -> Any:
        return self._z3.IntVal(value, self._context)

    def _bound_from_below(self, largest: Any, load: LinearLoad, minimum: int, limit: int) -> None:
        """Require that ``largest`` is at least the load, and that the load is at most ``limit``."""
        if len(load.terms) > 1:
            self._solver.add(largest >= self._sum(load, limit))
            return
        for choices, value in load.terms[0].entries():
            if load.minimum + value > limit:
                self.forbid(*choices)
            elif load.minimum + value > minimum:
                self._imply(choices, largest >= load.minimum + value)

    def _sum(self, load: LinearLoad, limit: int | None = None) -> Any:
        """Return an expression that is at least the load."""
        if id(load) not in self._sums:
            limit = self.window.bound if limit is None else limit
            terms = []
            for number, term in enumerate(load.terms):
                part = self._variable(f"sum{len(self._sums)}_{number}", 0)
                terms.append(part)
                for choices, value in term.entries():
                    if load.minimum + value > limit:
                        self.forbid(*choices)
                    elif value:
                        self._imply(choices, part >= value)
            self._sums[id(load)] = self._z3.Sum([self._number(load.minimum), *terms])
        return self._sums[id(load)]

    def _imply(self, choices: tuple[tuple[int, int], ...], then: Any) -> None:
        self._solver.add(self._z3.Or([*(self._has_not[u][v] for u, v in choices), then]))
