"""One rank that times all-reduces of several sizes; runs on the hosts under ``plink launch``.

Arguments: repetitions, sizes in bytes. Rank 0 prints a line of JSON a size: ``bytes``, ``seconds`` of each repetition
(the slowest rank's, first one left out), ``idle``: the share of this machine's processor time that was idle meanwhile.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def _processor_time() -> tuple[int, int]:
    """Return (idle, all) ticks of the machine's cores so far."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return ticks[3] + ticks[4], sum(ticks[:8])


def main() -> None:
    """Time, check every sum, print."""
    repeats, *sizes = (int(word) for word in sys.argv[1:])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for size in sizes:
        data, seconds = torch.empty(size // 4), []
        idle, busy = _processor_time()
        for _ in range(repeats + 1):
            data.fill_(rank + 1)
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(data)
            took = torch.tensor([time.perf_counter() - began])
            if not torch.all(data == world * (world + 1) / 2):
                raise RuntimeError(f"an all-reduce of {size} bytes gave a wrong sum")
            dist.all_reduce(took, dist.ReduceOp.MAX)
            seconds.append(round(took.item(), 5))
        idle_after, all_after = _processor_time()
        if rank == 0:
            share = (idle_after - idle) / max(1, all_after - busy)
            print(json.dumps({"bytes": size, "seconds": seconds[1:], "idle": round(share, 3)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
