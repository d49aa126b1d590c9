"""Groups of some of the ranks, as programs make them: real processes, `new_group` and meshes."""

import gc
import hashlib
import os
import random
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from solvers.schedules.catalogue import schedule_for
from tests.runtime.allreduce.losses import check_losses, reduce_until_a_loss
from tests.runtime.allreduce.plans import plan_of, two_levels
from tests.runtime.ranks import results_of, run_ranks

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended


def values(key: int, rank: int, elements: int) -> torch.Tensor:
    """The same whoever asks."""
    return torch.rand(elements, generator=torch.Generator().manual_seed(key * 64 + rank)) - 0.5


def reduce_in_random_groups(seed: int) -> dict[str, Any]:
    """Groups that overlap, this rank asking for its all-reduces, and waiting for them, in an order of its own."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank, size = dist.get_rank(), dist.get_world_size()
    same, own = random.Random(seed), random.Random(rank)
    groups: list[tuple[list[int], Any]] = []
    for _ in range(6):
        members = same.sample(range(size), same.randint(1, size))
        groups.append((sorted(members), dist.new_group(members)))
    groups.append((list(range(size)), dist.group.WORLD))
    engines = [getattr(group, "_engine", None) is not None for members, group in groups if rank in members]
    wrong, digests = [], {}
    for step in range(6):
        chosen = [(k, same.choice([1, 7, 900, 40_000, 600_000])) for k in range(len(groups)) if same.random() < 0.6]
        mine = [(k, n) for k, n in chosen if rank in groups[k][0]]
        own.shuffle(mine)
        data = {k: values(step * 16 + k, rank, n) for k, n in mine}
        works: list[Any] = [dist.all_reduce(data[k], group=groups[k][1], async_op=True) for k, _ in mine]
        own.shuffle(works)
        for work in works:
            work.wait()
        for k, n in mine:
            exact = sum(values(step * 16 + k, member, n).double() for member in groups[k][0])
            if not torch.allclose(data[k].double(), torch.as_tensor(exact), rtol=1e-5, atol=1e-6):
                wrong.append((step, k))
            digests[step, k] = hashlib.sha256(data[k].numpy().tobytes()).hexdigest()
        dist.barrier()
    dist.destroy_process_group()
    return {"wrong": wrong, "digests": digests, "engines": engines}


@pytest.mark.parametrize(("ranks", "algo", "seed"), [(5, "2lha", 2), (8, "halving-doubling", 3)])
def test_groups_that_overlap_sum_up_side_by_side(ranks: int, algo: str, seed: int, tmp_path: Path) -> None:
    """The same on all members, bit for bit, and the sum to rounding; nobody waits for a rank that is at another group.
    Groups without rank 0, which alone was given the plan, go by it too."""
    schedule = two_levels(ranks) if algo == "2lha" else schedule_for(algo, ranks)
    plan = plan_of(tmp_path, schedule, flat_below=2000)
    ended = run_ranks(reduce_in_random_groups, ranks, seed, PLINK_BACKEND="on", PLINK_PLAN=plan)
    results = results_of(ended)
    assert [rank["wrong"] for rank in results] == [[]] * ranks
    digests: dict[tuple[int, int], set[str]] = {}
    for rank in results:
        for key, digest in rank["digests"].items():
            digests.setdefault(key, set()).add(digest)
    assert len(digests) > 12
    assert all(len(same) == 1 for same in digests.values())
    assert sum(sum(rank["engines"]) for rank in results) > ranks
    assert f"plink: all-reduces of {ranks} ranks by" in ended[0].err
    assert not any("plink" in end.err for end in ended[1:])


def train_on_a_mesh() -> dict[str, Any]:
    """Rows and columns of a mesh: data parallel along one, sharded and replicated along both; in one rank."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    row, column = mesh.get_group("shards"), mesh.get_group("replicas")
    results: dict[str, Any] = {
        "backends": [dist.get_backend(row), dist.get_backend(column)],
        "engines": [getattr(group, "_engine", None) is not None for group in (row, column)],
    }
    dist.all_reduce(x := torch.full((5000,), float(rank)), group=row)
    dist.all_reduce(y := torch.full((5000,), float(rank)), group=column)
    results["sums"] = [x[-1].item(), y[-1].item()]

    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 4))

    def train(model: nn.Module) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(5):
            optimizer.zero_grad()
            x, y = torch.randn(8, 32, generator=generator), torch.randint(0, 4, (8,), generator=generator)
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def weights(model: nn.Module) -> list[float]:
        whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
        return torch.cat([p.detach().flatten() for p in whole]).tolist()

    model = made(1)
    train(DistributedDataParallel(model, process_group=column, bucket_cap_mb=0.01))
    results["ddp"] = weights(model)
    model = made(2)
    train(fully_shard(model, mesh=mesh))
    results["fsdp"] = weights(model)
    gc.collect()  # see train_all() in test_backend.py
    dist.destroy_process_group()
    return results


