"""Parameters that take no part in some passes, or in none: without a gradient the optimiser leaves them alone."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from msgspec import structs
from torch import Tensor, nn

from plink.model.document import UNSET
from plink.model.pipeline.document import StageAllReduce
from plink.model.pipeline.plan import PipelinePlan
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.runtime.pipeline.apps import SmallApp, mlp, plan_of
from tests.runtime.ranks import results_of, run_ranks

# Each starts several processes; one path of each kind is quick.
pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("one_thread")]


class Partly(nn.Module):
    """One parameter takes part in some minibatches, one in none."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = nn.Linear(6, 6), nn.Parameter(torch.ones(6))
        self.never = nn.Parameter(torch.ones(4))

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.always(value)
        return output * self.sometimes if float(value.sum()) > 0 else output


class PartlyApp(SmallApp):
    """Two stages; each optimiser changes parameters of a gradient of 0."""

    def __init__(self, optimiser: str, minibatches: int = 16) -> None:
        super().__init__(mlp, optimiser, minibatches)

    def model(self) -> nn.Module:
        return nn.Sequential(Partly(), nn.Tanh(), nn.Linear(6, 3))

    def optimiser(self, parameters: list[nn.Parameter], scale: float) -> torch.optim.Optimizer:
        if self._optimiser == "adam":
            return torch.optim.AdamW(parameters, lr=0.01 * scale, weight_decay=0.1)
        return super().optimiser(parameters, scale)


def planned(topology: dict[str, Any], bucket_bytes: int) -> PipelinePlan:
    plan = plan_of(layers=3, **topology)
    reduced = StageAllReduce(algo="ring", bucket_bytes=bucket_bytes)
    stages = tuple(
        structs.replace(stage, all_reduce=reduced if len(stage.ranks) > 1 else UNSET) for stage in plan.stages
    )
    return structs.replace(plan, stages=stages)


def train(app: PartlyApp, plan: PipelinePlan) -> StageResult:
    """Be a rank."""
    dist.init_process_group("gloo")
    return run_rank(PipelineProgram(app), plan, "plan.json", 60)


WAIT: dict[str, Any] = {"replicas": [2, 1]}
LATE = WAIT | {"reduce": "late"}
TWO_VERSIONS = WAIT | {"kind": "2bw", "accumulate": 4}
PARALLEL: dict[str, Any] = {"replicas": [2], "kind": "data-parallel"}
LARGE, SMALL = 200, 8  # bytes of a bucket: all parameters of a stage in few, or each in its own


@pytest.mark.parametrize("minibatches", [16, 17])  # the last round is whole, or of one replica
@pytest.mark.parametrize(
    ("optimiser", "topology", "bucket_bytes"),
    [
        ("momentum", WAIT, LARGE),
        ("adam", PARALLEL, LARGE),
        ("adam", WAIT, SMALL),
        ("adam", LATE, SMALL),
        ("adam", TWO_VERSIONS, SMALL),
    ],
)
def test_replicas_train_them_as_one_process_does(
    optimiser: str, topology: dict[str, Any], bucket_bytes: int, minibatches: int
) -> None:
    app, plan = PartlyApp(optimiser, minibatches), planned(topology, bucket_bytes)
    sums = [float(app.batch(number)[0][0].sum()) > 0 for number in range(16)]
    rounds = {sum(sums[number : number + 2]) for number in range(0, 16, 2)}
    assert rounds == {0, 1, 2}  # both replicas, one of them, or none
    results = results_of(run_ranks(train, plan.ranks, app, plan))
    expected = train_in_one_process(PipelineProgram(app), plan, "plan.json")
    for own, other in zip(results, expected, strict=True):
        assert own.optimiser_state.keys() == other.optimiser_state.keys()
        for name, tensor in own.state.items():
            assert torch.equal(tensor, other.state[name]), name
        if "0.never" in own.state:
            assert torch.equal(own.state["0.never"], torch.ones(4))
