"""What commands find out about pipelines: proofs, simulations, trainings and runs beside their plans."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.pipeline.actions import PipelineAction
from plink.model.pipeline.document import Digest
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.shape import Kind
from plink.model.types import Count, HostName, Name, NonNegative, Positive, PositiveInt, Share


class PipelineVerification(Document, frozen=True, kw_only=True, tag="plink.pipeline-verification/1"):
    """Whether the actions of a pipeline's plan are right.

    Printed by `plink pipeline verify --json`.
    """

    valid: bool
    """Whether every rank ends, each minibatch passes every stage once each way, and uses the versions of the plan."""
    errors: Annotated[tuple[Name, ...], Meta(max_length=20)]
    """What is wrong, each naming the rank to blame; the first 20. Empty when it is valid."""
    minibatches: PositiveInt | None
    """For how many minibatches it was proven; null: for any number."""


class SimulatedRank(Part, frozen=True, kw_only=True):
    """Shares of a rank's time in steady state."""

    rank: Count
    """Its number."""
    host: HostName
    """Where it runs."""
    stage: Count
    """Its stage."""
    busy: Share
    """It computes."""
    waits_for_activations: Share
    """It waits for the stage before it."""
    waits_for_gradients: Share
    """It waits for the stage after it."""
    waits_for_all_reduce: Share
    """It waits for the other replicas."""


class SimulatedLink(Part, frozen=True, kw_only=True):
    """A link that messages share."""

    name: Name
    """Of a host or a group, like node-0, out."""
    used: NonNegative
    """The share of time that its bytes take at full rate."""


class SimulatedPipeline(Document, frozen=True, kw_only=True, tag="plink.pipeline-simulation/1"):
    """What a plan does on a network, simulated message by message.

    Printed by `plink pipeline simulate --json`.
    """

    network: Digest | None
    """Fingerprint of the network; null for even hosts."""
    capacities: Name
    """Where rates of hosts and links come from."""
    kind: Kind
    """When minibatches are processed and parameters are updated."""
    replicas: Annotated[tuple[PositiveInt, ...], Meta(min_length=1)]
    """Replicas of each stage."""
    minibatches: PositiveInt
    """How many were simulated."""
    minibatch_s: Positive
    """Seconds per minibatch in steady state."""
    items_per_s: Positive
    """Items per second in steady state."""
    periodic: bool
    """Whether the job repeats exactly; else the seconds are a mean."""
    fill_s: NonNegative
    """By how much longer the job takes than its minibatches times that, until it is full; 0 where it is no slower at
    first."""
    job_s: Positive
    """Seconds of all minibatches, with the last ones drained."""
    limited_by: Name
    """What limits it, like compute of node-3."""
    ranks: Annotated[tuple[SimulatedRank, ...], Meta(min_length=1)]
    """What each rank does."""
    links: Annotated[tuple[SimulatedLink, ...], Meta(max_length=5)]
    """The busiest links, the busiest first."""


class PipelineTraining(Document, frozen=True, kw_only=True, tag="plink.pipeline-training/1"):
    """Losses of a pipeline that one process trained, with the plan's delays.

    Printed by `plink pipeline train --json`.
    """

    program: Name
    """The program's file."""
    kind: Kind
    """When the plan's minibatches are processed and parameters are updated."""
    replicas: Annotated[tuple[PositiveInt, ...], Meta(min_length=1)]
    """Replicas of each stage."""
    minibatches: PositiveInt
    """How many were trained."""
    losses: tuple[float, ...]
    """The loss of each minibatch."""
    sequential: tuple[float, ...] | None
    """The losses of the same training with an update after every minibatch and no delay; null if not requested."""


class PredictedFigure(Part, frozen=True, kw_only=True):
    """A figure as the plan predicts it and as the run had it."""

    predicted: Positive | None
    """By the plan; null where it does not say."""
    measured: Positive | None
    """Of the run; null where its ranks did not report it."""

    def is_off(self, tolerance: float) -> bool:
        """Return whether both are known, and differ by more than a share."""
        return bool(self.predicted and self.measured and abs(self.measured / self.predicted - 1) > tolerance)


class AssessedStage(Part, frozen=True, kw_only=True):
    """A stage, medians over its replicas."""

    stage: Count
    """Its number."""
    compute_s: PredictedFigure
    """Both passes and the update, divided by the replicas: medians of the whole run."""
    busy: PredictedFigure
    """The share of the whole run in which a replica does not wait."""
    sent_bytes: PredictedFigure
    """Bytes of messages to other stages, per minibatch; null where nothing is sent."""
    versions: PositiveInt
    """The most versions of its parameters that a replica had at once."""
    planned_versions: PositiveInt
    """The most that the plan has."""
    waits_for: Name | Unset = UNSET
    """What its replicas waited for most."""


class PipelineAssessment(Document, frozen=True, kw_only=True, tag="plink.pipeline-assessment/1"):
    """What a plan predicted of a run, and what the run did.

    Printed by `plink pipeline assess --json`.
    """

    run: Name
    """The run."""
    minibatches: Count
    """How many were trained."""
    minibatch_s: PredictedFigure
    """Seconds per minibatch of the whole pipeline, of the run in its last three quarters."""
    stages: Annotated[tuple[AssessedStage, ...], Meta(min_length=1)]
    """The stages."""
    verdict: Annotated[tuple[Name, ...], Meta(min_length=1)]
    """Which assumptions were off, the one that costs most first; or that none was."""


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
                    "name": "thread_name",
                    "ph": "M",
                    "pid": process,
                    "tid": rank,
                    "args": {"name": f"rank {rank} on {names[rank]}"},
                }
                for rank in stage.ranks
            ]
        for passed in passes:
            action = passed.action
            event = {
                "name": f"{action.kind} {action.number}",
                "cat": kinds[action.kind],
                "ph": "X",
                "ts": passed.begin_s * 1e6,
                "dur": (passed.end_s - passed.begin_s) * 1e6,
                "pid": action.stage * len(timelines) + position,
                "tid": plan.stages[action.stage].ranks[passed.replica],
            }
            events.append(event)
    return {"traceEvents": events, "displayTimeUnit": "ms"}
