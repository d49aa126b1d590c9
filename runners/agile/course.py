"""How a job gets on: clocks and iterations, as the worker that leads tells them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runners.agile.turns import Share


@dataclass
class Course:
    """An iteration's time is what its clocks took the worker that has piece 0, with its waits for the others; its
    objective is known an iteration later, and its line in the log waits for that.

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
    _spent: dict[int, float] = field(default_factory=dict)
    _latest: dict[int, tuple[int, int, float]] = field(default_factory=dict)  # clock, stage, when it was over

    def clock(self, told: Mapping[str, Any], workers: int) -> None:
        """A worker has done a clock."""
        self.clock_done, self.workers = max(self.clock_done, told["clock"]), workers
        iteration = told["iteration"]
        if not told["leads"] or told["clock"] == 0:  # which is before the first
            return
        if told["objective"] is not None:
            self.objective = told["objective"]
        for earlier in sorted(number for number in self._spent if number < iteration):
            self._line(earlier, told["objective"] if earlier == iteration - 1 else None)
        self._spent[iteration] = self._spent.get(iteration, 0.0) + told["seconds"]
        self._latest[iteration] = told["clock"], self.stage, self.now()

    def rolled_back(self, clock: int) -> None:
        """What came after a clock is done again."""
        for iteration in [number for number, (last, _, _) in self._latest.items() if last > clock]:
            self._line(iteration, None)
        self.clock_done = min(self.clock_done, clock)

    def turned(self, first: int, shares: Mapping[int, Share]) -> None:
        """The work is another's."""
        self.workers = len(shares)

    def end(self) -> None:
        """What is known has to do."""
        for iteration in sorted(self._spent):
            self._line(iteration, None)

    def status(self) -> dict[str, Any]:
        """For a person."""
        return {
            "iteration": self.iteration, "iteration_s": self.seconds, "objective": self.objective,
            "workers": self.workers, "begun": self.clock_done + 1,
        }  # fmt: skip

    def _line(self, iteration: int, objective: float | None) -> None:
        seconds, (clock, stage, at) = self._spent.pop(iteration), self._latest.pop(iteration)
        self.iteration, self.seconds = iteration, seconds
        self.log(
            at=round(at, 3), what="iteration", iteration=iteration, seconds=round(seconds, 6), objective=objective,
            stage=stage or self.stage, workers=self.workers, clock=clock,
        )  # fmt: skip
