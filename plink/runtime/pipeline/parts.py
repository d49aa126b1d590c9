"""Stages of a model: each is a slice of its units (:mod:`plink.runtime.pipeline.parts`)."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from plink.errors import InputError, UsageError
from plink.model.pipeline.plan import PipelinePlan
from plink.runtime.pipeline.app import PipelineApp, checked_batch

Method = Literal["sequential", "export", "modules"]


@dataclass(frozen=True)
class Unit:
    """One layer; ``name`` is that of a module in the model. ``is_traced``: its module is a graph that refers to all
    parameters by their names in the model."""

    name: str
    module: nn.Module
    is_traced: bool = False


@dataclass(frozen=True)
class CutModel:
    """A model and its units, in the sequence in which they run."""

    model: nn.Module
    units: list[Unit]
    method: Method


def cut_model(app: PipelineApp, model: nn.Module) -> CutModel:
    """Return the units of a model.

    Units are the smallest things that a stage can have. Three ways are tried in this sequence:

    - ``sequential``: an ``nn.Sequential``, nested ones flattened. A unit is a module of it.
    - ``export``: ``torch.export`` traces the model. A unit begins where a module of ``layers()`` is first called; what
      is made in a unit and used after the next one is handed on by those between, so connections may skip units.
    - ``modules``: the modules of ``layers()`` are called one after the other, each with what the one before it
      returned. That is seen in one recorded run, so it must not depend on data.

    :raises InputError: when it cannot be cut in any way, with why.
    """
    if is_sequential(model):
        return CutModel(model, units_of(model), "sequential")
    names = _names(app, model)
    inputs, _ = checked_batch(app.batch(0))
    try:
        return CutModel(model, _exported(model, inputs, names), "export")
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = error.reason if isinstance(error, InputError) else f"torch.export says: {lines[0][:200]}"
    try:
        return CutModel(model, _chained(model, inputs, names), "modules")
    except InputError as error:
        reasons = dict.fromkeys((reason, error.reason))
        raise InputError("model()", f"it cannot be cut: {'; as a chain of modules: '.join(reasons)}") from None


def is_sequential(module: nn.Module) -> bool:
    """Return whether a module is an ``nn.Sequential`` that does what they do."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward and len(module) > 0


def units_of(model: nn.Module, prefix: str = "") -> list[Unit]:
    """Return the layers of an ``nn.Sequential`` in the sequence in which they run."""
    units = []
    for name, module in model._modules.items():
        assert module is not None
        full_name = f"{prefix}{name}"
        units += units_of(module, f"{full_name}.") if is_sequential(module) else [Unit(full_name, module)]
    return units


def _names(app: PipelineApp, model: nn.Module) -> list[str]:
    """Return the names of modules that may begin a unit: those of the app, else all direct children, of lists too."""
    names = app.layers(model)
    if names is None:
        return list(_children(model, ""))
    modules = dict(model.named_modules())
    for name in names:
        if name not in modules or not name:
            raise InputError("layers()", f"the model has no module {name!r}")
    return list(names)


