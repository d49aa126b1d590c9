"""One rank of :mod:`benchmarks.timing.gloo`; runs on the hosts under ``plink launch``.

A process group of its own for every order, made once. The sums are checked.
"""

import datetime
import os
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

_TIMEOUT = datetime.timedelta(seconds=120)


def measure(groups: list[dist.ProcessGroupGloo], elements: int, warm_up: int, repeats: int) -> torch.Tensor:
    """Seconds, shape (orders, repeats), the slowest rank's; orders take turns, so that what drifts hits them alike."""
    data = torch.empty(elements, dtype=torch.float32)
    seconds = torch.zeros(len(groups), repeats, dtype=torch.float64)
    for repeat in range(-warm_up, repeats):
        for number, group in enumerate(groups):
            data.fill_(group.rank() + 1)
            group.barrier().wait()
            began = time.perf_counter()
            group.allreduce([data]).wait()
            took = time.perf_counter() - began
            if not torch.all(data == group.size() * (group.size() + 1) / 2):
                raise RuntimeError(f"order {number}: the all-reduce gave a wrong sum")
            if repeat >= 0:
                seconds[number, repeat] = took
    groups[0].allreduce([seconds], dist.ReduceOp.MAX).wait()
    return seconds


def main() -> None:
    """Arguments: orders (host names, an order a line), result, bytes, warm-up rounds, repetitions."""
    orders = [line.split() for line in Path(sys.argv[1]).read_text().splitlines()]
    size_bytes, warm_up, repeats = (int(word) for word in sys.argv[3:])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    here = socket.gethostname()
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, is_master=rank == 0, timeout=_TIMEOUT
    )
    groups = [
        dist.ProcessGroupGloo(dist.PrefixStore(f"order-{number}", store), order.index(here), world, _TIMEOUT)
        for number, order in enumerate(orders)
    ]
    seconds = measure(groups, size_bytes // 4, warm_up, repeats)
    if rank == 0:
        lines = (" ".join(f"{value:.6f}" for value in row) for row in seconds.tolist())
        Path(sys.argv[2]).write_text("\n".join(lines) + "\n")
    groups[0].barrier().wait()  # the store ends with rank 0


if __name__ == "__main__":
    main()
