"""Tensors on a real GPU, in ranks that share it; skipped where there is none."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.runtime.allreduce.plans import plan_of, two_levels
from tests.runtime.ranks import results_of, run_ranks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TOTAL, AVERAGE, LARGEST = dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX
CASES = [
    (1, torch.float32, TOTAL), (70_000, torch.float32, TOTAL), (999, torch.bfloat16, TOTAL),
    (5000, torch.float64, LARGEST), (3 << 18, torch.float32, AVERAGE), (6 << 20, torch.float16, TOTAL),
]  # fmt: skip


def _values(key: int, n: int, rank: int) -> torch.Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(64 * key + rank)) - 0.5


def reduce_on_host_and_gpu() -> dict[str, Any]:
    """All-reduces of the same values in host memory and on the GPU, in one rank."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    results: dict[str, Any] = {"group": type(dist.group.WORLD).__name__, "same": []}
    for key, (n, kind, op) in enumerate(CASES):
        host = _values(key, n, rank).to(kind)
        device = host.cuda()
        dist.all_reduce(host, op=op)
        dist.all_reduce(device, op=op)
        results["same"].append(torch.equal(host, device.cpu()))
    # The values are ready only after a long kernel: the copy has to wait for it.
    factor = torch.full((4096, 4096), 1.0 / 4096, device="cuda")
    late = torch.full((4096, 4096), float(rank), device="cuda")
    for _ in range(50):
        late = late @ factor
    work = dist.all_reduce(late, async_op=True)
    results["waited"] = torch.cuda.current_stream().query()
    work.wait()
    results["late"] = late.mean().item()
    strided = _values(9, 600, rank).reshape(20, 30).cuda().t()
    expected = strided.cpu().contiguous()
    dist.all_reduce(strided)
    dist.all_reduce(expected)
    results["strided"] = torch.equal(strided.cpu(), expected)
    gathered = [torch.empty(2, device="cuda") for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.full((2,), float(rank), device="cuda"))
    results["gathered"] = [tensor[0].item() for tensor in gathered]
    dist.destroy_process_group()
    return results


@pytest.mark.parametrize("staged", ["", "1"])
def test_sums_on_the_gpu_are_those_on_the_host(staged: str, tmp_path: Path) -> None:
    """By schedules through host memory bit for bit, and by Gloo as close as its own order of additions allows."""
    plan = plan_of(tmp_path, two_levels(3))
    ended = run_ranks(reduce_on_host_and_gpu, 3, PLINK_BACKEND="2lha", PLINK_PLAN=plan, PLINK_STAGED=staged)
    for rank in results_of(ended):
        assert rank["group"] == "PlinkProcessGroup"
        if staged:
            assert rank["same"] == [True] * len(CASES)
            assert rank["strided"]
            assert not rank["waited"]
        assert rank["late"] == pytest.approx(3.0)
        assert rank["gathered"] == [0.0, 1.0, 2.0]
    if staged:
        assert sum("all-reduces on cuda by schedules" in end.err for end in ended) == 1


def train() -> list[torch.Tensor]:
    """Three steps of DDP on the GPU, each rank with its own samples; returns the parameters."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
    parallel = DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        parallel(_values(step, 64 * 32, rank).reshape(32, 64).cuda()).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def test_training_on_the_gpu_equals_training_on_all_samples(tmp_path: Path) -> None:
    """DDP's gradients go through host memory while the GPU computes the next ones."""
    plan = plan_of(tmp_path, two_levels(2))
    results = results_of(run_ranks(train, 2, PLINK_BACKEND="2lha", PLINK_PLAN=plan, PLINK_STAGED="1"))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        samples = torch.cat([_values(step, 64 * 32, rank).reshape(32, 64) for rank in range(2)])
        model(samples.cuda()).square().mean().backward()
        optimizer.step()
    for parameters in zip(*results, model.parameters(), strict=True):
        assert torch.equal(parameters[0], parameters[1])
        torch.testing.assert_close(parameters[0], parameters[2].detach().cpu(), rtol=1e-4, atol=1e-6)


def reduce_by_nccl() -> dict[str, Any]:
    """One rank, whose tensors on the GPU NCCL serves; returns what it did."""
    dist.init_process_group("plink")
    tensor, host = torch.ones(1 << 20, device="cuda"), torch.ones(8)
    for _ in range(3):
        dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    dist.all_reduce(host)
    gathered = torch.empty(1 << 20, device="cuda")
    dist.all_gather_into_tensor(gathered, tensor)
    group: Any = dist.group.WORLD
    results = {
        "sum": gathered.sum().item(),
        "kind": type(group._get_backend(torch.device("cuda"))).__name__,
    }
    dist.destroy_process_group()
    return results


@pytest.mark.parametrize("staged", ["", "1"])
def test_nccl_serves_tensors_on_the_gpu(staged: str) -> None:
    """In one rank, for NCCL has one GPU a rank; with staging it is timed against the schedule first."""
    if not dist.is_nccl_available():
        pytest.skip("torch has no NCCL")
    (ended,) = run_ranks(reduce_by_nccl, 1, PLINK_STAGED=staged)
    assert ended.code == 0, ended.err
    assert ended.result == {"sum": float(1 << 20), "kind": "ProcessGroupNCCL"}
