"""Tensors that are not in the hosts' memory, aggregated there: on a device of its own kind, since there is no GPU."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from plink.runtime import requested_backend, torch_backend
from plink.runtime.allreduce import algorithm_selection, host_staging
from plink.runtime.allreduce.algorithm_selection import SizeRange
from plink.runtime.allreduce.cuda_delegation import CudaDelegate
from plink.runtime.allreduce.host_staging import stage_to_host
from tests.runtime.allreduce.plans import plan_of, two_levels
from tests.runtime.ranks import Ended, results_of, run_ranks

CUDA = torch.device("cuda", 0)


def reduce_here_and_there() -> dict[str, Any]:
    """The same all-reduces of tensors here and there, one after the other and several at once; in one rank."""
    from tests.runtime.allreduce.faraway import Far  # it registers a device with torch

    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def values(key: int, n: int) -> torch.Tensor:
        return torch.rand(n, generator=torch.Generator().manual_seed(64 * key + rank)) - 0.5

    results: dict[str, Any] = {
        "group": type(dist.group.WORLD).__name__,
        "same": [],
        "device": str(Far(torch.ones(1)).device),
    }
    total, average, largest = dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX
    for key, (n, kind, op) in enumerate(
        [(1, torch.float32, total), (70_000, torch.float32, total), (999, torch.bfloat16, average),
         (5000, torch.float64, largest), (3 << 18, torch.float32, average)]
    ):  # fmt: skip
        here = values(key, n).to(kind)
        there = Far(here)
        dist.all_reduce(here, op=op)
        dist.all_reduce(there, op=op)
        results["same"].append(torch.equal(here, there.numbers))
    wide = Far(values(9, 600).reshape(20, 30))
    dist.all_reduce(plain := wide.numbers.clone())
    dist.all_reduce(wide)
    results["shape"] = [torch.equal(plain, wide.numbers), list(wide.shape)]
    many = [Far(torch.full((n,), float(rank))) for n in (3, 40_000, 500_000, 7)]
    works: list[Any] = [dist.all_reduce(tensor_, async_op=True) for tensor_ in many]
    for work in works:
        work.wait()
    results["many"] = [tensor_.numbers.unique().tolist() for tensor_ in many]
    results["is_in_place"] = works[0].result()[0] is many[0]
    pair = dist.new_group([0, 2])
    if rank in (0, 2):
        tensor_ = Far(torch.full((9000,), float(rank)))
        dist.all_reduce(tensor_, group=pair)
        results["pair"] = tensor_.numbers[0].item()
    dist.destroy_process_group()
    return results


def reduce_other_lengths() -> str:
    """Rank 1 means a longer vector; returns what each is told."""
    from tests.runtime.allreduce.faraway import Far

    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    with pytest.raises(RuntimeError) as error:
        dist.all_reduce(Far(torch.ones(9 if dist.get_rank() == 1 else 8)))
    return str(error.value)


def ranks(function: Callable[[], Any], folder: Path, staged: str) -> list[Ended]:
    """Three, by a two-level schedule that is used at every size."""
    plan = plan_of(folder, two_levels(3))
    return run_ranks(function, 3, PLINK_BACKEND="2lha", PLINK_PLAN=plan, PLINK_STAGED=staged)


@pytest.mark.extended
def test_sums_on_another_device_are_those_on_the_host(tmp_path: Path) -> None:
    """Bit for bit, of every shape, whoever waits for what, in groups of some of the ranks too; and said once."""
    ended = ranks(reduce_here_and_there, tmp_path, "1")
    results = results_of(ended)
    for rank in results:
        assert (rank["group"], rank["device"]) == ("PlinkProcessGroup", "far:0")
        assert rank["same"] == [True] * 5
        assert rank["shape"] == [True, [20, 30]]
        assert rank["many"] == [[3.0]] * 4
        assert rank["is_in_place"]
    assert [rank.get("pair") for rank in results] == [2.0, None, 2.0]
    banner = "plink: all-reduces on far by schedules, through the hosts' memory"
    assert [end.err.count(banner) for end in ended] == [2, 0, 0]  # of all ranks, and of the pair


@pytest.mark.extended
def test_tensors_are_not_staged_unless_requested(tmp_path: Path) -> None:
    """Here nothing does, and torch says so."""
    ended = ranks(reduce_here_and_there, tmp_path, "")
    assert all(end.code == 1 and "device type far" in end.err for end in ended), ended


@pytest.mark.extended
def test_ranks_that_mean_different_things_are_named(tmp_path: Path) -> None:
    """As for tensors in the host's memory."""
    assert all(
        "rank 1: sum of 9 x float32" in error for error in results_of(ranks(reduce_other_lengths, tmp_path, "1"))
    )


