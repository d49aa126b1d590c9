"""Hub processes beside the ranks of a job: sums, groups of some ranks, and what happens when one is lost."""

import signal
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from plink.model.segmentation import SegmentationConfig
from plink.runtime.allreduce import hub
from plink.runtime.allreduce.aggregation import Aggregation, SizeClass
from plink.runtime.allreduce.channel import DataChannel, run_channel
from plink.runtime.allreduce.program import compile_program
from plink.runtime.allreduce.segmentation import segment
from plink.runtime.elastic.host.memory_limits import Memory
from plink.runtime.torch_backend import VARIABLE
from solvers.schedules.catalogue import Options, schedule_for
from tests.ports import free_port
from tests.runtime.ranks import RankProcess, Ranks, environment_of, results_of, wait_until

DTYPES = (torch.float32, torch.float64, torch.int16, torch.bfloat16)


def hub_environment(ranks: int, hubs: int, weights: Sequence[float] | None = None, **more: Any) -> dict[str, str]:
    """Variables of a job whose all-reduces of all sizes use hubs, without more options."""
    schedule = schedule_for("phub", ranks + hubs, Options(servers=hubs, weights=weights))
    names = tuple(f"hub-{k} on fat-{k}" for k in range(hubs))
    aggregation = Aggregation((SizeClass(None, "phub", schedule),), **{"smallest_bytes": 1, **more}, hubs=names)
    return {VARIABLE: "phub", **aggregation.to_environment()}


def start(
    job: Ranks, function: Any, ranks: int, hubs: int, environment: dict[str, str], main: Any = hub.main
) -> list[RankProcess]:
    """Start the ranks, and the hubs behind them; return the hubs, which never end by themselves."""
    port = free_port()
    for rank in range(ranks):
        job.start(function, environment={**environment_of(rank, ranks, port), **environment})
    for rank in range(ranks, ranks + hubs):
        job.start(main, environment={**environment_of(rank, ranks, port), **environment})
    return job.started[ranks:]


def sums() -> dict[str, Any]:
    """What a program gets."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    results: dict[str, Any] = {}
    for dtype in DTYPES:
        vector = torch.arange(10_000).remainder(7).to(dtype) * (rank + 1)
        dist.all_reduce(vector)
        results[str(dtype)] = vector[:7].tolist()
    mean = torch.full((300_000,), float(rank))
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    works = [dist.all_reduce(torch.ones(50_000), async_op=True) for _ in range(6)]
    results["several"] = [work.result()[0].unique().tolist() for work in works if work.wait()]
    largest = torch.full((5_000,), float(rank))
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    extremes = []
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
        for dtype in (torch.int16, torch.float32):
            for vector in (torch.full((5_000,), -(rank + 1), dtype=dtype), torch.full((5_000,), rank + 1, dtype=dtype)):
                dist.all_reduce(vector, op)
                extremes.append(vector.unique().tolist())
    results["extremes"] = extremes
    pair, of_all = torch.full((5_000,), float(rank + 1)), torch.ones(5_000)
    some, everyone = dist.new_group([0, 1]), dist.new_group(list(range(ranks)))
    if rank < 2:
        dist.all_reduce(pair, group=some)
    dist.all_reduce(of_all, group=everyone)
    for name, tensor in (("mean", mean), ("largest", largest), ("pair", pair), ("everyone", of_all)):
        results[name] = tensor.unique().tolist()
    dist.destroy_process_group()
    return results


@pytest.mark.parametrize(("hubs", "weights"), [(1, None), pytest.param(2, [1.0, 3.0], marks=pytest.mark.extended)])
def test_sums_of_an_unmodified_program(hubs: int, weights: list[float] | None) -> None:
    with Ranks() as job:
        environment = hub_environment(3, hubs, weights)
        started = start(job, sums, 3, hubs, environment)
        ended = job.wait(processes=job.started[:3])
        assert [process.poll() for process in started] == [None] * hubs
    results = results_of(ended)
    groups = [line for line in ended[0].err.splitlines() if "groups of" in line]
    assert len(groups) == 2
    assert all("without hubs" in line for line in groups)
    for result in results:
        assert [result[str(dtype)] for dtype in DTYPES] == [[6 * k for k in range(7)]] * len(DTYPES)
        assert result["several"] == [[3.0]] * 6
        assert result["extremes"] == [*[[-1], [3]] * 2, *[[-3], [1]] * 2, *[[-6], [6]] * 2]
        assert [result[name] for name in ("mean", "largest", "pair", "everyone")] == [[1.0], [2.0], [3.0], [3.0]]


def large_sums() -> list[float]:
    """All-reduces of sizes at which Gloo's ring in another order is timed, and of the smallest above them."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    vectors = [torch.ones(elements) for elements in (1 << 16, 1 << 20, (1 << 20) + 1)]
    for vector in vectors:
        dist.all_reduce(vector)
    dist.destroy_process_group()
    return [float(vector.sum() / len(vector)) for vector in vectors]


