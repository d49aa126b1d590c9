"""Optimisers on the servers: the steps of ``torch.optim`` in one process, whatever befalls the job."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plink.elastic import Adam, AdamW, App, Objective, Params, Sgd, StoppingCriterion, Table, Values, train
from plink.elastic.app import check_app
from plink.elastic.optimisers import Optimiser
from plink.errors import InputError, PlinkError, UsageError
from plink.model.consistency import check_optimisers, parse_rule
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition.partition import Partition
from plink.runtime.elastic.partition.serialization import begun, parts_of, read_partition, take, write_partition
from plink.runtime.elastic.transport import records
from plink.runtime.elastic.transport.messages import Message
from plink.runtime.elastic.transport.records import TrafficAccount
from plink.runtime.elastic.worker.progress import job_layout
from tests.runtime.elastic.torch_nets import Net, mlp

pytestmark = pytest.mark.usefixtures("one_torch_thread")

ROWS, WIDTH, SHARDS = 7, 3, 5


def falling(clock: int) -> float:
    return 0.1 / clock


OPTIMISERS: dict[str, tuple[Any, Callable[[Any], torch.optim.Optimizer]]] = {
    "plain": (Sgd(0.05, weight_decay=0.1), lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.1)),
    "momentum": (Sgd(0.02, momentum=0.9), lambda p: torch.optim.SGD(p, 0.02, momentum=0.9)),
    "nesterov": (
        Sgd(0.02, momentum=0.8, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.02, momentum=0.8, nesterov=True, weight_decay=0.1),
    ),
    "adam": (Adam(weight_decay=0.1), lambda p: torch.optim.Adam(p, weight_decay=0.1)),
    "adam with betas": (
        Adam(0.1, betas=(0.0, 0.5), eps=1e-3), lambda p: torch.optim.Adam(p, 0.1, betas=(0.0, 0.5), eps=1e-3),
    ),
    "adamw": (AdamW(0.05), lambda p: torch.optim.AdamW(p, 0.05)),
    "falling": (Adam(falling), lambda p: torch.optim.Adam(p, 1.0)),
}  # fmt: skip


class Sparse(App[int]):
    """A quadratic function of some rows for each shard, other ones at each clock; two tables, of which one has fewer
    rows than there are partitions."""

    def __init__(self, optimiser: Any, clocks: int, dtype: str = "float64") -> None:
        self.tables = (Table("n", SHARDS, 1, "int64"), Table("w", ROWS, WIDTH, dtype), Table("few", 2, 1, dtype))
        self.optimisers: Mapping[str, Optimiser] = {"w": optimiser, "few": optimiser}
        self.shards, self.seed, self.stop = SHARDS, 3, StoppingCriterion(clocks=clocks)

    def load(self, shard: int) -> Sequence[int]:
        return [shard]

    def initial(self, table: str, rows: range, random: np.random.Generator) -> Values | None:
        return None if table == "n" else np.array([first(table, row) for row in rows])

    def process(self, items: int, params: Params) -> Objective | None:
        params.update("n", [items], [[1]])
        for table in ("w", "few"):
            rows = touched(table, items, params.clock)
            params.update(table, rows, slope(params.read(table, rows), items, params.clock))
        return None


def first(table: str, row: int) -> Any:
    return np.sin(np.arange(WIDTH if table == "w" else 1) + row + 1)


def touched(table: str, shard: int, clock: int) -> list[int]:
    return [row for row in range(ROWS if table == "w" else 2) if (row + shard + clock) % 3 == 0]


def slope(values: Any, shard: int, clock: int) -> Any:
    return 0.1 * (values - 1 - np.cos(shard + clock))


def in_torch(name: str, clocks: int, dtype: torch.dtype) -> dict[str, Any]:
    """What torch makes of the same function in one process."""
    tables = {"w": ROWS, "few": 2}
    parameters = {
        table: torch.tensor(np.array([first(table, row) for row in range(rows)])).to(dtype).requires_grad_()
        for table, rows in tables.items()
    }
    ours, make = OPTIMISERS[name]
    optimiser = make(list(parameters.values()))
    for clock in range(1, clocks + 1):
        if callable(ours.lr):
            optimiser.param_groups[0]["lr"] = ours.lr(clock)
        for table, each in parameters.items():
            each.grad = torch.zeros_like(each)
            for shard in range(SHARDS):
                rows = touched(table, shard, clock)
                each.grad[rows] += slope(each.detach()[rows], shard, clock)
        optimiser.step()
    return {table: each.detach().numpy() for table, each in parameters.items()}


def same(result: Mapping[str, Any], wanted: Mapping[str, Any], tolerance: float) -> None:
    """All of each table, relative to its largest number."""
    for table, values in wanted.items():
        np.testing.assert_allclose(result[table], values, rtol=0, atol=tolerance * np.abs(values).max(), err_msg=table)


class Course:
    """The clocks of a job over real partitions, without sockets and threads: workers read, and send gradients."""

    def __init__(self, app: Sparse, partitions: int) -> None:
        self.app, self.layout = app, job_layout(app, partitions)
        self.primaries = [Partition(self.layout, number, history=True) for number in range(partitions)]
        self.workers = 1
        for partition in self.primaries:
            partition.admit({0: 0})
        self._copy()

    @property
    def clock(self) -> int:
        """That of the state."""
        (result,) = {partition.clock for partition in self.primaries}
        return result

    def state(self, name: str) -> Values:
        """A table, put together."""
        table = self.layout.table(name)
        result = np.zeros((self.layout.tables[table].rows, self.layout.tables[table].width))
        for partition in self.primaries:
            result[partition.number :: len(self.primaries)] = partition.values[table]
        return result.astype(self.layout.tables[table].dtype)

    def run(self, until: int, workers: int) -> None:
        """Up to this clock, with so many workers, who send in some order. Replicas are pushed to."""
        if workers != self.workers:
            for partition in self.primaries:
                partition.workers_from(range(workers), self.clock + 1)
            self.workers = workers
        for clock in range(self.clock + 1, until + 1):
            updates = [self._update(worker, clock) for worker in range(workers)]
            for worker in np.random.default_rng(clock).permutation(workers):
                for partition in self.primaries:
                    partition.update(int(worker), clock, 0, True, updates[worker][partition.number])
            assert self.clock == clock
            for primary, replica in zip(self.primaries, self.replicas, strict=True):
                push = primary.take_delta("replica")
                replica.apply_delta(push)
                primary.arrived("replica", push)
                assert bits(primary) == bits(replica)

    def _update(self, worker: int, clock: int) -> list[list[RowBlock]]:
        blocks: list[list[RowBlock]] = [[] for _ in self.primaries]
        for name in ("w", "few"):
            values, table = self.state(name), self.layout.table(name)
            added = np.zeros_like(values)
            for shard in range(worker, SHARDS, self.workers):
                if clock:
                    rows = touched(name, shard, clock)
                    added[rows] += slope(values[rows], shard, clock)
                for row in range(shard, len(values), SHARDS) if not clock else ():
                    added[row] = first(name, row)
            rows = np.flatnonzero(added.any(axis=1))
            for partition, where, local in self.layout.cut(rows) if len(rows) else ():
                blocks[partition].append(RowBlock(table, local, added[rows[where]]))
        return blocks

    def roll_back(self, clock: int) -> None:
        """All of them."""
        for partition in (*self.primaries, *self.replicas):
            partition.roll_back(clock)

    def lose_primaries(self) -> None:
        """Their replicas go on."""
        self.primaries = self.replicas
        for partition in self.primaries:
            partition.keep_history()
            partition.admit(dict.fromkeys(range(self.workers), self.clock + 1))
        self._copy()

    def restore(self, folder: Path) -> None:
        """Everything is lost but a checkpoint that is written now."""
        for partition in self.primaries:
            write_partition(folder / str(partition.number), parts_of(partition), self.layout)
        self.primaries = [
            read_partition(folder / str(partition.number), self.layout, sees_ahead=False)
            for partition in self.primaries
        ]
        self._copy()

    def _copy(self) -> None:
        self.replicas = [brought(parts_of(each, ahead=False), self.layout) for each in self.primaries]
        for partition in self.primaries:
            partition.replicas = {"replica": partition.clock}


def brought(parts: list[Message], layout: Layout) -> Partition:
    """What another server makes of a partition's parts."""
    result = begun(layout, parts[0], sees_ahead=False)
    for part in parts[1:]:
        take(result, part)
    return result


