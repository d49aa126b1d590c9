"""PyTorch modules: the steps of torch's own SGD on the global mini-batch, and what is said of mistakes."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from examples import agile_torch
from plink.elastic import AppError, Params, Rebalance, Sgd, StoppingCriterion, Table, TorchApp, Values, train
from plink.elastic.app import check_app
from plink.elastic.micro_batches import micro_batch
from plink.errors import InputError
from plink.model.consistency import SSP
from plink.runtime.agileml.arrays.layout import Layout
from plink.runtime.agileml.worker.assignments import Assignment
from plink.runtime.agileml.worker.loaded_shards import LoadedShards
from plink.runtime.agileml.worker.progress import job_layout
from plink.runtime.agileml.worker.worker import Clock, Worker
from tests.runtime.agileml.stores import store, together

ROOT = Path(__file__).parents[3]
CLASSES = 3
Batch = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """The networks are too small for more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Net(TorchApp[Batch]):
    """Mini-batches of different sizes, of which some are empty."""

    def __init__(self, make: Callable[[], nn.Module], shape: Sequence[int], optimiser: Sgd, clocks: int = 7) -> None:
        self.make, self.optimiser = make, optimiser
        self.shards, self.batches, self.stop, self.seed = 5, 2, StoppingCriterion(clocks=clocks), 11
        random = np.random.default_rng(3)
        sizes = [[3, 2], [1, 4], [0, 2], [5, 1], [2, 0]]
        self.data = [[(random.normal(size=(size, *shape)), random.integers(CLASSES, size=size)) for size in shard]
                     for shard in sizes]  # fmt: skip
        self.dtype, self.builds = torch.float32, 0

    def model(self) -> nn.Module:
        self.builds += 1
        return self.make()

    def load(self, shard: int) -> list[Batch]:
        return [self.batch([data]) for data in self.data[shard]]

    def batch(self, parts: list[Any]) -> Batch:
        """Some parts as one."""
        images, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
        return torch.from_numpy(images).to(self.dtype), torch.from_numpy(labels)

    def loss(self, model: nn.Module, items: Batch) -> torch.Tensor:
        return functional.cross_entropy(model(items[0]), items[1])


def mlp() -> nn.Module:
    """With a parameter that is not used, and one that is not trained."""
    made = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    made.register_parameter("unused", nn.Parameter(torch.ones(2)))
    made[2].bias.requires_grad_(False)
    return made


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(4 * 9, CLASSES),
    )  # fmt: skip


class Attention(nn.Module):
    """One block of a transformer, whose first and last layers are one matrix."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.inward = nn.Linear(8, 8, bias=False)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.outward = nn.Linear(8, 8, bias=False)
        self.outward.weight = self.inward.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.outward(self.block(self.inward(x))).mean(dim=1)[:, :CLASSES]
        return result


def mixed() -> nn.Module:
    """Some parameters in double precision."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 7), nn.Linear(7, CLASSES, dtype=torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.last(torch.tanh(self.first(x)).double())
            return result

    return Both()


def alone(app: Net, clocks: int, lr: Callable[[int], float]) -> tuple[nn.Module, list[float]]:
    """torch's SGD on the mini-batches of all shards put together; the mean losses of iterations."""
    torch.manual_seed(app.seed)
    model, messages = app.make(), app.optimiser
    optimiser = torch.optim.SGD(
        model.parameters(),
        lr=1.0,
        momentum=messages.momentum,
        nesterov=messages.nesterov,
        weight_decay=messages.weight_decay,
    )
    batches = [app.batch([shard[number] for shard in app.data]) for number in range(app.batches)]
    losses = []
    for clock in range(1, clocks + 1):
        items = batches[(clock - 1) % app.batches]
        optimiser.param_groups[0]["lr"] = lr(clock)
        optimiser.zero_grad()
        loss = app.loss(model, items)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append((float(loss.detach()) * len(items[1]), len(items[1])))
    iterations = [np.sum(losses[start : start + app.batches], axis=0) for start in range(0, clocks - 1, app.batches)]
    return model, [total / weight for total, weight in iterations]


