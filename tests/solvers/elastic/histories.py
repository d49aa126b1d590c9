"""Histories of simulated jobs: the events that controllers were given, and when."""

from functools import cache
from typing import Any
from unittest.mock import patch

from runners.elastic import controller
from solvers.elastic.settings import Settings
from solvers.elastic.state import State, initial
from solvers.elastic.step import Outcome, step
from tests.runners.elastic import simulated_job
from tests.runners.elastic.simulated_course import job_of

History = tuple[tuple[float, Any], ...]


@cache
def history(seed: int) -> tuple[Settings, History]:
    """What the first controller of a simulated job was given, and the job's settings."""
    events: list[tuple[float, Any]] = []
    job = job_of(seed)

    class Recorded(controller.Controller):
        def handle(self, event: Any) -> float:
            if self.state.term == 1:
                events.append((job.now, event))
            return super().handle(event)

    with patch.object(simulated_job, "Controller", Recorded):
        job.run()
    return job._settings, tuple(events)


def play(settings: Settings, events: History) -> tuple[State, list[Outcome]]:
    """What follows from a history."""
    state, outcomes = initial(settings, 1, events[0][0]), list[Outcome]()
    for now, event in events:
        outcomes.append(step(state, event, now))
        state = outcomes[-1].state
    return state, outcomes
