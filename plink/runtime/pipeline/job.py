"""One rank of a pipeline, from the program and the plan to the end of training."""

import hashlib
import itertools
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from plink.errors import PlinkError
from plink.model.pipeline.actions import PipelineAction, actions_from, actions_of
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.rank_report import RankReport
from plink.model.pipeline.shape import PipelineShape, minibatches_per_update
from plink.model.units import format_bytes
from plink.runtime.allreduce.watchdog import ask_store
from plink.runtime.pipeline.agreement import (
    ARGUMENTS,
    RankReporter,
    agree,
    digest_of_model,
    digest_of_values,
    read_by_all,
)
from plink.runtime.pipeline.app import PipelineApp
from plink.runtime.pipeline.checkpoints import CheckpointSettings, Provenance, StageCheckpoints
from plink.runtime.pipeline.evaluation import (
    Evaluations,
    StageEvaluation,
    check_evaluation,
    gathered,
    segments,
    summary,
)
from plink.runtime.pipeline.executor import StageError, StageExecutor
from plink.runtime.pipeline.parts import StageModule, build_model, stages_of
from plink.runtime.pipeline.replicas import DEFAULT_BUCKET_BYTES, Gradients, LocalGradients, ReducedGradients
from plink.runtime.pipeline.resume import digest_of_training, restore
from plink.runtime.pipeline.stage import StagePlace, StageTrainer
from plink.runtime.pipeline.transport import PeerError, StageTransport

DEFAULT_TIMEOUT_S = 300.0
_WRITING_TIMEOUT_S = 10.0  # of a rank that has failed
_MODEL = "model (names and shapes of parameters)"
_numbers = itertools.count()


