"""Reports of a rank while it trains: one every few seconds, and one at its end."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET

from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.rank_report import PipelineEvaluation, RankReport, ReportKind
from plink.runtime.pipeline.agreement import digest_of_plan
from plink.runtime.pipeline.executor import StageExecutor
from plink.runtime.pipeline.transport import StageTransport

EVERY_S = 10.0
_ACTIONS_PER_LINE = 80


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
        self._rank, self._host, self._stage, self._replica = rank, plan.host_names()[rank], stage, replica
        self._plan, self._replicas = digest_of_plan(plan), plan.replicas[stage]
        self._executor, self._transport, self._emit = executor, transport, emit
        self._restored_at = executor.first_minibatch
        self._checkpoint = checkpoint
        self._begin = self._reported = time.perf_counter()

    def begin(self) -> None:
        """Emit where a job goes on, if it does."""
        if self._restored_at:
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
        evaluation = PipelineEvaluation(trained=trained, metrics=tuple(metrics.items()))
        self._emit(self._report("evaluation", evaluation=evaluation))

    def end(self, losses: Mapping[int, float]) -> None:
        """Emit the times of actions, and the last report. ``losses``: by minibatch, of the last stage."""
        actions = tuple(
            (item.action.kind, item.action.number, round(item.begin_s, 6), round(item.end_s, 6))
            for item in self._executor.times.actions
        )
        for first in range(0, len(actions), _ACTIONS_PER_LINE):
            self._emit(self._report("timeline", actions=actions[first : first + _ACTIONS_PER_LINE]))
        self._emit(self._report("end", loss=losses[max(losses)] if losses else UNSET))

    def _report(self, kind: ReportKind, **more: Any) -> RankReport:
        times = self._executor.times
        interval_s, checkpoint = times.interval_s(), self._checkpoint()
        return RankReport(
            type=kind,
            plan=self._plan,
            rank=self._rank,
            host=self._host,
            stage=self._stage,
            replica=self._replica,
            begin=self._restored_at or UNSET,
            at_s=round(time.perf_counter() - self._begin, 3),
            minibatches=len(times.ends),
            minibatch_s=UNSET if interval_s is None else round(interval_s / self._replicas, 9),
            sent_bytes=0 if self._transport is None else self._transport.sent_bytes,
            received_bytes=0 if self._transport is None else self._transport.received_bytes,
            versions=self._executor.versions,
            checkpoint=UNSET if checkpoint is None else checkpoint,
            **times.seconds(),
            **more,
        )
