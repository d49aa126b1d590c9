"""One rank of a training that waits for its computing, then all-reduces its layers; runs under ``plink launch``.

Arguments: repetitions; sizes of the layers, numbers separated by commas; seconds of computing, likewise. Rank 0 prints
a line of JSON for each of these: ``wait_s``, ``seconds`` of each step (the slowest rank's, the first step left out).
"""

import json
import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    """Time, check every sum, print."""
    repeats = int(sys.argv[1])
    layers = [torch.empty(int(size)) for size in sys.argv[2].split(",")]
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for wait_s in map(float, sys.argv[3].split(",")):
        seconds = []
        for _ in range(repeats + 1):
            for layer in layers:
                layer.fill_(rank + 1)
            dist.barrier()
            began = time.perf_counter()
            time.sleep(wait_s)
            for layer in reversed(layers):  # as a backward pass has them
                dist.all_reduce(layer)
            took = torch.tensor([time.perf_counter() - began])
            if not all(torch.all(layer == world * (world + 1) / 2) for layer in layers):
                raise RuntimeError("an all-reduce gave a wrong sum")
            dist.all_reduce(took, dist.ReduceOp.MAX)
            seconds.append(round(took.item(), 5))
        if rank == 0:
            print(json.dumps({"wait_s": wait_s, "seconds": seconds[1:]}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