def test_rows_and_columns_of_a_mesh_train(tmp_path: Path) -> None:
    """The weights of Gloo, to rounding, by DDP over one dimension and by FSDP over both."""
    plan = plan_of(tmp_path, two_levels(4), flat_below=2000, smallest_bytes=None)
    theirs = results_of(run_ranks(train_on_a_mesh, 4))
    ended = run_ranks(train_on_a_mesh, 4, PLINK_BACKEND="on", PLINK_PLAN=plan)
    for rank, ours in enumerate(results_of(ended)):
        assert (ours["backends"], ours["engines"]) == (["gloo"] * 2, [True] * 2)
        assert ours["sums"] == [2 * (rank - rank % 2) + 1, 2 * (rank % 2) + 2]
        for kind in ("ddp", "fsdp"):
            torch.testing.assert_close(torch.tensor(ours[kind]), torch.tensor(theirs[rank][kind]), rtol=1e-4, atol=1e-5)
    banners = re.findall(r"^plink: all-reduces of groups of 2 ranks by (.*)", ended[0].err, re.M)
    assert any(algo in banners[0] for algo in ("2lha", "flat", "gloo"))
    assert all(re.search(r"\b0, [12]\b", banner) for banner in banners)  # which ranks: another group may have another


def make_groups_again_and_again() -> list[tuple[int, int]]:
    """Returns how many files and threads this rank has after each."""
    dist.init_process_group("gloo")
    rank, results = dist.get_rank(), []
    for k in range(9):
        members = [[0, 1, 2], [1, 3], [0, 2, 3]][k % 3]
        group = dist.new_group(members)
        if rank in members:
            dist.all_reduce(x := torch.full((30_000,), float(rank)), group=group)
            assert x.unique().tolist() == [float(sum(members))], x
            dist.destroy_process_group(group)
        del group
        results.append((len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))))
        dist.barrier()
    dist.destroy_process_group()
    return results


def test_groups_that_are_destroyed_leave_nothing_behind(tmp_path: Path) -> None:
    """No connections and no threads, however often one is made."""
    plan = plan_of(tmp_path, two_levels(4), flat_below=2000)
    ended = run_ranks(make_groups_again_and_again, 4, PLINK_BACKEND="on", PLINK_PLAN=plan)
    for counts in results_of(ended):
        (files, threads), *_, last = counts[2:]
        assert abs(last[0] - files) <= 3
        assert abs(last[1] - threads) <= 2


def test_a_member_that_dies_is_named_as_the_job_numbers_it(tmp_path: Path) -> None:
    """To the other members; the other ranks are not concerned."""
    plan = plan_of(tmp_path, two_levels(5))
    ended = run_ranks(
        reduce_until_a_loss, 5, "dies", 3, 300.0, [4, 1, 3], unending=(0, 2), PLINK_BACKEND="on", PLINK_PLAN=plan
    )
    check_losses(ended, (1, 4), ["rank 3"])