class Stream:
    """One of a GPU as its driver keeps it: does what it is given when somebody waits for it, and not before."""

    current: "Stream"

    def __init__(self, device: object = None) -> None:
        self.queue: list[Callable[[], object]] = []

    def wait_stream(self, other: "Stream") -> None:
        """What follows here comes after what is there now."""
        before = list(other.queue)
        self.queue.append(lambda: [other.drop(do) for do in before])

    def drop(self, do: Callable[[], object]) -> None:
        """Do it unless it is done."""
        if do in self.queue:
            self.queue.remove(do)
            do()

    def __enter__(self) -> None:
        self.before, Stream.current = Stream.current, self

    def __exit__(self, *error: object) -> None:
        Stream.current = self.before


class Event:
    """A point in such a stream."""

    def record(self, stream: Stream) -> None:
        """Here."""
        self.stream, self.before = stream, list(stream.queue)

    def synchronize(self) -> None:
        """All that came before is done."""
        for do in self.before:
            self.stream.drop(do)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's streams and events, and copies in the background that go by them."""
    Stream.current = Stream()
    for name, value in (
        ("Stream", Stream), ("Event", Event), ("stream", lambda stream: stream),
        ("current_stream", lambda device: Stream.current),
    ):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(host_staging, "_STREAMS", {})
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory=False, **how: torch.zeros(*shape, **how))

    def copy(to: torch.Tensor, source: torch.Tensor, in_background: bool = False) -> None:
        assert in_background
        Stream.current.queue.append(lambda: to.copy_(source))

    monkeypatch.setattr(host_staging, "_copy", copy)


def test_what_a_program_asked_its_gpu_for_before_is_fetched(driver: None) -> None:
    """Not what was there when it asked for the all-reduce; and it is there when that is ready, and not sooner."""
    tensor = torch.zeros(4)
    Stream.current.queue.append(lambda: tensor.fill_(3.0))
    fetched = host_staging._from_gpu(tensor)
    assert fetched.wait_ready is not None
    assert fetched.copy_back is not None
    assert fetched.flat.tolist() == [0.0] * 4
    fetched.wait_ready()
    assert fetched.flat.tolist() == [3.0] * 4
    fetched.flat.add_(1.0)
    assert tensor.tolist() == [3.0] * 4
    fetched.copy_back()
    assert tensor.tolist() == [4.0] * 4


def test_delivering_one_waits_for_no_other(driver: None) -> None:
    """Gradients that are still to be computed do not hold up those that are summed up."""
    first, second = torch.ones(2), torch.ones(2)
    tensor_ = host_staging._from_gpu(first)
    Stream.current.queue.append(lambda: pytest.fail("the second was waited for"))
    host_staging._from_gpu(second)
    assert tensor_.wait_ready is not None
    assert tensor_.copy_back is not None
    tensor_.wait_ready()
    tensor_.flat.add_(1.0)
    tensor_.copy_back()
    assert first.tolist() == [2.0, 2.0]


