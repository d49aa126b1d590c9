"""One rank: all-reduces of several sizes by several groups of the same processes.

Argument: a JSON file, ``{"sizes": [bytes], "repeats": R, "small_repeats": F, "together": [[name]], "in_a_row": K,
"groups": {name: {"kind": "gloo" | "plink", "order": [rank in this group of each rank] or null, "plan": file or null,
"eager": false for short messages by Gloo}}}``. All groups take turns at every size, R times, F times as often up to
1 MB, K all-reduces each time (ranks meet before, and sums of more than one are exact for 2, 4, 8, ... ranks only);
``together``: these groups only are made, take turns and end before the next ones. Rank 0 prints a JSON line for each
group, and one for each size: seconds by group, the slowest rank's each time; into a second argument's file go the lines
of sizes. Sums are checked.
"""

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from plink.runtime.aggengine import aggregation
from plink.runtime.aggengine.algorithm_selection import NEVER
from plink.runtime.aggengine.backend import PlinkProcessGroup

Group = PlinkProcessGroup | dist.ProcessGroupGloo

_SMALL_BYTES = 1 << 20
_TIMEOUT = timedelta(seconds=300)


def join(name: str, asked: dict[str, Any], rank: int, world: int) -> Group:
    """One group, its ranks in an order of its own."""
    order = asked.get("order")
    mine = order[rank] if order else rank
    store = dist.PrefixStore(f"{name}/", dist.distributed_c10d._get_default_store())
    if asked["kind"] == "gloo":
        return dist.ProcessGroupGloo(store, mine, world, _TIMEOUT)
    os.environ[aggregation.FILE] = str(asked["plan"])
    made = PlinkProcessGroup(store, mine, world, _TIMEOUT)
    if not asked.get("eager", True) and made._engine is not None:
        made._engine._eager = None
    if mine == 0:
        handed = NEVER if made._engine is None else made._engine.delegation_min_bytes
        print(json.dumps({"group": name, "smallest_bytes": made._sizes.min_bytes, "handed_from": handed}), flush=True)
    return made


def once(group: Group, data: torch.Tensor, rank: int, world: int, in_a_row: int) -> float:
    """Seconds of one all-reduce of so many, the slowest rank's."""
    data.fill_(rank + 1)
    dist.barrier()
    began = time.perf_counter()
    options = dist.AllreduceOptions()
    options.asyncOp = False  # as dist.all_reduce() says it
    for _ in range(in_a_row):
        group.allreduce([data], options).wait()
    took = torch.tensor([(time.perf_counter() - began) / in_a_row], dtype=torch.float64)
    if not torch.all(data == world * (world + 1) / 2 * world ** (in_a_row - 1)):
        raise RuntimeError(f"rank {rank}, {data.nbytes} bytes: a wrong sum")
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return round(took.item(), 6)


def main() -> None:
    """Measure."""
    torch.set_num_threads(1)
    with open(sys.argv[1]) as file:
        asked = json.load(file)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for together in asked.get("together", [list(asked["groups"])]):
        groups = {name: join(name, asked["groups"][name], rank, world) for name in together}
        for size in asked["sizes"]:
            data = torch.empty(max(1, size // 4))
            seconds: dict[str, list[float]] = {name: [] for name in groups}
            small = asked.get("small_repeats", 1) if size <= _SMALL_BYTES else 1
            turns = list(groups)
            for _ in range(asked["repeats"] * small + 1):  # the first does not count
                for name in turns:
                    seconds[name].append(once(groups[name], data, rank, world, asked.get("in_a_row", 1)))
                turns = [*turns[1:], turns[0]]  # whom one comes after makes a difference of its own
            if rank == 0:
                said = {name: times[1:] for name, times in seconds.items()}
                line = json.dumps({"size_bytes": size, "seconds": said})
                print(line, flush=True)
                if len(sys.argv) > 2:
                    with open(sys.argv[2], "a") as file:
                        file.write(line + "\n")
        for group in groups.values():
            group.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
