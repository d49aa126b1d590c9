"""Training whose computing is waits of stated lengths, and whose messages are real ones of stated bytes: how plans of
pipelines compare on hosts that have cores of their own, shown by hosts that share two.

The shapes are those of the thesis's models (Harlap thesis, Table 5.1), scaled to hosts of 200 Mbit/s: bytes over rate
over computing are as in its Cluster-A. As a program of ``plink launch --pipeline`` or ``plink pipeline profile`` it
makes a ``PipelineApp``; run by itself as the ranks of a job, it trains the same model by data parallelism, with
PyTorch's DistributedDataParallel: buckets, reduced while the backward pass goes on.

    plink launch --pipeline plan.json benchmarks/timing/emulated_training.py --shape gnmt
    plink launch --hosts hosts.txt benchmarks/timing/emulated_training.py --shape gnmt --bucket-mb 1
"""

import argparse
import functools
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

# DDP keeps the group of the moment at which it first imports this: now there is none yet.
import torch.distributed.nn.functional
from torch import Tensor, nn

from plink.runtime.pipeline.app import PipelineApp

ITEMS = 16
"""Of a minibatch."""
FLOAT_BYTES = 4
WARM_UP_STEPS = 4
_MAX_LATENESS_S = 0.005  # a wait that ends later than this lost its core, and is not made up for


@dataclass(frozen=True)
class EmulatedLayer:
    """What a layer costs for one minibatch, and bytes of what it hands on."""

    seconds: float
    weight_bytes: int
    output_bytes: int
    forward_share: float = 1 / 3


def _even(layers: int, seconds: float, weight_bytes: float, output_bytes: int) -> list[EmulatedLayer]:
    return [EmulatedLayer(seconds / layers, round(weight_bytes / layers), output_bytes)] * layers


def _in_parts(
    seconds: float, weight_bytes: float, first: tuple[float, float], outputs: Sequence[int], forward_share: float
) -> list[EmulatedLayer]:
    """Return four layers with the first shares of computing and weights, and three with the rest."""
    compute_share, weight_share = first
    front = [
        EmulatedLayer(seconds * compute_share / 4, round(weight_bytes * weight_share / 4), size, forward_share)
        for size in outputs
    ]
    back = EmulatedLayer(
        seconds * (1 - compute_share) / 3, round(weight_bytes * (1 - weight_share) / 3), 16_384, forward_share
    )
    return [*front, back, back, back]


SHAPES: dict[str, list[EmulatedLayer]] = {
    "vgg": _in_parts(0.336, 14.4e6, (0.98, 0.107), (4_000_000, 2_000_000, 1_000_000, 166_000), 0.35),
    "alexnet": _in_parts(0.251, 14.4e6, (0.89, 0.04), (1_000_000, 600_000, 400_000, 144_000), 1 / 3),
    "gnmt": _even(8, 0.160, 7.7e6, 62_000),
    "gnmt-16": _even(16, 0.640, 14.4e6, 62_000),
    "lm": _even(8, 0.160, 12.5e6, 80_000),
    "s2vt": [
        *_even(2, 0.120, 0.55e6, 60_000), *_even(2, 0.050, 4.95e6, 60_000), *_even(2, 0.030, 5.5e6, 60_000),
    ],
    "resnet": [
        *_even(5, 0.440 * 5 / 16, 0.3e6, 8_000_000), *_even(5, 0.440 * 5 / 16, 0.7e6, 4_000_000),
        *_even(6, 0.440 * 6 / 16, 3.0e6, 2_000_000),
    ],
}  # fmt: skip


def even_shape(layers: int, pass_s: float, weight_bytes: int, output_bytes: int) -> list[EmulatedLayer]:
    """Return layers that are all alike; ``pass_s``: seconds of each pass of a layer."""
    return [EmulatedLayer(2 * pass_s, weight_bytes, output_bytes, 0.5)] * layers


class _Clock:
    """Waits until deadlines: a wait that ends late makes the next one shorter, so lateness does not add up."""

    def __init__(self) -> None:
        self._late_s = 0.0

    def wait_until(self, deadline: float) -> None:
        deadline -= self._late_s
        while (rest := deadline - time.monotonic()) > 0:
            time.sleep(rest)
        late_s = time.monotonic() - deadline
        self._late_s = late_s if late_s < _MAX_LATENESS_S else 0.0


_clock = _Clock()


@functools.cache
def _constant(shape: tuple[int, ...]) -> Tensor:
    """Return ones. What layers hand on is never changed, so that making it costs nothing."""
    return torch.ones(shape)


