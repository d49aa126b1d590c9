"""One rank of an MPI job (mpi4py): all-reduces of float32 in place; rank 0 prints the slowest rank's seconds.

Arguments: bytes, repetitions. One round warms up; the sums are checked. Which algorithm is for MPI's own settings, for
Open MPI ``OMPI_MCA_coll_tuned_use_dynamic_rules=1`` and ``OMPI_MCA_coll_tuned_allreduce_algorithm=4`` (ring) or ``6``
(Rabenseifner).
"""

import sys
from array import array

from mpi4py import MPI


def main(size_bytes: int, repeats: int) -> None:
    """Time them."""
    world = MPI.COMM_WORLD
    elements = size_bytes // 4
    expected = world.size * (world.size + 1) / 2
    for repeat in range(-1, repeats):
        data = array("f", [world.rank + 1]) * elements
        world.Barrier()
        began = MPI.Wtime()
        world.Allreduce(MPI.IN_PLACE, [data, MPI.FLOAT])
        seconds = world.reduce(MPI.Wtime() - began, MPI.MAX)
        if data[0] != expected or data[-1] != expected:
            world.Abort(1)
        if world.rank == 0 and repeat >= 0:
            print(f"seconds: {seconds:.6f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
