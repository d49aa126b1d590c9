"""One rank of :mod:`benchmarks.nccl_lab`; runs on the hosts under ``plink launch``.

Arguments: a plan (JSON), the file for the result, "nccl" or "gloo". A plan has ``seconds``, after which no further cell
is begun, and ``cells``, in the order in which they are timed: ``places`` (each rank's position in an order, shape
(ranks,)), ``groups`` (of positions; all groups communicate at once), ``op``, ``algo`` ("Ring", "Tree"; null: NCCL's own
choice), ``size_bytes``, ``repeats``. Each group has a communicator, kept while ``places`` stay the same. Rank 0 writes
the result after each cell: a line of JSON with the cell's number and the seconds of each repetition, of the slowest
rank. Sums of all-reduces are checked.
"""

import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from plink.runtime import order_timing

_dist: Any = torch.distributed
_TIMEOUT = datetime.timedelta(seconds=120)
_FLOAT_BYTES = 4


class Rank:
    """This process: its communicators, and what it times."""

    def __init__(self, backend: str) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(1)
        self._is_nccl = backend == "nccl"
        self._device = order_timing.rank_gpu(torch) if self._is_nccl else "cpu"
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._store = _dist.TCPStore(address, port, self.size, is_master=self.rank == 0, timeout=_TIMEOUT)
        self._base = _dist.ProcessGroupGloo(_dist.PrefixStore("base/", self._store), self.rank, self.size, _TIMEOUT)
        self._communicators: dict[str, Any] = {}
        self._places: list[int] = []
        self._closed = 0  # how often: names in the store are used once

    def slowest(self, seconds: list[float]) -> list[float]:
        """Return the largest of every rank's numbers."""
        data = torch.tensor(seconds, dtype=torch.float64)
        self._base.allreduce([data], _dist.ReduceOp.MAX).wait()
        return list(data.tolist())

    def time(self, cell: dict[str, Any]) -> list[float]:
        """Return the seconds of each repetition; the first, which connects, is left out."""
        if self._places != cell["places"]:
            self._close()
            self._places = cell["places"]
        position = self._places[self.rank]
        members = next((group for group in cell["groups"] if position in group), None)
        group = None if members is None else self._communicator(cell, members, members.index(position))
        seconds = []
        for _ in range(1 + cell["repeats"]):
            run = None if group is None else self._prepared(cell["op"], group, cell["size_bytes"])
            self._synchronize()
            self._base.barrier().wait()
            began = time.perf_counter()
            if run is not None:
                for work in run():
                    work.wait()
                self._synchronize()
            seconds.append(time.perf_counter() - began)
        return self.slowest(seconds)[1:]

    def end(self) -> None:
        """Close the communicators once every rank is done: the store ends with rank 0."""
        self._close()
        self._base.barrier().wait()

    def _synchronize(self) -> None:
        if self._is_nccl:
            torch.cuda.synchronize()

    def _communicator(self, cell: dict[str, Any], members: list[int], rank: int) -> Any:
        # Every rank times the same cells, so the names agree; NCCL reads its variable as the first collective connects.
        name = f"{self._places}/{members}/{cell['algo']}/{cell['op'] == 'send-recv'}/"
        if cell["algo"] is None:
            os.environ.pop("NCCL_ALGO", None)
        else:
            os.environ["NCCL_ALGO"] = cell["algo"]
        if name not in self._communicators:
            make = order_timing.nccl_group if self._is_nccl else _dist.ProcessGroupGloo
            store = _dist.PrefixStore(f"{self._closed}/{name}", self._store)
            self._communicators[name] = make(store, rank, len(members), _TIMEOUT)
        return self._communicators[name]

    def _prepared(self, op: str, group: Any, size_bytes: int) -> Any:
        """Return a function that starts the operation on fresh data: ``size_bytes`` is what the whole vector has."""
        n, elements = group.size(), max(group.size(), size_bytes // _FLOAT_BYTES // group.size() * group.size())
        whole = torch.full((elements,), float(group.rank() + 1), device=self._device)
        part = torch.full((elements // n,), 1.0, device=self._device)
        if op == "all-reduce":
            return lambda: self._summed(group, whole, n)
        if op == "all-gather":
            return lambda: [group._allgather_base(whole, part)]
        if op == "reduce-scatter":
            return lambda: [group._reduce_scatter_base(part, whole)]
        if op == "all-to-all":
            return lambda: [group.alltoall_base(torch.empty_like(whole), whole, [], [])]
        if group.rank() % 2 == 0:
            return lambda: [group.send([whole], group.rank() + 1, 0)] if group.rank() + 1 < n else []
        return lambda: [group.recv([whole], group.rank() - 1, 0)]

    def _summed(self, group: Any, whole: torch.Tensor, n: int) -> list[Any]:
        group.allreduce([whole]).wait()
        if whole[-1].item() != n * (n + 1) / 2:
            raise RuntimeError(f"rank {self.rank}: an all-reduce gave a wrong sum")
        return []

    def _close(self) -> None:
        self._base.barrier().wait()
        for group in self._communicators.values() if self._is_nccl else []:
            group.shutdown()
        self._communicators, self._closed = {}, self._closed + 1


def main() -> None:
    """Time the plan's cells until its seconds are spent."""
    plan, began = json.loads(Path(sys.argv[1]).read_text()), time.monotonic()
    process = Rank(sys.argv[3])
    with Path(sys.argv[2]).open("a") as result:
        for number, cell in enumerate(plan["cells"]):
            if process.slowest([time.monotonic() - began])[0] > plan["seconds"]:
                break
            seconds = process.time(cell)
            if process.rank == 0:
                result.write(json.dumps([number, [round(value, 6) for value in seconds]]) + "\n")
                result.flush()
    process.end()


if __name__ == "__main__":
    main()
