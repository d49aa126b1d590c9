"""One rank of a timed collective: the same all-reduce by several orders of the same processes, in turns.

Argument: a configuration by :func:`pack_config`. Every order has a process group or communicator, made once, in which
this process has the rank of that order. Sums are checked. Rank 0 prints a JSON line a repetition: the seconds of every
order on the slowest rank.

Runs on the hosts, which may have PyTorch or mpi4py and no plink: imports plink only for its backend.
"""

import base64
import datetime
import json
import os
import resource
import sys
import time
import zlib
from array import array
from typing import Any

from mpi4py import MPI

_TIMEOUT = datetime.timedelta(seconds=300)
_FLOAT_BYTES = 4


def pack_config(config: dict[str, Any]) -> str:
    """Return a configuration as one word.

    ``kind``: "gloo" or "plink" (PyTorch's process groups), or "mpi", whose own settings select the algorithm;
    ``places``, shape (orders, ranks): each rank's rank in the order's group; ``sizes_bytes``, shape (orders,): what
    each order reduces; ``warm_up``, ``repeats``.
    """
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(config).encode(), 9)).decode()


def unpack_config(word: str) -> dict[str, Any]:
    """Return the configuration of :func:`pack_config`."""
    config: dict[str, Any] = json.loads(zlib.decompress(base64.urlsafe_b64decode(word)))
    return config


class _TorchRank:
    """Rank of PyTorch's process groups, one group an order."""

    def __init__(self, kind: str, places: list[list[int]]) -> None:
        import torch
        import torch.distributed

        dist: Any = torch.distributed
        gloo = dist.ProcessGroupGloo
        group_of = gloo
        if kind == "plink":
            from plink.runtime.allreduce.backend import PlinkProcessGroup as group_of
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(1)
        # Every order has its own connections to every rank: a login's 1,024 files suffice for ten orders of 40 ranks.
        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(address, port, self.size, is_master=self.rank == 0, timeout=_TIMEOUT)
        self._base = gloo(dist.PrefixStore("base/", store), self.rank, self.size, _TIMEOUT)
        self._groups: list[Any] = [
            group_of(dist.PrefixStore(f"order-{number}/", store), row[self.rank], self.size, _TIMEOUT)
            for number, row in enumerate(places)
        ]
        self._torch, self._max, self._is_plink = torch, dist.ReduceOp.MAX, kind == "plink"

    def vector(self, value: float, elements: int) -> Any:
        return self._torch.full((elements,), value, dtype=self._torch.float32)

    def barrier(self) -> None:
        self._base.barrier().wait()

    def all_reduce(self, order: int, data: Any) -> None:
        self._groups[order].allreduce([data]).wait()

    def is_all(self, data: Any, value: float) -> bool:
        return bool(self._torch.all(data == value))

    def slowest(self, seconds: list[float]) -> list[float]:
        data = self._torch.tensor(seconds, dtype=self._torch.float64)
        self._base.allreduce([data], self._max).wait()
        return list(data.tolist())

    def end(self) -> None:
        self.barrier()  # the store ends with rank 0
        for group in self._groups if self._is_plink else []:
            group.shutdown()

    def fail(self, text: str) -> None:
        raise RuntimeError(text)


class _MpiRank:
    """Rank of MPI (mpi4py), one communicator an order."""

    def __init__(self, places: list[list[int]]) -> None:
        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size
        self._orders = [self._world.Split(0, row[self.rank]) for row in places]

    def vector(self, value: float, elements: int) -> Any:
        return array("f", [value]) * elements

    def barrier(self) -> None:
        self._world.Barrier()

    def all_reduce(self, order: int, data: Any) -> None:
        self._orders[order].Allreduce(self._mpi.IN_PLACE, [data, self._mpi.FLOAT])

    def is_all(self, data: Any, value: float) -> bool:
        return bool(data.count(value) == len(data))

    def slowest(self, seconds: list[float]) -> list[float]:
        slowest = array("d", seconds)
        self._world.Allreduce(array("d", seconds), slowest, self._mpi.MAX)
        return slowest.tolist()

    def end(self) -> None:
        pass

    def fail(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        self._world.Abort(1)  # an error would leave the other ranks waiting


def main(word: str) -> None:
    """Measure as one rank."""
    config = unpack_config(word)
    kind, places, sizes_bytes = config["kind"], config["places"], config["sizes_bytes"]
    process = _MpiRank(places) if kind == "mpi" else _TorchRank(kind, places)
    for repeat in range(-config["warm_up"], config["repeats"]):
        seconds = []
        for order, size_bytes in enumerate(sizes_bytes):
            data = process.vector(process.rank + 1, max(1, size_bytes // _FLOAT_BYTES))
            process.barrier()
            began = time.perf_counter()
            process.all_reduce(order, data)
            seconds.append(time.perf_counter() - began)
            if not process.is_all(data, process.size * (process.size + 1) / 2):
                process.fail(f"rank {process.rank}, order {order}: the all-reduce gave a wrong sum")
        slowest = process.slowest(seconds)
        if process.rank == 0 and repeat >= 0:
            print(json.dumps({"seconds": [round(value, 6) for value in slowest]}), flush=True)
    process.end()


if __name__ == "__main__":
    main(sys.argv[1])
