"""Two ranks that send each other 16 MB at once over Gloo, again and again: rank 0 prints the median seconds."""

import os
import statistics
import time

import torch
import torch.distributed as dist

_BYTES, _REPEATS = 16_000_000, 40


def main() -> None:
    """Run."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    peer = 1 - dist.get_rank()
    sent, received, seconds = torch.ones(_BYTES // 4), torch.empty(_BYTES // 4), []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        works = [dist.irecv(received, peer), dist.isend(sent, peer)]
        for work in works:
            assert work is not None
            work.wait()
        seconds.append(time.perf_counter() - begin)
    dist.barrier()
    if dist.get_rank() == 0:
        print(statistics.median(seconds), os.uname().nodename, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
