"""Trained by ranks of a pipeline, a model ends with the bits that the formula of versions gives.

The reference is one process that trains minibatch after minibatch, written out here: at stage s minibatch b uses
version max(0, floor(b / r_s) - W_s), W_s = d_s - 1; with vertical sync floor(r_0 v_0(b) / r_s); update k averages the
minibatches k r_s to k r_s + r_s - 1 (Harlap thesis, 5.3.3, for replicas and any depth). The kinds that accumulate m
minibatches use the version of the batch before (2bw) or of their own batch (with a flush).
"""

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from plink.model.pipeline.plan import PipelinePlan
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.runtime.pipeline.apps import SmallApp, attention, conv, dropout, lstm, mlp, plan_of, skip
from tests.runtime.ranks import results_of, run_ranks

CASES: list[tuple[Any, str, bool]] = [
    (mlp, "sgd", False), (mlp, "adam", True), (conv, "momentum", False), (attention, "adam", False),
    (lstm, "momentum", False), (dropout, "adam", False), (skip, "momentum", False),
]  # fmt: skip
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "1-1": {"replicas": [1, 1]},
    "1-1-1": {"replicas": [1, 1, 1]},
    "1-1-1-1": {"replicas": [1, 1, 1, 1]},
    "2-1": {"replicas": [2, 1]},
    "1-2": {"replicas": [1, 2]},
    "2-2": {"replicas": [2, 2]},
    "2-1-1": {"replicas": [2, 1, 1]},
    "1-1-1 vertical": {"replicas": [1, 1, 1], "vertical_sync": True},
    "2-1 vertical": {"replicas": [2, 1], "vertical_sync": True},
    "1-2 vertical": {"replicas": [1, 2], "vertical_sync": True},
    "1-1 deeper": {"replicas": [1, 1], "deeper": [2, 1]},
    "2-1 late": {"replicas": [2, 1], "reduce": "late"},
    "2": {"replicas": [2], "kind": "data-parallel"},
    "1-1 model parallel": {"replicas": [1, 1], "kind": "model-parallel"},
    "1-1-1 2bw": {"replicas": [1, 1, 1], "kind": "2bw", "accumulate": 4},
    "1-1 gpipe": {"replicas": [1, 1], "kind": "gpipe", "accumulate": 3},
    "1-1-1 flush": {"replicas": [1, 1, 1], "kind": "1f1b-flush", "accumulate": 4},
    "1-1 gpipe recompute": {"replicas": [1, 1], "kind": "gpipe", "accumulate": 3, "recompute": True},
    "2-1 recompute": {"replicas": [2, 1], "recompute": True},
}
EXTENDED: dict[str, dict[str, Any]] = {
    "1-1-1 one deeper": {"replicas": [1, 1, 1], "deeper": [1, 1]},
    "2-1 deeper": {"replicas": [2, 1], "deeper": [2]},
    "1-1-1 deeper vertical": {"replicas": [1, 1, 1], "deeper": [2, 1], "vertical_sync": True},
    "2-2 vertical": {"replicas": [2, 2], "vertical_sync": True},
    "2-1-1 vertical": {"replicas": [2, 1, 1], "vertical_sync": True},
    "1-1-1 2bw recompute": {"replicas": [1, 1, 1], "kind": "2bw", "accumulate": 4, "recompute": True},
    "1-2 late": {"replicas": [1, 2], "reduce": "late"},
    "2-1 late vertical": {"replicas": [2, 1], "reduce": "late", "vertical_sync": True},
}
ROUNDING: dict[str, dict[str, Any]] = {
    "3-1": {"replicas": [3, 1]},
    "1-3 vertical": {"replicas": [1, 3], "vertical_sync": True},
}
EXTENDED_ROUNDING: dict[str, dict[str, Any]] = {
    "2-1 2bw": {"replicas": [2, 1], "kind": "2bw", "accumulate": 4},
    "2-1 gpipe": {"replicas": [2, 1], "kind": "gpipe", "accumulate": 4},
    "1-2 flush": {"replicas": [1, 2], "kind": "1f1b-flush", "accumulate": 4},
}

