"""A small convolutional network by SGD with momentum or by Adam, in PyTorch, on plink's elastic parameter server.

    python examples/elastic_torch.py --workers 2
    python examples/elastic_torch.py --images train-images-idx3-ubyte.gz --labels train-labels-idx1-ubyte.gz --batches 60

A tenth of the images is held out; at the end it prints how many of them are classified correctly. The step is the same
however many workers there are: one on the global mini-batch. Without --images they are made here.
"""

import argparse
import gzip
import io
import math
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import nn

from plink.elastic import Adam, Params, Sgd, StoppingCriterion, TorchApp, train
from plink.errors import InputError, PlinkError
from plink.model.storage import write_bytes

Batch = tuple[torch.Tensor, torch.Tensor]  # images, shape (items, 1, height, width), and classes, shape (items,)


@dataclass(frozen=True)
class Images:
    """``pixels``: shape (items, height, width), bytes; ``labels``: shape (items,), the classes from 0."""

    pixels: np.ndarray
    labels: np.ndarray
    classes: int


def made(items: int, classes: int, side: int, noise: float, seed: int) -> Images:
    """Each class is a smooth pattern of its own; images have it moved by up to an eighth of the side, brighter or
    darker, under noise."""
    random = np.random.default_rng(seed)
    patterns = gaussian_filter(random.normal(size=(classes, side, side)), (0, side / 10, side / 10), mode="wrap")
    patterns /= patterns.std(axis=(1, 2), keepdims=True)
    labels = random.integers(classes, size=items)
    moved = random.integers(-(side // 8), side // 8 + 1, size=(items, 2))
    place = np.arange(side)
    exact = patterns[
        labels[:, None, None],
        (place[:, None] + moved[:, :1, None]) % side,
        (place + moved[:, 1:, None]) % side,
    ]
    bright = random.uniform(0.5, 1.5, size=(items, 1, 1))
    pixels = 128 + 32 * (bright * exact + random.normal(scale=noise, size=exact.shape))
    return Images(np.clip(pixels, 0, 255).astype(np.uint8), labels, classes)


def read_idx(path: str, dimensions: int) -> np.ndarray:
    """MNIST's format of bytes, perhaps gzipped: 0, 0, 8, the number of dimensions, each of them in 32 bits with the
    high byte first, then the values. :raises InputError: the file is not like that."""
    try:
        with open(path, "rb") as file:
            result = file.read()
        if result[:2] == b"\x1f\x8b":
            result = gzip.decompress(result)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(path, str(error)) from error
    if result[:4] != bytes((0, 0, 8, dimensions)) or len(result) < 4 + 4 * dimensions:
        raise InputError(path, f"it does not begin like idx of bytes in {dimensions} dimensions: {result[:4].hex(' ')}")
    shape = np.frombuffer(result, ">u4", dimensions, 4).tolist()
    start = 4 + 4 * dimensions
    if len(result) - start != math.prod(shape) or not math.prod(shape):
        raise InputError(path, f"{len(result) - start} bytes of values, for a shape of {tuple(shape)}")
    return np.frombuffer(result, np.uint8, offset=start).reshape(shape)


def read_images(images: str, labels: str) -> Images:
    """:raises InputError: either file is no idx, or they do not belong together."""
    pixels, message = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(message):
        raise InputError(labels, f"{len(message)} labels for {len(pixels)} images")
    if min(pixels.shape[1:]) < 4:
        raise InputError(images, f"images of {pixels.shape[1]} x {pixels.shape[2]}, and the network needs 4 x 4")
    return Images(pixels, message, int(message.max()) + 1)


class ConvNet(TorchApp[Batch]):
    """The objective is the mean of -log p(class | image), as of before each step."""

    def __init__(
        self, data: Images, stop: StoppingCriterion, *, channels: int = 8, shards: int = 8, batches: int = 10,
        lr: float = 0.1, momentum: float = 0.9, decay: float = 1e-4, seed: int = 0, save: str | None = None,
        adam: bool = False,
    ) -> None:  # fmt: skip
        self.data, self.channels, self.result_file = data, channels, save
        self.stop, self.shards, self.batches, self.seed = stop, shards, batches, seed
        clocks = stop.clocks or math.inf

        def falling(clock: int) -> float:
            return lr * min(1.0, clock / 10, max(0.1, 2 - 2 * clock / clocks))

        self.optimiser = (
            Adam(falling, weight_decay=decay) if adam else Sgd(falling, momentum=momentum, weight_decay=decay)
        )
        order = np.random.default_rng(seed).permutation(len(data.labels))
        self._held_out, self._order = np.split(order, [len(order) // 10])

    def model(self) -> nn.Module:
        """Two convolutions; GroupNorm, as BatchNorm's running statistics would have to be in tables."""
        few, many = self.channels, 2 * self.channels
        height, width = (side // 4 for side in self.data.pixels.shape[1:])
        return nn.Sequential(
            nn.Conv2d(1, few, 3, padding=1), nn.GroupNorm(2, few), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(few, many, 3, padding=1), nn.GroupNorm(2, many), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.1), nn.Linear(many * height * width, self.data.classes),
        )  # fmt: skip

    def load(self, shard: int) -> list[Batch]:
        """In a random order: files may be sorted by label."""
        parts = [
            self._order[shard * self.batches + batch :: self.shards * self.batches] for batch in range(self.batches)
        ]
        return [self._batch(part) for part in parts]

    def loss(self, model: nn.Module, items: Batch) -> torch.Tensor:
        """Mean cross entropy."""
        images, labels = items
        return nn.functional.cross_entropy(model(images), labels)

    def result(self, params: Params) -> None:
        """As :meth:`keep`."""
        self.keep(self.trained({table.name: params.read(table.name) for table in self.tables}))

    def keep(self, model: nn.Module) -> None:
        """Say how well it tells the images held out; keep its state in a file, if one was named."""
        print(f"{self.right(model):.4f} of the images held out are classified correctly", flush=True)
        if self.result_file:
            state = io.BytesIO()
            torch.save(model.state_dict(), state)
            write_bytes(self.result_file, state.getvalue())
            print(f"saved in {Path(self.result_file).absolute()}", flush=True)

    def right(self, model: nn.Module) -> float:
        """Which part of the images held out it tells rightly."""
        images, labels = self._batch(self._held_out)
        with torch.inference_mode():
            return float((model.eval()(images).argmax(dim=1) == labels).float().mean())

    def _batch(self, places: np.ndarray) -> Batch:
        images = torch.from_numpy(self.data.pixels[places]).float().unsqueeze(1)
        return (images - 128) / 64, torch.from_numpy(self.data.labels[places].astype(np.int64))


def make(arguments: list[str] | None = None) -> tuple[ConvNet, argparse.Namespace]:
    """The program as told on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", help="idx3 file of bytes, as MNIST has them, gzipped or not")
    parser.add_argument("--labels", help="idx1 file of bytes")
    parser.add_argument("--items", type=int, default=4000, help="images to make")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--side", type=int, default=16, help="of the images to make, in pixels")
    parser.add_argument("--noise", type=float, default=2.0, help="as a multiple of the contrast")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--batches", type=int, default=10, help="mini-batches of an iteration")
    parser.add_argument("--clocks", type=int, default=100)
    parser.add_argument("--adam", action="store_true", help="instead of SGD with momentum")
    parser.add_argument("--lr", type=float, help="0.1, for Adam 0.01")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--save", metavar="FILE", help="where to keep the model's state_dict; in an elastic job on a reliable host"
    )
    request = parser.parse_args(arguments)
    if bool(request.images) != bool(request.labels):
        parser.error("--images and --labels go together")
    data = (
        read_images(request.images, request.labels) if request.images
        else made(request.items, request.classes, request.side, request.noise, request.seed)
    )  # fmt: skip
    lr = (0.01 if request.adam else 0.1) if request.lr is None else request.lr
    app = ConvNet(
        data, StoppingCriterion(clocks=request.clocks), channels=request.channels, shards=request.shards,
        batches=request.batches, lr=lr, seed=request.seed, save=request.save, adam=request.adam,
    )  # fmt: skip
    return app, request


def main() -> None:
    app, request = make()
    trained = train(app, workers=request.workers, say=lambda line: print(line, file=sys.stderr))
    for objective in trained.objectives:
        print(f"{objective:.4f} nats an image")
    app.keep(app.trained(trained.tables))


if __name__ == "__main__":
    try:
        main()
    except PlinkError as error:
        sys.exit(f"error: {error}")
