"""Mistakes in programs that train PyTorch modules: each is named in one line."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from plink.elastic import AppError, Sgd, TorchApp, train
from plink.elastic.app import check_app
from plink.errors import InputError
from tests.runtime.elastic.torch_nets import CLASSES, Batch, Net, mlp

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class CustomNet(Net):
    """A network with the methods that a test gives."""

    def __init__(self, **messages: Any) -> None:
        super().__init__(messages.pop("make", mlp), (6,), messages.pop("optimiser", Sgd(0.1)))
        self.changes = messages

    def model(self) -> nn.Module:
        return self.make()

    def loss(self, model: nn.Module, items: Batch) -> Any:
        return self.changes["loss"](self, model, items) if "loss" in self.changes else super().loss(model, items)

    def size(self, items: Any) -> float:
        return self.changes["size"](items) if "size" in self.changes else super().size(items)

    def sizes(self, shard: int) -> Sequence[float]:
        return self.changes["sizes"] if "sizes" in self.changes else super().sizes(shard)


def _elsewhere(app: CustomNet, model: nn.Module, items: Batch) -> torch.Tensor:
    return functional.cross_entropy(mlp()(items[0]), items[1])


def _raises(app: CustomNet, model: nn.Module, items: Batch) -> torch.Tensor:
    result: torch.Tensor = model(items[1])
    return result


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda app, model, items: model(items[0]), r"loss\(\) gave shape \(3, 3\), which must be a scalar tensor"),
        (lambda app, model, items: 3.0, r"loss\(\) gave float, which must be a scalar tensor"),
        (lambda app, model, items: model(items[0]).sum().detach(), r"loss\(\) gave a tensor without gradient"),
        (lambda app, model, items: model(items[0]).sum() * torch.nan, "an objective must be finite"),
        (lambda app, model, items: (model(items[0]) * 0).sqrt().sum(), "update of table 'weights.float32': it has inf"),
        (_elsewhere, r"loss\(\) does not depend on the model"),
        (_raises, r"loss\(\) raised RuntimeError: .*test_torch_errors.py:\d+\)"),
    ],
)
def test_a_mistake_in_loss(loss: Any, expected: str) -> None:
    with pytest.raises(AppError, match=expected) as error:
        train(CustomNet(loss=loss))
    assert str(error.value).startswith("app CustomNet: process() of shard 0 at clock 1")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, lambda width: nn.InstanceNorm1d(width, track_running_stats=True)])
def test_running_statistics_are_refused(norm: Callable[[int], nn.Module]) -> None:
    def images(app: CustomNet, model: nn.Module, items: Batch) -> torch.Tensor:
        return functional.cross_entropy(model(items[0][:, :, None].expand(-1, -1, 4)), items[1])

    with pytest.raises(AppError, match=r"loss\(\) changed buffer '0.running_mean' of the model, .* use GroupNorm"):
        train(CustomNet(make=lambda: nn.Sequential(norm(6), nn.Flatten(), nn.Linear(24, CLASSES)), loss=images))


def test_error_in_load_is_reported_with_its_line() -> None:
    class Lost(CustomNet):
        def load(self, shard: int) -> list[Batch]:
            raise OSError("no such disk")

    with pytest.raises(AppError, match=r"app Lost: load\(0\) raised OSError: no such disk \(.*torch_errors.py:\d+\)"):
        train(Lost())


def test_a_learning_rate_that_is_none() -> None:
    with pytest.raises(AppError, match=r"shard 0 at clock 3: the optimiser: lr\(3\): nan, which must"):
        train(CustomNet(optimiser=Sgd(lambda clock: float("nan") if clock == 3 else 0.1)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"size": lambda items: 7, "sizes": [3, 2]}, r"of shard 0 at clock 1: size\(\) is 7, and sizes\(\) said 3 "),
        ({"size": lambda items: 1 / 0}, r"app CustomNet: size\(\) raised ZeroDivisionError: .*torch_errors.py:\d+\)"),
        ({"size": lambda items: TorchApp.size(CustomNet(), "text")}, r"size\(\): a mini-batch: str, which does not"),
        ({"sizes": [1]}, r"sizes\(0\) gave \[1\], which must be 2 finite numbers"),
        ({"sizes": [1, -1]}, r"sizes\(0\) gave \[1, -1\], which must be 2 finite numbers"),
    ],
)  # fmt: skip
def test_sizes_that_cannot_be(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(AppError, match=expected):
        train(CustomNet(**changes))


def test_the_size_is_that_of_the_first_tensor() -> None:
    app, x = CustomNet(), torch.zeros(4, 2)
    assert [app.size(each) for each in (x, (x, 3), [[x]], {"a": x}, (x.numpy(),))] == [4] * 5  # type: ignore[arg-type]


SHARED_MODEL = mlp()


def _growing() -> nn.Module:
    _growing.count = getattr(_growing, "count", 1) + 1  # type: ignore[attr-defined]
    return nn.Linear(6, _growing.count)  # type: ignore[attr-defined]


def _numpys() -> nn.Module:
    made = nn.Linear(6, CLASSES)
    nn.init.constant_(made.bias, np.random.default_rng().normal())
    return made


def _no_attribute() -> nn.Module:
    return torch.no_such_thing()  # type: ignore[no-any-return,attr-defined]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: SHARED_MODEL, "gave the same parameters again"),
        (_growing, r"gave another model than before, with parameter 'weight' of shape \(3, 6\)"),
        (_numpys, "gave parameters of other values than before"),
        (lambda: 3, "gave int, which must be a torch.nn.Module"),
        (_no_attribute, r"raised AttributeError: .*test_torch_errors.py:\d+\)"),
        (lambda: nn.Linear(2, 2).half(), "parameter 'weight': torch.float16, and tables hold float32 and float64"),
        (lambda: nn.LazyLinear(2), "parameter 'weight': its shape is not known"),
        (nn.ReLU, "it has no parameters to train"),
    ],
)
def test_a_model_that_cannot_be(make: Any, expected: str) -> None:
    with pytest.raises((AppError, InputError), match=expected) as error:
        train(CustomNet(make=make, loss=lambda app, model, items: model(items[0]).sum()))
    assert "app CustomNet: model()" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"lr": -1}, "an lr of -1"),
        ({"lr": float("nan")}, "an lr of nan"),
        ({"lr": 1, "momentum": -0.1}, "a momentum of -0.1"),
        ({"lr": 1, "weight_decay": float("inf")}, "a weight_decay of inf"),
        ({"lr": 1, "nesterov": True}, "nesterov without a momentum"),
    ],
)
def test_an_optimiser_that_cannot_be(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        Sgd(**arguments)


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [("optimiser", 0.1, "optimiser is 0.1, which must be an Sgd"), ("shards", 0, "shards is 0"), ("batches", 0, "ba")],
)
def test_an_app_that_cannot_be(attribute: str, value: object, expected: str) -> None:
    app = CustomNet()
    setattr(app, attribute, value)
    with pytest.raises(InputError, match=f"app CustomNet: {expected}"):
        check_app(app)