def bits(partition: Partition) -> list[bytes]:
    return [values.tobytes() for values in partition.values]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_are_those_of_torch_whatever_befalls_the_job(
    name: str, dtype: str, tolerance: float, tmp_path: Path
) -> None:
    """Workers come and leave, all roll back, servers are lost, and all hosts."""
    course = Course(Sparse(OPTIMISERS[name][0], 100, dtype), 4)
    course.run(15, workers=1)
    course.run(30, workers=3)
    course.roll_back(27)
    course.run(45, workers=8)
    course.lose_primaries()
    course.run(60, workers=2)
    course.restore(tmp_path)
    course.roll_back(55)
    course.run(100, workers=3)
    same({table: course.state(table) for table in ("w", "few")}, in_torch(name, 100, getattr(torch, dtype)), tolerance)


@pytest.mark.parametrize(
    ("name", "workers", "rule"),
    [pytest.param("adam", 3, "elastic-bsp:1", marks=pytest.mark.quick), ("adamw", 8, "bsp"), ("nesterov", 1, "bsp")],
)
@pytest.mark.extended
def test_jobs_of_threads_do_the_steps_of_torch(name: str, workers: int, rule: str) -> None:
    clocks = 100 if rule == "bsp" else 12
    app = Sparse(OPTIMISERS[name][0], clocks)
    result = train(app, workers=workers, servers=min(3, workers), rule=parse_rule(rule)).tables
    same(result, in_torch(name, clocks, torch.float64), 1e-12)
    assert (result["n"] == clocks).all()  # a table without an optimiser is added to


