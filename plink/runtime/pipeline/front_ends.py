"""Cut a model into units, the smallest things that a stage can have. Three ways, tried in this sequence:

- ``sequential``: an ``nn.Sequential``, nested ones flattened. A unit is a module of it.
- ``export``: ``torch.export`` traces the model. A unit begins where a module of ``layers()`` is first called; what is
  made in a unit and used after the next one is handed on by those between, so connections may skip units.
- ``modules``: the modules of ``layers()`` are called one after the other, each with what the one before it returned.
  That is seen in one recorded run, so it must not depend on data.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from plink.errors import InputError
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
