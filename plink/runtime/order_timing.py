"""One rank of `plink check --measure`: the same all-reduce by several orders of the same processes, in turns.

Argument: a configuration by :func:`pack_config`. Every order has a process group, made once, in which this process has
the rank of that order. Sums are checked. Rank 0 prints a JSON line a repetition: the seconds of every order on the
slowest rank.

Runs on the hosts, which may have PyTorch and no plink: imports plink only for its backend.
"""

import base64
import datetime
import json
import os
import resource
import sys
import time
import zlib
from typing import Any

_TIMEOUT = datetime.timedelta(seconds=300)


def pack_config(config: dict[str, Any]) -> str:
    """Return a configuration as one word.

    ``kind``: "gloo" or "plink"; ``places``, shape (orders, ranks): each rank's rank in the order's group;
    ``sizes_bytes``, shape (orders,): what each order reduces; ``warm_up``, ``repeats``.
    """
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(config).encode(), 9)).decode()


def unpack_config(word: str) -> dict[str, Any]:
    """Return the configuration of :func:`pack_config`."""
    config: dict[str, Any] = json.loads(zlib.decompress(base64.urlsafe_b64decode(word)))
    return config


def _raise_file_limit() -> None:
    """Raise the limit of open files: every order has its own connections to every rank.

    A login's usual 1,024 files suffice for ten orders of forty ranks.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def main() -> None:
    """Measure as one rank."""
    import torch
    import torch.distributed

    dist: Any = torch.distributed
    config = unpack_config(sys.argv[1])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    _raise_file_limit()
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, is_master=rank == 0, timeout=_TIMEOUT
    )
    base = dist.ProcessGroupGloo(dist.PrefixStore("base/", store), rank, world, _TIMEOUT)
    groups: list[Any] = []
    for number, places in enumerate(config["places"]):
        prefix = dist.PrefixStore(f"order-{number}/", store)
        if config["kind"] == "gloo":
            groups.append(dist.ProcessGroupGloo(prefix, places[rank], world, _TIMEOUT))
        else:
            from plink.runtime.allreduce.backend import PlinkProcessGroup

            groups.append(PlinkProcessGroup(prefix, places[rank], world, _TIMEOUT))
    largest = torch.empty(max(1, max(config["sizes_bytes"]) // 4), dtype=torch.float32)
    for repeat in range(-config["warm_up"], config["repeats"]):
        seconds = torch.zeros(len(groups), dtype=torch.float64)
        for number, (group, size_bytes) in enumerate(zip(groups, config["sizes_bytes"], strict=True)):
            data = largest[: max(1, size_bytes // 4)]
            data.fill_(rank + 1)
            base.barrier().wait()
            began = time.perf_counter()
            group.allreduce([data]).wait()
            seconds[number] = time.perf_counter() - began
            if not torch.all(data == world * (world + 1) / 2):
                raise RuntimeError(f"order {number}: the all-reduce gave a wrong sum")
        base.allreduce([seconds], dist.ReduceOp.MAX).wait()
        if rank == 0 and repeat >= 0:
            print(json.dumps({"seconds": [round(value, 6) for value in seconds.tolist()]}), flush=True)
    base.barrier().wait()  # the store ends with rank 0
    for group in groups:
        if config["kind"] != "gloo":
            group.shutdown()


if __name__ == "__main__":
    main()
