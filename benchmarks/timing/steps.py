"""One rank of a job that does nothing but all-reduce: arguments are bytes and for how many seconds.

Rank 0 prints a JSON line a step: seconds since the first one, and what it took. Sums are checked.
"""

import json
import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    """Run."""
    torch.set_num_threads(1)
    size_bytes, seconds = int(sys.argv[1]), float(sys.argv[2])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = torch.empty(size_bytes // 4)
    over = torch.zeros(1)
    began, step = time.monotonic(), 0
    while not over:
        data.fill_(rank + step % 5)
        before = time.monotonic()
        dist.all_reduce(data)
        now = time.monotonic()
        if not torch.all(data == world * (world - 1) / 2 + world * (step % 5)):
            raise RuntimeError(f"rank {rank}, step {step}: a wrong sum")
        step += 1
        if rank == 0:
            print(json.dumps({"at_s": round(now - began, 3), "s": round(now - before, 6)}), flush=True)
        over.fill_(float(rank == 0 and now - began > seconds))
        dist.broadcast(over, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