QUICK = ("1-1-1", "2-1 vertical")


@dataclass
class Reference:
    """What the reference ends with. ``buffers[s][q]``: of a stage's replica."""

    parameters: dict[str, Tensor]
    optimiser_states: dict[str, dict[str, Any]]
    buffers: list[list[list[Tensor]]]
    losses: list[float]


def layers_of(model: Any) -> list[tuple[str, nn.Module]]:
    """Return the layers by name; nested sequences are flattened."""
    layers: list[tuple[str, nn.Module]] = []
    for name, module in model.named_children():
        if isinstance(module, nn.Sequential):
            layers += [(f"{name}.{inner}", layer) for inner, layer in layers_of(module)]
        else:
            layers.append((name, module))
    return layers


def run_stage(module: nn.Sequential, value: Any, leaves: list[Tensor]) -> Any:
    """Run one stage on what the stage before handed on, cut off from its graph."""
    tensors = [value] if isinstance(value, Tensor) else list(value)
    own = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]
    leaves += [tensor for tensor in own if tensor.requires_grad]
    arguments = [tensor.clone() for tensor in own]
    return module(arguments[0] if isinstance(value, Tensor) else tuple(arguments))


def train(app: SmallApp, plan: PipelinePlan) -> Reference:
    """Train in one process by the formula."""
    torch.manual_seed(app.seed)
    layers = layers_of(app.model())
    replicas = [len(stage.ranks) for stage in plan.stages]
    warm_up = [stage.depth - 1 for stage in plan.stages]
    late = [plan.reduce == "late" and count > 1 for count in replicas]
    stages = range(len(replicas))

    size = [plan.accumulate if plan.accumulate > 1 else count for count in replicas]

    def version(stage: int, minibatch: int) -> int:
        if plan.accumulate > 1:
            return max(0, minibatch // plan.accumulate - (plan.kind == "2bw"))
        if plan.vertical_sync and stage > 0:
            return replicas[0] * version(0, minibatch) // replicas[stage]
        return max(0, minibatch // replicas[stage] - warm_up[stage] - late[stage])

    modules = [
        [
            copy.deepcopy(nn.Sequential(*[layer for _, layer in layers[stage.first : stage.last + 1]]))
            for _ in stage.ranks
        ]
        for stage in plan.stages
    ]
    names = [
        [
            f"{name}.{inner}"
            for name, layer in layers[stage.first : stage.last + 1]
            for inner, _ in layer.named_parameters()
        ]
        for stage in plan.stages
    ]
    weights = [[nn.Parameter(p.detach().clone()) for p in modules[s][0].parameters()] for s in stages]
    optimisers = [app.optimiser(weights[s], replicas[s] / replicas[0]) if weights[s] else None for s in stages]
    rates = [0.0 if optimiser is None else optimiser.param_groups[0]["lr"] for optimiser in optimisers]
    history = [[[p.detach().clone() for p in weights[s]]] for s in stages]
    gradients: list[list[list[Tensor]]] = [[] for _ in stages]
    losses = []
    for b in range(app.minibatches):
        inputs, target = app.batch(b)
        value: Any = inputs[0]
        outputs, leaves = [], []
        for s in stages:
            module = modules[s][b % replicas[s]]
            for parameter, old in zip(module.parameters(), history[s][version(s, b)], strict=True):
                parameter.data.copy_(old)
                parameter.grad = None
            torch.manual_seed(((app.seed * 1_000_003 + b) * 4096 + s) % (1 << 63))
            leaves.append([])
            value = run_stage(module, value, leaves[-1])
            outputs.append(value)
        loss = app.loss(value, target)
        losses.append(loss.item())
        loss.backward()
        for s in reversed(stages[:-1]):
            tensors = [outputs[s]] if isinstance(outputs[s], Tensor) else outputs[s]
            back = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves[s + 1]]
            torch.autograd.backward([tensor for tensor in tensors if tensor.requires_grad], back)
        for s in stages:
            gradients[s].append([p.grad.clone() for p in modules[s][b % replicas[s]].parameters()])
            if (b + 1) % size[s] and b + 1 < app.minibatches:
                continue
            optimiser, terms_of, gradients[s] = optimisers[s], gradients[s], []
            if optimiser is None:  # no layer of the stage has parameters
                history[s].append([])
                continue
            for parameter, *parts in zip(weights[s], *terms_of, strict=True):
                parameter.grad = sum(parts[1:], parts[0]) / len(parts)
            optimiser.param_groups[0]["lr"] = rates[s] * app.rate(b // size[s] * size[s])
            optimiser.step()
            history[s].append([p.detach().clone() for p in weights[s]])
    flat = [(name, p, s) for s in stages for name, p in zip(names[s], weights[s], strict=True)]
    return Reference(
        {name: p.detach() for name, p, _ in flat},
        {name: dict(optimisers[s].state[p]) for name, p, s in flat},  # type: ignore[union-attr]
        [[list(module.buffers()) for module in modules[s]] for s in stages],
        losses,
    )


def train_cases(topology: dict[str, Any], all_double: bool) -> list[StageResult]:
    """Be a rank of the pipeline, for one model after the other."""
    dist.init_process_group("gloo")
    results = []
    for model, optimiser, double in CASES:
        app = SmallApp(model, optimiser, double=double or all_double)
        results.append(run_rank(PipelineProgram(app), plan_of(layers=len(layers_of(model())), **topology), "plan.json"))
    dist.destroy_process_group()
    return results


def compare(results: list[StageResult], reference: Reference, tolerance: float = 0) -> None:
    """Compare all that ranks end with."""

    def same(own: Any, other: Any, what: str) -> None:
        if not isinstance(own, Tensor):
            assert own == other, what
        elif tolerance:
            torch.testing.assert_close(own, other, rtol=tolerance, atol=tolerance)
        else:
            assert torch.equal(own, other), what

    seen: set[str] = set()
    losses: dict[int, float] = {}
    for result in results:
        buffers = reference.buffers[result.stage][result.replica]
        own = {name: tensor for name, tensor in result.state.items() if name in reference.parameters}
        for name, tensor in own.items():
            same(tensor, reference.parameters[name], f"stage {result.stage}: {name}")
            for key, value in reference.optimiser_states[name].items():
                same(result.optimiser_state[name][key], value, f"stage {result.stage}: {name}: {key}")
        for tensor, expected in zip([t for n, t in result.state.items() if n not in own], buffers, strict=True):
            same(tensor, expected, f"stage {result.stage}: a buffer")
        seen |= set(own)
        losses |= result.losses
    assert seen == set(reference.parameters)
    same(torch.tensor([losses[b] for b in sorted(losses)]), torch.tensor(reference.losses), "losses")


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *(
            pytest.param(name, marks=pytest.mark.extended)
            for name in (*TOPOLOGIES, *ROUNDING, *EXTENDED, *EXTENDED_ROUNDING)
            if name not in QUICK
        ),
    ],
)
def test_pipeline_equals_the_formula(name: str) -> None:
    """To the bit; within rounding where sums are added in another sequence, but alike in each replica: Gloo's of three
    replicas, and those of several minibatches, which each replica adds up first."""
    inexact = ROUNDING | EXTENDED_ROUNDING
    topology, rounding = {**TOPOLOGIES, **EXTENDED, **inexact}[name], name in inexact
    ranks = results_of(run_ranks(train_cases, sum(topology["replicas"]), topology, rounding))
    for number, (model, optimiser, double) in enumerate(CASES):
        app = SmallApp(model, optimiser, double=double or rounding)
        plan = plan_of(layers=len(layers_of(model())), **topology)
        reference = train(app, plan)
        compare([rank[number] for rank in ranks], reference, 1e-6 if rounding else 0)
        if rounding:
            states: dict[int, dict[str, Tensor]] = {}
            for rank in ranks:
                state = states.setdefault(rank[number].stage, rank[number].state)
                parameters = [key for key in state if "running" not in key and "batches" not in key]
                assert all(torch.equal(state[key], rank[number].state[key]) for key in parameters)
        else:
            compare(train_in_one_process(PipelineProgram(app), plan, "plan.json"), reference)