def test_only_what_lies_dense_on_the_host_stays_where_it_is() -> None:
    """Anything else is copied there and back, parameters without a trace in autograd."""
    dense = torch.ones(3, 4, requires_grad=True)
    fetched = stage_to_host(dense)
    assert fetched.flat.data_ptr() == dense.data_ptr()
    assert (fetched.wait_ready, fetched.copy_back) == (None, None)
    base = torch.arange(12.0).reshape(3, 4)
    strided = stage_to_host(base.t())
    assert strided.flat.tolist() == base.t().reshape(-1).tolist()
    strided.flat.mul_(2.0)
    assert strided.copy_back is not None
    strided.copy_back()
    assert base.tolist() == (torch.arange(12.0) * 2).reshape(3, 4).tolist()
    leaf = torch.nn.Parameter(torch.ones(4, 3)).t()
    parameter = stage_to_host(leaf)
    assert parameter.copy_back is not None
    parameter.copy_back()
    assert not parameter.flat.requires_grad


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """torch with a GPU as far as anybody asks; what is timed, in its order."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: noted.append("synchronize"))
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(requested_backend, "gloo_requested", False)
    noted: list[str] = []

    def faster(
        tensor_: Callable[..., Any], other: Callable[..., Any], gloo: object, sizes: list[int], *rest: Any
    ) -> list[bool]:
        assert rest[-1] == CUDA
        for do in (tensor_, other):
            do(torch.zeros(1), dist.ReduceOp.SUM).wait()
        return [size >= 4096 for size in sizes]

    monkeypatch.setattr(algorithm_selection, "_faster", faster)
    return noted


def test_nccl_is_timed_until_the_gpu_is_through(gpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which for a program it is as soon as it is queued; schedules are used from where they were faster."""

    class Nccl:
        """As much of it as is asked for."""

        Options = SimpleNamespace

        def __init__(self, *inputs: object) -> None: ...

        def _set_sequence_number_for_group(self) -> None: ...

        def allreduce(self, tensors: list[torch.Tensor], opts: object) -> Any:
            """Queued."""
            gpu.append("nccl")
            return SimpleNamespace(wait=lambda: None)

        def shutdown(self) -> None:
            """Ends."""
            gpu.append("end")

    monkeypatch.setattr(dist, "ProcessGroupNCCL", Nccl, raising=False)
    made = CudaDelegate(dist.HashStore(), 0, 1, timedelta(seconds=5), object())

    def engine(data: torch.Tensor, op: object) -> Any:
        return SimpleNamespace(wait=lambda: gpu.append("engine"))

    assert made.is_nccl
    results = made.staged_range(CUDA, SizeRange(16), engine, lambda size: True, 2, 1 << 20)
    assert results == SizeRange(4096)  # at 4 MB they were faster, too
    assert gpu == ["engine", "nccl", "synchronize"] * 2
    made.shutdown()
    assert gpu[-1] == "end"


def test_gloo_copies_to_the_host_as_well(gpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """So what was measured there holds for GPUs, and nothing is timed again."""
    monkeypatch.setattr(requested_backend, "gloo_requested", True)
    gloo = object()
    made = CudaDelegate(dist.HashStore(), 0, 1, timedelta(seconds=5), gloo)
    assert made.group is gloo
    ways = (lambda data, op: pytest.fail("timed")), (lambda size: True), 2, None
    assert made.staged_range(CUDA, SizeRange(16), *ways) == SizeRange(16)
    assert made.staged_range(torch.device("meta"), SizeRange(), *ways) == SizeRange(0)
    made.shutdown()


@pytest.mark.parametrize("backend", [None, "nccl", "cpu:gloo,cuda:nccl"])
def test_scripts_that_ask_for_nccl_have_plink_where_staging_is_asked_for(
    backend: str | None, gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NCCL inside; and as they are where it is not."""
    monkeypatch.delenv(requested_backend.STAGED, raising=False)
    assert torch_backend._translate(backend) == backend
    monkeypatch.setenv(requested_backend.STAGED, "1")
    assert torch_backend._translate(backend) == "plink"
    assert torch_backend._translate("mpi") == "mpi"
    assert not requested_backend.gloo_requested


def test_what_a_group_is_asked_for_counts_for_that_group(gpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says Gloo among those that say NCCL: the others keep NCCL."""
    made: list[tuple[str | None, bool]] = []

    def torchs_own(backend: str | None = None, **options: object) -> None:
        made.append((backend, requested_backend.gloo_requested))

    def init_process_group(backend: str | None = None) -> None:
        torchs_own(backend)

    def new_group(ranks: object = None, **options: Any) -> None:
        torchs_own(**options)

    for function in (init_process_group, new_group):
        for module in (dist, dist.distributed_c10d):
            monkeypatch.setattr(module, function.__name__, function)
    monkeypatch.setenv(requested_backend.STAGED, "1")
    torch_backend._wrap_group_functions()
    dist.init_process_group("nccl")
    dist.new_group(backend="gloo")
    dist.new_group()
    dist.new_group(backend="nccl")
    assert made == [("plink", False), ("plink", True), (None, False), ("plink", False)]
    made.clear()
    dist.init_process_group("gloo")
    dist.new_group(backend="nccl")
    dist.new_group()
    assert made == [("plink", True), ("plink", False), (None, True)]
