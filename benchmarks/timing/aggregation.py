"""One rank: all-reduces of several sizes by several groups of the same processes.

Argument: a JSON file, ``{"sizes": [bytes], "repeats": R, "small_repeats": F, "together": [[name]], "in_a_row": K,
"wait_s": W, "groups": {name: {"kind": "gloo" | "plink" | "job", "order": [rank in this group of each rank] or null,
"plan": file or null, "eager": false for short messages by Gloo}}}``; ``job`` is the job's own group. All groups take
turns at every size, R times, F times as often up to 1 MB, K all-reduces each time (ranks meet before, and sums of more
than one are exact for 2, 4, 8, ... ranks only), beside each of which ranks wait W seconds; ``together``: these groups
only are made, take turns and end before the next ones. Rank 0 prints a JSON line for each group, and one for each size:
seconds by group, the slowest rank's each time, and of its own processors; into a second argument's file go the lines of
sizes. Sums are checked.
"""

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from plink.runtime.allreduce import aggregation
from plink.runtime.allreduce.algorithm_selection import NEVER
from plink.runtime.allreduce.backend import PlinkProcessGroup

Group = PlinkProcessGroup | dist.ProcessGroupGloo

_SMALL_BYTES = 1 << 20
_TIMEOUT = timedelta(seconds=300)


def join(name: str, settings: dict[str, Any], rank: int, world: int) -> Group:
    """Return one group, its ranks in an order of its own."""
    order = settings.get("order")
    own_rank = order[rank] if order else rank
    store = dist.PrefixStore(f"{name}/", dist.distributed_c10d._get_default_store())
    if settings["kind"] == "job":
        group = dist.group.WORLD
        assert isinstance(group, PlinkProcessGroup)
        return group
    if settings["kind"] == "gloo":
        return dist.ProcessGroupGloo(store, own_rank, world, _TIMEOUT)
    os.environ[aggregation.FILE] = str(settings["plan"])
    group = PlinkProcessGroup(store, own_rank, world, _TIMEOUT)
    if not settings.get("eager", True) and group._engine is not None:
        group._engine._eager = None
    if own_rank == 0:
        delegate_above = NEVER if group._engine is None else group._engine.delegation_min_bytes
        print(
            json.dumps({"group": name, "smallest_bytes": group._sizes.min_bytes, "handed_from": delegate_above}),
            flush=True,
        )
    return group


def once(group: Group, data: torch.Tensor, rank: int, world: int, in_a_row: int, wait_s: float) -> tuple[float, float]:
    """Return seconds of one all-reduce of so many, the slowest rank's, and of this rank's processors."""
    data.fill_(rank + 1)
    dist.barrier()
    began, busy = time.perf_counter(), time.process_time()
    options = dist.AllreduceOptions()
    options.asyncOp = wait_s > 0  # as dist.all_reduce() says it
    for _ in range(in_a_row):
        work = group.allreduce([data], options)
        time.sleep(wait_s)
        work.wait()
    took = torch.tensor([(time.perf_counter() - began) / in_a_row], dtype=torch.float64)
    if not torch.all(data == world * (world + 1) / 2 * world ** (in_a_row - 1)):
        raise RuntimeError(f"rank {rank}, {data.nbytes} bytes: a wrong sum")
    busy = (time.process_time() - busy) / in_a_row
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return round(took.item(), 6), round(busy, 4)


def main() -> None:
    """Measure."""
    torch.set_num_threads(1)
    with open(sys.argv[1]) as file:
        request = json.load(file)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for together in request.get("together", [list(request["groups"])]):
        groups = {name: join(name, request["groups"][name], rank, world) for name in together}
        for size in request["sizes"]:
            data = torch.empty(max(1, size // 4))
            samples: dict[str, list[tuple[float, float]]] = {name: [] for name in groups}
            small = request.get("small_repeats", 1) if size <= _SMALL_BYTES else 1
            turns = list(groups)
            for _ in range(request["repeats"] * small + 1):  # the first does not count
                for name in turns:
                    in_a_row, wait_s = request.get("in_a_row", 1), request.get("wait_s", 0.0)
                    samples[name].append(once(groups[name], data, rank, world, in_a_row, wait_s))
                turns = [*turns[1:], turns[0]]  # whom one comes after makes a difference of its own
            if rank == 0:
                seconds = {name: [sample[0] for sample in of_group[1:]] for name, of_group in samples.items()}
                cpu_s = {name: [sample[1] for sample in of_group[1:]] for name, of_group in samples.items()}
                line = json.dumps({"size_bytes": size, "seconds": seconds, "cpu_s": cpu_s})
                print(line, flush=True)
                if len(sys.argv) > 2:
                    with open(sys.argv[2], "a") as file:
                        file.write(line + "\n")
        for group in groups.values():
            if group is not dist.group.WORLD:
                group.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