def same(result: nn.Module, wanted: nn.Module, tolerance: float = 2e-5) -> None:
    """All of it, to rounding."""
    left, right = result.state_dict(), wanted.state_dict()
    assert list(left) == list(right)
    for name, value in right.items():
        torch.testing.assert_close(left[name], value, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


NETS = {
    "mlp": (mlp, (6,)),
    "convolutions": (convolutions, (1, 6, 6)),
    "attention": (Attention, (4, 8)),
    "mixed": (mixed, (6,)),
}
OPTIMISERS = {
    "plain": Sgd(0.3),
    "momentum": Sgd(0.1, momentum=0.9, weight_decay=0.02),
    "nesterov": Sgd(0.1, momentum=0.8, nesterov=True, weight_decay=0.02),
}


@pytest.mark.parametrize(
    ("net", "optimiser", "workers", "servers"),
    [("mlp", "plain", 1, 1), ("mlp", "momentum", 2, 4), ("convolutions", "nesterov", 3, 2),
     ("convolutions", "plain", 2, 4), ("attention", "momentum", 3, 2), ("mixed", "nesterov", 2, 4)],
)  # fmt: skip
def test_steps_are_those_of_torch_on_the_global_batch(net: str, optimiser: str, workers: int, servers: int) -> None:
    app = Net(*NETS[net], OPTIMISERS[optimiser])
    result = train(app, workers=workers, servers=servers)
    lr = app.optimiser.lr
    wanted, losses = alone(app, 7, lambda clock: lr)  # type: ignore[arg-type,return-value]
    same(app.trained(result.tables), wanted)
    np.testing.assert_allclose(result.objectives, losses[: len(result.objectives)], rtol=1e-4)
    assert app.builds == 1 + workers + 1  # for the tables, the threads and the result


def test_in_double_precision_it_is_so_to_the_twelfth_digit() -> None:
    app = Net(lambda: mlp().double(), (6,), Sgd(0.1, momentum=0.9, nesterov=True, weight_decay=0.1), clocks=30)
    app.dtype = torch.float64
    same(app.trained(train(app, workers=3, servers=3).tables), alone(app, 30, lambda clock: 0.1)[0], 1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("grains", [2, 4])
@pytest.mark.parametrize(
    "rebalance", [None, Rebalance(trigger=0.01, report=0.01, initial=0.3)], ids=["alone", "helped"]
)
def test_micro_batches_add_up_to_the_same_step(grains: int, momentum: float, rebalance: Rebalance | None) -> None:
    """Some of them, and all those of some shards, are empty; helpers do some of them."""
    app = Net(lambda: mlp().double(), (6,), Sgd(0.1, momentum=momentum, weight_decay=0.1), clocks=10)
    app.dtype, app.grains = torch.float64, grains
    result = train(app, workers=2, rebalance=rebalance)
    wanted, losses = alone(app, 10, lambda clock: 0.1)
    same(app.trained(result.tables), wanted, 1e-12)
    np.testing.assert_allclose(result.objectives, losses[: len(result.objectives)], rtol=1e-9)


class Pair(NamedTuple):
    """A mini-batch of some program's."""

    images: torch.Tensor
    more: dict[str, Any]


@pytest.mark.parametrize(("rows", "parts"), [(7, 3), (3, 4), (0, 2)])
def test_micro_batches_of_nested_tensors(rows: int, parts: int) -> None:
    """What has as many rows as the first tensor is cut, what has not is in every part."""
    labels, weights = np.arange(rows), torch.ones(rows + 1)
    items = Pair(torch.arange(2 * rows).reshape(rows, 2), {"labels": [labels], "weights": weights, "name": "a"})
    result = [micro_batch(items, number, parts) for number in range(parts)]
    assert (torch.cat([part.images for part in result]) == items.images).all()
    assert np.concatenate([part.more["labels"][0] for part in result]).tolist() == labels.tolist()
    assert {len(part.images) for part in result} <= {rows // parts, rows // parts + 1}
    assert all(part.more["weights"] is weights and part.more["name"] == "a" for part in result)


def test_the_learning_rate_follows_the_clock() -> None:
    def lr(clock: int) -> float:
        return 0.2 * 0.5 ** ((clock - 1) // 2)

    app = Net(mlp, (6,), Sgd(lr, momentum=0.9))
    same(app.trained(train(app, workers=2).tables), alone(app, 7, lr)[0])


def test_neither_moving_shards_nor_a_roll_back_changes_anything_with_dropout() -> None:
    def made() -> Net:
        return Net(lambda: Attention(dropout=0.5), (4, 8), Sgd(0.1, momentum=0.9))

    app = made()
    with store(job_layout(app, 4), servers=2) as servers:
        servers.open(2, history=True)
        rolled: list[int] = []

        def disturb(clock: Clock) -> None:
            if clock.clock == 2 and not rolled:
                first.assigned.add(Assignment(4, 0, (3,)))
                second.assigned.add(Assignment(4, 0, (0, 1, 2, 4)))
            if clock.clock in (4, 6) and len(rolled) < 2 and clock.clock not in rolled:
                rolled.append(clock.clock)
                for server in servers.servers:
                    server.roll_back({4: 0, 6: 3}[clock.clock], len(rolled))

        first = Worker(LoadedShards(app), servers.client(0), [0, 1], say=[].append, done=disturb)
        second = Worker(LoadedShards(app), servers.client(1), [2, 3, 4], say=[].append)
        together(first.run, second.run)
        assert rolled == [4, 6]
        tables = {table.name: servers.state(number) for number, table in enumerate(app.tables)}
    again = made()
    same(app.trained(tables), again.trained(train(again).tables))


class Noted:
    """A store of the values that an app begins with; it keeps what is added."""

    def __init__(self, app: TorchApp[Any]) -> None:
        self.layout = Layout(tuple(app.tables), 1)
        self.app = app
        self.updates: list[tuple[str, Values]] = []

    def table(self, name: str) -> Table:
        return self.layout.tables[self.layout.table(name)]

    def read(self, table: str, rows: object, *, own: bool = True) -> Values:
        which = self.table(table)
        shards = [range(shard, which.rows, self.app.shards) for shard in range(self.app.shards)]
        values = np.zeros((which.rows, which.width), dtype=which.dtype)
        for each in shards:
            result = self.app.initial(table, each, np.random.default_rng()) if each else None
            if result is not None:
                values[each] = result
        return values[np.asarray(rows)]

    def update(self, table: str, rows: object, deltas: object) -> None:
        self.updates.append((table, np.array(deltas)))


def test_a_clock_that_is_redone_adds_the_very_same_and_another_does_not() -> None:
    app = Net(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(6, CLASSES)), (6,), OPTIMISERS["momentum"])
    noted, items = Noted(app), app.load(3)[0]
    app.sizes = lambda shard: [5, 5]  # type: ignore[method-assign]
    for shard, clock in ((3, 1), (3, 1), (3, 3), (4, 1)):
        app.process(items, Params(noted, app.seed, shard, clock))
        torch.rand(1)
    first, again, later, elsewhere = (noted.updates[place : place + 2] for place in (0, 2, 4, 6))
    assert [name for name, _ in first] == ["weights.float32", "velocity.float32"]
    for (_, item), (_, two), (_, three), (_, four) in zip(first, again, later, elsewhere, strict=True):
        assert (item == two).all()
        assert (item != three).any()
        assert (item != four).any()


def test_the_generator_of_the_program_is_left_alone() -> None:
    app = Net(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(6, CLASSES)), (6,), Sgd(0.1))
    before = torch.get_rng_state()
    train(app)
    assert (torch.get_rng_state() == before).all()


def test_a_trained_model_is_saved_and_read_as_any(tmp_path: Path) -> None:
    app = Net(mlp, (6,), Sgd(0.1))
    tables = train(app).tables
    torch.save(app.trained(tables).state_dict(), tmp_path / "trained.pt")
    again = mlp()
    again.load_state_dict(torch.load(tmp_path / "trained.pt"))
    same(again, app.trained(tables), 0)
    mine = mlp()
    assert app.into(mine, tables) is mine
    assert (mine[0].weight == again[0].weight).all()


def test_what_cannot_be_put_into_a_model() -> None:
    app = Net(mlp, (6,), Sgd(0.1))
    tables = train(app).tables
    with pytest.raises(InputError, match=r"app Net: into\(\): the model has parameter '0.weight' of shape \(9, 6\)"):
        app.into(nn.Sequential(nn.Linear(6, 9)), tables)
    with pytest.raises(InputError, match=r"app Net: into\(\): there is no table 'weights.float32' of \d+ x 16 numbers"):
        app.into(mlp(), {"weights.float32": tables["weights.float32"][:-1]})


def test_sparse_gradients_are_gradients() -> None:
    class Words(Net):
        def batch(self, parts: list[Any]) -> Batch:
            images, labels = super().batch(parts)
            return images.abs().long(), labels

    def words(sparse: bool) -> nn.Module:
        return nn.Sequential(nn.Embedding(9, CLASSES, sparse=sparse), nn.AvgPool2d((6, 1)), nn.Flatten())

    sparse, dense = (Words(lambda each=each: words(each), (6,), Sgd(0.1)) for each in (True, False))
    same(sparse.trained(train(sparse).tables), dense.trained(train(dense).tables))


def test_frozen_batch_norm_is_allowed() -> None:
    app = Net(lambda: nn.Sequential(nn.BatchNorm1d(6).eval(), nn.Linear(6, CLASSES)), (6,), Sgd(0.1))
    same(app.trained(train(app, workers=2).tables), alone(app, 7, lambda clock: 0.1)[0])


def test_a_rule_with_staleness_trains_too() -> None:
    app = Net(mlp, (6,), Sgd(0.2), clocks=60)
    objectives = train(app, workers=3, rule=SSP(2)).objectives
    assert objectives[-1] < 0.9 * objectives[0]  # how far it comes depends on who is ahead: 0.79 to 0.82


class CustomNet(Net):
    """What a test says instead."""

    def __init__(self, **messages: Any) -> None:
        super().__init__(messages.pop("make", mlp), (6,), messages.pop("optimiser", Sgd(0.1)))
        self.changes = messages

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
        (_raises, r"loss\(\) raised RuntimeError: .*test_torch_app.py:\d+\)"),
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

    with pytest.raises(AppError, match=r"app Lost: load\(0\) raised OSError: no such disk \(.*test_torch_app.py:\d+\)"):
        train(Lost())


def test_a_learning_rate_that_is_none() -> None:
    with pytest.raises(AppError, match=r"shard 0 at clock 3: the optimiser: lr\(3\): nan, which must"):
        train(CustomNet(optimiser=Sgd(lambda clock: float("nan") if clock == 3 else 0.1)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"size": lambda items: 7, "sizes": [3, 2]}, r"of shard 0 at clock 1: size\(\) is 7, and sizes\(\) said 3 "),
        ({"size": lambda items: 1 / 0}, r"app CustomNet: size\(\) raised ZeroDivisionError: .*test_torch_app.py:\d+\)"),
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
        (_no_attribute, r"raised AttributeError: .*test_torch_app.py:\d+\)"),
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


def test_example_learns_to_classify_images() -> None:
    app, _ = agile_torch.make(["--items=600", "--clocks=40", "--side=8", "--classes=4", "--batches=5", "--shards=4"])
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
    app, _ = agile_torch.make(arguments)
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
        agile_torch.read_images(str(tmp_path / "images"), str(tmp_path / "labels"))
    assert str(error.value).startswith(str(tmp_path))
