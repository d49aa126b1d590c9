"""A plan in the formats of other programs: torch, torchtitan, Megatron-LM, DeepSpeed and PipeDream's runtime.

All but PipeDream's train with a flush at each update. Their stages have equally many replicas, whole copies of the
pipeline; one copy is written, with as many minibatches of an update as it gets.
"""

import heapq
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from plink.errors import InputError, UsageError
from plink.model.pipeline.actions import actions_of
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from plink.model.pipeline.shape import FLUSHING
from plink.model.storage import name_of, read_text

_MILLISECONDS = 1e3
_NODE_NUMBER = re.compile(r"(\d{1,12})(?!.*\d)", re.ASCII)
_MAX_BYTES = 1 << 50
_MAX_SECONDS = 1e7


_SCHEDULES = {"1f1b-flush": "1F1B", "gpipe": "GPipe"}
NEEDS_PROFILE = ("torchtitan", "megatron")


@dataclass
class _Node:
    """One node; ``successors``: names of the nodes that use its output."""

    name: str
    description: str
    forward_s: float
    backward_s: float
    activation_bytes: int
    parameter_bytes: int
    line: int
    successors: list[str] = field(default_factory=list)
    predecessors: list[str] = field(default_factory=list)

    @property
    def is_input(self) -> bool:
        """Whether it only stands for a tensor: of a minibatch, or one that it begins with, such as a hidden state."""
        costs = (self.forward_s, self.backward_s, self.activation_bytes, self.parameter_bytes)
        return self.description.startswith("Input") or not (self.predecessors or any(costs))

    @property
    def number(self) -> tuple[int, str]:
        """When it ran."""
        matched = _NODE_NUMBER.search(self.name)
        return (int(matched[1]) if matched else 0, self.name)


def read_pipedream_graph(path: str | Path, minibatch: int) -> ModelProfile:
    """Return the profile of a file; ``minibatch``: items in the minibatch that was profiled.

    A node a line, ``node4 -- Conv2d(...) -- forward_compute_time=8.2, backward_compute_time=9.1,
    activation_size=1.2e8, parameter_size=7168.0``, sizes in bytes and times in milliseconds, then edges ``node4 --
    node5`` after a tab. Layers run in the sequence of the numbers in their names. A cut is crossed by every node's
    output that is made before it and used after it, once: the published optimiser's "augmented antichain" for the cuts
    of one sequence.

    :raises InputError: naming the line that is wrong.
    """
    return profile_from_graph(read_text(path), name_of(path), minibatch)


def profile_from_graph(text: str, location: str, minibatch: int) -> ModelProfile:
    """Return the profile of a graph's text; ``location`` names the file in errors.

    :raises InputError: naming the line that is wrong.
    """
    nodes = _parsed(text, location)
    _check_sources(nodes, location)
    for name in [name for name, node in nodes.items() if node.is_input or _is_index(node)]:
        _drop(nodes, name)
    if not nodes:
        raise InputError(location, "there is no layer in it")
    ordered = _in_sequence(nodes, location)
    position = {node.name: number for number, node in enumerate(ordered)}
    last_use = [max((position[name] for name in node.successors), default=-1) for node in ordered]
    layers = []
    for number, node in enumerate(ordered):
        crossing = sum(
            made.activation_bytes
            for made, used in zip(ordered[: number + 1], last_use[: number + 1], strict=True)
            if used > number
        )
        layers.append(
            LayerProfile(
                name=node.name,
                kind=node.description.partition("(")[0],
                forward_s=node.forward_s,
                backward_s=node.backward_s,
                parameter_bytes=node.parameter_bytes,
                crossing_bytes=crossing,
                crossing_back_bytes=crossing,
                saved_bytes=node.activation_bytes,
            )
        )
    if not any(layer.compute_s for layer in layers):
        raise InputError(location, "no layer takes any time")
    return ModelProfile(minibatch=minibatch, layers=tuple(layers), program=location, method="import")


