"""Memory that plans predict, beside bytes of tensors that ranks hold while they train."""

import json
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from examples.ddp_vgg import network
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan import pipeline_from_json
from plink.model.pipeline.profile import ModelProfile
from plink.model.storage import render_document
from plink.runtime.pipeline.app import PipelineApp
from plink.runtime.pipeline.job import PipelineProgram, run_rank
from plink.runtime.pipeline.layer_memory import TensorCounter
from plink.runtime.pipeline.parts import build_model
from plink.runtime.pipeline.profiler import ProfiledProgram, profile_program
from solvers.pipeline.joint import plan_measured
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts, StageRange
from solvers.pipeline.thesis import NetworkLevel
from tests.runtime.ranks import results_of, run_ranks

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended

CUTS = {"perceptron": (0, 6, 13), "vgg": (0, 3, 15), "wide": (0, 1, 2), "view": (0, 2, 4), "adam": (0, 1, 2)}
"""First layers of two stages, and the number of layers."""


class CountedApp(PipelineApp):
    """A network on noise, whose tensors are counted once the pipeline is full.

    ``wide``: what crosses is most of it. ``view``: the second stage begins with a view of its input. ``adam``: the
    optimiser's step holds most.
    """

    minibatches = 40

    def __init__(self, name: str) -> None:
        self.counter = TensorCounter()
        self._name, self._updates = name, 0

    def model(self) -> nn.Sequential:
        layers: dict[str, list[nn.Module]] = {
            "perceptron": [
                *(layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU())),
                nn.Linear(512, 10),
            ],
            "vgg": list(network(8)) if self._name == "vgg" else [],
            "wide": [nn.Linear(16, 512), nn.Linear(512, 10)],
            "view": [nn.Conv2d(3, 16, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 10)],
            "adam": [nn.Linear(512, 512), nn.Linear(512, 1024)],
        }
        return nn.Sequential(*layers[self._name])

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        shapes = {"perceptron": (16, 512), "vgg": (16, 3, 32, 32), "view": (32, 3, 32, 32), "adam": (4, 512)}
        shape = shapes.get(self._name, (1024, 16))
        source = torch.Generator().manual_seed(number)
        target = torch.randint(10, shape[:1], generator=source)
        return (torch.randn(shape, generator=source),), target

    def loss(self, output: Any, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, target)

    def optimiser(self, parameters: list[nn.Parameter], scale: float) -> torch.optim.Optimizer:
        if self._name == "adam":
            return torch.optim.Adam(parameters, lr=1e-4 * scale)
        return torch.optim.SGD(parameters, lr=1e-4 * scale, momentum=0.9)

    def rate(self, number: int) -> float:
        self._updates += 1
        if self._updates == 6:
            self.counter.restart()
        return 1.0


def profile_of(name: str) -> ModelProfile:
    app = CountedApp(name)
    return profile_program(ProfiledProgram(build_model(app).units, app.batch, app.loss, app.optimiser), 1)


def trained(name: str, document: str) -> int:
    """Be a rank; return the most bytes that it held."""
    dist.init_process_group("gloo")
    app = CountedApp(name)
    with app.counter:
        run_rank(PipelineProgram(app), pipeline_from_json(json.loads(document), "plan.json"), "plan.json")
    return app.counter.most


@pytest.mark.parametrize(
    ("name", "replicas", "options"),
    [
        ("perceptron", (1, 1), {"kind": "1f1b", "depths": (4, 2)}),
        ("vgg", (2, 1), {"kind": "1f1b", "depths": "noam"}),
        ("perceptron", (1, 1), {"kind": "2bw", "accumulate": 4}),
        ("vgg", (1, 1), {"kind": "1f1b-flush", "accumulate": 4}),
        ("vgg", (1, 1), {"kind": "gpipe", "accumulate": 4, "recompute": True}),
        ("perceptron", (3,), {"kind": "data-parallel"}),
        ("wide", (1, 1), {"kind": "1f1b", "depths": "noam"}),
        ("wide", (1, 1), {"kind": "1f1b", "depths": (4, 1)}),
        ("view", (1, 1), {"kind": "1f1b", "depths": "noam"}),
        ("adam", (1, 1), {"kind": "1f1b", "depths": "noam"}),
    ],
)
def test_predictions_are_within_ten_percent(name: str, replicas: tuple[int, ...], options: dict[str, Any]) -> None:
    """Parameters, versions, optimiser state, gradients, activations, messages, and what is needed for a moment."""
    hosts = Hosts(tuple(Host(f"h{k}", f"h{k}", 1) for k in range(sum(replicas))))
    cuts = CUTS[name]
    stages = tuple(StageRange(cuts[k], cuts[k + 1] - 1, replicas[k]) for k in range(len(replicas)))
    request = JointRequest(**options, **({} if len(replicas) == 1 else {"stages": stages}), all_workers=True)
    plan = plan_measured(
        profile_of(name), MeasuredHosts.even(hosts, (NetworkLevel(len(hosts), 1.25e8),), 1e-4), request
    )
    counted = results_of(run_ranks(trained, plan.ranks, name, render_document(plan.to_json())))
    for stage in plan.stages:
        predicted = stage.memory_bytes
        for rank in stage.ranks:
            assert predicted.all == pytest.approx(counted[rank], rel=0.1), (plan.label, stage.first, predicted)
