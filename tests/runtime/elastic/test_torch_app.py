"""PyTorch modules: the steps of torch's own optimisers on the global mini-batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from plink.elastic import Adam, AdamW, Params, Rebalance, Sgd, Table, TorchApp, Values, train
from plink.elastic.torch_app import micro_batch
from plink.errors import InputError
from plink.model.consistency import SSP
from plink.runtime.elastic.arrays.layout import Layout
from tests.runtime.elastic.stepping import train_disturbed
from tests.runtime.elastic.torch_nets import CLASSES, Batch, Net, mlp

pytestmark = pytest.mark.usefixtures("one_torch_thread")


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
    """torch's optimiser on the mini-batches of all shards put together; the mean losses of iterations."""
    torch.manual_seed(app.seed)
    model = app.make()
    options = {name: value for name, value in vars(app.optimiser).items() if name != "lr"}
    kinds: dict[type, Any] = {Sgd: torch.optim.SGD, Adam: torch.optim.Adam, AdamW: torch.optim.AdamW}
    optimiser = kinds[type(app.optimiser)](model.parameters(), lr=1.0, **options)
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
    "adam": Adam(0.01, weight_decay=0.02),
    "adamw": AdamW(0.01, betas=(0.8, 0.9)),
}


@pytest.mark.parametrize(
    ("net", "optimiser", "workers", "servers"),
    [("mlp", "plain", 1, 1), ("mlp", "momentum", 2, 4), ("convolutions", "nesterov", 3, 2),
     ("convolutions", "plain", 2, 4), ("attention", "momentum", 3, 2), ("mixed", "nesterov", 2, 4),
     ("mlp", "adam", 8, 2), ("mixed", "adamw", 2, 1)],
)  # fmt: skip
def test_steps_are_those_of_torch_on_the_global_batch(net: str, optimiser: str, workers: int, servers: int) -> None:
    app = Net(*NETS[net], OPTIMISERS[optimiser])
    result = train(app, workers=workers, servers=servers)
    lr = app.optimiser.lr
    wanted, losses = alone(app, 7, lambda clock: lr)  # type: ignore[arg-type,return-value]
    same(app.trained(result.tables), wanted)
    np.testing.assert_allclose(result.objectives, losses[: len(result.objectives)], rtol=1e-4)
    assert app.builds == 1 + min(workers, app.shards) + 1  # for the tables, the threads and the result


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


@pytest.mark.parametrize("optimiser", [Sgd(0.1, momentum=0.9), Adam(0.01, eps=1e-3)])
def test_neither_moving_shards_nor_a_roll_back_changes_anything_with_dropout(optimiser: Sgd | Adam) -> None:
    def made() -> Net:
        return Net(lambda: Attention(dropout=0.5), (4, 8), optimiser)

    app = made()
    tables, _ = train_disturbed(app, [[3], [0, 1, 2, 4]], {4: 0, 6: 3})
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
    assert [name for name, _ in noted.updates] == ["weights.float32"] * 4
    first, again, later, elsewhere = (values for _, values in noted.updates)
    assert (first == again).all()
    assert (first != later).any()
    assert (first != elsewhere).any()


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
