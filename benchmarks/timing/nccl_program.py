"""One rank of an unmodified program that all-reduces on its GPU, for :mod:`benchmarks.nccl_lab`: by NCCL, or by what
``plink launch --backend`` puts in its place. Arguments: result, "nccl" or "gloo", repetitions, bytes of each vector."""

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed

_dist: Any = torch.distributed


def main() -> None:
    """Time each size; rank 0 writes the median seconds by size."""
    result, backend, repeats, *sizes = sys.argv[1:]
    is_nccl = backend == "nccl"
    device = torch.device("cuda:0" if is_nccl else "cpu")
    _dist.init_process_group(backend, **({"device_id": device} if is_nccl else {}))
    medians = {}
    for size in map(int, sizes):
        data, seconds = torch.empty(size // 4, device=device), []
        for _ in range(1 + int(repeats)):
            data.fill_(1.0)
            _dist.barrier()
            if is_nccl:
                torch.cuda.synchronize()
            began = time.perf_counter()
            _dist.all_reduce(data)
            if data[0].item() != _dist.get_world_size():  # copies from the GPU, so it waits for the sum
                raise RuntimeError("an all-reduce gave a wrong sum")
            seconds.append(time.perf_counter() - began)
        medians[size] = round(statistics.median(seconds[1:]), 6)
    if os.environ["RANK"] == "0":
        Path(result).write_text(json.dumps(medians))
    _dist.destroy_process_group()


if __name__ == "__main__":
    main()