def _children(model: nn.Module, prefix: str) -> Iterator[str]:
    for name, module in model.named_children():
        if isinstance(module, nn.ModuleList) or is_sequential(module):
            yield from _children(module, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _exported(model: nn.Module, inputs: tuple[Tensor, ...], names: Sequence[str]) -> list[Unit]:
    """Trace a model, and return a graph for each unit."""
    exported = torch.export.export(model, inputs, strict=False)
    if not exported.call_spec.out_spec.is_leaf():
        raise InputError("model()", "its output is no single tensor")
    module: Any = exported.module
    try:
        traced: fx.GraphModule = module(check_guards=False)
    except TypeError:  # of older releases
        traced = module()
    for block in traced.modules():
        if block is not traced and isinstance(block, fx.GraphModule):
            inside = [name for node in block.graph.nodes if (name := _caller(node, names)) is not None]
            if len(set(inside)) > 1:
                raise _inside_block(inside[0])
    nodes = [node for node in traced.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    result = next(node for node in traced.graph.nodes if node.op == "output").args[0]
    (result,) = result if isinstance(result, tuple | list) else (result,)
    starts = _starts(nodes, names)
    places = {node: place for place, node in enumerate(nodes)}
    places |= {node: -1 for node in traced.graph.nodes if node.op == "placeholder"}
    last_use = {node: max((places.get(user, len(nodes)) for user in node.users), default=-1) for node in places}
    last_use[result] = len(nodes)

    def live(cut: int) -> list[fx.Node]:
        """Return what is made before a node and used from it on."""
        return [node for node in places if places[node] < cut <= last_use[node]]

    units = []
    bounds = [0, *[start for start, _ in starts[1:]], len(nodes)]
    for number, (_, name) in enumerate(starts):
        first, end = bounds[number], bounds[number + 1]
        received = [node for node in places if places[node] == -1] if number == 0 else live(first)
        outgoing = live(end) if end < len(nodes) else [result]
        for node in outgoing:
            if not isinstance(node.meta.get("val"), Tensor):
                raise InputError("model()", f"what is handed on before {name} is no tensor: {node.name}")
        graph = _unit_graph(received, nodes[first:end], outgoing, is_first=number == 0)
        units.append(Unit(name, fx.GraphModule(traced, graph), is_traced=True))
    return units


def _inside_block(name: str) -> InputError:
    reason = f"{name} runs inside torch.autocast or torch.no_grad, and no stage can begin there"
    return InputError("model()", f"{reason}; enter it in the forward() of each layer instead")


def _caller(node: fx.Node, names: Sequence[str]) -> str | None:
    """Return the module, of these, in whose forward a node was made."""
    entries = (node.meta.get("nn_module_stack") or {}).values()
    paths = [str(entry[0]).removeprefix("L['self'].") for entry in entries]
    return next((name for name in names if name in paths), None)


def _starts(nodes: Sequence[fx.Node], names: Sequence[str]) -> list[tuple[int, str]]:
    """Return where units begin: the first node of each named module, in the sequence in which they are called."""
    starts: list[tuple[int, str]] = []
    seen: set[str] = set()
    for place, node in enumerate(nodes):
        name = _caller(node, names)
        if name is not None and name not in seen:
            seen.add(name)
            starts.append((place, name))
    if not starts:
        raise InputError("model()", "none of its modules does anything")
    return starts


def _unit_graph(
    received: Sequence[fx.Node], nodes: Sequence[fx.Node], outgoing: Sequence[fx.Node], is_first: bool
) -> fx.Graph:
    """Return the graph of some nodes, from what is handed to them to what they hand on."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    if is_first:
        copies |= {node: graph.placeholder(node.name) for node in received}
    else:
        value = graph.placeholder("value")
        copies |= {
            node: value if len(received) == 1 else graph.call_function(operator.getitem, (value, index))
            for index, node in enumerate(received)
        }

    def copied(node: fx.Node) -> fx.Node:
        if node not in copies:
            assert node.op == "get_attr"
            copies[node] = graph.node_copy(node, copied)
        return copies[node]

    for node in nodes:
        copies[node] = graph.node_copy(node, copied)
    outputs = tuple(copied(node) for node in outgoing)
    graph.output(outputs[0] if len(outputs) == 1 else outputs)
    return graph


def _chained(model: nn.Module, inputs: tuple[Tensor, ...], names: Sequence[str]) -> list[Unit]:
    """Record one run of a model, and return its modules if it is a chain of them."""
    calls: list[tuple[str, tuple[Any, ...], Any]] = []
    modules = dict(model.named_modules())

    def recorder(name: str) -> Callable[..., None]:
        def record(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            if not torch.is_grad_enabled() or any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
                raise _inside_block(name)
            calls.append((name, arguments, output))

        return record

    hooks = [modules[name].register_forward_hook(recorder(name)) for name in names]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        result = model(*inputs)
    except InputError:
        raise
    except Exception as error:
        raise InputError("model()", f"{type(error).__name__}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
    if not calls:
        raise InputError("model()", "none of its modules is called")
    before: tuple[Any, ...] = inputs
    source = "the input"
    for name, arguments, output in calls:
        if len(arguments) != len(before) or any(a is not b for a, b in zip(arguments, before, strict=True)):
            raise InputError("model()", f"{name} gets something else than what {source} returned")
        before, source = (output,), name
    if result is not before[0]:
        raise InputError("model()", f"it returns something else than what {source} returned")
    if len({name for name, _, _ in calls}) < len(calls):
        raise InputError("model()", "a module is called twice")
    outside = {id(parameter) for parameter in model.parameters()}
    outside -= {id(parameter) for name, _, _ in calls for parameter in modules[name].parameters()}
    if outside:
        raise InputError("model()", "it has parameters outside of these modules")
    return [Unit(name, modules[name]) for name, _, _ in calls]


class StageModule(nn.Module):
    """Neighbouring units, called one after the other. Parameters and buffers have the names that the model gives."""

    def __init__(self, units: Sequence[Unit], model: nn.Module) -> None:
        super().__init__()
        self._plink_units = tuple(units)
        self.constants: set[str] = set()  # buffers that the model itself does not have
        tensors = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
        for unit in units:
            if unit.is_traced:
                self._adopt(unit, tensors)
            else:
                *path, last = unit.name.split(".")
                self._container(path).add_module(last, unit.module)
        own = {id(parameter): name for name, parameter in self.named_parameters()}
        names = model.named_parameters(remove_duplicate=False)
        self.aliases = {name: own[id(parameter)] for name, parameter in names if id(parameter) in own}
        """By each name of a parameter in the model, its name here: others where layers share it."""

    def forward(self, *values: Any) -> Any:
        """Call the first unit with these, and each other one with what the one before it returned."""
        for unit in self._plink_units:
            try:
                # A graph looks for parameters in this module.
                run = partial(type(unit.module).forward, self) if unit.is_traced else unit.module
                values = (run(*values),)
            except Exception as error:
                error.add_note(f"layer {unit.name}")
                raise
        return values[0]

    def _adopt(self, unit: Unit, tensors: Mapping[str, Any]) -> None:
        """Take in all that the graph of a unit refers to: the model's own tensors, and constants."""
        graph: Any = unit.module.graph
        for node in graph.nodes:
            if node.op not in ("get_attr", "call_module"):
                continue
            value: Any = operator.attrgetter(node.target)(unit.module)
            value = tensors.get(node.target, value)
            *path, last = node.target.split(".")
            container = self._container(path)
            if isinstance(value, nn.Parameter | nn.Module):
                setattr(container, last, value)
            elif last not in container._buffers:
                container.register_buffer(last, value)
                if node.target not in tensors:
                    self.constants.add(node.target)

    def _container(self, path: Sequence[str]) -> nn.Module:
        parent: nn.Module = self
        for step in path:
            if step not in parent._modules:
                parent.add_module(step, nn.Module())
            parent = parent.get_submodule(step)
        return parent


def build_model(app: PipelineApp) -> CutModel:
    """Return the app's model, made from its seed, and its units.

    :raises InputError: when it cannot be cut.
    """
    torch.manual_seed(app.seed)
    model: Any = app.model()
    if isinstance(model, list) and model and all(isinstance(module, nn.Module) for module in model):
        model = nn.Sequential(*model)
    if not isinstance(model, nn.Module):
        raise InputError("model()", f"a module, or a list of modules, was expected; got {type(model).__name__}")
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise InputError(
                "model()",
                f"{name} is a SyncBatchNorm: replicas of a pipeline are at different minibatches; use BatchNorm",
            )
    return cut_model(app, model)


def tied_parameters(cut: CutModel) -> list[list[str]]:
    """Return the names of parameters that are one and the same, in groups, each with the traced layers that use it
    where these are several: one of a layer that is called twice, say."""
    parameters = dict(cut.model.named_parameters(remove_duplicate=False))
    names: dict[int, list[str]] = {}
    users: dict[int, list[str]] = {}
    for name, parameter in parameters.items():
        names.setdefault(id(parameter), []).append(name)
    for unit in cut.units:
        graph: Any = unit.module.graph if unit.is_traced else fx.Graph()
        for target in dict.fromkeys(node.target for node in graph.nodes if node.op == "get_attr"):
            if target in parameters:
                users.setdefault(id(parameters[target]), []).append(unit.name)
    groups = [[*group, *(own if len(own := users.get(key, [])) > 1 else [])] for key, group in names.items()]
    return [group for group in groups if len(group) > 1]


def stages_of(cut: CutModel, plan: PipelinePlan, location: str) -> list[StageModule]:
    """Return the stages that a plan cuts a model into. ``location`` names the plan in errors.

    :raises InputError: when the plan is not of this model.
    """
    units = cut.units
    if plan.stages[-1].last + 1 != len(units):
        raise InputError(
            location,
            f"the plan has {plan.stages[-1].last + 1} layers, the program's model {len(units)}; profile it again",
        )
    for number, stage in enumerate(plan.stages):
        names = stage.names or (units[stage.first].name, units[stage.last].name)
        for position, planned in zip((stage.first, stage.last), names, strict=True):
            if units[position].name != planned:
                raise InputError(
                    f"{location}: stages[{number}].names",
                    f"layer {position} is {planned} in the plan, and {units[position].name} in the program",
                )
    stages = [StageModule(units[stage.first : stage.last + 1], cut.model) for stage in plan.stages]
    owner: dict[int, int] = {}
    for number, module in enumerate(stages):
        for name, parameter in module.named_parameters():
            if owner.setdefault(id(parameter), number) != number:
                raise InputError(
                    location,
                    f"stages {owner[id(parameter)]} and {number} share the parameter {name}; "
                    "layers that share one must be in one stage",
                )
    check_frozen(stages, plan, location)
    return stages


def check_frozen(stages: Sequence[nn.Module], plan: PipelinePlan, location: str) -> None:
    """Refuse a plan that sends gradients to stages with nothing to train, or none to stages that train."""
    shape = plan.shape
    trained = [any(parameter.requires_grad for parameter in module.parameters()) for module in stages]
    frozen = next((number for number, trains in enumerate(trained) if trains), len(trained))
    if frozen == len(trained):
        raise UsageError("the model has no parameter that is trained")
    if frozen != shape.frozen:
        in_plan, in_model = (f"{n} frozen first stages" if n else "no frozen stage" for n in (shape.frozen, frozen))
        raise InputError(location, f"the plan has {in_plan}, the program's model {in_model}; profile it again")
