"""How a job ends: when all workers have done their last clock and the program has had its last word, or by failing."""

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from runners.agile.channel import Answer
from runners.agile.rounds import SHIFT

if TYPE_CHECKING:
    from runners.agile.controller import Controller


class Ending:
    """Of one controller's job. ``finished``: the clock at which a worker had nothing left to do, by worker."""

    def __init__(self, job: "Controller") -> None:
        self._job = job
        self.finished: dict[int, int] = {}
        self.over = False
        self._last_word = False

    def end(self, code: int, why: str) -> None:
        """At once, for whatever reason came first."""
        if not self.over:
            self.over = True
            self._job.course.end()
            self._job.traffic.tell()
            self._job.write({"is": "end", "code": code, "why": why})

    def told(self, message: Mapping[str, Any]) -> None:
        """A worker has ended: told to leave, having stood in for another, or because nothing is left to do."""
        if message["stood_in"] or message["told"]:
            self._job.turns.ended(message["worker"], message["clock"] if message["told"] else None)
        else:
            self.finished.setdefault(message["worker"], message["clock"])  # begun anew at a later one it ends there
            self._job.turns.frozen = True

    def turned(self, workers: Container[int]) -> None:
        """Only these work now."""
        self.finished = {worker: clock for worker, clock in self.finished.items() if worker in workers}

    def rolled_back(self) -> None:
        """Nobody has finished."""
        self.finished.clear()

    def look(self) -> None:
        """Whether all have finished, and what they did is safe."""
        turns = self._job.turns
        if self.finished and not turns.turning and not turns.owed:
            last = min(self.finished.values())
            done = all(worker in self.finished for worker, share in turns.shares.items() if share.first <= last)
            if done and self._job.saving.finished(self._job.cluster, last - SHIFT):
                self._let_speak(last)

    def _let_speak(self, clock: int) -> None:
        """The program's last word, then the end."""
        if self.over or self._last_word:
            return
        self._last_word = True
        job, era = self._job, self._job.cluster.era
        reliable = min(job.cluster.reliable, key=lambda host: host.number).number

        def spoke(answer: Answer) -> None:
            if answer["why"] is None:
                self.end(0, "")
            elif reliable in job.members and era == job.cluster.era:
                job.fail(f"{job.members[reliable].name}: {answer['why']}")
            else:
                self._last_word = False  # another one will do it

        job.channel.tell(reliable, "result", spoke, clock=clock, era=era)
