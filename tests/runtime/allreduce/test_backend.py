"""The backend as unmodified programs meet it: ranks are processes, and ask for Gloo."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from plink.runtime.allreduce import backend
from plink.runtime.allreduce.aggregation import Aggregation, SizeClass
from tests.runtime.allreduce.losses import check_losses, reduce_until_a_loss
from tests.runtime.allreduce.plans import plan_of, two_levels, write_plan
from tests.runtime.ranks import results_of, run_ranks, wait_until

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """A two-level schedule of 4 ranks that is used at every size."""
    return plan_of(tmp_path, two_levels(4))


def models() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Small models of several kinds, and the shape of what they read."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return {
        "mlp": (nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)), (64,)),
        "convnet": (
            nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 8)),
            (3, 12, 12),
        ),
        "transformer": (
            nn.Sequential(
                nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(32 * 6, 8)
            ),
            (6, 32),
        ),
    }  # fmt: skip


def trained(model: nn.Module, shape: Sequence[int]) -> list[float]:
    """Ten steps of DDP; returns the weights."""
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(10):
        x, y = torch.randn(8, *shape, generator=generator), torch.randint(0, 8, (8,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(wrapped(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


def train_all() -> dict[str, Any]:
    """Train each model, in one rank."""
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    weights = {name: trained(*kind) for name, kind in models().items()}
    # With PyTorch 2.13, a DDP module that outlives its group may wait for ever for the group's thread.
    gc.collect()
    results = {"group": type(dist.group.WORLD).__name__, "weights": weights}
    dist.destroy_process_group()
    return results


@pytest.mark.quick
def test_training_ends_with_the_same_weights(plan: str) -> None:
    """DDP of a script that says "gloo": within rounding what Gloo gives, the same on every rank."""
    theirs = results_of(run_ranks(train_all, 4))
    ended = run_ranks(train_all, 4, PLINK_BACKEND="2lha", PLINK_PLAN=plan)
    ours = results_of(ended)
    assert [rank["group"] for rank in theirs + ours] == ["ProcessGroup"] * 4 + ["PlinkProcessGroup"] * 4
    assert all(rank["weights"] == ours[0]["weights"] for rank in ours)
    for name, weights in ours[0]["weights"].items():
        expected = torch.tensor(theirs[0]["weights"][name])
        torch.testing.assert_close(torch.tensor(weights), expected, rtol=1e-4, atol=1e-5)
    assert "plink: all-reduces of 4 ranks by 2lha" in ended[0].err
    assert not any("plink" in end.err for end in ended[1:])


def reduce_in_ring_order(how: str) -> Any:
    """As if Gloo in another order had been measured to be faster from 4,000 bytes on, or never; in one rank."""
    tried, handed, sums = [], [], []

    def measure(other: Any, present: Any, gloo: object) -> int:
        for size in (10, 5000):
            for tensor in (other, present):
                x = torch.full((size,), 2.0)
                tensor(x, dist.ReduceOp.SUM).wait()
                tried.append(x.unique().tolist())
        return 4000 if how == "faster" else backend.NEVER

    backend.measure_delegation = measure
    dist.init_process_group("plink")
    world: Any = dist.group.WORLD
    if (secondary := world._engine._delegate) is not None:
        all_reduce = secondary.all_reduce
        secondary.all_reduce = lambda data, op: (handed.append(data.nbytes), all_reduce(data, op))[1]
    for size in (1, 999, 1000, 50_000):
        for asynchronous in (False, True):
            x = torch.full((size,), float(dist.get_rank()))
            work = dist.all_reduce(x, async_op=asynchronous)
            if work is not None:
                work.wait()
            sums.append(x.unique().tolist())
    part = dist.new_group([0, 1, 3])
    if dist.get_rank() != 2:
        x = torch.ones(50_000)
        dist.all_reduce(x, group=part)
        sums.append(x.unique().tolist())
    dist.destroy_process_group()
    return tried, handed, sums


@pytest.mark.parametrize("how", ["faster", "slower"])
def test_gloo_in_the_order_of_the_plan_does_what_it_does_sooner(how: str, tmp_path: Path) -> None:
    """It is tried for the group of all, and has what is large enough where it was faster; all sums are the same."""
    classes = (SizeClass(4999, "gloo", None), SizeClass(None, "2lha", two_levels(4)))
    plan = write_plan(tmp_path, Aggregation(classes, ring=(0, 2, 1, 3)))
    ended = run_ranks(reduce_in_ring_order, 4, how, PLINK_PLAN=plan)
    for rank, (tried, handed, sums) in enumerate(results_of(ended)):
        assert tried == [[8.0]] * 4
        assert handed == ([4000, 4000, 200_000, 200_000] if how == "faster" else [])
        assert sums == [[6.0]] * 8 + ([[3.0]] if rank != 2 else [])
    banner = ended[0].err.splitlines()[0]  # which is used below that was measured
    assert ("from 4 kB on" in banner and "in the plan's order" in banner) == (how == "faster")


def use_everything() -> dict[str, Any]:
    """All that an unmodified program may ask of its group, in one rank."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.tensor([float(rank)])
    results: dict[str, Any] = {"group": type(dist.group.WORLD).__name__}
    dist.all_reduce(x := torch.full((1000,), float(rank)))
    results["all_reduce"] = x.unique().tolist()
    dist.all_reduce(x := torch.arange(24.0).reshape(4, 6).t() + rank)
    results["strided"] = x[1, 0].item()
    work = dist.all_reduce(x := torch.tensor(rank + 1), op=dist.ReduceOp.MAX, async_op=True)
    assert work is not None
    work.wait()
    results["async"] = [x.item(), work.is_completed()]
    dist.all_reduce(x := torch.full((5000,), rank + 1, dtype=torch.int32), op=dist.ReduceOp.AVG)
    results["avg"] = x[0].item()
    dist.all_reduce(x := torch.tensor([6 + rank]), op=dist.ReduceOp.BAND)
    results["band"] = x.item()
    dist.broadcast(x := torch.tensor([rank]), 2)
    results["broadcast"] = x.item()
    dist.all_gather(xs := [torch.zeros(1) for _ in range(size)], mine)
    results["gather"] = [x.item() for x in xs]
    dist.all_gather_into_tensor(x := torch.zeros(size), mine)
    results["into"] = x.tolist()
    dist.reduce_scatter_tensor(x := torch.zeros(2), torch.arange(8.0))
    results["into_scatter"] = x[0].item() - 8 * rank
    dist.reduce_scatter(x := torch.zeros(1), [torch.tensor([float(k)]) for k in range(size)])
    results["scatter"] = x.item()
    dist.reduce(x := mine.clone(), 1)
    results["reduce"] = x.item() if rank == 1 else None
    results["functional"] = (functional.all_reduce(torch.ones(7000), "sum", dist.group.WORLD) + 0)[0].item()
    results["mesh"] = dist.init_device_mesh("cpu", (size,)).get_group().size()
    for op in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(1), (rank + 1) % size),
                                      dist.P2POp(dist.irecv, torch.zeros(1), (rank - 1) % size)]):  # fmt: skip
        op.wait()
    dist.all_reduce(x := torch.ones(1, dtype=torch.int16))
    results["short"] = x.item()
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    results["objects"] = [tensor["rank"] for tensor in objects]
    for _ in range(100):  # Gloo's thread ends a work while the next is asked for
        dist.all_gather([torch.zeros(1) for _ in range(size)], torch.zeros(1))
    dist.barrier()
    if rank == 0:
        dist.send(torch.tensor([7.0]), 3)
    if rank == 3:
        dist.recv(x := torch.zeros(1), 0)
        results["recv"] = x.item()
    pair, whole = dist.new_group([1, 3]), dist.new_group(list(range(size)))
    if rank in (1, 3):
        dist.all_reduce(x := mine.clone(), group=pair)
        results["pair"] = x.item()
    dist.all_reduce(x := torch.full((9000,), 1.0), group=whole)
    results["whole"] = x[-1].item()
    results["groups"] = [dist.get_backend(whole), type(dist.distributed_c10d._get_default_group()).__name__]
    return results


