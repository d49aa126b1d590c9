"""One process of MXNet's parameter server (``dist_sync``), in an environment of its own: it imports nothing of plink's.

Arguments: sizes in bytes, joined by commas, repetitions, bytes of a key. A worker pushes and pulls a vector's keys one
after the other, and prints a JSON line for each size: its seconds each time, from a barrier of all. Scheduler and
server serve until the workers are done.
"""

import json
import sys
import time
from typing import Any

import mxnet as mx  # type: ignore[import-not-found]
import numpy as np


def exchange(store: Any, vectors: list[Any], sums: list[Any], first_key: int) -> float:
    """Return seconds of one exchange."""
    for vector in vectors:
        vector[:] = store.rank + 1  # a pull leaves the sum in what was pushed, too
    mx.nd.waitall()
    store._barrier()
    began = time.perf_counter()
    for place, (vector, total) in enumerate(zip(vectors, sums, strict=True)):  # as MXNet's Trainer does
        store.push(first_key + place, vector, priority=-place)
        store.pull(first_key + place, out=total, priority=-place)
    mx.nd.waitall()
    return time.perf_counter() - began


def main() -> None:
    """Measure."""
    sizes, repeats, key_bytes = [int(word) for word in sys.argv[1].split(",")], int(sys.argv[2]), int(sys.argv[3])
    store = mx.kv.create("dist_sync")  # a server or the scheduler does not come back from the import
    first_key = 0
    for size in sizes:
        edges = np.linspace(0, size // 4, max(1, size // key_bytes) + 1).astype(int)
        vectors = [mx.nd.zeros((int(n),)) for n in np.diff(edges)]
        sums = [mx.nd.zeros(vector.shape) for vector in vectors]
        store.init(list(range(first_key, first_key + len(vectors))), sums)
        seconds = [exchange(store, vectors, sums, first_key) for _ in range(repeats + 1)][1:]
        expected = store.num_workers * (store.num_workers + 1) / 2
        assert all((total == expected).asnumpy().all() for total in sums), "a wrong sum"
        first_key += len(vectors)
        print(json.dumps({"size_bytes": size, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
