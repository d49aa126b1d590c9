"""How a job gets on: clocks and iterations, as the worker that leads tells them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from runners.agile.turns import Share

_KEPT = 64  # iterations whose clocks are known one by one, should a roll-back lead into the midst of one


@dataclass(frozen=True)
class _Over:
    """An iteration whose last clock is done: which that is, and how things stood then."""

    clock: int
    stage: int
    workers: int
    at: float


@dataclass
class Course:
    """An iteration's time is what its clocks took the worker that has piece 0, with its waits for the others; clocks
    that nobody told (another controller heard of them) count as the mean of those that somebody did. Its objective is
    known an iteration later, with staleness more, and its line in the log waits for that.

    :param log: takes a line of the run's log. :param now: seconds since the run began.
    """

    log: Callable[..., None]
    now: Callable[[], float]
    iteration: int = -1
    clock_done: int = -1
    objective: float | None = None
    seconds: float | None = None
    workers: int = 0
    stage: int = 0  # 0: not known yet
    _took: dict[int, dict[int, float]] = field(default_factory=dict)  # seconds, by iteration and clock
    _over: dict[int, _Over] = field(default_factory=dict)  # by iteration, until its line is written
    _objectives: dict[int, float | None] = field(default_factory=dict)  # by iteration, until then too
    _judged: int = -1  # the latest iteration whose objective is known
    _batches: int = 1  # clocks of an iteration

    def clock(self, told: Mapping[str, Any], workers: int) -> None:
        """A worker has done a clock."""
        clock, iteration, self._batches = told["clock"], told["iteration"], told["batches"]
        self.clock_done, self.workers = max(self.clock_done, clock), workers
        if not told["leads"] or clock == 0:  # which is before the first
            return
        took = self._took.setdefault(iteration, {})
        if clock in took:
            return  # who stands in for another does again what that one had done
        took[clock] = told["seconds"]
        if clock == (iteration + 1) * self._batches:
            self._over[iteration] = _Over(clock, self.stage, workers, self.now())
        if told["judged"] is not None:
            self._judged = max(self._judged, told["judged"])
            self._objectives[told["judged"]] = told["objective"]
            if told["objective"] is not None:
                self.objective = told["objective"]
        for over in sorted(number for number in self._over if number <= self._judged):
            self._line(over)
        for old in [number for number in self._took if number <= iteration - _KEPT]:
            del self._took[old]
            self._over.pop(old, None)
            self._objectives.pop(old, None)

    def rolled_back(self, clock: int) -> None:
        """What came after a clock is done again."""
        for iteration in sorted(number for number, over in self._over.items() if over.clock > clock):
            self._line(iteration)
        for took in self._took.values():
            for number in [number for number in took if number > clock]:
                del took[number]
        self._judged = min(self._judged, clock // self._batches - 1)  # of those whose last clock is still done
        self._objectives = {number: said for number, said in self._objectives.items() if number <= self._judged}
        self.clock_done = min(self.clock_done, clock)

    def turned(self, first: int, shares: Mapping[int, Share]) -> None:
        """The work is another's."""
        self.workers = len(shares)

    def end(self) -> None:
        """What is known has to do; an iteration that has not come to its end is none."""
        for iteration in sorted(self._over):
            self._line(iteration)

    def status(self) -> dict[str, Any]:
        """For a person."""
        return {
            "iteration": self.iteration, "iteration_s": self.seconds, "objective": self.objective,
            "workers": self.workers, "begun": self.clock_done + 1,
        }  # fmt: skip

    def _line(self, iteration: int) -> None:
        over, took = self._over.pop(iteration), self._took[iteration].values()
        self.iteration, self.seconds = iteration, fmean(took) * self._batches
        self.log(
            at=round(over.at, 3), what="iteration", iteration=iteration, seconds=round(self.seconds, 6),
            objective=self._objectives.pop(iteration, None), stage=over.stage or self.stage, workers=over.workers,
            clock=over.clock,
        )  # fmt: skip
