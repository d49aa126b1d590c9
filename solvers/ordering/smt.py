"""Orders cheaper than the best one known, or the proof that there are none: Z3 (PLink thesis, 5.2.3).

The thesis takes one integer a rank and an array of costs, and asks for ``cost < C0``. Here the Boolean ``x[u][v]`` says
that unit u gets the contents of unit v, and costs are bounded from below by what pairs of these imply: ``x[u][v] and
x[w][t]`` means that this hop takes at least so much. That is enough, for every price grows with each of its hops. On a
ring of 8 (three tiers with noise, rank 0 fixed) the proof took 4.4 s with the array and 0.05 s like this. Sums as
pseudo-Boolean constraints (QF_FD) were as fast for halving-doubling and 20 times slower on a ring of 10; difference
logic (QF_IDL) gained nothing worth its own path for trees; duals (:mod:`solvers.ordering.smt_windows`) prove a ring of
10 to 14 four to ten times sooner.

Rounds, pipelines, chains and the loads of ``alpha-beta`` are encoded as they are. The 16-norm of ``contention`` is not
linear: it is replaced by what is never more, the maximum and its tangents, one more of them after each candidate that
the closed form does not confirm. So "none" is a proof for all models, up to a share of ``EPSILON`` of the cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solvers.costs.closed_forms import Order, PricingProblem, closed_form
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.ordering.interruptible import interruptible
from solvers.ordering.smt_windows import Load, Longest, Window, longest_of
from solvers.ordering.symmetries import superfluous

_CUT_BITS = 12  # of the slopes of a tangent
_NORM = 16  # of what groups share: see solvers.costs.evaluator.latest
_MOST_REFUSED = 300  # candidates that the closed form did not confirm


@dataclass(frozen=True)
class Effort:
    """What one question may cost: Z3's own count of steps (the same on any machine), and milliseconds if they are to
    end it too; ``keep_going`` is asked meanwhile. About 3 to 10 million steps are a second."""

    rlimit: int = 20_000_000
    timeout_ms: int | None = None
    keep_going: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class Answer:
    """A cheaper order, shape (N,), or None; then ``proved`` says that there is none (in this neighbourhood, by more
    than a share of ``EPSILON``), and not that the effort was spent."""

    order: Order | None
    proved: bool


def cheaper(
    problem: PricingProblem, order: Order, units: Sequence[Sequence[int]], below: float, effort: Effort
) -> Answer:
    """An order that costs less than ``below`` microseconds, by exchanging the contents of some units of an order.

    The whole order: every rank a unit. A window: some ranks. Groups: blocks of ranks.

    :param order: shape (N,), the host at each rank.
    :param units: disjoint lists of ranks of one length; hosts keep their places inside a unit.
    :raises UsageError: for an unknown model or a size that is not positive.
    :raises NoAnswer: when the given order has no price.
    """
    pattern, fabric, _, model = problem
    price = closed_form(*problem)
    now = price(order)
    if now < below:
        return Answer(order, False)
    if pattern.everyone or len(units) < 2 or below <= 0:
        return Answer(None, True)
    window = Window(order, units, below)
    question = _Question(window, effort)
    if window.ranks.size == window.size == pattern.ranks:
        for choices in superfluous(pattern, model, fabric.rtt_us[np.ix_(order, order)]):
            question.forbid(*((int(window.unit_of[rank]), host) for rank, host in choices))
    if model == "latency" and pattern.pace == "chain":
        question.limit_chain(pattern, fabric)
    else:
        question.limit_sum(longest_of(window, *problem), window.identity())
    for _ in range(_MOST_REFUSED):
        contents = question.answer()
        if contents is None:
            return Answer(None, question.proved)
        candidate = window.placed(contents)
        if price(candidate) < below:
            return Answer(candidate, False)
        question.refuse(contents)
    return Answer(None, False)


class _Question:
    """Clauses about who gets whose contents, in a Z3 of its own, so that nothing asked before plays a part."""

    def __init__(self, window: Window, effort: Effort) -> None:
        import z3

        self.window, self.proved = window, False
        self._z3, self._context = z3, z3.Context()
        self._solver = z3.Solver(ctx=self._context)
        self._effort, self._spent = effort, 0
        self._solver.set("ctrl_c", False)  # it would take the signal away from the program
        if effort.timeout_ms is not None:
            self._solver.set("timeout", effort.timeout_ms)
        m = range(window.size)
        self._has = [[z3.Bool(f"x{u}_{v}", self._context) for v in m] for u in m]
        self._not = [[z3.Not(one) for one in row] for row in self._has]
        self._sums: dict[int, Any] = {}
        self._norms: list[tuple[Any, Longest]] = []
        for u in m:
            self._solver.add(z3.Or(self._has[u]), z3.Or([self._has[v][u] for v in m]))
            for v in m:
                for t in range(v):
                    self.forbid((u, v), (u, t))
                    self.forbid((v, u), (t, u))

    def forbid(self, *choices: tuple[int, int]) -> None:
        """Not all of these: (unit, whose contents)."""
        self._solver.add(self._z3.Or([self._not[u][v] for u, v in choices]))

    def limit_sum(self, parts: list[Longest], contents: list[int]) -> None:
        """The parts together are within the bound; tangents of norms at the costs of the contents given."""
        slack = self.window.bound - sum(part.least for part in parts)
        if slack < 0:
            self._solver.add(self._z3.BoolVal(False, self._context))
            return
        variables = []
        for number, part in enumerate(parts):
            loads = [load for load in (*part.loads, *part.shared) if load.terms]
            if not loads:
                variables.append(self._number(part.least))
                continue
            largest = self._variable(f"longest{number}", part.least)
            for load in loads:
                self._at_most(largest, load, part.least, part.least + slack)
            if part.shared:
                self._norms.append((largest, part))
            variables.append(largest)
        self._solver.add(self._z3.Sum(variables) <= self.window.bound)
        self._cut(contents)

    def limit_chain(self, pattern: Pattern, fabric: Fabric) -> None:
        """Every hop ends after those it waits for, and within the bound."""
        window, bound, one = self.window, self.window.bound, np.ones(1)
        done: dict[int, Any] = {}
        for level in pattern.chain:
            ends = [*level.starts[1:].tolist(), len(level.waits)]
            sources, targets = level.edges // pattern.ranks, level.edges % pattern.ranks
            for k, place in enumerate(level.places.tolist()):
                hop = window.load(sources[[k]], targets[[k]], one, lambda i, j: fabric.rtt_us[i, j])
                waits = [done[w] for w in level.waits[level.starts[k] : ends[k]].tolist()] if len(level.waits) else []
                known = max((w for w in waits if isinstance(w, int)), default=0)
                others = [w for w in waits if not isinstance(w, int)]
                if not hop.terms and not others:
                    done[place] = known + hop.least
                    continue
                begin = self._variable(f"begin{place}", known)
                end = self._variable(f"end{place}", known + hop.least)
                self._solver.add(*[begin >= w for w in others], end <= bound, end >= begin + hop.least)
                for term in hop.terms:
                    for choices, value in term.entries():
                        if known + hop.least + value > bound:
                            self.forbid(*choices)
                        elif value:
                            self._imply(choices, end >= begin + (hop.least + value))
                done[place] = end
        if any(isinstance(end, int) and end > bound for end in done.values()):
            self._solver.add(self._z3.BoolVal(False, self._context))

    def answer(self) -> list[int] | None:
        """Whose contents each unit gets; None when there is no answer, for want of effort or (``proved``) at all."""
        if self._spent >= self._effort.rlimit:
            return None
        self._solver.set("rlimit", self._effort.rlimit - self._spent)
        said = interruptible(self._solver.check, self._context.interrupt, self._effort.keep_going)
        self._spent = int(self._solver.statistics().get_key_value("rlimit count"))
        self.proved = said == self._z3.unsat
        if said != self._z3.sat:
            return None
        model = self._solver.model()
        return [next(v for v, one in enumerate(row) if self._z3.is_true(model.eval(one))) for row in self._has]

    def refuse(self, contents: list[int]) -> None:
        """Not this one, nor any whose loads the norm's tangent there shows to be as dear."""
        self.forbid(*enumerate(contents))
        self._cut(contents)

    def _cut(self, contents: list[int]) -> None:
        """The tangents of the norms at a choice: ``norm(x) >= gradient(y) @ x`` for all x, y >= 0, by convexity."""
        for largest, part in self._norms:
            loads = np.array([load.value(contents) for load in part.shared], dtype=float)
            if loads.max() <= 0:
                continue
            share = loads / loads.max()
            slopes = share ** (_NORM - 1) / (share**_NORM).sum() ** ((_NORM - 1) / _NORM)
            whole = np.floor(slopes * (1 << _CUT_BITS)).astype(int).tolist()
            sums = [slope * self._sum(load) for slope, load in zip(whole, part.shared, strict=True) if slope]
            if len(sums) > 1:
                self._solver.add((1 << _CUT_BITS) * largest >= self._z3.Sum(sums))

    def _variable(self, name: str, least: int) -> Any:
        variable = self._z3.Int(name, self._context)
        self._solver.add(variable >= least)
        return variable

    def _number(self, value: int) -> Any:
        return self._z3.IntVal(value, self._context)

    def _at_most(self, largest: Any, load: Load, least: int, most: int) -> None:
        """``largest`` is at least the load, which must not be more than ``most``."""
        if len(load.terms) > 1:
            self._solver.add(largest >= self._sum(load, most))
            return
        for choices, value in load.terms[0].entries():
            if load.least + value > most:
                self.forbid(*choices)
            elif load.least + value > least:
                self._imply(choices, largest >= load.least + value)

    def _sum(self, load: Load, most: int | None = None) -> Any:
        """A number that is at least the load, as an expression."""
        if id(load) not in self._sums:
            limit = self.window.bound if most is None else most
            terms = []
            for number, term in enumerate(load.terms):
                part = self._variable(f"sum{len(self._sums)}_{number}", 0)
                terms.append(part)
                for choices, value in term.entries():
                    if load.least + value > limit:
                        self.forbid(*choices)
                    elif value:
                        self._imply(choices, part >= value)
            self._sums[id(load)] = self._z3.Sum([self._number(load.least), *terms])
        return self._sums[id(load)]

    def _imply(self, choices: tuple[tuple[int, int], ...], then: Any) -> None:
        self._solver.add(self._z3.Or([*(self._not[u][v] for u, v in choices), then]))