@pytest.mark.extended
def test_hubs_of_groups_whose_order_is_not_that_of_ranks() -> None:
    """As ``--backend auto`` starts them: what is fastest is measured."""
    with Ranks() as job:
        start(job, large_sums, 4, 1, hub_environment(4, 1, smallest_bytes=None, ring=(0, 2, 1, 3)))
        assert results_of(job.wait(processes=job.started[:4])) == [[4.0] * 3] * 4


def in_two_groups() -> list[float]:
    """All-reduce in one group of all ranks, and in another after its end."""
    results = []
    for group in range(2):
        dist.init_process_group("gloo", timeout=timedelta(seconds=30))
        vector = torch.full((50_000,), float(group + 1))
        dist.all_reduce(vector)
        results.append(float(vector[0]))
        rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
        dist.destroy_process_group()
        time.sleep(4.0 if rank else 1.0)  # the store is rank 0's, and hubs wait there for the next group when it ends
        del store
    return results


@pytest.mark.extended
def test_hubs_join_the_next_group() -> None:
    with Ranks() as job:
        start(job, in_two_groups, 2, 1, hub_environment(2, 1))
        assert results_of(job.wait(processes=job.started[:2])) == [[2.0, 4.0]] * 2


def until_lost() -> tuple[str, float]:
    """All-reduce until that fails; return why, and when."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=5))
    vector = torch.zeros(1_000_000)
    dist.all_reduce(vector)
    print("begun", flush=True)
    try:
        while True:
            dist.all_reduce(vector)
    except RuntimeError as error:
        return str(error), time.monotonic()


@pytest.mark.extended
@pytest.mark.parametrize(("number", "within_s"), [(signal.SIGKILL, 2.0), (signal.SIGSTOP, 5.0 + 2.0)])
def test_a_lost_hub_is_named_by_every_rank(number: signal.Signals, within_s: float) -> None:
    """Killed at once; one that hangs after the group's time-out."""
    with Ranks() as job:
        (lost,) = start(job, until_lost, 2, 1, hub_environment(2, 1))
        wait_until(lambda: all((job.folder / f"{rank}.out").read_text() for rank in range(2)))
        lost.send_signal(number)
        began = time.monotonic()
        results = results_of(job.wait(processes=job.started[:2]))
        lost.send_signal(signal.SIGCONT)
    for error, ended in results:
        assert "hub-0 on fat-0" in error
        assert ended - began < within_s + 3.0  # the machine may be busy


def too_large() -> str:
    """All-reduce something that the hub has no memory for."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(torch.zeros(300_000))
    return str(caught.value)


def poor_hub() -> None:
    """Be a hub with room for a megabyte."""
    hub.memory = lambda: Memory(1_000_000, "")
    hub.main()


@pytest.mark.extended
def test_too_large_a_bucket_is_refused_with_both_sizes() -> None:
    with Ranks() as job:
        start(job, too_large, 2, 1, hub_environment(2, 1), poor_hub)
        errors = results_of(job.wait(processes=job.started[:2]))
    for error in errors:
        assert "1.2 MB" in error
        assert "has 1 MB" in error
        assert "hub-0 on fat-0" in error


class CountedReceptions:
    """Transport of nothing: counts the receptions posted before the first wait."""

    def __init__(self) -> None:
        self.posted, self.of_peer = Counter[int](), Counter[int]()

    def receive(self, tensor: torch.Tensor, peer: int, channel: int, tag: int) -> Any:
        self.posted[peer] += 1

    def send(self, tensor: torch.Tensor, peer: int, channel: int, tag: int) -> Any:
        """Nothing."""

    def wait(self, pending: Any, peer: int, channel: int) -> None:
        self.of_peer = self.of_peer or self.posted.copy()


def test_three_messages_of_each_worker_are_under_way() -> None:
    schedule, vector = schedule_for("phub", 9, Options(servers=1)), torch.zeros(8 << 20)
    cells = segment(len(vector), vector.element_size(), schedule.chunks, SegmentationConfig())
    (steps,) = compile_program(schedule, 8, cells).channels
    transport: Any = CountedReceptions()
    run_channel(DataChannel(0), steps, vector, torch.Tensor.add_, transport, 0)
    assert transport.of_peer == dict.fromkeys(range(8), 3)
