"""A plan in the formats of other programs: torch, torchtitan, Megatron-LM, DeepSpeed and PipeDream's runtime.

All but PipeDream's train with a flush at each update. Their stages have equally many replicas, whole copies of the
pipeline; one copy is written, with as many minibatches of an update as it gets.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from plink.errors import UsageError
from plink.model.pipeline.actions import actions_of
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import FLUSHING

_SCHEDULES = {"1f1b-flush": "1F1B", "gpipe": "GPipe"}


class Exported(NamedTuple):
    """A file's text, and what whoever uses it should know."""

    text: str
    note: str = ""


def torch_csv(plan: PipelinePlan) -> Exported:
    """Return the passes of each rank for ``torch.distributed.pipelining`` (``_load_csv``, format ``compute_only``).

    Source: torch 2.13, ``torch/distributed/pipelining/schedules.py``: a row a rank, cells like ``0F3``.

    :raises UsageError: when torch's schedules cannot do what the plan says.
    """
    copies = _copies(plan, "torch")
    if plan.kind not in FLUSHING:
        raise UsageError(
            f"torch's schedules update once for all minibatches of a step, a plan of kind {plan.kind} does not; "
            "plan with --kind 1f1b-flush --microbatches M"
        )
    shape = plan.shape
    rows = [
        ",".join(
            f"{stage}{action.kind}{action.number // copies}"
            for action in actions_of(shape, stage, 0, plan.accumulate)
            if action.kind in ("F", "B")
        )
        for stage in range(shape.stages)
    ]
    note = f"step() with {plan.accumulate // copies} microbatches; {copies} copies of the pipeline"
    return Exported("".join(f"{row}\r\n" for row in rows), note)


def torchtitan(plan: PipelinePlan, profile: ModelProfile) -> Exported:
    """Return the part ``[parallelism]`` of a torchtitan configuration (TOML).

    Source: ``ParallelismConfig`` and ``pipeline_module_split`` of torchtitan.

    :raises UsageError: for stages of different numbers of replicas.
    """
    copies = _copies(plan, "torchtitan")
    parts = [[layer.name for layer in profile.layers[stage.first : stage.last + 1]] for stage in plan.stages]
    lines = [
        "[parallelism]",
        f"data_parallel_replicate_degree = {copies}",
        f"pipeline_parallel_degree = {len(plan.stages)}",
        f"pipeline_parallel_schedule = {json.dumps(_SCHEDULES.get(plan.kind, '1F1B'))}",
        f"pipeline_parallel_microbatch_size = {plan.minibatch}",
        "module_fqns_per_model_part = [",
        *(f"    {json.dumps(names)}," for names in parts),
        "]",
    ]
    return Exported("\n".join(lines) + "\n", _asynchronous_note(plan))


def megatron(plan: PipelinePlan, profile: ModelProfile) -> Exported:
    """Return Megatron-LM's options: ``E`` is the embedding, ``t`` a decoder layer, ``L`` the loss.

    Source: ``PipelineParallelLayerLayout`` of Megatron-LM. Decoder layers are those of the kind that most layers are.

    :raises UsageError: when layers do not look like an embedding, decoder layers and a head.
    """
    copies = _copies(plan, "Megatron-LM")
    kinds = Counter(layer.kind for layer in profile.layers if layer.kind)
    if not kinds:
        raise UsageError("Megatron-LM's layout needs the kinds of layers, and the profile has none")
    decoder = kinds.most_common(1)[0][0]
    numbers = [number for number, layer in enumerate(profile.layers) if layer.kind == decoder]
    if numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise UsageError(
            f"Megatron-LM's layout is an embedding, decoder layers and a head, but other layers lie between those of "
            f"kind {decoder}"
        )
    if numbers[0] == 0 or numbers[-1] == len(profile.layers) - 1:
        end = "embedding before" if numbers[0] == 0 else "head after"
        raise UsageError(
            f"Megatron-LM's layout is an embedding, decoder layers and a head, but the profile has no {end} its layers "
            f"of kind {decoder}"
        )
    if plan.stages[0].last < numbers[0] - 1 or plan.stages[-1].first > numbers[-1] + 1:
        raise UsageError("Megatron-LM keeps the embedding in the first stage and the head in the last; plan so")
    counts = [len([k for k in numbers if stage.first <= k <= stage.last]) for stage in plan.stages]
    texts = ["" if count == 0 else "t" if count == 1 else f"t*{count}" for count in counts]
    layout = "|".join(["E" + texts[0], *texts[1:]]) + "L"
    tensors = [
        f"--num-layers {len(numbers)}",
        f"--pipeline-model-parallel-size {len(plan.stages)}",
        f"--pipeline-model-parallel-layout '{layout}'",
        f"--micro-batch-size {plan.minibatch}",
        f"--global-batch-size {plan.minibatch * max(plan.accumulate, copies)}",
    ]
    return Exported(" \\\n".join(tensors) + "\n", _asynchronous_note(plan))


