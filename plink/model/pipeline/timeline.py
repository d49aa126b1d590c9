"""When each rank of a pipeline does what: simulated, for traces and pictures."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from plink.model.pipeline.actions import PipelineAction
from plink.model.pipeline.plan import PipelinePlan


class TimedAction(NamedTuple):
    """An action of a replica of its stage; seconds since the job began."""

    action: PipelineAction
    replica: int
    begin_s: float
    end_s: float


def chrome_trace(plan: PipelinePlan, passes: Iterable[TimedAction]) -> dict[str, Any]:
    """Return passes as a trace for Perfetto or chrome://tracing: a process a stage, a thread a rank.

    All-reduces are waits for them.
    """
    names = plan.host_names()
    events: list[dict[str, Any]] = []
    for number, stage in enumerate(plan.stages):
        events.append({"name": "process_name", "ph": "M", "pid": number, "args": {"name": f"stage {number}"}})
        events += [
            {
                "name": "thread_name", "ph": "M", "pid": number, "tid": rank,
                "args": {"name": f"rank {rank} on {names[rank]}"},
            }
            for rank in stage.ranks
        ]  # fmt: skip
    kinds = {"F": "forward", "B": "backward", "REDUCE": "all-reduce", "UPDATE": "update"}
    for passed in passes:
        action = passed.action
        event = {
            "name": f"{action.kind} {action.number}", "cat": kinds[action.kind], "ph": "X",
            "ts": passed.begin_s * 1e6, "dur": (passed.end_s - passed.begin_s) * 1e6,
            "pid": action.stage, "tid": plan.stages[action.stage].ranks[passed.replica],
        }  # fmt: skip
        events.append(event)
    return {"traceEvents": events, "displayTimeUnit": "ms"}