def _parsed(text: str, location: str) -> dict[str, _Node]:
    nodes: dict[str, _Node] = {}
    edges: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{location}: line {number}"
        if not line.strip():
            continue
        if line.startswith("\t"):
            ends = line.strip().split(" -- ")
            if len(ends) != 2:
                raise InputError(place, "an edge like 'node4 -- node5' was expected")
            edges.append((number, ends[0], ends[1]))
            continue
        node = _node(line, place, number)
        if node.name in nodes:
            raise InputError(place, f"{node.name} stands in line {nodes[node.name].line} too")
        nodes[node.name] = node
    for number, source, target in edges:
        for name in (source, target):
            if name not in nodes:
                raise InputError(f"{location}: line {number}", f"there is no node {name}")
        if target not in nodes[source].successors:
            nodes[source].successors.append(target)
            nodes[target].predecessors.append(source)
    return nodes


def _node(line: str, place: str, number: int) -> _Node:
    parts = line.strip().split(" -- ")
    if len(parts) not in (3, 4):
        raise InputError(place, "a node like 'node4 -- Conv2d(...) -- forward_compute_time=..., ...' was expected")
    values: dict[str, str] = {}
    for entry in re.split(r", (?=\w+=)", parts[2]):
        key, _, value = entry.partition("=")
        values[key.strip()] = value.strip()
    sizes = _sizes(values.get("activation_size"), place)
    return _Node(
        parts[0],
        parts[1],
        _quantity(values.get("forward_compute_time"), "forward_compute_time", _MAX_SECONDS, place) / _MILLISECONDS,
        _quantity(values.get("backward_compute_time"), "backward_compute_time", _MAX_SECONDS, place) / _MILLISECONDS,
        sum(sizes),
        int(_quantity(values.get("parameter_size"), "parameter_size", _MAX_BYTES, place)),
        number,
    )


def _sizes(text: str | None, place: str) -> list[int]:
    """Return the bytes of an output, of several tensors where it is a list like ``[4.0; 8.0]``."""
    parts = [text] if text is None or not text.startswith("[") else text.strip("[]").split(";")
    return [int(_quantity(part and part.strip(), "activation_size", _MAX_BYTES, place)) for part in parts]


def _quantity(text: str | None, key: str, most: float, place: str) -> float:
    if text is None:
        raise InputError(place, f"{key} is missing")
    try:
        value = float(text)
    except ValueError:
        raise InputError(place, f"{key}: a number was expected, got {text[:40]!r}") from None
    if not (math.isfinite(value) and 0 <= value <= most):
        raise InputError(place, f"{key}: expected a number from 0 to {most:g}, got {text[:40]}")
    return value


def _check_sources(nodes: dict[str, _Node], location: str) -> None:
    """Refuse several nodes that nothing leads to and that are no inputs: their real inputs are missing."""
    sources = [node.name for node in nodes.values() if not node.predecessors and not node.is_input]
    inputs = any(node.is_input for node in nodes.values())
    if len(sources) > 1 or (sources and inputs):
        raise InputError(location, f"nothing leads to {', '.join(sources[:3])}; several inputs are named Input...")


def _is_index(node: _Node) -> bool:
    """Return whether it is a sink that only takes an element of a tuple."""
    return node.description.startswith("__getitem__") and not node.successors


def _drop(nodes: dict[str, _Node], name: str) -> None:
    node = nodes.pop(name)
    for other in node.predecessors:
        nodes[other].successors.remove(name)
    for other in node.successors:
        nodes[other].predecessors.remove(name)


def _in_sequence(nodes: dict[str, _Node], location: str) -> list[_Node]:
    """Return the nodes in the sequence of their numbers, each after those that it uses.

    :raises InputError: where they use each other in a circle.
    """
    sorter = TopologicalSorter({name: node.predecessors for name, node in nodes.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        raise InputError(
            location, f"these nodes use each other in a circle: {' -> '.join(error.args[1][:8])}"
        ) from None
    ready: list[tuple[tuple[int, str], str]] = []
    ordered = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, (nodes[name].number, name))
        _, name = heapq.heappop(ready)
        ordered.append(nodes[name])
        sorter.done(name)
    return ordered


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
