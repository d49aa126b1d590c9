"""Autotune's daemon: receives rank 0's measurements, decides, and answers with the schedule to install.

It runs in the launcher, between messages of the ranks, and never waits.
"""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

from plink.errors import PlinkError
from plink.model.schedule import Schedule, forward_and_reverse
from plink.runtime.allreduce.aggregation import Aggregation, SizeClass
from runners.autotune.log import TuningLog, stretch_from
from solvers.autotune.observed import MasterAssignment
from solvers.autotune.trajectory import WAIT, WATCH, AutotuneSettings, TuningDecision, TuningTrajectory, decide
from solvers.schedules.hierarchical import two_level_reduce_scatter


class Daemon:
    """Tuner of one job.

    :param log: gets every stretch and its decision. :param say: gets a line for each change.
    """

    def __init__(
        self,
        assignment: MasterAssignment,
        log: TuningLog | None,
        say: Callable[[str], None],
        settings: AutotuneSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trajectory, self._settings = TuningTrajectory(assignment), settings or AutotuneSettings()
        self._log, self._say, self._clock, self._began = log, say, clock, clock()
        self._has_warned = False

    def answer_line(self, text: str) -> list[str]:
        """Return the answers to a line of rank 0. Warns once of an invalid line, which changes nothing."""
        try:
            report = json.loads(text)
            stretch = stretch_from(report, self._trajectory.assignment.ranks, "stretch")
            self._trajectory, decision = decide(self._trajectory, stretch, self._settings)
        except (ValueError, RecursionError, PlinkError) as error:
            if not self._has_warned:
                self._say(f"autotune: {PlinkError(str(error))}")
            self._has_warned = True
            return []
        entry = {key: report[key] for key in ("epoch", "jobs", "bytes", "seconds", "seen")}
        self._add_to_log(entry, decision)
        if decision.action not in (WATCH, WAIT):
            self._say(f"autotune: {decision.reason}")
        return [] if decision.assignment is None else [self._answer(decision.assignment)]

    def _answer(self, assignment: MasterAssignment) -> str:
        schedule = schedule_for(assignment)
        data = Aggregation((SizeClass(None, schedule.algo, schedule),)).to_bytes()
        return json.dumps({"epoch": self._trajectory.epoch, "plan": base64.b64encode(data).decode()})

    def _add_to_log(self, entry: dict[str, Any], decision: TuningDecision) -> None:
        """Add to the log while it can be written: the job matters more."""
        if self._log is None:
            return
        try:
            self._log.add(self._clock() - self._began, entry, decision)
        except OSError as error:
            self._say(f"autotune: the log ends here: {error.strerror}")
            self.close()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
        self._log = None


def schedule_for(assignment: MasterAssignment) -> Schedule:
    """The all-reduce with these masters."""
    return forward_and_reverse(
        two_level_reduce_scatter(assignment.groups, assignment.local_masters, assignment.global_group)
    )
