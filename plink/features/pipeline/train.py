"""Profile a program's layers, and train a plan's pipeline in this process."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from msgspec.structs import replace

from plink.features.pipeline.request import PipelineProfileRequest, PipelineTrainingRequest
from plink.model.document import UNSET
from plink.model.pipeline.document import PipelineStage
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.results import PipelineTraining
from plink.runtime.pipeline.app import load_pipeline_app
from plink.runtime.pipeline.evaluation import check_evaluation, summary
from plink.runtime.pipeline.job import PipelineProgram
from plink.runtime.pipeline.one_process import train_in_one_process
from plink.runtime.pipeline.parts import build_model, tied_parameters
from plink.runtime.pipeline.profiler import ProfiledProgram, consistent_profile


def profile_pipeline(
    program: str,
    arguments: Sequence[str] = (),
    request: PipelineProfileRequest = PipelineProfileRequest(),
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> ModelProfile:
    """Return the profile of the layers of a program's model: seconds, bytes kept, bytes that cross.

    :param program: a .py file that defines ``make(arguments)``. :param watch: called with how many minibatches are
        done, and how many there are.
    :raises PlinkError: for a program that cannot be profiled.
    """
    torch.set_num_threads(request.threads)
    app = load_pipeline_app(program, list(arguments))
    cut = build_model(app)
    check_evaluation(app, cut)
    profiled = ProfiledProgram(
        cut.units, app.batch, app.loss, app.optimiser, tied_parameters(cut), app.device, app.seed
    )
    made = consistent_profile(profiled, request.minibatches, watch)
    return replace(made, program=program, arguments=tuple(arguments), method=cut.method)


def train_pipeline(
    program: str,
    plan: PipelinePlan,
    arguments: Sequence[str] = (),
    request: PipelineTrainingRequest = PipelineTrainingRequest(),
    location: str = "the plan",
    say: Callable[[str], None] = lambda line: None,
) -> PipelineTraining:
    """Train a plan's pipeline in this process, with the versions and delays it would have on hosts; return its losses.

    :param program: a .py file that defines ``make(arguments)``. :param location: names the plan in errors.
    :param say: called with each evaluation in a line.
    :raises PlinkError: for a program that the plan does not fit.
    """
    if request.threads is not None:
        torch.set_num_threads(request.threads)

    def losses_of(plan: PipelinePlan, label: str) -> tuple[float, ...]:
        app = load_pipeline_app(program, list(arguments))
        app.minibatches = request.minibatches or app.minibatches
        say(f"{label}: {app.minibatches} minibatches")
        losses: dict[int, float] = {}
        results = train_in_one_process(PipelineProgram(app, Path(program)), plan, location, losses.__setitem__)
        for result in results:
            for trained, metrics in result.evaluations.items() if result.replica == 0 else ():
                say(f"{label}, {summary(trained, metrics)}")
        return tuple(losses[number] for number in sorted(losses))

    own = losses_of(plan, f"{plan.label}, {plan.kind}")
    other = losses_of(_without_delays(plan), "sequential") if request.beside else None
    return PipelineTraining(
        program=program, kind=plan.kind, replicas=plan.replicas, minibatches=len(own), losses=own, sequential=other
    )


def _without_delays(plan: PipelinePlan) -> PipelinePlan:
    """Return the plan of one stage on one rank."""
    first = replace(plan.host_entries[0], slots=1)
    begin, end = plan.stages[0], plan.stages[-1]
    names = (begin.names[0], end.names[1]) if begin.names and end.names else UNSET
    stage = PipelineStage(layers=(0, end.last), names=names, ranks=(0,), depth=1)
    return replace(
        plan,
        kind="model-parallel",
        host_entries=(first,),
        stages=(stage,),
        boundaries=(),
        accumulate=1,
        vertical_sync=False,
        reduce="wait",
        recompute=False,
        action_texts=UNSET,
    )
