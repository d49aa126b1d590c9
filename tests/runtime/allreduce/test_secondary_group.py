"""Gloo with its ranks in another order: the same sums, and its end is everybody's."""

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from plink.runtime.allreduce.reductions import reduction_for
from plink.runtime.allreduce.secondary_group import SecondaryGroup, differs_from_rank_order
from solvers.schedules.catalogue import schedule_for
from tests.runtime.allreduce.thread_ranks import Members, everywhere


def asides(order: list[int], timeout_s: float = 20.0) -> list[SecondaryGroup]:
    """One a rank."""
    store = dist.HashStore()
    timeout = timedelta(seconds=timeout_s)
    return everywhere(len(order), lambda rank: SecondaryGroup(store, rank, order, timeout))


@pytest.mark.parametrize(
    ("order", "other"),
    [
        ([1, 0], False), ([2, 1, 0], False), ([1, 0, 3, 2], False), ([0, 2, 1, 3], True), ([0, 2, 4, 1, 3], True),
    ],
)  # fmt: skip
def test_a_ring_is_another_where_somebody_has_other_neighbours(order: list[int], other: bool) -> None:
    """Wherever it begins, and either way round."""
    size = len(order)
    pairs = {frozenset((order[k], order[(k + 1) % size])) for k in range(size)}
    assert (pairs != {frozenset((k, (k + 1) % size)) for k in range(size)}) == other
    assert differs_from_rank_order(order) == other


@pytest.mark.parametrize("elements", [1, 100_000])
def test_sums_are_those_of_all_ranks_in_any_order(elements: int) -> None:
    """And each rank's place is the one that the order gives it."""
    order = [2, 0, 3, 1]
    groups = asides(order)
    assert [group._rank for group in groups] == [1, 3, 0, 2]

    def work(rank: int) -> list[torch.Tensor]:
        results = []
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
            data = torch.full((elements,), float(10**rank))
            groups[rank].all_reduce(data, op).wait()
            results.append(data)
        return results

    for total, largest in everywhere(4, work):
        assert total.unique().tolist() == [1111.0]
        assert largest.unique().tolist() == [1000.0]


class Handing(Members):
    """Engines that hand over what has so many bytes, and count what they do."""

    def __init__(self, smallest_bytes: int, **options: Any) -> None:
        super().__init__(schedule_for("flat", 4), **options)
        self.handed: list[int] = []
        lock = threading.Lock()

        class Counting(SecondaryGroup):
            """Which sizes came, of rank 0."""

            def all_reduce(this, tensor: torch.Tensor, op: Any) -> dist.Work:
                if this._rank == 0:
                    with lock:
                        self.handed.append(tensor.nbytes)
                return super().all_reduce(tensor, op)

        store = dist.HashStore()
        made = everywhere(4, lambda rank: Counting(store, rank, [0, 2, 1, 3], timedelta(seconds=20)))
        for member, secondary in zip(self.members, made, strict=True):
            member.engine.delegate_above(smallest_bytes, secondary)


def test_what_is_large_goes_to_gloo_and_means_the_same() -> None:
    """From the size on, of the types that Gloo sums; averages too."""
    with Handing(4000) as members:
        for elements, dtype, op, value in (
            (999, torch.float32, dist.ReduceOp.SUM, 10),
            (1000, torch.float32, dist.ReduceOp.SUM, 10),
            (5000, torch.float32, dist.ReduceOp.AVG, 2.5),
            (6000, torch.int32, dist.ReduceOp.AVG, 2),
            (7000, torch.int16, dist.ReduceOp.SUM, 10),
            (8000, torch.float64, dist.ReduceOp.PRODUCT, 24),
        ):
            data = [torch.full((elements,), rank + 1, dtype=dtype) for rank in range(4)]
            assert members.reduce(data, op) == [None] * 4
            assert [tensor.unique().tolist() for tensor in data] == [[value]] * 4
        assert members.handed == [4000, 20_000, 24_000, 64_000]


@pytest.mark.extended
def test_a_rank_that_does_not_come_is_named_there_too() -> None:
    """After the group's time-out, which is shorter than Gloo's own here; and then there are no more sums."""
    with Handing(4000, timeout_s=3.0) as members:

        def work(rank: int) -> tuple[str | None, str | None]:
            if rank == 1:
                return None, None
            member = members.members[rank]
            return member.reduce(torch.ones(100_000), patience_s=15), member.reduce(torch.ones(1))

        for rank, (first, again) in enumerate(everywhere(4, work)):
            if rank != 1:
                assert "rank 1 did not take part" in str(first)
                assert "rank 1 did not take part" in str(again)


@pytest.mark.parametrize(
    ("elements", "dtype", "expected"),
    [
        (99_999, torch.float32, False), (100_000, torch.int32, True),
    ],
)  # fmt: skip
def test_delegated_ranks_with_different_signatures_are_named(elements: int, dtype: torch.dtype, expected: bool) -> None:
    """Also where what they mean is as long, which Gloo does not notice, whether it was meant before or not."""
    with Handing(4000) as members:
        for kind in (torch.float32, dtype) if expected else ():
            assert members.reduce([torch.ones(100_000, dtype=kind) for _ in range(4)]) == [None] * 4
        data = [torch.ones(100_000) for _ in range(4)]
        data[2] = torch.ones(elements, dtype=dtype)
        for error in members.reduce(data):
            assert f"rank 2: sum of {elements} x {str(dtype).removeprefix('torch.')}" in str(error)
            assert "ranks 0, 1, 3: sum of 100000 x float32" in str(error)
        assert all("differs between ranks" in str(error) for error in members.reduce([torch.ones(5)] * 4))


def test_a_rank_that_is_lost_while_gloo_has_the_data_is_named() -> None:
    """It agreed with the others on what comes, and then its connections end."""
    with Handing(4000) as members:

        def work(rank: int) -> str | None:
            engine, data = members.members[rank].engine, torch.ones(100_000)
            if rank != 1:
                return members.members[rank].reduce(data, patience_s=15)
            reduction = reduction_for(dist.ReduceOp.SUM, data.dtype)
            assert reduction is not None
            engine._check_signature(engine._begin(data, None, reduction, lambda error: None))
            engine._transport.close()
            engine._secondaries[0].close()
            return None

        for rank, error in enumerate(everywhere(4, work)):
            assert rank == 1 or "lost connection to rank 1" in str(error)


def test_closing_it_ends_what_goes_over_any_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where several are named, over which Gloo would take turns."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo,lo")
    groups = asides([0, 1, 2])

    def work(rank: int) -> float:
        groups[rank].all_reduce(torch.ones(10), dist.ReduceOp.SUM).wait()
        began = time.monotonic()
        if rank == 1:
            time.sleep(0.3)
        else:
            with pytest.raises(RuntimeError):
                groups[rank].all_reduce(torch.ones(1000), dist.ReduceOp.SUM).wait()
        groups[rank].close()
        return time.monotonic() - began

    assert max(everywhere(3, work)) < 10