class _Pass(torch.autograd.Function):
    """Take the stated time in both passes; only the gradients of weights are made anew."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor, layer: EmulatedLayer) -> Tensor:
        deadline = time.monotonic() + layer.seconds * layer.forward_share
        ctx.layer, ctx.shapes = layer, (value.shape, weight.shape)
        columns = max(1, round(layer.output_bytes / (ITEMS * FLOAT_BYTES)))
        _clock.wait_until(deadline)
        return _constant((ITEMS, columns)).detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        deadline = time.monotonic() + ctx.layer.seconds * (1 - ctx.layer.forward_share)
        value_shape, weight_shape = ctx.shapes
        own = torch.full(weight_shape, float(gradients[0][0, 0]))
        _clock.wait_until(deadline)
        return (_constant(tuple(value_shape)).detach() if ctx.needs_input_grad[0] else None), own, None


class Emulated(nn.Module):
    """One layer."""

    def __init__(self, layer: EmulatedLayer) -> None:
        super().__init__()
        self.layer = layer
        self.weight = nn.Parameter(torch.zeros(max(1, layer.weight_bytes // FLOAT_BYTES)))

    def forward(self, value: Tensor) -> Tensor:
        """Wait, and hand on as many bytes as stated."""
        return _Pass.apply(value, self.weight, self.layer)  # type: ignore[no-any-return,no-untyped-call]


class EmulatedTraining(PipelineApp):
    """Layers of a shape, one after the other."""

    def __init__(self, layers: Sequence[EmulatedLayer], minibatches: int) -> None:
        self.minibatches, self._layers = minibatches, layers

    def model(self) -> nn.Sequential:
        """Return the layers."""
        return nn.Sequential(*map(Emulated, self._layers))

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return ones; reading data costs nothing here."""
        return (torch.ones(ITEMS, 16),), torch.zeros(ITEMS)

    def loss(self, output: Any, target: Tensor) -> Tensor:
        """Return the mean of the outputs."""
        mean: Tensor = output.mean()
        return mean

    def optimiser(self, parameters: list[nn.Parameter], scale: float) -> torch.optim.Optimizer:
        """Return plain stochastic gradient descent."""
        return torch.optim.SGD(parameters, lr=1e-3 * scale)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=[*SHAPES, "even"], default="gnmt")
    parser.add_argument("--minibatches", type=int, default=60, help="of the whole job")
    parser.add_argument("--bucket-mb", type=float, default=4, help="of DistributedDataParallel")
    parser.add_argument("--layers", type=int, default=4, help="of even")
    parser.add_argument("--pass-s", type=float, default=0.02, help="seconds of each pass of a layer of even")
    parser.add_argument("--weight-bytes", type=int, default=4)
    parser.add_argument("--output-bytes", type=int, default=64)
    parser.add_argument("--times-seconds", type=float, default=1, help="of every layer, the shape's times this")
    parser.add_argument("--times-bytes", type=float, default=1, help="of every layer, the shape's times this")
    parser.add_argument("--slow-host", metavar="HOST=X", help="a host that takes X times as long")
    parser.add_argument("--no-stashing", action="store_true", help="change weights in place: what copies cost")
    return parser.parse_args(arguments)


def _layers(options: argparse.Namespace) -> list[EmulatedLayer]:
    if options.shape == "even":
        layers = even_shape(options.layers, options.pass_s, options.weight_bytes, options.output_bytes)
    else:
        layers = SHAPES[options.shape]
    slow_host, _, factor = (options.slow_host or "").partition("=")
    slowness = float(factor) if slow_host == os.uname().nodename else 1.0
    return [
        replace(
            layer,
            seconds=layer.seconds * options.times_seconds * slowness,
            weight_bytes=round(layer.weight_bytes * options.times_bytes),
            output_bytes=round(layer.output_bytes * options.times_bytes),
        )
        for layer in layers
    ]


def make(arguments: Sequence[str]) -> PipelineApp:
    """Return the app."""
    options = _options(arguments)
    if options.no_stashing:
        _forget_versions()
    return EmulatedTraining(_layers(options), options.minibatches)


def _forget_versions() -> None:
    """Have updates change the weights that minibatches in flight use: wrong, and what stashing is compared with."""
    from plink.runtime.pipeline.versions import StashedVersions

    def advance(self: Any, oldest_needed: int) -> None:
        leaves = self._leaves[self.current]
        self.current += 1
        self._leaves[self.current] = leaves
        self._users.pop(self.current - 200, None)
        self._leaves.pop(self.current - 200, None)

    unstashed: Any = advance
    StashedVersions.advance = unstashed  # type: ignore[method-assign]
    StashedVersions._drop = lambda self: None  # type: ignore[method-assign]


def main() -> None:
    """Train by data parallelism as one rank; rank 0 prints a JSON line."""
    options = _options(None)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    app = EmulatedTraining(_layers(options), options.minibatches)
    model = nn.parallel.DistributedDataParallel(
        app.model(), bucket_cap_mb=options.bucket_mb, gradient_as_bucket_view=True
    )
    optimiser = app.optimiser(list(model.parameters()), 1.0)
    world, steps = dist.get_world_size(), -(-options.minibatches // dist.get_world_size())
    begin = 0.0
    for step in range(WARM_UP_STEPS + steps):
        if step == WARM_UP_STEPS:
            dist.barrier()
            begin = time.perf_counter()
        inputs, target = app.batch(step * world + dist.get_rank())
        optimiser.zero_grad()
        app.loss(model(*inputs), target).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    dist.barrier()
    seconds = time.perf_counter() - begin
    if dist.get_rank() == 0:
        print(json.dumps({"minibatch_s": seconds / (steps * world), "host": os.uname().nodename}), flush=True)
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
