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

_TIMEOUT = datetime.timedelta(seconds=300)
_FLOAT_BYTES = 4


def pack_config(config: dict[str, Any]) -> str:
    """Return a configuration as one word.

    ``kind``: "gloo", "nccl" or "plink" (PyTorch's process groups), or "mpi"; the libraries' own variables select the
    algorithm;
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
        group_of, self._synchronize, self._device = gloo, _return_at_once, "cpu"
        if kind == "plink":
            from plink.runtime.allreduce.backend import PlinkProcessGroup as group_of
        elif kind == "nccl":
            self._device = rank_gpu(torch)
            group_of, self._synchronize = nccl_group, torch.cuda.synchronize
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(1)
        # Every order has its own connections to every rank: a login's 1,024 files suffice for ten orders of 40 ranks.
        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(address, port, self.size, is_master=self.rank == 0, timeout=_TIMEOUT)
        self._base = gloo(dist.PrefixStore("base/", store), self.rank, self.size, _TIMEOUT)
        # Several sizes of one order share its group: a communicator takes memory of the GPU.
        rows = [places.index(row) for row in places]
        self._made: dict[int, Any] = {
            row: group_of(dist.PrefixStore(f"order-{row}/", store), places[row][self.rank], self.size, _TIMEOUT)
            for row in dict.fromkeys(rows)
        }
        self._groups = [self._made[row] for row in rows]
        self._torch, self._max, self._has_end = torch, dist.ReduceOp.MAX, kind != "gloo"

    def vector(self, value: float, elements: int) -> Any:
        return self._torch.full((elements,), value, dtype=self._torch.float32, device=self._device)

    def barrier(self) -> None:
        self._synchronize()
        self._base.barrier().wait()

    def all_reduce(self, order: int, data: Any) -> None:
        self._groups[order].allreduce([data]).wait()
        self._synchronize()

    def is_all(self, data: Any, value: float) -> bool:
        return bool(self._torch.all(data == value))

    def slowest(self, seconds: list[float]) -> list[float]:
        data = self._torch.tensor(seconds, dtype=self._torch.float64)
        self._base.allreduce([data], self._max).wait()
        return list(data.tolist())

    def end(self) -> None:
        self.barrier()  # the store ends with rank 0
        for group in self._made.values() if self._has_end else []:
            group.shutdown()

    def fail(self, text: str) -> None:
        raise RuntimeError(text)


def _return_at_once() -> None:
    """Collectives in host memory are done when their handle is."""


def nccl_group(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """Return a group of NCCL, which reads its variables when the first collective connects it."""
    import torch.distributed

    dist: Any = torch.distributed
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


def rank_gpu(torch: Any) -> str:
    """Return this rank's GPU, made the current one; where ranks share GPUs, in turns.

    :raises SystemExit: where there is none that NCCL can use.
    """
    if not torch.cuda.is_available():
        raise SystemExit(f"PyTorch {torch.__version__} finds no CUDA GPU here")
    if not torch.distributed.is_nccl_available():
        raise SystemExit(f"PyTorch {torch.__version__} was built without NCCL")
    index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return f"cuda:{index}"


def _gpu_failure(error: Exception) -> str:
    """Return what CUDA or NCCL reports, in a line; their messages go on for pages."""
    text = str(error)
    if "out of memory" in text:
        return "the GPU is out of memory: every order takes some of it; use fewer orders, or a smaller size"
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    # NCCL's own words stand last, CUDA's first (of too many MPS clients, for one).
    return next((line for line in lines if "MPS" in line), lines[-1] if "NCCL" in text else lines[0])


class _MpiRank:
    """Rank of MPI (mpi4py), one communicator an order."""

    def __init__(self, places: list[list[int]]) -> None:
        from mpi4py import MPI  # hosts of other algorithms may lack it

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
    kind, places = config["kind"], config["places"]
    try:
        _measure(_MpiRank(places) if kind == "mpi" else _TorchRank(kind, places), config["sizes_bytes"], config)
    except RuntimeError as error:  # torch's own for CUDA and NCCL are below it
        if kind != "nccl":
            raise
        print(_gpu_failure(error), file=sys.stderr, flush=True)
        os._exit(1)  # an orderly end would wait for the other ranks, who wait for this one


def _measure(process: "_TorchRank | _MpiRank", sizes_bytes: list[int], config: dict[str, Any]) -> None:
    """Time the orders in turns."""
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