def deepspeed(plan: PipelinePlan) -> Exported:
    """Return a Python module with DeepSpeed's ``PipelineModule`` for exactly these stages.

    Source: ``PipelineModule._partition_layers`` of DeepSpeed, which has no option for given parts.

    :raises UsageError: for stages of different numbers of replicas.
    """
    copies = _copies(plan, "DeepSpeed")
    parts = [0, *(stage.last + 1 for stage in plan.stages)]
    text = f'''"""Stages planned by plink, for DeepSpeed; {copies} copies of the pipeline train."""

from deepspeed.pipe import PipelineModule

NUM_STAGES = {len(plan.stages)}
CONFIGURATION = {{
    "train_micro_batch_size_per_gpu": {plan.minibatch},
    "gradient_accumulation_steps": {max(1, plan.accumulate // copies)},
}}


class PlannedPipelineModule(PipelineModule):
    """Layers ``parts[s]`` to ``parts[s + 1] - 1`` are stage s."""

    def _partition_layers(self, method="parameters"):
        self.parts = {parts}
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])
'''
    return Exported(text, _asynchronous_note(plan))


def pipedream(plan: PipelinePlan) -> Exported:
    """Return the configuration of PipeDream's runtime (``conf.json``): each stage is a module, the loss one more.

    Source: runtime/runtime.py and runtime/image_classification/models/*/gpus=*/*.json of the published code.

    :raises UsageError: for kinds that it does not have.
    """
    if plan.kind not in ("1f1b", "data-parallel", "model-parallel"):
        raise UsageError(f"PipeDream's runtime has no kind {plan.kind}; plan with --kind 1f1b")
    stages = list(range(len(plan.stages)))
    document = {
        "module_to_stage_map": [*stages, stages[-1]],
        "stage_to_rank_map": {str(stage): list(plan.stages[stage].ranks) for stage in stages},
        "stage_to_depth_map": {str(stage): plan.shape.warm_up(stage) for stage in stages},
    }
    note = "the number of minibatches must be a multiple of every stage's replicas" if max(plan.replicas) > 1 else ""
    return Exported(json.dumps(document, indent=4) + "\n", note)


Exporter = Callable[[PipelinePlan, ModelProfile], Exported]
FORMATS: Mapping[str, Exporter] = {
    "torch-csv": lambda plan, profile: torch_csv(plan),
    "torchtitan": torchtitan,
    "megatron": megatron,
    "deepspeed": lambda plan, profile: deepspeed(plan),
    "pipedream": lambda plan, profile: pipedream(plan),
}
NEEDS_PROFILE = ("torchtitan", "megatron")


def _copies(plan: PipelinePlan, program: str) -> int:
    """Return how many copies of the whole pipeline a plan has.

    :raises UsageError: when its stages differ in that.
    """
    if any(a != b for a, b in itertools.pairwise(plan.replicas)):
        raise UsageError(f"{program} needs equally many replicas of every stage, the plan has {plan.label}")
    return plan.replicas[0]


def _asynchronous_note(plan: PipelinePlan) -> str:
    if plan.kind in FLUSHING:
        return ""
    return f"only stages are taken over: the plan is of kind {plan.kind}, training there flushes at every update"
