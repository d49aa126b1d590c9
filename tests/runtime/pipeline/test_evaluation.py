"""Evaluations while a pipeline trains: with the parameters of one process, and without a trace in what is trained."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from plink.errors import InputError
from plink.runtime.pipeline.app import load_pipeline_app
from plink.runtime.pipeline.checkpoints import CheckpointSettings
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.runtime.pipeline.apps import SmallApp, conv, dropout, plan_of
from tests.runtime.pipeline.restarted import Outcome, StoppingApp, outcome_of_rank
from tests.runtime.pipeline.test_front_ends import Residual
from tests.runtime.ranks import results_of, run_ranks

# Each starts several processes; one path of each kind is quick.
pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("one_thread")]
MINIBATCHES, EVERY, EVALUATED = 13, 5, 7
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "1": {"replicas": [1], "kind": "data-parallel"},
    "1-1-1": {"replicas": [1, 1, 1]},
    "2-1": {"replicas": [2, 1]},
    "1-2 vertical": {"replicas": [1, 2], "vertical_sync": True},
    "2-1 late": {"replicas": [2, 1], "reduce": "late"},
    "1-1 2bw": {"replicas": [1, 1], "kind": "2bw", "accumulate": 3},
    "1-1 gpipe": {"replicas": [1, 1], "kind": "gpipe", "accumulate": 3},
}


class EvaluatedApp(SmallApp):
    """Evaluates other data than it trains with."""

    def __init__(self, *arguments: Any, every: int | None = EVERY, **keys: Any) -> None:
        super().__init__(*arguments, **keys)
        self.evaluate_every, self.evaluation_minibatches = every, EVALUATED

    def evaluation_batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return self.batch(1000 + number)

    def metric(self, output: Any, target: Tensor) -> float:
        return float(nn.functional.cross_entropy(output, target))


def train(model: Any, topology: dict[str, Any]) -> StageResult:
    """Be a rank."""
    dist.init_process_group("gloo")
    program = PipelineProgram(EvaluatedApp(model, "momentum", MINIBATCHES))
    return run_rank(program, plan_of(layers=7, **topology), "plan.json", 60)


@pytest.mark.parametrize("model", [conv, dropout], ids=lambda model: model.__name__)
@pytest.mark.parametrize("name", list(TOPOLOGIES))
def test_evaluation_equals_that_of_one_process(name: str, model: Any) -> None:
    topology = TOPOLOGIES[name]
    plan = plan_of(layers=7, **topology)
    every = -(-EVERY // plan.shape.cycle) * plan.shape.cycle
    one_process = train_in_one_process(PipelineProgram(EvaluatedApp(model, "momentum", MINIBATCHES)), plan, "plan.json")
    plain = train_in_one_process(
        PipelineProgram(EvaluatedApp(model, "momentum", MINIBATCHES, every=None)), plan, "plan.json"
    )
    results = results_of(run_ranks(train, plan.ranks, model, topology))
    for own, other, without in zip(results, one_process, plain, strict=True):
        assert own.evaluations == other.evaluations
        for key, tensor in own.state.items():
            assert torch.equal(tensor, without.state[key]), key
        assert own.losses.items() <= without.losses.items()
    complete = [own.evaluations for own in results if own.stage == len(plan.stages) - 1 and own.replica == 0]
    assert [list(evaluations) for evaluations in complete] == [[*range(every, MINIBATCHES, every), MINIBATCHES]]
    for metrics in complete[0].values():
        assert list(metrics) == list(range(EVALUATED))


class StoppingEvaluatedApp(StoppingApp):
    """Evaluates, and may be stopped."""

    def __init__(self, model: Any, stop: int) -> None:
        super().__init__(model, "momentum", 23, stop=stop)
        self.evaluate_every, self.evaluation_minibatches = 3, EVALUATED

    def evaluation_batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return super().batch(1000 + number)


def train_again(model: Any, topology: dict[str, Any], settings: CheckpointSettings, stop: int) -> Outcome:
    """Be a rank of a job that evaluates and may go on from a checkpoint."""
    return outcome_of_rank(StoppingEvaluatedApp(model, stop), plan_of(layers=7, **topology), settings)


@pytest.mark.parametrize("model", [conv, dropout], ids=lambda model: model.__name__)
@pytest.mark.parametrize(
    "name", ["2-1 late", *(pytest.param(name, marks=pytest.mark.extended) for name in ("1-2 vertical", "1-1 2bw"))]
)
def test_interrupted_job_evaluates_the_same(name: str, model: Any, tmp_path: Path) -> None:
    """Checkpoints are where no evaluation is, too: every 2 minibatches, or every cycle."""
    topology = TOPOLOGIES[name]
    plan = plan_of(layers=7, **topology)
    stopped = run_ranks(train_again, plan.ranks, model, topology, CheckpointSettings(tmp_path, 2), 15)
    assert all(outcome.error for outcome in results_of(stopped))
    again = run_ranks(train_again, plan.ranks, model, topology, CheckpointSettings(tmp_path, 2, tmp_path), -1)
    one_process = train_in_one_process(PipelineProgram(StoppingEvaluatedApp(model, -1)), plan, "plan.json")
    for own, other in zip(results_of(again), one_process, strict=True):
        assert own.result is not None, own.error
        assert own.result.evaluations.items() <= other.evaluations.items()
        for key, tensor in own.result.state.items():
            assert torch.equal(tensor, other.state[key]), key


@pytest.mark.quick
def test_last_evaluation_is_of_the_trained_model() -> None:
    """Against plain PyTorch, with dropout off and the statistics of batch norm."""
    app = EvaluatedApp(dropout, "momentum", MINIBATCHES)
    results = train_in_one_process(PipelineProgram(app), plan_of([1, 1], 7), "plan.json")
    model = dropout()
    model.load_state_dict({name: tensor for result in results for name, tensor in result.state.items()})
    model.eval()
    metrics = results[0].evaluations or results[1].evaluations
    for number, value in metrics[MINIBATCHES].items():
        (inputs,), target = app.evaluation_batch(number)
        assert value == pytest.approx(app.metric(model(inputs).detach(), target), rel=1e-5)


@pytest.mark.quick
def test_traced_model_is_not_evaluated() -> None:
    app = EvaluatedApp(Residual, "sgd", MINIBATCHES)
    with pytest.raises(InputError, match="dropout and batch norm of a traced model always train"):
        train_in_one_process(PipelineProgram(app), plan_of([1, 1, 1], 4, cuts=[1, 3]), "plan.json")


@pytest.mark.quick
def test_evaluation_without_minibatches_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "from tests.runtime.pipeline.test_evaluation import EvaluatedApp, conv\n"
        "def make(arguments):\n"
        "    app = EvaluatedApp(conv, 'sgd')\n"
        "    app.evaluation_minibatches = 0\n"
        "    return app\n"
    )
    with pytest.raises(InputError, match="evaluation_minibatches: a number of 1 or more was expected, not 0"):
        load_pipeline_app(str(program), [])
