"""All-reduces over real Gloo connections between threads: sums, types, operations, failures."""

import threading

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.model.schedule import Schedule
from plink.model.segmentation import SegmentationConfig
from plink.runtime.allreduce.reductions import DTYPES, reduction_for
from solvers.schedules.catalogue import Options, schedule_for
from tests.runtime.allreduce.schedules import schedules
from tests.runtime.allreduce.thread_ranks import Members, everywhere, gloo_groups

OPS = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]
TYPES = sorted(DTYPES, key=str)
# Of sums of 16 numbers; what the order of additions changes.
ROUNDING = {torch.float64: 1e-14, torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 2e-1}


@pytest.fixture(autouse=True)
def one_thread() -> object:
    """Ranks are threads already."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def values(rank: int, elements: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Small numbers: sums of 16 stay within every type."""
    generator = torch.Generator().manual_seed(seed * 100 + rank)
    if dtype.is_floating_point:
        return (torch.rand(elements, generator=generator, dtype=torch.float64) + 0.5).to(dtype)
    return torch.randint(1, 3, (elements,), generator=generator).to(dtype)


def expected(inputs: list[torch.Tensor], op: object) -> torch.Tensor:
    """In doubles; products of integers modulo the type's range, which no order of factors changes."""
    if op == dist.ReduceOp.PRODUCT and not inputs[0].dtype.is_floating_point:
        exact = torch.stack([tensor.to(torch.int64) for tensor in inputs]).prod(dim=0)  # at most 2 ** 16
        return exact.to(inputs[0].dtype).to(torch.float64)
    stack = torch.stack([tensor.to(torch.float64) for tensor in inputs])
    reduced = {
        dist.ReduceOp.SUM: stack.sum, dist.ReduceOp.AVG: stack.mean, dist.ReduceOp.MIN: stack.amin,
        dist.ReduceOp.MAX: stack.amax, dist.ReduceOp.PRODUCT: stack.prod,
    }[op](dim=0)  # type: ignore[operator]  # fmt: skip
    return reduced if inputs[0].dtype.is_floating_point else reduced.trunc()


@settings(max_examples=12)
@given(
    schedules(most_ranks=8), st.integers(1, 3), st.booleans(),
    st.lists(
        st.tuples(st.integers(1, 3000), st.sampled_from(TYPES), st.sampled_from(OPS)), min_size=10, max_size=10
    ),
)  # fmt: skip
def test_every_schedule_type_and_operation(
    schedule: Schedule, channels: int, eager: bool, calls: list[tuple[int, torch.dtype, object]]
) -> None:
    """Hundreds of vectors: what doubles say within the type's rounding, and every rank the very same bits.

    Ranks are threads here, and at most eight: two cores run them."""
    with Members(schedule, channels, eager=eager) as members:
        for number, (elements, dtype, op) in enumerate(calls):
            inputs = [values(rank, elements, dtype, number) for rank in range(schedule.ranks)]
            results = [tensor.clone() for tensor in inputs]
            assert members.reduce(results, op) == [None] * schedule.ranks
            assert all(torch.equal(tensor, results[0]) for tensor in results)
            wanted = expected(inputs, op)
            if dtype.is_floating_point:
                close = ROUNDING[dtype] * (4 if op == dist.ReduceOp.PRODUCT else 1)
                torch.testing.assert_close(results[0].to(torch.float64), wanted, rtol=close, atol=close)
            else:
                assert torch.equal(results[0].to(torch.float64), wanted)


def test_the_same_as_gloo() -> None:
    """Two numbers have one sum, whoever adds them."""
    schedule = schedule_for("ring", 2)
    inputs = [values(rank, 100_000, torch.float32, 1) for rank in range(2)]
    with Members(schedule, segmentation=SegmentationConfig()) as members, gloo_groups(2) as groups:
        mine, theirs = ([tensor.clone() for tensor in inputs] for _ in range(2))
        assert members.reduce(mine) == [None, None]
        everywhere(2, lambda rank: groups[rank].allreduce(theirs[rank]).wait())
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("eager", [False, True])
def test_many_at_once_come_out_in_order(eager: bool) -> None:
    """As DDP's buckets: submitted one after the other, of different sizes, before the first is done."""
    schedule = schedule_for("2lha", 6, Options(groups=[[0, 2, 4], [1, 3], [5]]))
    sizes = [1, 5000, 17, 80_000, 3, 3, 20_000]
    with Members(
        schedule, channels=2, segmentation=SegmentationConfig(1 << 10, 1 << 12, 4, 1 << 10), eager=eager
    ) as members:

        def rank_work(rank: int) -> list[torch.Tensor]:
            member = members.members[rank]
            tensors = [torch.full((size,), float(rank + k)) for k, size in enumerate(sizes)]
            left = threading.Semaphore(0)
            for tensor in tensors:
                sum_ = reduction_for(dist.ReduceOp.SUM, tensor.dtype)
                assert sum_ is not None
                member.engine.submit(tensor, schedule, sum_, lambda error: left.release())
            for _ in tensors:
                assert left.acquire(timeout=30)
            return tensors

        for tensors in everywhere(6, rank_work):
            assert [tensor.unique().tolist() for tensor in tensors] == [[15.0 + 6 * k] for k in range(len(sizes))]


@pytest.mark.parametrize(("algo", "eager"), [("ring", False), ("halving-doubling", True), ("tree", True)])
def test_ranks_that_mean_different_things_are_named(algo: str, eager: bool) -> None:
    """Nobody hangs, nobody gets a sum."""
    schedule = schedule_for(algo, 4)
    with Members(schedule, eager=eager) as members:
        inputs = [torch.ones(1000) for _ in range(4)]
        inputs[2] = torch.ones(999, dtype=torch.float64)
        for error in members.reduce(inputs):
            assert error is not None
            assert "rank 2: sum of 999 x float64" in error
            assert "ranks 0, 1, 3: sum of 1000 x float32" in error
        assert all("differs between ranks" in (error or "") for error in members.reduce([torch.ones(5)] * 4))


@pytest.mark.parametrize("eager", [pytest.param(False, marks=pytest.mark.extended), True])
def test_a_rank_that_does_not_come_is_named(eager: bool) -> None:
    """After the group's time-out, on all others."""
    schedule = schedule_for("2lha", 4, Options(groups=[[0, 1], [2, 3]]))
    with Members(schedule, timeout_s=3.0, eager=eager) as members:

        def rank_work(rank: int) -> str | None:
            return None if rank == 1 else members.members[rank].reduce(torch.ones(100), patience_s=20)

        errors = everywhere(4, rank_work)
        assert all("timed out after 3 s: rank 1 did not take part" in str(errors[rank]) for rank in (0, 2, 3)), errors