@dataclass(frozen=True)
class PipelineProgram:
    """A user's program: its app, the file that it is from, where there is one, and what that was started with."""

    app: PipelineApp
    file: Path | None = None
    arguments: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Digest of the file."""
        return "" if self.file is None else hashlib.sha256(self.file.read_bytes()).hexdigest()[:16]

    @property
    def digest_of_arguments(self) -> str:
        """Digest of the arguments."""
        return hashlib.sha256(json.dumps(self.arguments).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class StageResult:
    """What one rank ends with. ``state``: parameters and buffers; ``losses``: of the minibatches whose loss it has.
    ``evaluations``: metrics that it has, of the last stage; replica 0 has all."""

    stage: int
    replica: int
    state: dict[str, Tensor]
    optimiser_state: dict[str, dict[str, Any]]
    losses: dict[int, float]
    versions: int = 1
    evaluations: Evaluations = field(default_factory=dict)


def run_rank(
    program: PipelineProgram,
    plan: PipelinePlan,
    location: str,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    on_report: Callable[[RankReport], None] = lambda report: None,
    checkpoints: CheckpointSettings | None = None,
) -> StageResult:
    """Train as one rank of the default process group, which has the plan's ranks.

    :param location: names the plan in errors. :param timeout_s: of a message of another rank. :param on_report: called
        with what the rank has done, from time to time and at its end. :param checkpoints: None: none are written.
    :raises PlinkError: when ranks differ, or this one cannot go on.
    """
    rank, names = dist.get_rank(), plan.host_names()
    if dist.get_world_size() != plan.ranks:
        raise PlinkError(f"{location}: the plan has {plan.ranks} ranks, the job {dist.get_world_size()}")
    prefix = f"pipeline-{next(_numbers)}/"  # the same on every rank
    store = PrefixStore(prefix, dist.distributed_c10d._get_default_store())
    stage, replica = plan.place_of(rank)
    place, restored = place_of(plan, stage, program.app.minibatches), None
    with read_by_all(store, rank, plan.ranks):
        module, model_digest = _agreed_module(program, plan, location, store, checkpoints)
        origin = _provenance(program, plan, model_digest, store)
        if checkpoints is not None and checkpoints.restore is not None:
            restored = restore(checkpoints.restore, origin, place, replica, store, plan)
    device = _device(program.app)
    module.to(device)
    shape, timeout = plan.shape, timedelta(seconds=timeout_s)
    if checkpoints is not None and restored is not None:
        place = replace(place, begin=restored.minibatch)
        if rank == 0:
            notes = "".join(f"; {note}" for note in restored.notes)
            print(f"resuming from minibatch {place.begin}, checkpoint in {checkpoints.restore}{notes}", file=sys.stderr)
        if (donor := restored.donor) is not None:
            text = f"rank {rank} ({names[rank]}) has no part of it: that of rank {donor} ({names[donor]}) is taken"
            print(f"{text}, with its buffers", file=sys.stderr)
    group = _own_group(plan, stage, timeout)
    transport = messages = None
    ranks = [list(entry.ranks) for entry in plan.stages]
    if shape.stages > 1:
        gloo = dist.ProcessGroupGloo(PrefixStore("transport/", store), rank, plan.ranks, timeout)
        transport = StageTransport(gloo, place, replica, ranks, device)
        if program.app.evaluate_every is not None:
            messages = dist.ProcessGroupGloo(PrefixStore("evaluation/", store), rank, plan.ranks, timeout)
    gradients: Gradients = LocalGradients(minibatches_per_update(shape, stage) > 1)
    if group is not None:
        trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        gradients = ReducedGradients(trained, group, _bucket_bytes(plan, stage))
    trainer = StageTrainer(program.app, place, module, gradients, [replica])
    if restored is not None:
        trainer.restore(restored.state, replica)
    evaluation = StageEvaluation(program.app, trainer, replica, messages, ranks, device)
    writer = None
    if checkpoints is not None and checkpoints.folder is not None:
        writer = StageCheckpoints(checkpoints, trainer, replica, origin, store)
    executor = StageExecutor(program.app, trainer, gradients, transport, replica, device)
    reporter = RankReporter(
        plan, rank, executor, transport, on_report, lambda: None if writer is None else writer.whole
    )

    if writer is not None:
        writer.on_written = reporter.after_checkpoint

    def after_action(action: PipelineAction) -> None:
        if writer is not None:
            writer.after_action(action)
        reporter.after_action()

    dist.barrier()  # times of actions are since then
    reporter.begin()
    try:
        evaluations: Evaluations = {}
        for begin, end, is_evaluated in segments(program.app, shape, place.begin):
            executor.run(_own_actions(plan, shape, rank, (begin, end)), program.file, after_action)
            if is_evaluated:
                with executor.evaluation():
                    metrics = evaluation.run()
                    if place.is_last:
                        evaluations[end] = gathered(store, shape, replica, end, metrics)
                if place.is_last and replica == 0:
                    print(summary(end, evaluations[end]), file=sys.stderr, flush=True)
                    reporter.after_evaluation(end, evaluations[end])
        executor.finish()
        if writer is not None:
            writer.finish()
            dist.barrier()
            writer.tidy()
        reporter.end(trainer.losses)
        dist.barrier()  # whoever serves the store, or a connection, stays for the others
    except StageError as error:
        raise PlinkError(_first_error(store, rank, names, _with_prediction(error, plan, stage))) from error
    finally:
        if writer is not None:
            writer.finish(_WRITING_TIMEOUT_S)
        if transport is not None:
            transport.close()
    if group is not None:
        dist.destroy_process_group(group)
    return StageResult(
        stage,
        replica,
        trainer.state(replica),
        trainer.optimiser_state(),
        trainer.losses,
        executor.versions,
        evaluations,
    )


def check_supported(plan: PipelinePlan, minibatches: int) -> None:
    """Refuse what the runtime cannot do.

    :raises PlinkError: with what it is.
    """
    if plan.actions is not None:
        planned = sum(action.kind == "F" for rank in plan.stages[0].ranks for action in plan.actions[rank])
        if planned != minibatches:
            raise PlinkError(f"the plan's own actions are of {planned} minibatches, the program has {minibatches}")


def place_of(plan: PipelinePlan, stage: int, minibatches: int) -> StagePlace:
    """Return what a stage's trainer needs to know of the plan."""
    return StagePlace(plan.shape, stage, minibatches, plan.stages[stage].lr_scale, plan.recompute)


