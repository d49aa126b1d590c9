"""Emulated layers of the pipeline benchmarks: they take the stated time, and hand on the stated bytes."""

import time

import torch

from benchmarks.timing.emulated_training import SHAPES, EmulatedLayer, EmulatedTraining
from plink.runtime.pipeline.job import PipelineProgram
from plink.runtime.pipeline.one_process import train_in_one_process
from plink.runtime.pipeline.parts import units_of
from plink.runtime.pipeline.profiler import ProfiledProgram, profile_program
from tests.runtime.pipeline.apps import plan_of


def test_layers_cost_what_is_stated() -> None:
    layers = [EmulatedLayer(0.02, 4_000, 6_400), EmulatedLayer(0.04, 80_000, 128)]
    app = EmulatedTraining(layers, 2)
    model = app.model()
    profile = profile_program(ProfiledProgram(units_of(model), app.batch, app.loss, app.optimiser), 2)
    assert [layer.parameter_bytes for layer in profile.layers] == [4_000, 80_000]
    assert profile.layers[0].crossing_bytes == profile.layers[0].crossing_back_bytes == 6_400
    begin = time.monotonic()
    for number in range(5):
        inputs, target = app.batch(number)
        app.loss(model(*inputs), target).backward()  # type: ignore[no-untyped-call]
    assert time.monotonic() - begin >= 5 * 0.06 - 0.01


def test_it_trains_as_a_pipeline() -> None:
    layers = [EmulatedLayer(0.002, 400, 640)] * 4
    app = EmulatedTraining(layers, 5)
    begin = time.monotonic()
    results = train_in_one_process(PipelineProgram(app), plan_of([1, 1], 4), "plan.json")
    assert time.monotonic() - begin > 0.9 * 5 * 4 * 0.002
    weights = [tensor for result in results for tensor in result.state.values()]
    assert len(weights) == 4
    assert all(torch.all(weight < 0) for weight in weights)


def test_shapes_have_the_bytes_and_seconds_of_the_theses() -> None:
    weights = {name: sum(layer.weight_bytes for layer in layers) / 1e6 for name, layers in SHAPES.items()}
    seconds = {name: round(sum(layer.seconds for layer in layers), 6) for name, layers in SHAPES.items()}
    assert {name: round(size, 1) for name, size in weights.items()} == {
        "vgg": 14.4, "alexnet": 14.4, "gnmt": 7.7, "gnmt-16": 14.4, "lm": 12.5, "s2vt": 11.0, "resnet": 4.0,
    }  # fmt: skip
    assert seconds == {
        "vgg": 0.336, "alexnet": 0.251, "gnmt": 0.16, "gnmt-16": 0.64, "lm": 0.16, "s2vt": 0.2, "resnet": 0.44,
    }  # fmt: skip
