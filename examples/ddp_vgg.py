"""Data-parallel training of a small VGG-like network with PyTorch's DistributedDataParallel over Gloo.

    plink launch --hosts hosts.txt examples/ddp_vgg.py --steps 10
    plink compare --hosts hosts.txt --pairs 5 --metric step_s examples/ddp_vgg.py

The images are made here (each class a pattern of its own, under noise), so nothing is downloaded. Rank 0 prints one
JSON line: the median seconds of a step, and the loss at the beginning and at the end.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

# DDP imports this when first used, and default arguments in it keep the group of that moment for good: its threads
# outlive destroy_process_group(), and one that still holds a tensor when Python ends aborts. Now there is no group yet.
import torch.distributed.nn.functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES, SIDE = 10, 32


def network(width: int) -> nn.Sequential:
    """Blocks of convolutions and pooling, then fully connected layers that hold most of the weights, as in VGG."""
    layers: list[nn.Module] = []
    channels = 3
    for out in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels = out
    features = channels * (SIDE // 8) ** 2
    layers += [nn.Flatten(), nn.Linear(features, 32 * width), nn.ReLU(), nn.Linear(32 * width, 32 * width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(32 * width, CLASSES))


def batch(size: int, generator: torch.Generator, patterns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Images, shape (size, 3, SIDE, SIDE), and their classes, shape (size,)."""
    classes = torch.randint(CLASSES, (size,), generator=generator)
    noise = torch.randn(size, 3, SIDE, SIDE, generator=generator)
    return patterns[classes] + 0.5 * noise, classes


def train(steps: int, images_a_step: int, width: int) -> dict[str, object]:
    """What the JSON line says; the network, which keeps the group, is gone when this returns."""
    torch.manual_seed(0)
    patterns = torch.randn(CLASSES, 3, SIDE, SIDE)
    model = DistributedDataParallel(network(width))
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    seconds, losses = [], []
    for _ in range(steps):
        images, classes = batch(images_a_step, generator, patterns)
        began = time.perf_counter()
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(images), classes)
        loss.backward()
        optimiser.step()
        seconds.append(time.perf_counter() - began)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / dist.get_world_size())
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    mine = float(weights.double().sum())
    sums = [0.0] * dist.get_world_size()
    dist.all_gather_object(sums, mine)
    return {"step_s": round(statistics.median(seconds), 6), "first_loss": losses[0], "last_loss": losses[-1],
            "bytes": weights.numel() * 4, "same_weights": len(set(sums)) == 1,
            "host": os.uname().nodename}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=2, help="images a rank and step")
    parser.add_argument("--width", type=int, default=32, help="channels of the first block; 32: 13 MB of gradients")
    request = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    report = train(request.steps, request.batch, request.width)
    if dist.get_rank() == 0:
        print(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