def _agreed_module(
    program: PipelineProgram, plan: PipelinePlan, location: str, store: Any, checkpoints: CheckpointSettings | None
) -> tuple[StageModule, str]:
    """Return this rank's stage and the model's digest, once all ranks have shown that they have the same plan, program
    and model."""
    rank, names = dist.get_rank(), plan.host_names()
    stages = [plan.place_of(other)[0] for other in range(plan.ranks)]
    try:
        check_supported(plan, program.app.minibatches)
        cut = build_model(program.app)
        check_evaluation(program.app, cut, plan.actions is not None)
        modules = stages_of(cut, plan, location)
        own = modules[stages[rank]]
        facts = {
            "plan": plan.fingerprint(),
            "program": program.digest,
            ARGUMENTS: program.digest_of_arguments,
            "number of minibatches": str(program.app.minibatches),
            _MODEL: digest_of_model(cut.model),
            "stage (values of parameters)": digest_of_values(own),
        }
    except Exception as error:
        text = str(error) if isinstance(error, PlinkError) else f"{type(error).__name__}: {error}"
        agree(store, rank, names, stages, {"error": text})
        raise
    notes = agree(store, rank, names, stages, facts)
    if rank == 0:
        for note in notes:
            print(f"warning: {note}; paths may differ, what is trained may not", file=sys.stderr)
    if checkpoints is not None:
        checkpoints.check(store, rank, plan.ranks)
    return own, facts[_MODEL]


def _provenance(program: PipelineProgram, plan: PipelinePlan, model: str, store: Any) -> Provenance:
    """Return what checkpoints of this start belong to."""
    start = store.compare_set("start", "", secrets.token_hex(8)).decode()  # of whichever rank is first
    return Provenance(
        plan.replicas, digest_of_training(plan), program.digest, model, program.digest_of_arguments, start
    )


def _own_group(plan: PipelinePlan, stage: int, timeout: timedelta) -> Any:
    """Return the group of the replicas of this rank's stage, by their numbers: Gloo's ring follows them. None of one
    replica. All ranks create all groups."""
    own = None
    # Versions of PyTorch without the option sort ranks.
    options: dict[str, Any] = {"sort_ranks": False} if "sort_ranks" in signature(dist.new_group).parameters else {}
    for number, entry in enumerate(plan.stages):
        if len(entry.ranks) > 1 and number >= plan.shape.frozen:
            group = dist.new_group(list(entry.ranks), timeout=timeout, **options)
            own = group if number == stage else own
    return own


def _bucket_bytes(plan: PipelinePlan, stage: int) -> int:
    reduced = plan.stages[stage].all_reduce
    return (reduced and reduced.bucket_bytes) or DEFAULT_BUCKET_BYTES


def _own_actions(
    plan: PipelinePlan, shape: PipelineShape, rank: int, span: tuple[int, int]
) -> Iterable[PipelineAction]:
    """Return the actions of a rank from one minibatch to another, before which it drains."""
    stage, replica = plan.place_of(rank)
    if plan.actions is None:
        return actions_of(shape, stage, replica, span[1], span[0])
    return actions_from(shape, stage, plan.actions[rank], span[0])


def _device(app: PipelineApp) -> torch.device:
    """Return the device of this process: with several GPUs, that of its local rank."""
    device = torch.device(app.device)
    if app.device == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % max(1, torch.cuda.device_count()))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def _with_prediction(error: StageError, plan: PipelinePlan, stage: int) -> StageError:
    """Return an error with the memory that the plan predicts for the stage, where there was not enough."""
    cause = error.__cause__
    memory = plan.stages[stage].memory_bytes
    predicted = memory.all if memory else None
    is_memory = isinstance(cause, MemoryError | torch.cuda.OutOfMemoryError) or "allocate memory" in str(cause)
    if not is_memory or predicted is None:
        return error
    full = StageError(f"{error}; the plan predicts {format_bytes(predicted)}")
    full.__cause__ = cause
    return full


def _first_error(store: Any, rank: int, names: Sequence[str], error: StageError) -> str:
    """Return this rank's error with its host, and that of the rank that was the first to fail, where it is known."""
    text = f"rank {rank} ({names[rank]}), {error}"
    if isinstance(error.__cause__, PeerError):
        peer = error.__cause__.peer
        text = text.replace(f"waits for rank {peer}:", f"waits for rank {peer} ({names[peer]}):")
    first = ask_store(lambda: store.compare_set("first-error", "", text).decode())
    return text if first in (None, "", text) else f"{text}; the first error: {first}"