def test_everything_else_works_as_under_gloo(plan: str) -> None:
    """Other collectives, other groups, other types, strided tensors; the program leaves its group open at its end."""
    for rank, results in enumerate(results_of(run_ranks(use_everything, 4, PLINK_BACKEND="on", PLINK_PLAN=plan))):
        assert results.pop("recv", None) == (7.0 if rank == 3 else None)
        assert results.pop("pair", None) == (4.0 if rank in (1, 3) else None)
        assert results.pop("reduce") == (6.0 if rank == 1 else None)
        assert results == {
            "group": "PlinkProcessGroup", "all_reduce": [6.0], "strided": 10.0, "async": [4, True], "avg": 2, "band": 0,
            "broadcast": 2, "gather": [0.0, 1.0, 2.0, 3.0], "into_scatter": 0.0, "functional": 4.0, "mesh": 4,
            "short": 4, "into": [0.0, 1.0, 2.0, 3.0], "scatter": 4.0 * rank, "objects": [0, 1, 2, 3], "whole": 4.0,
            "groups": ["gloo", "PlinkProcessGroup"],
        }  # fmt: skip


def reduce_what_gloo_lacks() -> list[list[float]]:
    """Of all ranks and of one, of every size; each call returns on every rank."""
    dist.init_process_group("gloo")
    rank, alone = dist.get_rank(), [dist.new_group([k]) for k in range(dist.get_world_size())]
    results = []
    for group in (None, alone[rank]):
        for op, dtype in ((dist.ReduceOp.AVG, torch.int32), (dist.ReduceOp.SUM, torch.int16)):
            for elements in (0, 10, 9000):
                x = torch.full((elements,), rank, dtype=dtype)
                work = dist.all_reduce(x, op, group, async_op=elements == 10)
                assert work is None or (work.wait() and work.is_completed())
                results.append(x.unique().tolist())
    return results


