"""Reports of a rank while it trains: one every few seconds, and one at its end."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.rank_report import SCHEMA
from plink.runtime.pipeline.agreement import digest_of_plan
from plink.runtime.pipeline.executor import StageExecutor
from plink.runtime.pipeline.transport import StageTransport

EVERY_S = 10.0
_ACTIONS_PER_LINE = 80
RankReport = dict[str, Any]
"""A document ``plink.pipeline-log/1``."""


class RankReporter:
    """What one rank has done since this was made."""

    def __init__(
        self,
        plan: PipelinePlan,
        rank: int,
        executor: StageExecutor,
        transport: StageTransport | None,
        emit: Callable[[RankReport], None],
        checkpoint: Callable[[], int | None] = lambda: None,
    ) -> None:
        """:param checkpoint: returns the latest that all ranks have; None where none are written."""
        stage, replica = plan.place_of(rank)
        self._place = {"rank": rank, "host": plan.host_names()[rank], "stage": stage, "replica": replica}
        self._plan, self._replicas = digest_of_plan(plan), plan.replicas[stage]
        self._executor, self._transport, self._emit = executor, transport, emit
        begin = executor.first_minibatch
        self._restored = {"begin": begin} if begin else {}
        self._checkpoint = checkpoint
        self._begin = self._reported = time.perf_counter()

    def begin(self) -> None:
        """Emit where a job goes on, if it does."""
        if self._restored:
            self._emit(self._report("progress"))

    def after_action(self) -> None:
        """Emit a report if it is time for one."""
        if time.perf_counter() - self._reported >= EVERY_S:
            self._reported = time.perf_counter()
            self._emit(self._report("progress"))

    def after_checkpoint(self) -> None:
        """Emit a report: a checkpoint was written, or could not be."""
        self._emit(self._report("checkpoint"))

    def after_evaluation(self, trained: int, metrics: Mapping[int, float]) -> None:
        """Emit an evaluation. ``trained``: minibatches before it. ``metrics``: of each evaluation minibatch."""
        rows = [[number, value] for number, value in metrics.items()]
        self._emit(self._report("evaluation") | {"evaluation": {"trained": trained, "metrics": rows}})

    def end(self, losses: Mapping[int, float]) -> None:
        """Emit the times of actions, and the last report. ``losses``: by minibatch, of the last stage."""
        actions = [
            [item.action.kind, item.action.number, round(item.begin_s, 6), round(item.end_s, 6)]
            for item in self._executor.times.actions
        ]
        for first in range(0, len(actions), _ACTIONS_PER_LINE):
            self._emit(self._report("timeline") | {"actions": actions[first : first + _ACTIONS_PER_LINE]})
        loss = {"loss": losses[max(losses)]} if losses else {}
        self._emit(self._report("end") | loss)

    def _report(self, kind: str) -> RankReport:
        times = self._executor.times
        interval_s, checkpoint = times.interval_s(), self._checkpoint()
        return {
            "schema": SCHEMA,
            "type": kind,
            "plan": self._plan,
            **self._place,
            **self._restored,
            "at_s": round(time.perf_counter() - self._begin, 3),
            "minibatches": len(times.ends),
            **({} if interval_s is None else {"minibatch_s": round(interval_s / self._replicas, 9)}),
            **times.to_json(),
            "sent_bytes": 0 if self._transport is None else self._transport.sent_bytes,
            "received_bytes": 0 if self._transport is None else self._transport.received_bytes,
            "versions": self._executor.versions,
            **({} if checkpoint is None else {"checkpoint": checkpoint}),
        }
