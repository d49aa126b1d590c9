"""Benchmark of PyTorch's all-reduce as a job: ``plink launch .../allreduce_benchmark.py --size-bytes 8000000``.

Rank 0 prints one JSON line with the seconds of every counted repetition on the slowest rank. The sum is checked.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist


def measure(size_bytes: int, repeats: int, warm_up: int) -> list[float]:
    """Return the seconds of each repetition, the maximum over the ranks. float32, sum; raises when a sum is wrong."""
    rank, world = dist.get_rank(), dist.get_world_size()
    data = torch.empty(size_bytes // 4, dtype=torch.float32)
    seconds = torch.zeros(repeats, dtype=torch.float64)
    for repeat in range(-warm_up, repeats):
        data.fill_(rank + 1)
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(data)
        took = time.perf_counter() - began
        if not torch.all(data == world * (world + 1) / 2):
            raise RuntimeError(f"rank {rank}: the all-reduce gave a wrong sum")
        if repeat >= 0:
            seconds[repeat] = took
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return [round(value, 6) for value in seconds.tolist()]


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size-bytes", type=int, default=8_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1)
    parser.add_argument("--backend", default="gloo")
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    seconds = measure(options.size_bytes, options.repeats, options.warm_up)
    if dist.get_rank() == 0:
        print(json.dumps({"size_bytes": options.size_bytes, "seconds": seconds}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