def test_a_partition_that_is_brought_along_goes_on_with_the_same_bits() -> None:
    """In the midst of a clock, with updates that wait."""
    layout = job_layout(Sparse(Adam(), 9), 2)
    random = np.random.default_rng(0)

    def send(worker: int, clock: int, *partitions: Partition) -> None:
        values = random.normal(size=(layout.rows_in(1, 0), WIDTH))
        for partition in partitions:
            partition.update(worker, clock, 0, True, (RowBlock(1, range(len(values)), values.copy()),))

    first = Partition(layout, 0, history=True)
    first.admit({0: 0, 1: 0})
    for worker, clock in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]:
        send(worker, clock, first)
    parts = parts_of(first)
    second = brought(parts, layout)
    send(1, 2, first, second)
    assert (first.clock, second.clock) == (2, 2)
    assert bits(first) == bits(second)
    first.roll_back(1)
    assert bits(first) == [block.values.tobytes() for block in parts[0].blocks]


def test_momentum_is_no_longer_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's update of a clock is as large as its gradient."""
    account = TrafficAccount()
    monkeypatch.setattr(records, "TRAFFIC", account)

    def sent(clocks: int) -> int:
        before = account.total().client_sent
        train(Net(lambda: torch.nn.Sequential(torch.nn.Linear(6, 5000), torch.nn.Linear(5000, 3)), (6,),
                  Sgd(0.01, momentum=0.9), clocks), workers=2)  # fmt: skip
        return account.total().client_sent - before

    gradient = 4 * (7 * 5000 + 5001 * 3)
    per_clock = (sent(12) - sent(2)) / 10 / 2
    assert 0.99 * gradient < per_clock < 1.1 * gradient


