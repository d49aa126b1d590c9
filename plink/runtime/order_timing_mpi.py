"""Timing of orders as :mod:`plink.runtime.order_timing`, by MPI (mpi4py): every order is a communicator of its own.

MPI's own settings select the algorithm.
"""

import json
import sys
from array import array

from mpi4py import MPI


def main(config: dict[str, object]) -> None:
    """Measure; rank 0 prints a JSON line a repetition."""
    world = MPI.COMM_WORLD
    places, sizes_bytes, warm_up, repeats = (config[key] for key in ("places", "sizes_bytes", "warm_up", "repeats"))
    assert isinstance(places, list)
    assert isinstance(sizes_bytes, list)
    assert isinstance(warm_up, int)
    assert isinstance(repeats, int)
    orders = [world.Split(0, row[world.rank]) for row in places]
    expected = world.size * (world.size + 1) / 2
    for repeat in range(-warm_up, repeats):
        own_seconds = array("d")
        for order, size_bytes in zip(orders, sizes_bytes, strict=True):
            elements = max(1, size_bytes // 4)
            data = array("f", [world.rank + 1]) * elements
            world.Barrier()
            began = MPI.Wtime()
            order.Allreduce(MPI.IN_PLACE, [data, MPI.FLOAT])
            own_seconds.append(MPI.Wtime() - began)
            if data.count(expected) != elements:
                print(f"rank {world.rank}: the all-reduce gave a wrong sum", file=sys.stderr, flush=True)
                world.Abort(1)
        slowest = array("d", own_seconds)
        world.Allreduce(own_seconds, slowest, MPI.MAX)
        if world.rank == 0 and repeat >= 0:
            print(json.dumps({"seconds": [round(value, 6) for value in slowest]}), flush=True)


if __name__ == "__main__":
    import base64
    import zlib

    # As order_timing.unpacked, which may not be on the hosts.
    main(json.loads(zlib.decompress(base64.urlsafe_b64decode(sys.argv[1]))))
