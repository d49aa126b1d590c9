"""Killed and started again from a checkpoint, a pipeline ends with the bits of one that was never interrupted."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from plink.errors import PlinkError
from plink.runtime.pipeline.checkpoints import CheckpointSettings, checkpoints_in
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.runtime.pipeline.apps import SmallApp, attention, conv, dropout, lstm, plan_of, skip
from tests.runtime.ranks import results_of, run_ranks

MINIBATCHES = 23
CASES: list[tuple[Any, int, str]] = [(conv, 7, "momentum"), (dropout, 7, "adam")]
EXTENDED_CASES: list[tuple[Any, int, str]] = [(attention, 5, "adam"), (lstm, 4, "momentum"), (skip, 6, "sgd")]
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "1-1-1": {"replicas": [1, 1, 1]},
    "2-1": {"replicas": [2, 1]},
    "1-2 vertical": {"replicas": [1, 2], "vertical_sync": True},
    "2-1 late": {"replicas": [2, 1], "reduce": "late"},
    "1-1 2bw": {"replicas": [1, 1], "kind": "2bw", "accumulate": 3},
    "1-1 gpipe recompute": {"replicas": [1, 1], "kind": "gpipe", "accumulate": 3, "recompute": True},
}
EXTENDED: dict[str, dict[str, Any]] = {
    "1-1 deeper": {"replicas": [1, 1], "deeper": [3, 1]},
    "2-2": {"replicas": [2, 2]},
    "1-1-1 vertical": {"replicas": [1, 1, 1], "vertical_sync": True},
    "2-1 late vertical": {"replicas": [2, 1], "reduce": "late", "vertical_sync": True},
    "1-1-1 flush": {"replicas": [1, 1, 1], "kind": "1f1b-flush", "accumulate": 4},
    "2": {"replicas": [2], "kind": "data-parallel"},
}


class StoppingApp(SmallApp):
    """Its first stage fails when it reads a minibatch."""

    def __init__(self, *arguments: Any, stop: int = -1, **keys: Any) -> None:
        super().__init__(*arguments, **keys)
        self.stop = stop

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        if number == self.stop:
            raise RuntimeError("killed")
        return super().batch(number)


@dataclass
class Outcome:
    """What a rank ends with, or the error."""

    result: StageResult | None = None
    error: str = ""


def app_of(case: tuple[Any, int, str], stop: int = -1) -> StoppingApp:
    return StoppingApp(case[0], case[2], MINIBATCHES, stop=stop)


def train(case: tuple[Any, int, str], topology: dict[str, Any], settings: CheckpointSettings, stop: int) -> Outcome:
    """Be a rank in a job that may be stopped, and may go on from a checkpoint."""
    dist.init_process_group("gloo")
    program, plan = PipelineProgram(app_of(case, stop)), plan_of(layers=case[1], **topology)
    try:
        return Outcome(run_rank(program, plan, "plan.json", 60, checkpoints=settings))
    except PlinkError as error:
        return Outcome(error=str(error))


def same(own: StageResult, other: StageResult) -> None:
    assert own.state.keys() == other.state.keys()
    for name, tensor in own.state.items():
        assert torch.equal(tensor, other.state[name]), name
    for name, entries in own.optimiser_state.items():
        for key, value in entries.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other.optimiser_state[name][key])), key
    assert own.losses.items() <= other.losses.items()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads change the sequence of additions."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "case",
    [*CASES, *(pytest.param(case, marks=pytest.mark.extended) for case in EXTENDED_CASES)],
    ids=lambda case: case[0].__name__,
)
@pytest.mark.parametrize("name", [*TOPOLOGIES, *(pytest.param(name, marks=pytest.mark.extended) for name in EXTENDED)])
def test_interrupted_job_ends_with_the_same_bits(name: str, case: tuple[Any, int, str], tmp_path: Path) -> None:
    topology = {**TOPOLOGIES, **EXTENDED}[name]
    ranks, plan = sum(topology["replicas"]), plan_of(layers=case[1], **topology)
    stopped = results_of(run_ranks(train, ranks, case, topology, CheckpointSettings(tmp_path, 2), 15))
    assert all(outcome.error for outcome in stopped)
    latest = checkpoints_in(tmp_path)[0]
    assert 0 < latest <= 15
    ended = results_of(run_ranks(train, ranks, case, topology, CheckpointSettings(tmp_path, 2, tmp_path), -1))
    for own, other in zip(ended, train_in_one_process(PipelineProgram(app_of(case)), plan, "plan.json"), strict=True):
        assert own.result is not None, own.error
        same(own.result, other)
        assert min(own.result.losses, default=latest) > 0