@pytest.mark.parametrize("rule", ["ssp:0", "ssp:2", "dssp:0:2", "asp", "elastic-bsp:2"])
def test_rules_that_show_gradients_ahead_are_refused_before_the_start(rule: str) -> None:
    with pytest.raises(UsageError, match=r"an optimiser \(of table w, few\) .*--rule bsp or elastic-bsp:1"):
        train(Sparse(Adam(), 5), rule=parse_rule(rule))
    check_optimisers(parse_rule(rule), ())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"optimisers": {"w": 0.1}}, r"app Sparse: optimisers\['w'\] is 0.1, which must be an Sgd, Adam or AdamW"),
        ({"optimisers": {"v": Adam()}}, r"optimisers\['v'\]: tables of floats are w, few"),
        ({"optimisers": {"n": Adam()}}, r"optimisers\['n'\]: tables of floats are w, few"),
        ({"optimisers": [Adam()]}, r"app Sparse: optimisers is \[Adam"),
    ],
)
def test_optimisers_of_an_app_that_cannot_be(changes: dict[str, Any], expected: str) -> None:
    app = Sparse(Adam(), 5)
    for name, value in changes.items():
        setattr(app, name, value)
    with pytest.raises(InputError, match=expected):
        check_app(app)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Adam(-1), "an lr of -1"), (lambda: Adam(betas=(0.9, 1.0)), "betas of"),
        (lambda: Adam(betas=(0.9,)), "betas of"),  # type: ignore[arg-type]
        (lambda: AdamW(eps=0), "an eps of 0"), (lambda: AdamW(weight_decay=-1), "AdamW: a weight_decay of -1"),
    ],
)  # fmt: skip
def test_an_optimiser_that_cannot_be(make: Callable[[], Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        make()


def steep(clock: int) -> float:
    return 1e308 if clock == 3 else 0.1


def broken(clock: int) -> float:
    return 1 / (clock - 3)


@pytest.mark.parametrize(
    ("optimiser", "expected"),
    [
        (Sgd(steep, momentum=0.9, weight_decay=1e9), r"table 'w', row \d: with what the workers add at clock 3"),
        (Adam(broken), r"table 'w': its optimiser at clock 1: lr\(1\): -0.5, which must be a finite number"),
        (Adam(lambda clock: broken(clock + 2)), r"lr\(1\) raised ZeroDivisionError: .*test_optimisers.py"),
    ],
)
def test_a_step_that_goes_wrong_ends_the_job_with_the_state_of_the_clock_before(optimiser: Any, expected: str) -> None:
    with pytest.raises(PlinkError, match=expected) as error:
        train(Sparse(optimiser, 9), workers=2)
    assert "\n" not in str(error.value)


def test_a_step_that_goes_wrong_changes_nothing() -> None:
    layout = job_layout(Sparse(Adam(), 9, "float32"), 1)
    partition = Partition(layout, 0, history=True)
    partition.admit({0: 0})
    for clock, value in enumerate((1.0, 1.0, 1e20)):  # whose square float32 has no room for
        before = [values.copy() for values in partition.values]
        partition.update(0, clock, 0, True, (RowBlock(1, range(ROWS), np.full((ROWS, WIDTH), value, np.float32)),))
    assert partition.clock == 1
    assert "table 'exp_avg_sq.w', row 0: " in partition.overflow
    assert all((now == then).all() for now, then in zip(partition.values, before, strict=True))


def test_checkpoints_of_momentum_by_workers_are_read_and_those_without_moments_are_not(tmp_path: Path) -> None:
    """As they were written before servers had optimisers: ``velocity`` after ``weights``."""
    app, plain = (Net(mlp, (6,), Sgd(0.1, momentum=momentum)) for momentum in (0.9, 0.0))
    without = job_layout(plain, 4)
    weights, *more = without.tables
    before = Layout((weights, replace(weights, name="velocity.float32"), *more), 4)
    for name, layout in (("without", without), ("before", before)):
        write_partition(tmp_path / name, parts_of(Partition(layout, 1)), layout)
    assert read_partition(tmp_path / "before", job_layout(app, 4), sees_ahead=False).number == 1
    with pytest.raises(InputError, match=r"without: .* other tables"):
        read_partition(tmp_path / "without", job_layout(app, 4), sees_ahead=False)


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("rows", [1500, 1499])
def test_large_table_takes_the_same_steps_in_parts(name: str, rows: int) -> None:
    """To the last bit as in one, and little of it at a time; also where not all rows have a gradient."""
    (ours, _), shape = OPTIMISERS[name], (1500, 100)
    table, calls = Table("w", *shape), list[int]()

    class Noted(type(ours)):  # type: ignore[misc]
        def additions(self, values: Sequence[Values], gradient: Values, clock: int) -> Sequence[Values]:
            calls.append(gradient.size)
            result: Sequence[Values] = super().additions(values, gradient, clock)
            return result

    noted = Noted(**vars(ours))
    partition = Partition(Layout((table, *ours.moments(table)), 1, optimisers={"w": noted}), 0)
    partition.admit({0: 0})
    random = np.random.default_rng(1)
    state = [np.zeros(shape, np.float32) for _ in partition.values]
    for clock in range(4):
        gradient = random.standard_normal(shape).astype(np.float32)
        gradient[rows:] = 0
        additions = ours.additions(state, gradient, clock) if clock else [gradient]
        for values, each in zip(state, additions, strict=False):
            values += each
        partition.update(0, clock, 0, True, [RowBlock(0, range(rows), gradient[:rows].copy())])
        assert all(np.array_equal(*pair) for pair in zip(partition.values, state, strict=True))
    assert sum(calls) == 3 * 1500 * 100
    assert max(calls) < 1500 * 100


def test_row_that_overflows_is_named_wherever_it_is() -> None:
    table = Table("w", 1500, 100)
    partition = Partition(Layout((table,), 1, optimisers={"w": Sgd(10.0)}), 0)
    partition.admit({0: 0})
    gradient = np.zeros((1500, 100), np.float32)
    gradient[1234, 56] = 1e38
    partition.update(0, 0, 0, True, [])
    partition.update(0, 1, 0, True, [RowBlock(0, range(1500), gradient)])
    assert "table 'w', row 1234: " in partition.overflow
    assert partition.clock == 0
