"""When each rank of a pipeline does what: simulated or measured, for traces and pictures."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from plink.model.pipeline.actions import PipelineAction
from plink.model.pipeline.plan import PipelinePlan


class TimedAction(NamedTuple):
    """An action of a replica of its stage; seconds since the job began."""

    action: PipelineAction
    replica: int
    begin_s: float
    end_s: float


def chrome_trace(plan: PipelinePlan, timelines: Mapping[str, Iterable[TimedAction]]) -> dict[str, Any]:
    """Return passes as a trace for Perfetto or chrome://tracing: a process a stage, a thread a rank.

    All-reduces are waits for them. :param timelines: by their names, such as ``simulated``; with several of them those
        of a stage are one below the other.
    """
    names = plan.host_names()
    events: list[dict[str, Any]] = []
    kinds = {"F": "forward", "B": "backward", "REDUCE": "all-reduce", "UPDATE": "update"}
    for position, (name, passes) in enumerate(timelines.items()):
        label = f", {name}" if len(timelines) > 1 else ""
        for number, stage in enumerate(plan.stages):
            process = number * len(timelines) + position
            events.append(
                {"name": "process_name", "ph": "M", "pid": process, "args": {"name": f"stage {number}{label}"}}
            )
            events += [
                {
                    "name": "thread_name", "ph": "M", "pid": process, "tid": rank,
                    "args": {"name": f"rank {rank} on {names[rank]}"},
                }
                for rank in stage.ranks
            ]  # fmt: skip
        for passed in passes:
            action = passed.action
            event = {
                "name": f"{action.kind} {action.number}", "cat": kinds[action.kind], "ph": "X",
                "ts": passed.begin_s * 1e6, "dur": (passed.end_s - passed.begin_s) * 1e6,
                "pid": action.stage * len(timelines) + position,
                "tid": plan.stages[action.stage].ranks[passed.replica],
            }  # fmt: skip
            events.append(event)
    return {"traceEvents": events, "displayTimeUnit": "ms"}
