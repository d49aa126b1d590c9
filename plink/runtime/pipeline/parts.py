"""Stages of a model: each is a slice of its units (:mod:`plink.runtime.pipeline.front_ends`)."""

import operator
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from plink.errors import InputError, UsageError
from plink.model.pipeline.plan import PipelinePlan
from plink.runtime.pipeline.app import PipelineApp
from plink.runtime.pipeline.front_ends import CutModel, Unit, cut_model


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
