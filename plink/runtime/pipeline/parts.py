"""Cut a model into stages: an ``nn.Sequential``, of which a stage is a slice. Nested ones are flattened."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from plink.errors import InputError, UsageError
from plink.model.pipeline.plan import PipelinePlan
from plink.runtime.pipeline.app import PipelineApp


@dataclass(frozen=True)
class Unit:
    """One layer: the smallest thing that a stage can have; ``name`` is that of the module in the model."""

    name: str
    module: nn.Module


class StageModule(nn.Module):
    """Neighbouring units, called one after the other. Parameters and buffers have the names that the model gives."""

    def __init__(self, units: Sequence[Unit]) -> None:
        super().__init__()
        for unit in units:
            parent: nn.Module = self
            *path, last = unit.name.split(".")
            for step in path:
                if step not in parent._modules:
                    parent.add_module(step, nn.Module())
                parent = parent.get_submodule(step)
            parent.add_module(last, unit.module)
        self._plink_units = tuple(units)

    def forward(self, *values: Any) -> Any:
        """Call the first unit with these, and each other one with what the one before it returned."""
        for unit in self._plink_units:
            try:
                values = (unit.module(*values),)
            except Exception as error:
                error.add_note(f"layer {unit.name}")
                raise
        return values[0]


def build_model(app: PipelineApp) -> nn.Sequential:
    """Return the app's model, made from its seed.

    :raises InputError: when it cannot be cut.
    """
    torch.manual_seed(app.seed)
    model: Any = app.model()
    if isinstance(model, list) and model and all(isinstance(module, nn.Module) for module in model):
        model = nn.Sequential(*model)
    if not isinstance(model, nn.Module) or not _is_sequential(model):
        raise InputError(
            "model()",
            f"an nn.Sequential (or a list of modules) was expected, which can be cut; got {type(model).__name__}",
        )
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise InputError(
                "model()",
                f"{name} is a SyncBatchNorm: replicas of a pipeline are at different minibatches; use BatchNorm",
            )
    return model  # type: ignore[return-value]


def units_of(model: nn.Module, prefix: str = "") -> list[Unit]:
    """Return the layers of an ``nn.Sequential`` in the sequence in which they run."""
    units = []
    for name, module in model._modules.items():
        assert module is not None
        full_name = f"{prefix}{name}"
        units += units_of(module, f"{full_name}.") if _is_sequential(module) else [Unit(full_name, module)]
    return units


def tied_parameters(model: nn.Module) -> list[list[str]]:
    """Return the names of parameters that are one and the same, in groups."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def stages_of(model: nn.Module, plan: PipelinePlan, location: str) -> list[StageModule]:
    """Return the stages that a plan cuts a model into. ``location`` names the plan in errors.

    :raises InputError: when the plan is not of this model.
    """
    units = units_of(model)
    if plan.stages[-1].last + 1 != len(units):
        raise InputError(
            location,
            f"the plan has {plan.stages[-1].last + 1} layers, the program's model {len(units)}; profile it again",
        )
    for number, stage in enumerate(plan.stages):
        names = stage.details.get("names") or (units[stage.first].name, units[stage.last].name)
        for position, planned in zip((stage.first, stage.last), names, strict=True):
            if units[position].name != planned:
                raise InputError(
                    f"{location}: stages[{number}].names",
                    f"layer {position} is {planned} in the plan, and {units[position].name} in the program",
                )
    stages = [StageModule(units[stage.first : stage.last + 1]) for stage in plan.stages]
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


def _is_sequential(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward and len(module) > 0
