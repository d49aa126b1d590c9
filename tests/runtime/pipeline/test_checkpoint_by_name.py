"""A checkpoint of another plan: what each rank goes on with is what was in its parts, by name."""

from pathlib import Path
from typing import Any

import pytest
import torch

from plink.runtime.pipeline.checkpoint_file import read_checkpoint
from plink.runtime.pipeline.checkpoints import CheckpointSettings, part_file
from plink.runtime.pipeline.parts import build_model
from plink.runtime.pipeline.stage import restore_optimiser
from tests.runtime.pipeline.apps import dropout, mlp, plan_of
from tests.runtime.pipeline.restarted import Outcome, StoppingApp, outcome_of_rank
from tests.runtime.ranks import results_of, run_ranks

# Each starts several processes; one path of each kind is quick.
pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("one_thread")]
WRITER: dict[str, Any] = {"replicas": [1, 2], "cuts": [3]}
TRAINED = 8
OTHERS: dict[str, dict[str, Any]] = {
    "1": {"replicas": [1], "kind": "data-parallel"},
    "2": {"replicas": [2], "kind": "data-parallel"},
    "2-1 other cut": {"replicas": [2, 1], "cuts": [2]},
    "1-1-2 more hosts": {"replicas": [1, 1, 2]},
}


def train(optimiser: str, topology: dict[str, Any], minibatches: int, settings: CheckpointSettings) -> Outcome:
    """Be a rank."""
    model, layers = (dropout, 7) if optimiser == "adam" else (mlp, 6)
    return outcome_of_rank(StoppingApp(model, optimiser, minibatches), plan_of(layers=layers, **topology), settings)


def written(optimiser: str, folder: Path) -> dict[str, Any]:
    """Train up to a checkpoint; return what its parts have, of any replica."""
    results_of(run_ranks(train, 3, optimiser, WRITER, TRAINED, CheckpointSettings(folder, TRAINED)))
    merged: dict[str, Any] = {"parameters": {}, "buffers": {}, "optimiser": {}, "groups": []}
    for place in ((0, 0), (1, 1)):
        _, state = read_checkpoint(part_file(folder, TRAINED, place))
        for key in ("parameters", "buffers", "optimiser"):
            merged[key].update(state[key])
    return merged


@pytest.mark.parametrize("optimiser", ["momentum", "adam"])
@pytest.mark.parametrize("name", OTHERS)
def test_each_stage_goes_on_with_the_values_of_the_checkpoint(name: str, optimiser: str, tmp_path: Path) -> None:
    """There is no minibatch left, so what it ends with is what it has read. A part of the first replica is lost."""
    topology = OTHERS[name]
    merged = written(optimiser, tmp_path)
    part_file(tmp_path, TRAINED, (1, 0)).unlink()
    settings = CheckpointSettings(restore=tmp_path)
    ended = run_ranks(train, sum(topology["replicas"]), optimiser, topology, TRAINED, settings)
    assert "parameters are taken by name" in ended[0].err
    names = set()
    for outcome in results_of(ended):
        assert outcome.result is not None, outcome.error
        for key, tensor in outcome.result.state.items():
            assert torch.equal(tensor, (merged["parameters"] | merged["buffers"])[key]), key
            names.add(key)
        for key, entries in outcome.result.optimiser_state.items():
            assert entries.keys() == merged["optimiser"][key].keys() != set()
            for entry, value in entries.items():
                assert torch.equal(torch.as_tensor(value), torch.as_tensor(merged["optimiser"][key][entry])), key
    assert names == merged["parameters"].keys() | merged["buffers"].keys()


@pytest.mark.quick
def test_training_goes_on_from_them(tmp_path: Path) -> None:
    """With one rank it is the training that PyTorch alone would do from there."""
    merged = written("momentum", tmp_path)
    (outcome,) = results_of(
        run_ranks(train, 1, "momentum", OTHERS["1"], TRAINED + 5, CheckpointSettings(restore=tmp_path))
    )
    app = StoppingApp(mlp, "momentum", TRAINED + 5)
    model = build_model(app).model
    model.load_state_dict(merged["parameters"])
    parameters = dict(model.named_parameters())
    optimiser = app.optimiser(list(parameters.values()), 1.0)
    restore_optimiser(optimiser, parameters, merged)
    base = optimiser.param_groups[0]["lr"]
    for number in range(TRAINED, TRAINED + 5):
        (value,), target = app.batch(number)
        optimiser.param_groups[0]["lr"] = base * app.rate(number)
        optimiser.zero_grad()
        app.loss(model(value), target).backward()
        optimiser.step()
    assert outcome.result is not None, outcome.error
    for name, parameter in parameters.items():
        assert torch.equal(parameter, outcome.result.state[name]), name