def test_what_gloo_lacks_has_a_schedule_at_every_size(tmp_path: Path) -> None:
    """Also where a plan leaves a size to Gloo; nothing changes in groups of one rank and without elements."""
    classes = (SizeClass(4999, "gloo", None), SizeClass(None, "2lha", two_levels(4)))
    plan = write_plan(tmp_path, Aggregation(classes))
    for rank, results in enumerate(
        results_of(run_ranks(reduce_what_gloo_lacks, 4, PLINK_BACKEND="on", PLINK_PLAN=plan))
    ):
        assert results == [[], [1], [1], [], [6], [6], *[[], [rank], [rank]] * 2]


@pytest.mark.quick
def test_what_is_lost_ends_all_others_with_its_name(plan: str) -> None:
    """Long before the group's time-out. Then the program ends as it wants to."""
    began = time.monotonic()
    ended = run_ranks(reduce_until_a_loss, 4, "dies", 2, 300.0, PLINK_BACKEND="2lha", PLINK_PLAN=plan)
    check_losses(ended, (0, 1, 3), ["rank 2"])
    assert time.monotonic() - began < 200


def init_only() -> str:
    """Make the group of all, in one rank; returns why it could not be made."""
    try:
        dist.init_process_group("plink")
        return ""
    except Exception as error:
        # Those who are told last still need the connections of the one who is told first.
        Path(f"done-{os.environ['RANK']}").touch()
        wait_until(lambda: len(list(Path().glob("done-*"))) == int(os.environ["WORLD_SIZE"]))
        return str(error)


def sum_ones() -> float:
    """Add up ones, in one rank."""
    dist.init_process_group("plink")
    dist.all_reduce(x := torch.ones(1))
    return x.item()


def test_a_plan_that_cannot_be_read_is_an_error_on_every_rank(tmp_path: Path) -> None:
    """Named, and nobody waits."""
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema": "plink.plan/2"}')
    assert all(f"{bad}: schema" in error for error in results_of(run_ranks(init_only, 2, PLINK_PLAN=str(bad))))


def test_a_plan_for_other_ranks_is_left_aside(plan: str) -> None:
    """The group is a Gloo group then."""
    ended = run_ranks(sum_ones, 3, PLINK_PLAN=plan)
    assert results_of(ended) == [3.0] * 3
    assert "the plan is for 4 ranks" in ended[0].err


def test_import_torch_never_fails(tmp_path: Path) -> None:
    """Whatever the variables hold, in a fresh interpreter; and nothing is imported that is not needed."""
    code = (
        "import sys, torch\n"
        "print([name for name in sys.modules if name.startswith(('plink.runtime.agg', 'plink.model.plan'))])"
    )
    end = subprocess.run(
        [sys.executable, "-c", code], env=dict.fromkeys(("PLINK_BACKEND", "PLINK_AGGREGATION", "PLINK_PLAN"), "text"),
        capture_output=True, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    assert (end.stdout, end.stderr) == ("[]\n", "")
