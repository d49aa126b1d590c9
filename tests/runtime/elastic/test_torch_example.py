"""The example that classifies images, and the files of MNIST that it reads."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from examples import elastic_torch
from plink.elastic import train
from plink.errors import InputError

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.mark.parametrize("more", [[], ["--adam"]])
def test_example_learns_to_classify_images(more: list[str]) -> None:
    arguments = ["--items=600", "--clocks=40", "--side=8", "--classes=4", "--batches=5", "--shards=4"]
    app, _ = elastic_torch.make([*arguments, *more])
    trained = train(app, workers=2)
    assert trained.objectives[-1] < 0.5 * trained.objectives[0]
    assert app.right(app.trained(trained.tables)) > 0.8


def idx(values: np.ndarray) -> bytes:
    """As MNIST has it."""
    return bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()


def test_images_of_mnist(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(256, size=(20, 4, 6)).astype(np.uint8)
    labels = (np.arange(20) % 3).astype(np.uint8)
    (tmp_path / "images").write_bytes(gzip.compress(idx(pixels)))
    (tmp_path / "labels").write_bytes(idx(labels))
    arguments = [f"--images={tmp_path / 'images'}", f"--labels={tmp_path / 'labels'}", "--clocks=2", "--batches=1"]
    app, _ = elastic_torch.make(arguments)
    assert (app.data.pixels == pixels).all()
    assert (app.data.labels == labels).all()
    assert app.data.classes == 3
    train(app)


@pytest.mark.parametrize(
    ("images", "labels", "expected"),
    [
        (b"", idx(np.zeros(2, np.uint8)), "images: it does not begin like idx"),
        (idx(np.zeros((2, 4, 4), np.uint8))[:-1], b"", r"images: 31 bytes of values, for a shape of \(2, 4, 4\)"),
        (gzip.compress(bytes(99), mtime=0)[:20], b"", "images: "),
        (idx(np.zeros((2, 4, 4), np.uint8)), idx(np.zeros(3, np.uint8)), "labels: 3 labels for 2 images"),
        (idx(np.zeros((2, 3, 4), np.uint8)), idx(np.zeros(2, np.uint8)), "images: images of 3 x 4"),
        (idx(np.zeros((0, 4, 4), np.uint8)), b"", "images: 0 bytes of values"),
    ],
)
def test_bad_files_of_images(images: bytes, labels: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "images").write_bytes(images)
    (tmp_path / "labels").write_bytes(labels)
    with pytest.raises(InputError, match=expected) as error:
        elastic_torch.read_images(str(tmp_path / "images"), str(tmp_path / "labels"))
    assert str(error.value).startswith(str(tmp_path))
