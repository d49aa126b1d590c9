"""One rank of a mesh's traffic: what its groups send in a training step, one operation after the other, timed.

Argument: a configuration by :func:`pack_config`. Rank 0 prints a JSON line a repetition: ``step_s``, and ``traffic_s``,
the seconds of each traffic on the slowest rank, times as often as it occurs. Runs on hosts that may have PyTorch and no
plink.
"""

import base64
import datetime
import itertools
import json
import os
import sys
import time
import zlib
from typing import Any

_TIMEOUT = datetime.timedelta(seconds=300)
_FLOAT_BYTES = 4


def pack_config(config: dict[str, Any]) -> str:
    """Return a configuration as one word.

    ``shape``: sizes of the axes, outermost first; ``traffic``: of each the axes ``along`` (their numbers), ``kind``,
    ``bytes`` (one, or one a group or hop), and ``weight``, how many operations a step waits for; ``repeats``.
    """
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(config).encode(), 9)).decode()


def groups_along(shape: list[int], along: list[int]) -> list[list[int]]:
    """Return the ranks of all groups along some axes of a mesh, row-major, ascending in each."""
    strides = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * shape[k + 1]

    def offsets(axes: list[int]) -> list[int]:
        places = itertools.product(*(range(shape[k]) for k in axes))
        return [sum(p * strides[k] for p, k in zip(place, axes, strict=True)) for place in places]

    others = [k for k in range(len(shape)) if k not in along]
    return [[first + rank for rank in offsets(sorted(along))] for first in offsets(others)]


class _Group:
    """The group of this rank for one traffic; ``run`` makes one operation."""

    def __init__(self, dist: Any, traffic: dict[str, Any], shape: list[int], rank: int, vector: Any) -> None:
        self._dist, self._kind = dist, traffic["kind"]
        for number, ranks in enumerate(groups_along(shape, traffic["along"])):
            group = dist.new_group(ranks, timeout=_TIMEOUT)  # every rank takes part in making each group
            if rank in ranks:
                self._group, self._ranks, self._place = group, ranks, ranks.index(rank)
                sizes = traffic["bytes"]
                size = sizes[number] if len(sizes) > 1 and self._kind != "p2p" else sizes[0]
        n = len(self._ranks)
        elements = max(1, int(size) // _FLOAT_BYTES)
        if self._kind == "p2p":
            self._hops = [sizes[hop if len(sizes) > 1 else 0] for hop in range(n - 1)]
            self._sent, self._received = (
                [vector(max(1, int(size) // _FLOAT_BYTES)) for size in self._hops] for _ in range(2)
            )
        elif self._kind == "all-reduce":
            self._data = vector(elements)
        else:
            share = elements if self._kind == "ring" else max(1, elements // n)
            count = n if self._kind in ("all-to-all", "all-gather", "reduce-scatter") else 1
            self._data, self._part = vector(share * count), vector(share)
            self._other = vector(share * count if self._kind == "all-to-all" else share)
            self._parts = [each.chunk(count) for each in (self._data, self._other)]

    def run(self) -> None:
        dist, n = self._dist, len(self._ranks)
        if n == 1:
            return
        if self._kind == "all-reduce":
            dist.all_reduce(self._data, group=self._group)
        elif self._kind == "all-to-all" and dist.get_backend() == "nccl":
            dist.all_to_all_single(self._other, self._data, group=self._group)
        elif self._kind == "all-to-all":  # Gloo's own sends before it receives, so each pair's two ways take turns
            places = [(self._place + k) % n for k in range(1, n)]
            (sent, received), ranks, group = self._parts, self._ranks, self._group
            self._wait(
                [dist.P2POp(dist.irecv, received[place], ranks[place], group) for place in reversed(places)]
                + [dist.P2POp(dist.isend, sent[place], ranks[place], group) for place in places]
            )
        elif self._kind == "p2p":
            sends, receives = [], []
            for hop in (self._place - 1, self._place):
                if 0 <= hop < n - 1:
                    peer = self._ranks[hop if hop < self._place else hop + 1]
                    sends.append(dist.P2POp(dist.isend, self._sent[hop], peer, self._group))
                    receives.append(dist.P2POp(dist.irecv, self._received[hop], peer, self._group))
            self._wait(receives + sends)  # a send of Gloo writes before it returns: the other way would wait for it
        elif self._kind != "ring" and dist.get_backend() == "nccl":
            if self._kind == "all-gather":
                dist.all_gather_into_tensor(self._data, self._part, group=self._group)
            else:
                dist.reduce_scatter_tensor(self._part, self._data, group=self._group)
        else:  # rings: of whole vectors, and where the library has none of its own
            following, previous = self._ranks[(self._place + 1) % n], self._ranks[self._place - 1]
            for _ in range(n - 1):
                receive = dist.P2POp(dist.irecv, self._other, previous, self._group)
                self._wait([receive, dist.P2POp(dist.isend, self._part, following, self._group)])
                if self._kind == "reduce-scatter":
                    self._part += self._other
                else:
                    self._part, self._other = self._other, self._part

    def _wait(self, operations: list[Any]) -> None:
        for work in self._dist.batch_isend_irecv(operations):
            work.wait()


def main(word: str) -> None:
    """Measure as one rank."""
    import torch
    import torch.distributed

    dist: Any = torch.distributed
    config = json.loads(zlib.decompress(base64.urlsafe_b64decode(word)))
    torch.set_num_threads(1)
    on_gpu = torch.cuda.is_available() and dist.is_nccl_available()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local_rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=_TIMEOUT)

    def vector(elements: int) -> Any:
        return torch.ones(elements, dtype=torch.float32, device=device)

    def finished() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    groups = [_Group(dist, traffic, config["shape"], rank, vector) for traffic in config["traffic"]]
    for repeat in range(-1, config["repeats"]):  # the first makes connections
        seconds = []
        for group, traffic in zip(groups, config["traffic"], strict=True):
            operations = min(4, max(1, round(traffic["weight"])))  # in a row, as a step has them
            dist.all_reduce(vector(1))
            began = finished()
            for _ in range(operations):
                group.run()
            seconds.append((finished() - began) / operations)
        slowest = torch.tensor(seconds, dtype=torch.float64, device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        weighted = [s * t["weight"] for s, t in zip(slowest.tolist(), config["traffic"], strict=True)]
        if rank == 0 and repeat >= 0:
            print(json.dumps({"step_s": sum(weighted), "traffic_s": weighted}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
